"""The same questions asked of shapely alone, in the fastest way it has without an index of ours.

Each function takes the table's shapes, builds what is built once, and returns what answers a batch
of points with pairs of row numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import shapely

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Ask = Callable[[Floats, Floats], tuple[Ints, Ints]]

RADIUS = 6_371_008.7714


def within(shapes: npt.NDArray[Any]) -> Ask:
    """Boxes from the STRtree, then the prepared polygon; `query(predicate=)` prepares the point."""
    tree = _tree(shapes)
    shapely.prepare(shapes)

    def ask(x: Floats, y: Floats) -> tuple[Ints, Ints]:
        left, right = tree.query(shapely.points(x, y))
        keep = shapely.contains_xy(shapes[right], x[left], y[left])
        return left[keep], right[keep]

    return ask


def dwithin(shapes: npt.NDArray[Any], *, distance: float) -> Ask:
    """The STRtree's own ``dwithin``."""
    tree = _tree(shapes)

    def ask(x: Floats, y: Floats) -> tuple[Ints, Ints]:
        left, right = tree.query(shapely.points(x, y), predicate="dwithin", distance=distance)
        return left, right

    return ask


def dwithin_meters(shapes: npt.NDArray[Any], *, meters: float) -> Ask:
    """A box of degrees around each point, then the haversine formula; not near the poles."""
    tree = _tree(shapes)
    at_x, at_y = shapely.get_x(shapes), shapely.get_y(shapes)

    def ask(x: Floats, y: Floats) -> tuple[Ints, Ints]:
        high = np.degrees(meters / RADIUS) * (1 + 1e-9)
        wide = high / np.cos(np.radians(np.abs(y) + high))
        left, right = tree.query(shapely.box(x - wide, y - high, x + wide, y + high))
        keep = haversine(x[left], y[left], at_x[right], at_y[right]) <= meters
        return left[keep], right[keep]

    return ask


def nearest(shapes: npt.NDArray[Any]) -> Ask:
    """The STRtree's own search for the one nearest; it has none for several."""
    tree = _tree(shapes)

    def ask(x: Floats, y: Floats) -> tuple[Ints, Ints]:
        left, right = tree.query_nearest(shapely.points(x, y), all_matches=False)
        return left, right

    return ask


def _tree(shapes: npt.NDArray[Any]) -> shapely.STRtree:
    tree = shapely.STRtree(shapes)
    tree.query(shapely.Point(0, 0))  # it is built when it is first asked
    return tree


def haversine(lon: Floats, lat: Floats, other_lon: Floats, other_lat: Floats) -> Floats:
    """Great-circle distance in metres."""
    up, along = np.radians(other_lat - lat) / 2, np.radians(other_lon - lon) / 2
    shrink = np.cos(np.radians(lat)) * np.cos(np.radians(other_lat))
    chord: Floats = np.sqrt(np.sin(up) ** 2 + shrink * np.sin(along) ** 2)
    return 2 * RADIUS * np.arcsin(chord)
