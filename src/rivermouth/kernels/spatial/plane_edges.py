"""A point and the edges of one part, in the plane: how far, and whether it lies inside.

Distances are GEOS's to the last bit: the same formula, taken of the same edges. Whether a point
lies inside is the ray test of `cells`, with sides decided by `orientation`; a run of edges of one
ring that lies wholly to the right is crossed an odd number of times exactly where its two ends
are at different sides of the ray, so that long runs are answered without looking into them.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numba
import numpy as np

from rivermouth.kernels.arrays import Bytes, Floats, Ints
from rivermouth.kernels.spatial.box_tree import next_leaf
from rivermouth.kernels.spatial.orientation import side

#: edges in a leaf of a part's tree
EDGE_LEAF = 8
#: squares differ by less than this share where the numbers differ by a few units in the last place
_CLOSE = 1.0 + 1e-12


class Edges(NamedTuple):
    """The edges of all parts, with a tree of boxes over those of each part.

    Parameters
    ----------
    ends, ring
        The edges as (ax, ay, bx, by), and the ring of each.
    box, root
        The nodes of all trees, and where each part's tree starts.
    first
        Where each part's edges start, and where the last one's end.
    vector, lon, wraps
        On the sphere: the ends as unit vectors, their longitudes as a ring passes them, and how
        often the edges up to each pass the antimeridian, as 0 for even and 1 for odd.
    """

    ends: Floats
    ring: Ints
    box: Floats
    root: Ints
    first: Ints
    vector: Floats
    lon: Floats
    wraps: Bytes


class Scratch(NamedTuple):
    """Stacks for walking a tree."""

    stack: Ints
    gaps: Floats


@numba.njit(cache=True, error_model="numpy")
def plane_distance(
    edges: Edges, part: int, probe: Floats, q: int, far: float, enough: float, scratch: Scratch
) -> float:
    """The distance from probe `q` to the edges of a part, infinite beyond the square root of `far`.

    Where one is found that is not above `enough`, it may be returned at once.
    """
    ends = edges.ends
    x, y = probe[q, 0], probe[q, 1]
    best = np.inf
    stack, gaps = scratch
    stack[0, 0], stack[0, 1], stack[0, 2] = 0, edges.first[part], edges.first[part + 1]
    gaps[0] = 0.0
    top, root = 1, edges.root[part]
    while top:
        top, low, high = next_leaf(stack, gaps, top, far, edges.box, root, EDGE_LEAF, probe, q)
        for e in range(low, high):
            ax, ay, bx, by = ends[e, 0], ends[e, 1], ends[e, 2], ends[e, 3]
            dx, dy, px, py = bx - ax, by - ay, x - ax, y - ay
            along, length = px * dx + py * dy, dx * dx + dy * dy
            if along <= 0.0:
                square = px * px + py * py
                if square > far:
                    continue
                d = math.sqrt(square)
            elif along >= length:
                px, py = x - bx, y - by
                square = px * px + py * py
                if square > far:
                    continue
                d = math.sqrt(square)
            else:
                across = (ay - y) * dx - (ax - x) * dy
                square = across * (across / length)
                if square > far:
                    continue
                d = abs(across / length) * math.sqrt(length)
            if d < best:
                best = d
                far = min(far, square * _CLOSE)
                if best <= enough:
                    return best
    return best


@numba.njit(cache=True)
def in_polygon(edges: Edges, part: int, x: float, y: float, scratch: Scratch) -> bool:
    """Whether a point lies in a polygon or on its boundary."""
    ends, box, ring = edges.ends, edges.box, edges.ring
    stack = scratch.stack
    stack[0, 0], stack[0, 1], stack[0, 2] = 0, edges.first[part], edges.first[part + 1]
    top, root, is_in = 1, edges.root[part], False
    while top:
        top -= 1
        node, low, high = stack[top, 0], stack[top, 1], stack[top, 2]
        at = root + node
        if y < box[at, 1] or y > box[at, 3] or x > box[at, 2]:
            continue
        if x < box[at, 0] and ring[low] == ring[high - 1]:
            is_in ^= (ends[low, 1] > y) != (ends[high - 1, 3] > y)
            continue
        if high - low > EDGE_LEAF:
            middle = (low + high) // 2
            stack[top, 0], stack[top, 1], stack[top, 2] = 2 * node + 1, low, middle
            top += 1
            stack[top, 0], stack[top, 1], stack[top, 2] = 2 * node + 2, middle, high
            top += 1
            continue
        for e in range(low, high):
            ax, ay, bx, by = ends[e, 0], ends[e, 1], ends[e, 2], ends[e, 3]
            if (y < ay and y < by) or (y > ay and y > by) or (x > ax and x > bx):
                continue
            if x < ax and x < bx:
                is_in ^= (ay > y) != (by > y)
                continue
            turn = side(ax, ay, bx, by, x, y)
            if turn == 0:
                return True
            if (ay > y) != (by > y):
                is_in ^= turn > 0 if by > ay else turn < 0
    return is_in
