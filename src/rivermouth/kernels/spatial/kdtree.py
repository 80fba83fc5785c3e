"""Points near points: a k-d tree in flat arrays, for the plane and for the sphere.

On the sphere the tree is built over unit vectors (see `distance`). Rows at the same distance come
in the table's order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from rivermouth.kernels.arrays import Floats, Ints
from rivermouth.kernels.spatial.distance import distance, inner_bound, outer_bound, squared_distance
from rivermouth.kernels.spatial.sphere import unit_vectors

Groups = npt.NDArray[np.int32]

_LEAF = 12
_DEPTH = 128  # of a stack: one node a level waits while the other is looked at
_FEW = 32  # rows up to which the plainest sort is the fastest


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
    order, box = _build(np.ascontiguousarray(position))
    return KdTree(row[order], np.column_stack([x, y])[order], position[order], box)


@numba.njit(cache=True)
def _select(keys: Floats, order: Ints, low: int, high: int, middle: int) -> None:
    """Hoare's selection: order[low:high] with the key of rank `middle` in its place."""
    high -= 1
    while low < high:
        pivot = keys[order[(low + high) // 2]]
        i, j = low, high
        while i <= j:
            while keys[order[i]] < pivot:
                i += 1
            while keys[order[j]] > pivot:
                j -= 1
            if i <= j:
                order[i], order[j] = order[j], order[i]
                i += 1
                j -= 1
        if middle <= j:
            high = j
        elif middle >= i:
            low = i
        else:
            return


@numba.njit(cache=True)
def _build(position: Floats) -> tuple[Ints, Floats]:
    n, dims = position.shape
    nodes, size = 1, n
    while size > _LEAF:
        size = (size + 1) // 2
        nodes = 2 * nodes + 1
    box = np.empty((nodes, 2 * dims))
    order = np.arange(n)
    stack = [(0, 0, n)]
    while len(stack):
        node, low, high = stack.pop()
        widest, width = 0, -1.0
        for d in range(dims):
            least, most = np.inf, -np.inf
            for k in range(low, high):
                value = position[order[k], d]
                least = min(least, value)
                most = max(most, value)
            box[node, d], box[node, dims + d] = least, most
            if most - least > width:
                widest, width = d, most - least
        if high - low > _LEAF:
            middle = (low + high) // 2
            _select(position[:, widest], order, low, high, middle)
            stack.append((2 * node + 1, low, middle))
            stack.append((2 * node + 2, middle, high))
    return order, box


@numba.njit(cache=True, inline="always")
def _gap(box: Floats, node: int, position: Floats, q: int) -> Any:
    """The squared distance from probe `q` to a node's box."""
    dims = position.shape[1]
    total = _off(box, node, position, q, dims, 0) + _off(box, node, position, q, dims, 1)
    return total + _off(box, node, position, q, dims, 2) if dims == 3 else total


@numba.njit(cache=True, inline="always")
def _off(box: Floats, node: int, position: Floats, q: int, dims: int, d: int) -> Any:
    value = position[q, d]
    off = max(box[node, d] - value, value - box[node, dims + d], 0.0)
    return off * off


@numba.njit(cache=True)
def _next_leaf(
    stack: Ints, gaps: Floats, top: int, far: float, box: Floats, probe: Floats, q: int
) -> tuple[int, int, int]:
    """Descend to the nearest leaf within `far`: what is left of the stack, and its points.

    The `top` nodes on the stack are (node, low, high), each with its gap to probe `q`.
    """
    while top:
        top -= 1
        node, low, high = stack[top, 0], stack[top, 1], stack[top, 2]
        gap = gaps[top]
        while gap <= far and high - low > _LEAF:
            middle, node = (low + high) // 2, 2 * node + 1
            gap, other = _gap(box, node, probe, q), _gap(box, node + 1, probe, q)
            # descend into the nearer half, push the other
            if gap <= other:
                stack[top, 0], stack[top, 1], stack[top, 2] = node + 1, middle, high
                high = middle
            else:
                stack[top, 0], stack[top, 1], stack[top, 2] = node, low, middle
                gap, other, node, low = other, gap, node + 1, middle
            gaps[top] = other
            if other <= far:
                top += 1
        if gap <= far:
            return top, low, high
    return 0, 0, 0


@numba.njit(cache=True)
def _sort(values: Ints, start: int, stop: int) -> None:
    """Sort values[start:stop] in place."""
    if stop - start > _FEW:
        values[start:stop].sort()
        return
    for k in range(start + 1, stop):
        value, i = values[k], k
        while i > start and values[i - 1] > value:
            values[i] = values[i - 1]
            i -= 1
        values[i] = value


@numba.njit(cache=True)
def _within(
    probe_xy: Floats, probe: Floats, limit: float,
    row: Ints, xy: Floats, position: Floats, box: Floats,
) -> tuple[Ints, Ints]:  # fmt: skip
    dims = position.shape[1]
    far, near = outer_bound(limit, dims), inner_bound(limit, dims)
    left, right = np.empty(len(probe) + 16, np.int64), np.empty(len(probe) + 16, np.int64)
    count = 0
    stack, gaps = np.zeros((_DEPTH, 3), np.int64), np.zeros(_DEPTH)
    for q in range(len(probe)):
        first = count
        stack[0], gaps[0] = (0, 0, len(row)), 0.0
        top = 1
        while top:
            top, low, high = _next_leaf(stack, gaps, top, far, box, probe, q)
            for p in range(low, high):
                gap = squared_distance(probe, q, position, p)
                if gap > far or (gap > near and distance(probe_xy, q, xy, p, dims) > limit):
                    continue
                if count == len(left):
                    left = np.append(left, np.empty(count, np.int64))
                    right = np.append(right, np.empty(count, np.int64))
                left[count], right[count] = q, row[p]
                count += 1
        _sort(right, first, count)
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
    stack, gaps = np.zeros((_DEPTH, 3), np.int64), np.zeros(_DEPTH)
    for q in range(len(probe)):
        count = 0
        far = outer_bound(limit, dims)
        stack[0], gaps[0] = (0, 0, len(row)), 0.0
        top = 1
        if among is not None and among.probe_group[q] < 0:
            top = 0
        while top:
            top, low, high = _next_leaf(stack, gaps, top, far, box, probe, q)
            for p in range(low, high):
                if among is not None and not _admits(among, q, row[p]):
                    continue
                if squared_distance(probe, q, position, p) > far:
                    continue
                d = distance(probe_xy, q, xy, p, dims)
                if d <= limit:
                    count = _insert(rows, distances, q, count, row[p], d)
                    if count == k:
                        far = min(far, outer_bound(distances[q, k - 1], dims))
    return rows, distances


@numba.njit(cache=True, inline="always")
def _admits(among: Among, q: int, row: int) -> bool:
    time = among.time[row]
    return bool(
        among.group[row] == among.probe_group[q]
        and among.first <= time <= among.last
        and among.lower <= time - among.probe_time[q] <= among.upper
    )


@numba.njit(cache=True, inline="always")
def _insert(rows: Ints, distances: Floats, q: int, count: int, row: int, d: float) -> int:
    """Insert a row among the nearest of `q`, by distance, then row; how many there are now."""
    last = rows.shape[1] - 1
    if count > last:
        if not _is_after(rows, distances, q, last, row, d):
            return count
        count = last
    i = count
    while i > 0 and _is_after(rows, distances, q, i - 1, row, d):
        distances[q, i], rows[q, i] = distances[q, i - 1], rows[q, i - 1]
        i -= 1
    distances[q, i], rows[q, i] = d, row
    return count + 1


@numba.njit(cache=True, inline="always")
def _is_after(rows: Ints, distances: Floats, q: int, i: int, row: int, d: float) -> Any:
    """Whether the i-th of the nearest of `q` comes after such a row."""
    other = distances[q, i]
    return other > d or (other == d and rows[q, i] > row)
