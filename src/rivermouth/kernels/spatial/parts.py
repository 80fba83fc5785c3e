"""Shapes as parts, and parts as edges: points, lines and polygons alike, in flat arrays.

A *part* is a point, a line or a polygon; a shape has one or many. The edges of a part stand
together, ring by ring, in the order in which they were drawn. A point is an edge without length.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import shapely

from rivermouth.kernels.arrays import Bools, Floats, Ints, Shapes

_POINT, _POLYGON, _COLLECTIONS = 0, 3, 4  # shapely's type ids; those of many parts come last
_COLLECTED: tuple[Callable[..., Any], ...] = (
    shapely.multipoints, shapely.multilinestrings, shapely.multipolygons,
    shapely.geometrycollections,
)  # fmt: skip


@dataclass(frozen=True)
class Parts:
    """The edges of all shapes.

    Parameters
    ----------
    ends
        The edges, four numbers each: ax, ay, bx, by.
    ring, part
        The ring (or line, or point) and the part of each edge, both counted from 0.
    row, is_area
        The shape of each part, and whether it is a polygon.
    """

    ends: Floats
    ring: Ints
    part: Ints
    row: Ints
    is_area: Bools

    @property
    def edge_start(self) -> Ints:
        """Where the edges of each part start, and where the last one's end."""
        return np.searchsorted(self.part, np.arange(len(self.row) + 1))


def parts_of(shapes: Shapes) -> Parts:
    """The parts of valid shapes, in their order; None and empty ones have none."""
    row = np.flatnonzero(~(shapely.is_missing(shapes) | shapely.is_empty(shapes)))
    parts = shapes[row]
    while (shapely.get_type_id(parts) >= _COLLECTIONS).any():  # collections may hold collections
        parts, of = shapely.get_parts(parts, return_index=True)
        full = ~shapely.is_empty(parts)
        parts, row = parts[full], row[of[full]]
    kinds = shapely.get_type_id(parts)
    polygons, points = np.flatnonzero(kinds == _POLYGON), np.flatnonzero(kinds == _POINT)
    lines = np.flatnonzero((kinds != _POLYGON) & (kinds != _POINT))
    rings, of = shapely.get_rings(parts[polygons], return_index=True)
    ends, line = _segments(np.concatenate([rings, parts[lines]]))
    at = shapely.get_coordinates(parts[points])
    ends = np.concatenate([ends, np.hstack([at, at])])
    ring = np.concatenate([line, len(rings) + len(lines) + np.arange(len(at))])
    part = np.concatenate([np.concatenate([polygons[of], lines])[line], points])
    order = np.argsort(part, kind="stable")
    return Parts(ends[order], _numbered(ring[order]), part[order], row, kinds == _POLYGON)


def without_empty_members(shapes: Shapes) -> Shapes:
    """The same places: collections that are not empty lose their members that are.

    GEOS 3.14 ends the process when a prepared polygon is asked whether it contains a collection
    that has an empty member and a point on the polygon's boundary.

    Examples
    --------
    >>> print(without_empty_members(shapely.from_wkt(["MULTIPOINT ((1 1), EMPTY)"]))[0])
    MULTIPOINT ((1 1))
    """
    kinds = shapely.get_type_id(shapes)
    if not (kinds >= _COLLECTIONS).any():
        return shapes
    made = shapes.copy()
    for kind, collected in enumerate(_COLLECTED, _COLLECTIONS):
        rows = np.flatnonzero(kinds == kind)
        members, of = shapely.get_parts(shapes[rows], return_index=True)
        full = without_empty_members(members)
        keep = ~shapely.is_empty(full)
        changed = np.unique(of[~keep if full is members else ~keep | (full != members)])
        again = keep & np.isin(of, changed)
        full, of = full[again], np.searchsorted(changed, of[again])
        some, of = np.unique(of, return_inverse=True)  # of collections of nothing but empties none
        if len(some):
            made[rows[changed[some]]] = collected(full, indices=of)
    return made


def _segments(lines: Shapes) -> tuple[Floats, Ints]:
    """The edges of lines and rings, and the line of each."""
    xy, line = shapely.get_coordinates(lines, return_index=True)
    follows = line[1:] == line[:-1]
    ends = np.hstack([xy[:-1], xy[1:]])[follows] if len(xy) else np.empty((0, 4))
    return ends, line[:-1][follows].astype(np.int64)


def _numbered(ring: Ints) -> Ints:
    """The rings counted in the order in which they stand."""
    if not len(ring):
        return ring
    return np.concatenate([[0], np.cumsum(ring[1:] != ring[:-1])])
