"""A balanced tree of boxes in flat arrays, and the lists of nearest rows that searches fill.

The tree is implicit: node i has children 2i + 1 and 2i + 2, and halves its run of items in the
middle until at most `leaf` are left. So runs need not be stored, and several trees can stand one
after the other in one array, each at its root.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from rivermouth.kernels.arrays import Floats, Ints

DEPTH = 128  # of a stack: one node a level waits while the other is looked at
_FEW = 32  # rows up to which the plainest sort is the fastest


@numba.njit(cache=True)
def node_count(items: int, leaf: int) -> int:
    """How many nodes a tree over so many items has."""
    nodes = 1
    while items > leaf:
        items = (items + 1) // 2
        nodes = 2 * nodes + 1
    return nodes


@numba.njit(cache=True)
def build(low: Floats, high: Floats, leaf: int) -> tuple[Ints, Floats]:
    """The order of the items' boxes in the tree, and the boxes of its nodes.

    A box is its low corner, then its high corner. Runs are halved at the median of the boxes'
    middles, along the axis in which these lie farthest apart.
    """
    n, dims = low.shape
    box = np.empty((node_count(n, leaf), 2 * dims))
    middle = low * 0.5 + high * 0.5
    order = np.arange(n)
    stack = [(0, 0, n)]
    while len(stack):
        node, first, end = stack.pop()
        widest, width = 0, -1.0
        for d in range(dims):
            least, most, left, right = np.inf, -np.inf, np.inf, -np.inf
            for k in range(first, end):
                item = order[k]
                least, most = min(least, middle[item, d]), max(most, middle[item, d])
                left, right = min(left, low[item, d]), max(right, high[item, d])
            box[node, d], box[node, dims + d] = left, right
            if most - least > width:
                widest, width = d, most - least
        if end - first > leaf:
            half = (first + end) // 2
            _select(middle[:, widest], order, first, end, half)
            stack.append((2 * node + 1, first, half))
            stack.append((2 * node + 2, half, end))
    return order, box


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
def fill(low: Floats, high: Floats, first: int, end: int, leaf: int, box: Floats, root: int) -> int:
    """Write the nodes of a tree over the items [first, end) as they stand; where it ends."""
    dims = low.shape[1]
    stack = [(0, first, end)]
    while len(stack):
        node, begin, stop = stack.pop()
        for d in range(dims):
            least, most = np.inf, -np.inf
            for item in range(begin, stop):
                least, most = min(least, low[item, d]), max(most, high[item, d])
            box[root + node, d], box[root + node, dims + d] = least, most
        if stop - begin > leaf:
            half = (begin + stop) // 2
            stack.append((2 * node + 1, begin, half))
            stack.append((2 * node + 2, half, stop))
    return root + node_count(end - first, leaf)


@numba.njit(cache=True, inline="always")
def gap(box: Floats, node: int, position: Floats, q: int) -> Any:
    """The squared distance from probe `q` to a box; 0 in it."""
    dims = position.shape[1]
    total = _off(box, node, position, q, dims, 0) + _off(box, node, position, q, dims, 1)
    return total + _off(box, node, position, q, dims, 2) if dims == 3 else total


@numba.njit(cache=True, inline="always")
def _off(box: Floats, node: int, position: Floats, q: int, dims: int, d: int) -> Any:
    value = position[q, d]
    off = max(box[node, d] - value, value - box[node, dims + d], 0.0)
    return off * off


@numba.njit(cache=True)
def next_leaf(
    stack: Ints, gaps: Floats, top: int, far: float,
    box: Floats, root: int, leaf: int, probe: Floats, q: int,
) -> tuple[int, int, int]:  # fmt: skip
    """Descend to the nearest leaf within `far`: what is left of the stack, and its items.

    The `top` nodes on the stack are (node, low, high), each with its gap to probe `q`.
    """
    while top:
        top -= 1
        node, low, high = stack[top, 0], stack[top, 1], stack[top, 2]
        near = gaps[top]
        while near <= far and high - low > leaf:
            middle, node = (low + high) // 2, 2 * node + 1
            near, other = gap(box, root + node, probe, q), gap(box, root + node + 1, probe, q)
            # descend into the nearer half, push the other
            if near <= other:
                stack[top, 0], stack[top, 1], stack[top, 2] = node + 1, middle, high
                high = middle
            else:
                stack[top, 0], stack[top, 1], stack[top, 2] = node, low, middle
                near, other, node, low = other, near, node + 1, middle
            gaps[top] = other
            if other <= far:
                top += 1
        if near <= far:
            return top, low, high
    return 0, 0, 0


@numba.njit(cache=True)
def sort_run(values: Ints, start: int, stop: int) -> None:
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


@numba.njit(cache=True, inline="always")
def insert(rows: Ints, distances: Floats, q: int, count: int, row: int, d: float) -> int:
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
