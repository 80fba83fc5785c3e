"""Points near points: a k-d tree in flat arrays, for the plane and for the sphere.

On the sphere the tree stands over unit vectors, so that the antimeridian and the poles are
places like any other; the tree only proposes, by chords grown a little, and the distance itself
decides. Rows at the same distance come in the table's order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt

from rivermouth.kernels.geometry import Floats
from rivermouth.kernels.sphere import RADIUS, great_circle, unit_vectors

Ints = npt.NDArray[np.int64]

_LEAF = 12
_SLACK = 1.0 + 1e-9  # far more than the rounding of a chord, far less than a neighbour away
_TINY = 1e-24  # squared: chords of 1e-12 are 6 micrometres on the ground


@dataclass(frozen=True)
class KdTree:
    """The tree's arrays; all of them can be memory-mapped.

    Parameters
    ----------
    row
        The table row of each point, in the tree's order.
    xy
        The points as they came (for the sphere: longitude, latitude), in the tree's order.
    position
        Where they stand in the tree's space: the plane itself, or unit vectors.
    box
        Each node's box, low corner then high corner; node i has children 2i + 1 and 2i + 2.
    """

    row: Ints
    xy: Floats
    position: Floats
    box: Floats

    def arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        """The index as named arrays, for keeping."""
        return {"row": self.row, "xy": self.xy, "position": self.position, "box": self.box}

    @property
    def is_sphere(self) -> bool:
        """Whether distances are great circles in metres."""
        return bool(self.position.shape[1] == 3)

    def within(self, x: Floats, y: Floats, limit: float) -> tuple[Ints, Ints]:
        """Pairs (query, table row) at most `limit` apart; a query's rows in the table's order."""
        left, right = _within(*self._ask(x, y), limit, self.row, self.xy, self.position, self.box)
        order = np.lexsort((right, left))
        return left[order], right[order]

    def nearest(
        self, x: Floats, y: Floats, k: int, limit: float | None
    ) -> tuple[Ints, Ints, Floats]:
        """The `k` nearest rows of each query, nearest first, with their distances."""
        farthest = math.inf if limit is None else limit
        rows, distances = _nearest(
            *self._ask(x, y), k, farthest, self.row, self.xy, self.position, self.box
        )
        found = rows >= 0
        return np.nonzero(found)[0], rows[found], distances[found]

    def _ask(self, x: Floats, y: Floats) -> tuple[Floats, Floats]:
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
def _gap(box: Floats, node: int, position: Floats, q: int) -> float:
    """The squared distance from query `q` to a node's box."""
    dims = position.shape[1]
    total = 0.0
    for d in range(dims):
        value = position[q, d]
        off = max(box[node, d] - value, value - box[node, dims + d], 0.0)
        total += off * off
    return total


@numba.njit(cache=True, inline="always")
def _reach(distance: float, dims: int) -> float:
    """The squared tree distance beyond which nothing can be within `distance`."""
    if dims == 3:
        distance = (
            2.0 if distance >= math.pi * RADIUS else 2.0 * math.sin(distance / (2.0 * RADIUS))
        )
    return distance * distance * _SLACK + _TINY


@numba.njit(cache=True, inline="always")
def _distance(xy: Floats, a: int, other: Floats, b: int, dims: int) -> float:
    if dims == 3:
        return great_circle(xy[a, 0], xy[a, 1], other[b, 0], other[b, 1])
    dx, dy = xy[a, 0] - other[b, 0], xy[a, 1] - other[b, 1]
    return math.sqrt(dx * dx + dy * dy)


@numba.njit(cache=True)
def _within(
    ask_xy: Floats, ask: Floats, limit: float, row: Ints, xy: Floats, position: Floats, box: Floats
) -> tuple[Ints, Ints]:
    dims = position.shape[1]
    reach = _reach(limit, dims)
    left, right = np.empty(len(ask) + 16, np.int64), np.empty(len(ask) + 16, np.int64)
    count = 0
    stack = np.empty((128, 3), np.int64)
    for q in range(len(ask)):
        top = 0
        if len(row):
            stack[0] = (0, 0, len(row))
            top = 1
        while top:
            top -= 1
            node, low, high = stack[top]
            if _gap(box, node, ask, q) > reach:
                continue
            if high - low > _LEAF:
                middle = (low + high) // 2
                stack[top] = (2 * node + 1, low, middle)
                stack[top + 1] = (2 * node + 2, middle, high)
                top += 2
                continue
            for k in range(low, high):
                if _distance(ask_xy, q, xy, k, dims) <= limit:
                    if count == len(left):
                        left = np.append(left, np.empty(count, np.int64))
                        right = np.append(right, np.empty(count, np.int64))
                    left[count], right[count] = q, row[k]
                    count += 1
    return left[:count], right[:count]


@numba.njit(cache=True)
def _nearest(
    ask_xy: Floats, ask: Floats, k: int, limit: float,
    row: Ints, xy: Floats, position: Floats, box: Floats,
) -> tuple[Ints, Floats]:  # fmt: skip
    dims = position.shape[1]
    k = min(k, max(len(row), 1))
    rows = np.full((len(ask), k), -1, np.int64)
    distances = np.full((len(ask), k), np.inf)
    stack = np.empty((128, 3), np.int64)
    for q in range(len(ask)):
        held = 0
        reach = _reach(limit, dims)
        top = 0
        if len(row):
            stack[0] = (0, 0, len(row))
            top = 1
        while top:
            top -= 1
            node, low, high = stack[top]
            if _gap(box, node, ask, q) > reach:
                continue
            if high - low > _LEAF:
                middle = (low + high) // 2
                near, far = (2 * node + 1, low, middle), (2 * node + 2, middle, high)
                if _gap(box, near[0], ask, q) > _gap(box, far[0], ask, q):
                    near, far = far, near
                stack[top], stack[top + 1] = far, near
                top += 2
                continue
            for p in range(low, high):
                d = _distance(ask_xy, q, xy, p, dims)
                if d > limit:
                    continue
                full = held == k
                if full and (
                    d > distances[q, k - 1]
                    or (d == distances[q, k - 1] and row[p] > rows[q, k - 1])
                ):
                    continue
                i = k - 1 if full else held
                while i > 0 and (
                    distances[q, i - 1] > d
                    or (distances[q, i - 1] == d and rows[q, i - 1] > row[p])
                ):
                    distances[q, i], rows[q, i] = distances[q, i - 1], rows[q, i - 1]
                    i -= 1
                distances[q, i], rows[q, i] = d, row[p]
                if not full:
                    held += 1
                if held == k:
                    reach = min(reach, _reach(distances[q, k - 1], dims))
    return rows, distances
