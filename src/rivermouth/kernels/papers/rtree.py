"""Paper C's two-level R-tree: one over the polygons, one over the edges of each (Algorithm 1).

Kept so that it can be measured beside the cells; both give the same rows. Trees are packed
bottom-up (sort-tile-recursive), sixteen boxes a node, and lie in flat arrays.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np

from rivermouth.kernels.arrays import Floats, Ints, Shapes
from rivermouth.kernels.spatial.cells import BOUNDARY, INSIDE, OUTSIDE, PREDICATES, edges_of
from rivermouth.kernels.spatial.orientation import side

#: boxes in a node
FAN = 16


@dataclass(frozen=True)
class TwoLevelRTree:
    """The trees' arrays; all of them can be memory-mapped.

    Parameters
    ----------
    box, level_start, row
        The upper tree: boxes (low corner, high corner) level by level from the leaves, where
        the levels start, and the table row that each leaf stands for.
    edge_box, edge_level_start
        The lower trees one after another, likewise; their leaves are the edges, in order.
    tree_start, edge_start
        Where each upper leaf's levels start in `edge_level_start`, and its edges in `ends`.
    ends
        The edges, four numbers each.
    """

    box: Floats
    level_start: Ints
    row: Ints
    edge_box: Floats
    edge_level_start: Ints
    tree_start: Ints
    edge_start: Ints
    ends: Floats

    def match(self, x: Floats, y: Floats, predicate: str) -> tuple[Ints, Ints]:
        """Pairs (point, table row) for which `predicate` holds, by point then table row."""
        inside, boundary = PREDICATES[predicate]
        if not (inside or boundary) or not len(self.row):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        left, right = _match(
            x, y, inside, boundary, self.box, self.level_start, self.row, self.edge_box,
            self.edge_level_start, self.tree_start, self.edge_start, self.ends,
        )  # fmt: skip
        order = np.lexsort((right, left))
        return left[order], right[order]


def build(shapes: Shapes) -> TwoLevelRTree:
    """Both levels over valid polygons; None and empty ones are in neither."""
    ends, row = edges_of(shapes)
    start = np.searchsorted(row, np.arange(len(shapes) + 1))
    there = np.flatnonzero(np.diff(start))
    boxes = np.hstack([np.minimum(ends[:, :2], ends[:, 2:]), np.maximum(ends[:, :2], ends[:, 2:])])
    outer = np.array([_around(boxes[start[r] : start[r + 1]]) for r in there]).reshape(-1, 4)
    order, box, level_start = _pack(outer)
    rows = there[order]
    trees = [(start[r], *_pack(boxes[start[r] : start[r + 1]])) for r in rows]
    sizes = np.cumsum([0, *(len(tree[2]) for tree in trees)])
    return TwoLevelRTree(
        box=box,
        level_start=level_start,
        row=rows,
        edge_box=np.concatenate([np.empty((0, 4)), *(tree[2] for tree in trees)]),
        edge_level_start=np.concatenate(
            [
                np.empty(0, np.int64),
                *(tree[3] + size for tree, size in zip(trees, sizes, strict=False)),
            ]
        ),
        tree_start=np.cumsum([0, *(len(tree[3]) for tree in trees)]),
        edge_start=np.cumsum([0, *(len(tree[1]) for tree in trees)]),
        ends=np.concatenate([np.empty((0, 4)), *(ends[tree[0] + tree[1]] for tree in trees)]),
    )


def _around(boxes: Floats) -> Floats:
    return np.concatenate([boxes[:, :2].min(axis=0), boxes[:, 2:].max(axis=0)])


def _pack(boxes: Floats) -> tuple[Ints, Floats, Ints]:
    """A packed tree: the leaves' order, boxes by level from the leaves, where levels start."""
    order = tiles(boxes)
    return order, *levels(boxes[order])


def levels(leaves: Floats) -> tuple[Floats, Ints]:
    """The boxes of a tree over leaves as they stand, by level from them; where levels start."""
    made, axes = [leaves], leaves.shape[1] // 2
    while len(made[-1]) > 1:
        below = made[-1]
        starts = np.arange(0, len(below), FAN)
        low = np.minimum.reduceat(below[:, :axes], starts)
        made.append(np.hstack([low, np.maximum.reduceat(below[:, axes:], starts)]))
    return np.concatenate(made), np.cumsum([0, *map(len, made)])


def tiles(boxes: Floats) -> Ints:
    """Sort-tile-recursive: vertical slices of equal count, each sorted by height."""
    x, y = boxes[:, 0] + boxes[:, 2], boxes[:, 1] + boxes[:, 3]
    slices = int(np.ceil(np.sqrt(np.ceil(len(boxes) / FAN))))
    rank = np.empty(len(boxes), np.int64)
    rank[np.argsort(x, kind="stable")] = np.arange(len(boxes))
    return np.lexsort((y, rank // (max(slices, 1) * FAN)))


@numba.njit(cache=True)
def _locate(px: float, py: float, box: Floats, levels: Ints, edges: Floats, stack: Ints) -> int:
    """Algorithm 1: OUTSIDE, INSIDE or on the BOUNDARY, by the edges whose boxes the ray meets."""
    stack[0, 0], stack[0, 1] = len(levels) - 2, 0
    top, is_in = 1, False
    while top:
        top -= 1
        level, slot = stack[top, 0], stack[top, 1]
        node = levels[level] + slot
        if py < box[node, 1] or py > box[node, 3] or px > box[node, 2]:
            continue
        if level:
            for k in range(slot * FAN, min((slot + 1) * FAN, levels[level] - levels[level - 1])):
                stack[top, 0], stack[top, 1] = level - 1, k
                top += 1
            continue
        ay, by = edges[slot, 1], edges[slot, 3]
        turn = side(edges[slot, 0], ay, edges[slot, 2], by, px, py)
        if turn == 0 and px >= box[node, 0]:
            return BOUNDARY
        if (ay > py) != (by > py):
            is_in ^= turn > 0 if by > ay else turn < 0
    return INSIDE if is_in else OUTSIDE


@numba.njit(cache=True)
def _match(
    x: Floats, y: Floats, inside: bool, boundary: bool, box: Floats, levels: Ints, row: Ints,
    edge_box: Floats, edge_levels: Ints, tree_start: Ints, edge_start: Ints, ends: Floats,
) -> tuple[Ints, Ints]:  # fmt: skip
    left, right = np.empty(len(x) + 16, np.int64), np.empty(len(x) + 16, np.int64)
    stack, lower = np.empty((512, 2), np.int64), np.empty((512, 2), np.int64)
    count = 0
    for p in range(len(x)):
        px, py = x[p], y[p]
        stack[0, 0], stack[0, 1] = len(levels) - 2, 0
        top = 1
        while top:
            top -= 1
            level, slot = stack[top, 0], stack[top, 1]
            node = levels[level] + slot
            if px < box[node, 0] or py < box[node, 1] or px > box[node, 2] or py > box[node, 3]:
                continue
            if level:
                for k in range(
                    slot * FAN, min((slot + 1) * FAN, levels[level] - levels[level - 1])
                ):
                    stack[top, 0], stack[top, 1] = level - 1, k
                    top += 1
                continue
            found = _locate(
                px, py, edge_box, edge_levels[tree_start[slot] : tree_start[slot + 1]],
                ends[edge_start[slot] : edge_start[slot + 1]], lower,
            )  # fmt: skip
            if (inside and found == INSIDE) or (boundary and found == BOUNDARY):
                if count == len(left):
                    left = np.append(left, np.empty(count, np.int64))
                    right = np.append(right, np.empty(count, np.int64))
                left[count], right[count] = p, row[slot]
                count += 1
    return left[:count], right[:count]
