"""Points near points: a k-d tree in flat arrays, for the plane and for the sphere.

On the sphere the tree is built over unit vectors (see `distance`). Rows at the same distance come
in the table's order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from rivermouth.kernels.arrays import Floats, Ints
from rivermouth.kernels.spatial import box_tree
from rivermouth.kernels.spatial.box_tree import DEPTH, insert, next_leaf, sort_run
from rivermouth.kernels.spatial.distance import distance, inner_bound, outer_bound, squared_distance
from rivermouth.kernels.spatial.sphere import unit_vectors

Groups = npt.NDArray[np.int32]

_LEAF = 12


class Among(NamedTuple):
    """Which rows a probe may match: those of its group, at a time in a range around its own.

    A row's time lies in [first, last], and less the probe's in [lower, upper]. A group below 0
    has no rows.
    """

    probe_time: Ints
    probe_group: Groups
    time: Ints
    group: Groups
    lower: int
    upper: int
    first: int
    last: int


@dataclass(frozen=True)
class KdTree:
    """The tree's arrays; all of them can be memory-mapped.

    Parameters
    ----------
    row
        The table row of each point, in the tree's order.
    xy
        The points as given (for the sphere: longitude, latitude), in the tree's order.
    position
        The points in the tree's space: the plane itself, or unit vectors.
    box
        Each node's box, low corner then high corner; node i has children 2i + 1 and 2i + 2.
    """

    row: Ints
    xy: Floats
    position: Floats
    box: Floats

    @property
    def is_sphere(self) -> bool:
        """Whether distances are great circles in metres."""
        return bool(self.position.shape[1] == 3)

    def within(self, x: Floats, y: Floats, limit: float) -> tuple[Ints, Ints]:
        """Pairs (probe, table row) at most `limit` apart; a probe's rows in the table's order."""
        return _within(*self._probes(x, y), limit, self.row, self.xy, self.position, self.box)

    def nearest(
        self, x: Floats, y: Floats, k: int, limit: float | None, among: Among | None = None
    ) -> tuple[Ints, Ints, Floats]:
        """The `k` nearest rows of each probe, nearest first, with their distances."""
        rows, distances = _nearest(
            *self._probes(x, y), k, math.inf if limit is None else limit,
            self.row, self.xy, self.position, self.box, among,
        )  # fmt: skip
        found = rows >= 0
        return np.nonzero(found)[0], rows[found], distances[found]

    def _probes(self, x: Floats, y: Floats) -> tuple[Floats, Floats]:
        xy = np.column_stack([x, y])
        return xy, unit_vectors(x, y) if self.is_sphere else xy


def build(x: Floats, y: Floats, row: Ints, *, sphere: bool) -> KdTree:
    """The tree over finite points, each with its table row."""
    position = unit_vectors(x, y) if sphere else np.column_stack([x, y])
    position = np.ascontiguousarray(position)
    order, box = box_tree.build(position, position, _LEAF)
    return KdTree(row[order], np.column_stack([x, y])[order], position[order], box)


@numba.njit(cache=True)
def _within(
    probe_xy: Floats, probe: Floats, limit: float,
    row: Ints, xy: Floats, position: Floats, box: Floats,
) -> tuple[Ints, Ints]:  # fmt: skip
    dims = position.shape[1]
    far, near = outer_bound(limit, dims), inner_bound(limit, dims)
    left, right = np.empty(len(probe) + 16, np.int64), np.empty(len(probe) + 16, np.int64)
    count = 0
    stack, gaps = np.zeros((DEPTH, 3), np.int64), np.zeros(DEPTH)
    for q in range(len(probe)):
        first = count
        stack[0], gaps[0] = (0, 0, len(row)), 0.0
        top = 1
        while top:
            top, low, high = next_leaf(stack, gaps, top, far, box, 0, _LEAF, probe, q)
            for p in range(low, high):
                gap = squared_distance(probe, q, position, p)
                if gap > far or (gap > near and distance(probe_xy, q, xy, p, dims) > limit):
                    continue
                if count == len(left):
                    left = np.append(left, np.empty(count, np.int64))
                    right = np.append(right, np.empty(count, np.int64))
                left[count], right[count] = q, row[p]
                count += 1
        sort_run(right, first, count)
    return left[:count], right[:count]


@numba.njit(cache=True)
def _nearest(
    probe_xy: Floats, probe: Floats, k: int, limit: float,
    row: Ints, xy: Floats, position: Floats, box: Floats, among: Among | None,
) -> tuple[Ints, Floats]:  # fmt: skip
    """The nearest rows of each probe, -1 where there are fewer.

    Where `among` is None its tests are not compiled.
    """
    dims = position.shape[1]
    k = min(k, max(len(row), 1))
    rows = np.full((len(probe), k), -1, np.int64)
    distances = np.full((len(probe), k), np.inf)
    stack, gaps = np.zeros((DEPTH, 3), np.int64), np.zeros(DEPTH)
    for q in range(len(probe)):
        count = 0
        far = outer_bound(limit, dims)
        stack[0], gaps[0] = (0, 0, len(row)), 0.0
        top = 1
        if among is not None and among.probe_group[q] < 0:
            top = 0
        while top:
            top, low, high = next_leaf(stack, gaps, top, far, box, 0, _LEAF, probe, q)
            for p in range(low, high):
                if among is not None and not admits(among, q, row[p]):
                    continue
                if squared_distance(probe, q, position, p) > far:
                    continue
                d = distance(probe_xy, q, xy, p, dims)
                if d <= limit:
                    count = insert(rows, distances, q, count, row[p], d)
                    if count == k:
                        far = min(far, outer_bound(distances[q, k - 1], dims))
    return rows, distances


@numba.njit(cache=True, inline="always")
def admits(among: Among, q: int, row: int) -> bool:
    """Whether probe `q` may match a row."""
    time = among.time[row]
    return bool(
        among.group[row] == among.probe_group[q]
        and among.first <= time <= among.last
        and among.lower <= time - among.probe_time[q] <= among.upper
    )
