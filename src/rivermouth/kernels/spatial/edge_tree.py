"""Points near lines and polygons: a tree of boxes over parts, and one over the edges of each.

A search descends to the nearest boxes first and passes over those that are farther off than what
it has found, so that of a polygon with many vertices only the near ones are looked at. A point
inside a polygon has distance 0. On the sphere boxes are those of unit vectors (see `sphere_edges`).

Neighbouring probes are answered one after the other: the memory they touch is the same, and what
one has found bounds how far the next must look.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numba
import numpy as np
import numpy.typing as npt

from rivermouth.kernels.arrays import Bools, Bytes, Floats, Ints, Shapes, ranges, stable_order
from rivermouth.kernels.spatial import box_tree
from rivermouth.kernels.spatial.edge_search import (
    PART_LEAF,
    SearchedParts,
    grow_boxes,
    pair_distances,
    search_nearest,
    search_within,
)
from rivermouth.kernels.spatial.kdtree import Among
from rivermouth.kernels.spatial.parts import Parts, parts_of
from rivermouth.kernels.spatial.plane_edges import EDGE_LEAF, Edges
from rivermouth.kernels.spatial.sphere import unit_vectors
from rivermouth.kernels.spatial.sphere_parts import SphereParts, on_sphere

#: a larger number has no square
LARGE = 1e150


@dataclass(frozen=True)
class EdgeTree:
    """The tree's arrays; all of them can be memory-mapped.

    Parameters
    ----------
    row, is_area, has_north
        The table row of each part, in the tree's order, whether it is a polygon, and on the sphere
        whether it contains the north pole.
    box, part_box
        The nodes' boxes (see `box_tree`) and the parts', low corner then high corner.
    row_start, row_part
        The parts of each row: `row_part` from its start to the next one's.
    ends, ring, edge_box, root, first, vector, lon, wraps
        The parts' edges (see `plane_edges.Edges`).
    """

    row: Ints
    is_area: Bools
    has_north: Bools
    box: Floats
    part_box: Floats
    row_start: Ints
    row_part: Ints
    ends: Floats
    ring: Ints
    edge_box: Floats
    root: Ints
    first: Ints
    vector: Floats
    lon: Floats
    wraps: Bytes

    def within(self, x: Floats, y: Floats, limit: float) -> tuple[Ints, Ints]:
        """Pairs (probe, table row) at most `limit` apart; a probe's rows in the table's order."""
        xy, probe = self._probes(x, y)
        left, right = search_within(
            xy, probe, _locality(xy), limit, self.searched_parts, self.searched_edges
        )
        order, _ = stable_order(left, len(x))
        return left[order], right[order]

    def nearest(
        self, x: Floats, y: Floats, k: int, limit: float | None, among: Among | None = None
    ) -> tuple[Ints, Ints, Floats]:
        """The `k` nearest rows of each probe, nearest first, with their distances."""
        xy, probe = self._probes(x, y)
        most = math.inf if limit is None else limit
        rows, distances = search_nearest(
            xy, probe, _locality(xy), k, most, self.searched_parts, self.searched_edges, among
        )
        found = rows >= 0
        return np.nonzero(found)[0], rows[found], distances[found]

    def distances(self, x: Floats, y: Floats, rows: Ints) -> Floats:
        """How far each probe is from the table row it is paired with; NaN where that has none."""
        return pair_distances(
            *self._probes(x, y), rows, self.searched_parts, self.row_part, self.searched_edges
        )

    @property
    def is_sphere(self) -> bool:
        """Whether distances are great circles in metres."""
        return bool(self.part_box.shape[1] == 6)

    def _probes(self, x: Floats, y: Floats) -> tuple[Floats, Floats]:
        xy = np.column_stack([x, y])
        return xy, unit_vectors(x, y) if self.is_sphere else xy

    @cached_property
    def searched_parts(self) -> SearchedParts:
        """The arrays of parts, as searches take them."""
        return SearchedParts(
            self.row, self.is_area, self.has_north, self.box, self.part_box, self.row_start
        )

    @cached_property
    def searched_edges(self) -> Edges:
        """The arrays of edges, as searches take them."""
        return Edges(
            self.ends, self.ring, self.edge_box, self.root, self.first,
            self.vector, self.lon, self.wraps,
        )  # fmt: skip


def can_index(shapes: Shapes) -> bool:
    """Whether the squares of all lengths among the shapes are numbers, and not 0."""
    parts = parts_of(shapes)
    size = np.abs(parts.ends).max(initial=0.0)
    step = parts.ends[:, 2:] - parts.ends[:, :2]
    return bool(size < LARGE and ((step * step).sum(axis=1)[(step != 0).any(axis=1)] > 0).all())


def build(shapes: Shapes, *, sphere: bool = False) -> EdgeTree:
    """The tree over valid shapes; None and empty ones are nowhere.

    On the sphere no edge may be ambiguous (see `sphere_parts`).
    """
    parts = parts_of(shapes)
    if not sphere:
        a, b = parts.ends[:, :2], parts.ends[:, 2:]
        low, high = np.minimum(a, b), np.maximum(a, b)
        nothing = (np.empty((0, 6)), np.empty((0, 2)), np.empty(0, np.int64))
        drawn = SphereParts(parts, *nothing, np.zeros(len(parts.row), dtype=bool))
        return _packed(drawn, len(shapes), low, high, _part_boxes(parts, low, high))
    drawn = on_sphere(parts)
    low, high = drawn.boxes
    boxes = _part_boxes(drawn.parts, low, high)
    there = _packed(drawn, len(shapes), low, high, boxes, in_order=False)
    # a polygon's inner points go beyond its border where it contains an end of an axis
    grow_boxes(
        boxes, there.searched_parts, there.searched_edges, np.vstack([np.eye(3), -np.eye(3)])
    )
    return _packed(drawn, len(shapes), low, high, boxes)


def _part_boxes(parts: Parts, low: Floats, high: Floats) -> Floats:
    start = parts.edge_start
    return np.hstack([_of_parts(np.minimum, low, start), _of_parts(np.maximum, high, start)])


def _packed(
    drawn: SphereParts, rows: int, low: Floats, high: Floats, boxes: Floats, in_order: bool = True
) -> EdgeTree:
    """The arrays in the tree's order (or as they are): parts, and with them their edges."""
    parts, dims = drawn.parts, low.shape[1]
    start = parts.edge_start
    corners = np.ascontiguousarray(boxes[:, :dims]), np.ascontiguousarray(boxes[:, dims:])
    order, box = box_tree.build(*corners, PART_LEAF)
    if not in_order:
        order = np.arange(len(order))
    edges, first = ranges(start[order], start[order + 1])
    root, edge_box = _edge_trees(low[edges], high[edges], first)
    row_part, row_start = stable_order(parts.row[order], rows)
    vector, lon, wraps = drawn.vector, drawn.lon, np.empty(0, np.uint8)
    if dims == 3:
        vector, lon = vector[edges], lon[edges]
        wraps = (np.concatenate([[0], np.cumsum(drawn.wraps[edges])]) & 1).astype(np.uint8)
    return EdgeTree(
        parts.row[order], parts.is_area[order], drawn.has_north[order], box, boxes[order],
        row_start, row_part, parts.ends[edges], parts.ring[edges], edge_box, root, first,
        vector, lon, wraps,
    )  # fmt: skip


def _of_parts(function: np.ufunc, values: Floats, start: Ints) -> Floats:
    if not len(values):
        return np.empty((0, values.shape[1]))
    return np.asarray(function.reduceat(values, start[:-1]))


@numba.njit(cache=True, nogil=True)
def _edge_trees(low: Floats, high: Floats, first: Ints) -> tuple[Ints, Floats]:
    """Where each part's tree starts, and the boxes of all."""
    root = np.zeros(len(first), np.int64)
    for part in range(len(first) - 1):
        nodes = box_tree.node_count(first[part + 1] - first[part], EDGE_LEAF)
        root[part + 1] = root[part] + nodes
    box = np.empty((root[-1], 2 * low.shape[1]))
    for part in range(len(first) - 1):
        box_tree.fill(low, high, first[part], first[part + 1], EDGE_LEAF, box, root[part])
    return root, box


def _locality(probe: Floats) -> Ints:
    """An order of the probes in which neighbours are near: along a curve through a grid."""
    if len(probe) < 3:
        return np.arange(len(probe))
    return np.argsort(_codes(probe), kind="stable")


@numba.njit(cache=True)
def _codes(probe: Floats) -> npt.NDArray[np.uint16]:
    """The place of each probe on a Hilbert curve through a grid over them."""
    x0, x1, y0, y1 = np.inf, -np.inf, np.inf, -np.inf
    for q in range(len(probe)):
        x0, x1 = min(x0, probe[q, 0]), max(x1, probe[q, 0])
        y0, y1 = min(y0, probe[q, 1]), max(y1, probe[q, 1])
    side = 256
    wide, tall = side / max(x1 - x0, 1e-300), side / max(y1 - y0, 1e-300)
    codes = np.empty(len(probe), np.uint16)
    for q in range(len(probe)):
        x = min(int((probe[q, 0] - x0) * wide), side - 1)
        y = min(int((probe[q, 1] - y0) * tall), side - 1)
        code, s = 0, side // 2
        while s:
            right, up = (x & s) > 0, (y & s) > 0
            code = 4 * code + ((3 * right) ^ up)
            if not up:
                if right:
                    x, y = side - 1 - x, side - 1 - y
                x, y = y, x
            s //= 2
        codes[q] = code
    return codes
