"""Any shape against any shape: shapely's STRtree proposes, prepared table shapes decide."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import shapely

from rivermouth.kernels.spatial.geometry import Floats, Places, Shapes
from rivermouth.spec.conditions import INVERSE

Ints = npt.NDArray[np.int64]

_CHUNK = 1 << 20  # pairs tested at once where every pair must be


@dataclass(frozen=True)
class ShapeTree:
    """The table's shapes, None where a row has none; the tree is made when it is first asked."""

    shapes: Shapes
    ok: npt.NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "ok", ~(shapely.is_missing(self.shapes) | shapely.is_empty(self.shapes))
        )

    @cached_property
    def tree(self) -> Any:
        """The STRtree over all shapes, the table's side prepared for many tests."""
        shapely.prepare(self.shapes)
        return shapely.STRtree(self.shapes)

    def match(self, left: Places, predicate: str, pattern: str | None = None) -> tuple[Ints, Ints]:
        """Pairs (left row, table row) for which `predicate` holds, by left row then table row."""
        if predicate == "disjoint":
            return self._all_but(left, *self.match(left, "intersects"))
        if predicate == "relate":
            assert pattern is not None
            return self._relate(left, pattern)
        holds = getattr(shapely, INVERSE[predicate])
        return self._filter(left, *self._near(left), holds)

    def within(self, left: Places, limit: float) -> tuple[Ints, Ints]:
        """Pairs at most `limit` apart in the plane."""
        pairs = self.tree.query(left.as_shapes, predicate="dwithin", distance=limit)
        return _sorted(*pairs)

    def nearest(self, left: Places, k: int, limit: float | None) -> tuple[Ints, Ints, Floats]:
        """The `k` nearest rows of each left row, nearest first, ties in the table's order."""
        rows = np.flatnonzero(left.ok)
        if not len(rows) or not self.ok.any():
            return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
        asked = left.as_shapes[rows]
        _, distance = self.tree.query_nearest(asked, return_distance=True, all_matches=False)
        wanted = min(k, int(np.count_nonzero(self.ok)))
        reach = self._reach(asked, np.asarray(distance), wanted, limit)
        near, right = _sorted(*self.tree.query(asked, predicate="dwithin", distance=reach))
        far = shapely.distance(self.shapes[right], asked[near])
        keep, far = nearest_of(near, right, far, k, limit)
        return rows[near[keep]], right[keep], far

    def _reach(self, asked: Shapes, reach: Floats, wanted: int, limit: float | None) -> Floats:
        """For each shape, a distance within which `wanted` rows lie, or `limit` if fewer do."""
        most = np.inf if limit is None else limit
        unit = float(np.ptp(shapely.total_bounds(self.shapes[self.ok]))) / len(self.shapes) or 1.0
        reach = np.minimum(reach, most)
        short = np.arange(len(asked)) if wanted > 1 else np.empty(0, np.int64)
        while len(short):
            hits = self.tree.query(asked[short], predicate="dwithin", distance=reach[short])[0]
            short = short[
                (np.bincount(hits, minlength=len(short)) < wanted) & (reach[short] < most)
            ]
            reach[short] = np.minimum(np.maximum(reach[short] * 2, unit), most)
        return reach

    def _near(self, left: Places) -> tuple[Ints, Ints]:
        return _sorted(*self.tree.query(left.as_shapes))

    def _filter(
        self, left: Places, li: Ints, ri: Ints, holds: Callable[[Shapes, Shapes], Any]
    ) -> tuple[Ints, Ints]:
        _ = self.tree  # prepares the table's side, which stands first in `holds`
        keep = holds(self.shapes[ri], left.as_shapes[li])
        return li[keep], ri[keep]

    def _relate(self, left: Places, pattern: str) -> tuple[Ints, Ints]:
        def holds(right: Shapes, asked: Shapes) -> Any:
            return shapely.relate_pattern(asked, right, pattern)

        if may_be_disjoint(pattern):
            return self._all_pairs(left, holds)
        return self._filter(left, *self._near(left), holds)

    def _all_but(self, left: Places, li: Ints, ri: Ints) -> tuple[Ints, Ints]:
        """Every pair of usable rows that is not among these."""
        rows, columns = np.flatnonzero(left.ok), np.flatnonzero(self.ok)
        apart = np.ones((len(rows), len(columns)), dtype=bool)
        apart[np.searchsorted(rows, li), np.searchsorted(columns, ri)] = False
        where = np.nonzero(apart)
        return rows[where[0]], columns[where[1]]

    def _all_pairs(self, left: Places, holds: Callable[[Shapes, Shapes], Any]) -> tuple[Ints, Ints]:
        rows, columns = np.flatnonzero(left.ok), np.flatnonzero(self.ok)
        step = max(1, _CHUNK // max(1, len(columns)))
        found = []
        for start in range(0, len(rows), step):
            part = rows[start : start + step]
            li, ri = np.repeat(part, len(columns)), np.tile(columns, len(part))
            found.append(self._filter(left, li, ri, holds))
        if not found:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        return np.concatenate([f[0] for f in found]), np.concatenate([f[1] for f in found])


def may_be_disjoint(pattern: str) -> bool:
    """Whether two shapes without a common point can match `pattern`.

    Their interiors and boundaries do not meet: the first two places of the first two rows are F.
    """
    return all(pattern[place] in "F*" for place in (0, 1, 3, 4))


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
