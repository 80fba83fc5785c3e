"""Made-up tables and points, the same from the same seed: small polygons, wiggly ones, places.

Everything lies in the unit square, except `on_earth`, which moves it to a box of longitude and
latitude around Beijing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import shapely

from benchmarks.harness.experiment import SEED

Floats = npt.NDArray[np.float64]
BOX = (115.5, 39.5, 117.0, 41.0)  #: 128 km x 167 km


def places(count: int, *, stream: int) -> tuple[Floats, Floats]:
    """So many points spread evenly over the unit square; `stream` tells independent sets apart."""
    x, y = _random(stream).random((2, count))
    return x, y


def on_earth(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """The same points in longitude and latitude."""
    west, south, east, north = BOX
    return west + x * (east - west), south + y * (north - south)


def small_polygons(
    count: int, *, total: int | None = None, stream: int | None = None
) -> npt.NDArray[Any]:
    """So many polygons of 5 to 12 corners that together cover the unit square about once.

    They overlap as buildings' catchments do: a point lies in none, one or several. With a `total`
    they are a part of so many that do, and `stream` tells the parts from each other.
    """
    random = _random(count if stream is None else stream)
    corners = random.integers(5, 13, count)
    owner = np.repeat(np.arange(count), corners)
    first = np.repeat(np.cumsum(corners) - corners, corners)
    turn = (np.arange(len(owner)) - first + random.uniform(0.1, 0.9, len(owner))) / corners[owner]
    reach = 0.64 / np.sqrt(total or count) * random.uniform(0.7, 1.3, len(owner))
    middle = random.random((count, 2))[owner]
    ring = middle + reach[:, None] * _circle(turn)
    return shapely.polygons(shapely.linearrings(ring, indices=owner))


def wiggly_polygons(vertices: int, *, side: int = 2) -> npt.NDArray[Any]:
    """``side * side`` polygons of so many vertices, with borders as rough as a coast's.

    The outline is a circle whose radius is moved by waves of all lengths, the longer the
    stronger, so that it never crosses itself.
    """
    return np.array([_wiggly(vertices, cell, side) for cell in range(side * side)])


def _wiggly(vertices: int, cell: int, side: int) -> Any:
    random = _random(vertices * side * side + cell)
    waves = np.zeros(vertices // 2 + 1, complex)
    order = np.arange(1, len(waves))
    waves[1:] = random.normal(size=(len(order), 2)).view(complex)[:, 0] / order**1.5
    wave = np.fft.irfft(waves, vertices)
    radius = 0.4 / side * (1 + 0.5 * wave / np.abs(wave).max())
    middle = (np.array([cell % side, cell // side]) + 0.5) / side
    return shapely.Polygon(middle + radius[:, None] * _circle(np.arange(vertices) / vertices))


def _random(stream: int) -> np.random.Generator:
    return np.random.default_rng((SEED, stream))


def _circle(turn: Floats) -> Floats:
    return np.column_stack((np.cos(2 * np.pi * turn), np.sin(2 * np.pi * turn)))
