"""How far two points are apart, in the plane and on the sphere, and when they surely are near.

On the sphere points are compared as unit vectors, so that the antimeridian and the poles are
places like any other. A chord decides where it is surely short or surely long enough; between
the two, where rounding could matter, the distance itself does.

All functions take points as rows of two arrays: `xy` as they came (for the sphere: longitude,
latitude), and `position` where they stand in the space of chords, of two or three dimensions.
"""

from __future__ import annotations

import math
from typing import Any

import numba

from rivermouth.kernels.spatial.geometry import Floats
from rivermouth.kernels.spatial.sphere import RADIUS, great_circle

# how far a chord and a great circle may disagree by rounding, with a margin of ten and more:
# this share of it, and this much, which is 60 nanometres on the ground
SLACK = 1e-9
TINY = 1e-14
_LARGE = 1e150  # a larger number has no square


@numba.njit(cache=True, inline="always")
def apart(position: Floats, a: int, other: Floats, b: int) -> Any:
    """The squared distance of two positions."""
    x, y = position[a, 0] - other[b, 0], position[a, 1] - other[b, 1]
    total = x * x + y * y
    if position.shape[1] == 3:
        z = position[a, 2] - other[b, 2]
        total += z * z
    return total


@numba.njit(cache=True, inline="always")
def chord(distance: float, dims: int) -> float:
    """A distance in the space of positions: as it is, or the chord of a great circle."""
    if dims == 2:
        return distance
    return 2.0 if distance >= math.pi * RADIUS else 2.0 * math.sin(distance / (2.0 * RADIUS))


@numba.njit(cache=True, inline="always")
def reach(distance: float, dims: int) -> float:
    """The squared chord beyond which nothing can be within `distance`."""
    far = chord(distance, dims) * (1.0 + SLACK) + TINY
    return far * far


@numba.njit(cache=True, inline="always")
def core(distance: float, dims: int) -> float:
    """The squared chord up to which all is within `distance`; negative for nothing."""
    near = chord(distance, dims) * (1.0 - SLACK) - TINY
    return near * near if 0.0 < near < _LARGE else -1.0


@numba.njit(cache=True, inline="always")
def exact(xy: Floats, a: int, other: Floats, b: int, dims: int) -> float:
    """The distance itself: in the coordinates' unit, or in metres of a great circle."""
    if dims == 3:
        return great_circle(xy[a, 0], xy[a, 1], other[b, 0], other[b, 1])
    dx, dy = xy[a, 0] - other[b, 0], xy[a, 1] - other[b, 1]
    return math.sqrt(dx * dx + dy * dy)
