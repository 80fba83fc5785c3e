"""Distances between points, in the plane and on the sphere, and squared bounds that save them.

On the sphere points are compared as unit vectors, so that the antimeridian and the poles need no
special case. Two points whose chord is below `inner_bound` are within the distance, beyond
`outer_bound` they are not; between the two, where rounding could matter, `distance` decides.

All functions take points as rows of two arrays: `xy` as given (for the sphere: longitude, latitude)
and `position` in the plane or as unit vectors.
"""

from __future__ import annotations

import math
from typing import Any

import numba

from rivermouth.kernels.arrays import Floats
from rivermouth.kernels.spatial.sphere import RADIUS, great_circle

# how far a chord and a great circle may differ by rounding, with a margin of ten and more: this
# share of it, and this much, which is 60 nanometres on the ground
SLACK = 1e-9
TINY = 1e-14
_LARGE = 1e150  # a larger number has no square


@numba.njit(cache=True, inline="always")
def squared_distance(position: Floats, a: int, other: Floats, b: int) -> Any:
    """The squared distance of two positions."""
    x, y = position[a, 0] - other[b, 0], position[a, 1] - other[b, 1]
    total = x * x + y * y
    if position.shape[1] == 3:
        z = position[a, 2] - other[b, 2]
        total += z * z
    return total


@numba.njit(cache=True, inline="always")
def chord(limit: float, dims: int) -> float:
    """A distance between positions: as it is, or the chord of a great circle."""
    if dims == 2:
        return limit
    return 2.0 if limit >= math.pi * RADIUS else 2.0 * math.sin(limit / (2.0 * RADIUS))


@numba.njit(cache=True, inline="always")
def outer_bound(limit: float, dims: int) -> float:
    """The squared chord beyond which nothing is within `limit`."""
    far = chord(limit, dims) * (1.0 + SLACK) + TINY
    return far * far


@numba.njit(cache=True, inline="always")
def inner_bound(limit: float, dims: int) -> float:
    """The squared chord up to which everything is within `limit`; negative for nothing."""
    near = chord(limit, dims) * (1.0 - SLACK) - TINY
    return near * near if 0.0 < near < _LARGE else -1.0


@numba.njit(cache=True, inline="always")
def distance(xy: Floats, a: int, other: Floats, b: int, dims: int) -> float:
    """The distance in the coordinates' unit, or in metres along a great circle."""
    if dims == 3:
        return great_circle(xy[a, 0], xy[a, 1], other[b, 0], other[b, 1])
    dx, dy = xy[a, 0] - other[b, 0], xy[a, 1] - other[b, 1]
    return math.sqrt(dx * dx + dy * dy)
