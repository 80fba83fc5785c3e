"""How far two shapes are apart on the sphere: any shapes, pair by pair, in metres.

Two arcs of great circles that do not cross are nearest at an end of one of them: along two great
circles the distance has no other minimum than where they meet. So the distance of two parts is 0
where one lies in the other or two of their edges cross, and else the least from a vertex of either
to an edge of the other; less than 10 nanometres, which rounding cannot tell from a common point, is
0 where not both are points. Parts are those of an `EdgeTree`, edges are compared as unit vectors,
so that the antimeridian and the poles are not special.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np

from rivermouth.kernels.arrays import Floats, Ints, Shapes
from rivermouth.kernels.spatial import box_tree, edge_tree
from rivermouth.kernels.spatial.box_tree import DEPTH
from rivermouth.kernels.spatial.distance import outer_bound
from rivermouth.kernels.spatial.edge_search import SearchedParts
from rivermouth.kernels.spatial.edge_tree import EdgeTree
from rivermouth.kernels.spatial.plane_edges import EDGE_LEAF, Edges, Scratch
from rivermouth.kernels.spatial.sphere import RADIUS
from rivermouth.kernels.spatial.sphere_edges import in_sphere_polygon, sphere_distance

_TOUCH = 1e-8  # metres: what rounding cannot tell from a common point
_LEAF = 8  # rows in a leaf of the tree
_ROUNDING = 1e-15  # more than a unit vector is off by
_NOWHERE = 8.0  # where no unit vector is near


@dataclass(frozen=True)
class SphereShapes:
    """Shapes on the sphere, with a tree of boxes over them.

    Parameters
    ----------
    edges
        Their parts and edges.
    boxes
        The box of each shape in the space of unit vectors, low corner then high corner; that of a
        shape without parts is far from all others.
    order, nodes
        The tree over these boxes (see `box_tree`).
    """

    edges: EdgeTree
    boxes: Floats
    order: Ints
    nodes: Floats

    def near(self, rows: Ints, other: SphereShapes, limit: float) -> tuple[Ints, Ints]:
        """Pairs (one of `rows`, row of `other`) whose boxes are at most `limit` metres apart."""
        far = outer_bound(min(limit, math.pi * RADIUS), 3)
        rows = rows[self.boxes[rows, 0] < _NOWHERE]
        return _near(self.boxes, rows, other.boxes, other.order, other.nodes, far)

    def distances(self, rows: Ints, other: SphereShapes, others: Ints, limit: float) -> Floats:
        """Metres between the two of each pair; infinite or right where that is above `limit`."""
        far = outer_bound(min(limit, math.pi * RADIUS), 3)
        return _pair_distances(
            *_searched(self.edges), rows, *_searched(other.edges), others, far
        )  # fmt: skip


def build(shapes: Shapes) -> SphereShapes:
    """Valid shapes without ambiguous edges (see `sphere_parts`); None is nowhere."""
    edges = edge_tree.build(shapes, sphere=True)
    boxes = np.repeat([[np.inf, -np.inf]], 3, axis=1).repeat(len(shapes), axis=0)
    np.minimum.at(boxes[:, :3], edges.row, edges.part_box[:, :3])
    np.maximum.at(boxes[:, 3:], edges.row, edges.part_box[:, 3:])
    boxes[boxes[:, 0] > boxes[:, 3]] = _NOWHERE
    low, high = np.ascontiguousarray(boxes[:, :3]), np.ascontiguousarray(boxes[:, 3:])
    return SphereShapes(edges, boxes, *box_tree.build(low, high, _LEAF))


def _searched(tree: EdgeTree) -> tuple[SearchedParts, Ints, Edges]:
    return tree.searched_parts, tree.row_part, tree.searched_edges


@numba.njit(cache=True, inline="always")
def _gap(boxes: Floats, a: int, others: Floats, b: int) -> float:
    """The squared distance of two boxes, 0 where they overlap."""
    total = 0.0
    for d in range(3):
        off = max(others[b, d] - boxes[a, 3 + d], boxes[a, d] - others[b, 3 + d], 0.0)
        total += off * off
    return total


@numba.njit(cache=True)
def _next_leaf(
    stack: Ints, top: int, boxes: Floats, row: int, nodes: Floats, root: int, leaf: int, far: float
) -> tuple[int, int, int]:
    """Descend to a leaf within `far` of a box: what is left of the stack, and the leaf's items."""
    while top:
        top -= 1
        node, low, high = stack[top, 0], stack[top, 1], stack[top, 2]
        if low == high or _gap(boxes, row, nodes, root + node) > far:
            continue
        if high - low <= leaf:
            return top, low, high
        middle = (low + high) // 2
        stack[top] = (2 * node + 1, low, middle)
        stack[top + 1] = (2 * node + 2, middle, high)
        top += 2
    return 0, 0, 0


@numba.njit(cache=True)
def _near(
    boxes: Floats, rows: Ints, others: Floats, order: Ints, nodes: Floats, far: float
) -> tuple[Ints, Ints]:
    left, right = np.empty(len(rows) + 16, np.int64), np.empty(len(rows) + 16, np.int64)
    stack = np.zeros((DEPTH, 3), np.int64)
    count = 0
    for row in rows:
        stack[0] = (0, 0, len(order))
        top = 1
        while top:
            top, low, high = _next_leaf(stack, top, boxes, row, nodes, 0, _LEAF, far)
            for k in range(low, high):
                if _gap(boxes, row, others, order[k]) > far:
                    continue
                if count == len(left):
                    left = np.append(left, np.empty(count, np.int64))
                    right = np.append(right, np.empty(count, np.int64))
                left[count], right[count] = row, order[k]
                count += 1
    return left[:count], right[:count]


@numba.njit(cache=True)
def _pair_distances(
    parts: SearchedParts, row_part: Ints, edges: Edges, rows: Ints,
    other_parts: SearchedParts, other_row_part: Ints, other_edges: Edges, others: Ints,
    far: float,
) -> Floats:  # fmt: skip
    found = np.full(len(rows), np.inf)
    scratch = Scratch(np.zeros((DEPTH, 3), np.int64), np.zeros(DEPTH))
    start, other_start = parts.row_start, other_parts.row_start
    for p in range(len(rows)):
        most = far
        for i in range(start[rows[p]], start[rows[p] + 1]):
            for j in range(other_start[others[p]], other_start[others[p] + 1]):
                a, b = row_part[i], other_row_part[j]
                off = _gap(parts.part_box, a, other_parts.part_box, b)
                if off > most or found[p] == 0.0:
                    continue
                d = _part_distance(
                    parts, edges, a, other_parts, other_edges, b, most, off == 0.0, scratch
                )
                if d < found[p]:
                    found[p] = d
                    most = min(most, outer_bound(d, 3))
    return found


@numba.njit(cache=True)
def _part_distance(
    parts: SearchedParts, edges: Edges, a: int,
    other_parts: SearchedParts, other_edges: Edges, b: int,
    far: float, may_meet: bool, scratch: Scratch,
) -> float:  # fmt: skip
    if may_meet and (
        _lies_in(edges, a, other_parts, other_edges, b, scratch)
        or _lies_in(other_edges, b, parts, edges, a, scratch)
    ):
        return 0.0
    best = np.inf
    one, other = _is_point(edges, a), _is_point(other_edges, b)
    if one or not other:
        best = _from_vertices(edges, a, parts.is_area[a], other_edges, b, far, scratch)
        far = min(far, outer_bound(best, 3)) if best < np.inf else far
    if not one:
        is_area = other_parts.is_area[b]
        best = min(best, _from_vertices(other_edges, b, is_area, edges, a, far, scratch))
    if may_meet and best > 0.0 and not (one or other) and _cross(edges, a, other_edges, b, scratch):
        return 0.0
    return 0.0 if best < _TOUCH and not (one and other) else best


@numba.njit(cache=True, inline="always")
def _is_point(edges: Edges, part: int) -> bool:
    e = edges.first[part]
    return bool(
        edges.first[part + 1] - e == 1
        and edges.ends[e, 0] == edges.ends[e, 2]
        and edges.ends[e, 1] == edges.ends[e, 3]
    )


@numba.njit(cache=True)
def _lies_in(
    edges: Edges, part: int, others: SearchedParts, other_edges: Edges, b: int, scratch: Scratch
) -> bool:
    """Whether the first vertex of a part lies in another part, a polygon."""
    if not others.is_area[b]:
        return False
    e = edges.first[part]
    lon, north = edges.ends[e, 0], others.has_north[b]
    return in_sphere_polygon(other_edges, b, north, lon, edges.vector[:, :3], e, scratch)


@numba.njit(cache=True)
def _from_vertices(
    edges: Edges, part: int, is_area: bool, others: Edges, b: int, far: float, scratch: Scratch
) -> float:
    """The least distance from a vertex of one part to an edge of another."""
    best = np.inf
    for end in range(1 if is_area else 2):  # a ring ends where it began
        xy, vector = edges.ends[:, 2 * end : 2 * end + 2], edges.vector[:, 3 * end : 3 * end + 3]
        for e in range(edges.first[part], edges.first[part + 1]):
            d = sphere_distance(others, b, xy, vector, e, far, 0.0, scratch)
            if d < best:
                best = d
                far = min(far, outer_bound(d, 3))
    return best


@numba.njit(cache=True)
def _cross(edges: Edges, a: int, others: Edges, b: int, scratch: Scratch) -> bool:
    """Whether an edge of one part crosses one of another, neither at an end."""
    vector, stack, root = edges.vector, scratch.stack, others.root[b]
    box = np.empty((1, 6))
    for e in range(edges.first[a], edges.first[a + 1]):
        bulge = _ROUNDING
        for d in range(3):
            bulge += (vector[e, 3 + d] - vector[e, d]) ** 2 / 4  # more than an arc is off its chord
        for d in range(3):
            box[0, d] = min(vector[e, d], vector[e, 3 + d]) - bulge
            box[0, 3 + d] = max(vector[e, d], vector[e, 3 + d]) + bulge
        stack[0] = (0, others.first[b], others.first[b + 1])
        top = 1
        while top:
            top, low, high = _next_leaf(stack, top, box, 0, others.box, root, EDGE_LEAF, 0.0)
            for k in range(low, high):
                if _arcs_cross(vector, e, others.vector, k):
                    return True
    return False


@numba.njit(cache=True)
def _arcs_cross(vector: Floats, e: int, others: Floats, k: int) -> bool:
    """Whether the ends of each arc lie on different sides of the other, where the arcs are."""
    begin = _side(vector, e, others, k, 0)
    end = -_side(vector, e, others, k, 3)
    if begin * end <= 0.0:
        return False
    return bool(
        begin * _side(others, k, vector, e, 3) > 0.0
        and -begin * _side(others, k, vector, e, 0) > 0.0
    )


@numba.njit(cache=True, inline="always")
def _side(vector: Floats, e: int, others: Floats, k: int, at: int) -> Any:
    """On which side of an arc the end at `at` of another one lies, by the sign."""
    ax, ay, az = vector[e, 0], vector[e, 1], vector[e, 2]
    dx, dy, dz = vector[e, 3] - ax, vector[e, 4] - ay, vector[e, 5] - az
    px, py, pz = others[k, at] - ax, others[k, at + 1] - ay, others[k, at + 2] - az
    return px * (ay * dz - az * dy) + py * (az * dx - ax * dz) + pz * (ax * dy - ay * dx)
