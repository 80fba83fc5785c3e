"""Any geometry against any geometry: shapely's STRtree proposes, prepared geometries decide."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import shapely

from rivermouth.kernels.arrays import Bools, Floats, Ints, Shapes
from rivermouth.kernels.spatial.geometry import Geometries
from rivermouth.spec.conditions import INVERSE

#: times a distance that is then measured: GEOS rounds in each kind of search in its own way
FARTHER = 1 + 1e-12
#: share of a coordinate by which distances may be off, with a margin of ten and more
_ROUNDING = 1e-14
_CHUNK = 1 << 20  # pairs tested at once where every pair must be


@dataclass(frozen=True)
class StrTree:
    """The table's shapes, None where a row has none; the tree is built when it is first used."""

    shapes: Shapes

    @cached_property
    def present(self) -> Bools:
        """Which rows have a shape."""
        return np.asarray(~shapely.is_missing(self.shapes))

    @cached_property
    def tree(self) -> Any:
        """The STRtree over all shapes, which are prepared for many tests."""
        shapely.prepare(self.shapes)
        return shapely.STRtree(self.shapes)

    def match(
        self, left: Geometries, predicate: str, pattern: str | None = None
    ) -> tuple[Ints, Ints]:
        """Pairs (left row, table row) for which `predicate` holds, by left row then table row."""
        if predicate == "disjoint":
            return self._complement(left, *self.match(left, "intersects"))
        holds = getattr(shapely, INVERSE[predicate]) if pattern is None else _relates(pattern)
        if pattern is not None and may_be_disjoint(pattern):
            return self._all_pairs(left, holds)
        return self._filter(left, *_sorted(*self.tree.query(left.shapes)), holds)

    def within(self, left: Geometries, limit: float) -> tuple[Ints, Ints]:
        """Pairs at most `limit` apart in the plane."""
        probe, far = left.shapes, self._farther(limit)
        li, ri = _sorted(*self.tree.query(probe, predicate="dwithin", distance=far))
        keep = np.zeros(len(li), dtype=bool)
        if (surely := 2.0 * limit - far) > 0.0:
            keep = np.asarray(shapely.dwithin(self.shapes[ri], probe[li], surely))
        close = np.flatnonzero(~keep)
        keep[close] = within(probe[li[close]], self.shapes[ri[close]], limit)
        return li[keep], ri[keep]

    def nearest(self, left: Geometries, k: int, limit: float | None) -> tuple[Ints, Ints, Floats]:
        """The `k` nearest rows of each left row, nearest first, ties in the table's order."""
        rows = np.flatnonzero(left.valid)
        if not len(rows) or not self.present.any():
            return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
        probe = left.shapes[rows]
        found, distance = self.tree.query_nearest(probe, return_distance=True, all_matches=False)
        reach = np.full(len(probe), np.inf)  # of shapes so far away that their distance overflows
        reach[found[0]] = distance
        wanted = min(k, int(np.count_nonzero(self.present)))
        reach = self._farther(self._reach(probe, reach, wanted, limit))
        near, right = _sorted(*self.tree.query(probe, predicate="dwithin", distance=reach))
        with np.errstate(over="ignore"):  # infinitely far is far
            distance = shapely.distance(self.shapes[right], probe[near])
        keep, distance = nearest_of(near, right, distance, k, limit)
        return rows[near[keep]], right[keep], distance

    def _farther(self, distance: Any) -> Any:
        return distance * FARTHER + self._rounding

    @cached_property
    def _rounding(self) -> float:
        return rounding(self.shapes)

    def _reach(self, probe: Shapes, reach: Floats, wanted: int, limit: float | None) -> Floats:
        """For each shape, a distance within which `wanted` rows lie, or `limit` if fewer do."""
        most = np.inf if limit is None else limit
        low_x, low_y, high_x, high_y = shapely.total_bounds(self.shapes[self.present])
        extent = float(max(high_x - low_x, high_y - low_y))
        unit = extent / len(self.shapes) or 1.0
        reach = np.minimum(reach, most)
        short = np.arange(len(probe)) if wanted > 1 else np.empty(0, np.int64)
        while len(short):
            hits = self.tree.query(probe[short], predicate="dwithin", distance=reach[short])[0]
            is_short = np.bincount(hits, minlength=len(short)) < wanted
            short = short[is_short & (reach[short] < most)]
            reach[short] = np.minimum(np.maximum(reach[short] * 2, unit), most)
        return reach

    def _filter(
        self, left: Geometries, li: Ints, ri: Ints, holds: Callable[[Shapes, Shapes], Any]
    ) -> tuple[Ints, Ints]:
        _ = self.tree  # prepares the table's shapes, which are the first argument of `holds`
        keep = holds(self.shapes[ri], left.shapes[li])
        return li[keep], ri[keep]

    def _complement(self, left: Geometries, li: Ints, ri: Ints) -> tuple[Ints, Ints]:
        """Every pair of valid rows that is not among these."""
        rows, columns = np.flatnonzero(left.valid), np.flatnonzero(self.present)
        others = np.ones((len(rows), len(columns)), dtype=bool)
        others[np.searchsorted(rows, li), np.searchsorted(columns, ri)] = False
        which = np.nonzero(others)
        return rows[which[0]], columns[which[1]]

    def _all_pairs(
        self, left: Geometries, holds: Callable[[Shapes, Shapes], Any]
    ) -> tuple[Ints, Ints]:
        rows, columns = np.flatnonzero(left.valid), np.flatnonzero(self.present)
        step = max(1, _CHUNK // max(1, len(columns)))
        found = [(np.empty(0, np.int64), np.empty(0, np.int64))]
        for start in range(0, len(rows), step):
            part = rows[start : start + step]
            li, ri = np.repeat(part, len(columns)), np.tile(columns, len(part))
            found.append(self._filter(left, li, ri, holds))
        return np.concatenate([li for li, _ in found]), np.concatenate([ri for _, ri in found])


def rounding(shapes: Shapes) -> float:
    """By how much a search may take the shapes for farther off than they are."""
    if not len(shapes):
        return 0.0
    bounds = np.abs(shapely.total_bounds(shapes))  # NaN where all are empty
    return float(np.nan_to_num(bounds).max()) * _ROUNDING


def within(shapes: Shapes, others: Shapes, limit: float) -> Bools:
    """Whether each pair's distance is at most `limit`.

    GEOS's distance of two shapes may depend on their order by the last bits: the smaller counts.
    Its own test for a distance, besides, compares boxes first and rounds their coordinates.
    """
    with np.errstate(over="ignore"):  # infinitely far is far
        distance = np.asarray(shapely.distance(shapes, others))
        close = np.flatnonzero((distance > limit) & (distance * (2.0 - FARTHER) <= limit))
        distance[close] = shapely.distance(others[close], shapes[close])
    return np.asarray(distance <= limit)


def may_be_disjoint(pattern: str) -> bool:
    """Whether two shapes without a common point can match `pattern`.

    Their interiors and boundaries do not meet: the first two cells of the first two rows are F.
    """
    return all(pattern[cell] in "F*" for cell in (0, 1, 3, 4))


def _relates(pattern: str) -> Callable[[Shapes, Shapes], Any]:
    return lambda right, left: shapely.relate_pattern(left, right, pattern)


def nearest_of(
    li: Ints, ri: Ints, distance: Floats, k: int, limit: float | None
) -> tuple[Ints, Floats]:
    """Which of these pairs are the `k` nearest of their left row: by distance, then table row."""
    order = np.lexsort((ri, distance, li))
    if limit is not None:
        order = order[distance[order] <= limit]
    first = np.searchsorted(li[order], li[order], side="left")
    order = order[np.arange(len(order)) - first < k]
    return order, distance[order]


def _sorted(li: Ints, ri: Ints) -> tuple[Ints, Ints]:
    order = np.lexsort((ri, li))
    return li[order], ri[order]
