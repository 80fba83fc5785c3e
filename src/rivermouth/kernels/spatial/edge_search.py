"""The searches of an `EdgeTree`: parts within a distance, the nearest parts, pair by pair."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numba
import numpy as np

from rivermouth.kernels.arrays import Bools, Floats, Ints
from rivermouth.kernels.spatial.box_tree import DEPTH, gap, insert, next_leaf, sort_run
from rivermouth.kernels.spatial.distance import chord, inner_bound, outer_bound, squared_distance
from rivermouth.kernels.spatial.kdtree import Among, admits
from rivermouth.kernels.spatial.plane_edges import Edges, Scratch, in_polygon, plane_distance
from rivermouth.kernels.spatial.sphere_edges import in_sphere_polygon, sphere_distance

#: parts in a leaf of the tree
PART_LEAF = 4


class SearchedParts(NamedTuple):
    """The arrays of an `EdgeTree` that tell its parts, as they are described there."""

    row: Ints
    is_area: Bools
    has_north: Bools
    box: Floats
    part_box: Floats
    row_start: Ints


@numba.njit(cache=True, inline="always")
def _reach(box: Floats, part: int, probe: Floats, q: int) -> Any:
    """The squared distance from probe `q` to the farthest corner of a part's box."""
    dims = probe.shape[1]
    total = 0.0
    for d in range(dims):
        off = max(probe[q, d] - box[part, d], box[part, dims + d] - probe[q, d])
        total += off * off
    return total


@numba.njit(cache=True)
def _to_edges(
    xy: Floats, probe: Floats, q: int, part: int, edges: Edges,
    far: float, enough: float, scratch: Scratch,
) -> float:  # fmt: skip
    if probe.shape[1] == 3:
        return sphere_distance(edges, part, xy, probe, q, far, enough, scratch)
    return plane_distance(edges, part, probe, q, far, enough, scratch)


@numba.njit(cache=True)
def _is_inside(
    xy: Floats,
    probe: Floats,
    q: int,
    part: int,
    parts: SearchedParts,
    edges: Edges,
    scratch: Scratch,
) -> bool:
    if not parts.is_area[part]:
        return False
    if probe.shape[1] == 3:
        north = parts.has_north[part]
        return in_sphere_polygon(edges, part, north, xy[q, 0], probe, q, scratch)
    return in_polygon(edges, part, probe[q, 0], probe[q, 1], scratch)


@numba.njit(cache=True)
def search_within(
    xy: Floats, probe: Floats, order: Ints, limit: float, parts: SearchedParts, edges: Edges
) -> tuple[Ints, Ints]:
    """Pairs by probe in this order, then row."""
    dims = probe.shape[1]
    far, near = outer_bound(limit, dims), inner_bound(limit, dims)
    enough = limit if dims == 2 else near
    size = len(probe) + 16
    left, right = np.empty(size, np.int64), np.empty(size, np.int64)
    count = 0
    stack, gaps = np.zeros((DEPTH, 3), np.int64), np.zeros(DEPTH)
    scratch = Scratch(np.zeros((DEPTH, 3), np.int64), np.zeros(DEPTH))
    for q in order:
        first = count
        stack[0], gaps[0] = (0, 0, len(parts.row)), 0.0
        top = 1
        while top:
            top, low, high = next_leaf(stack, gaps, top, far, parts.box, 0, PART_LEAF, probe, q)
            for part in range(low, high):
                off = gap(parts.part_box, part, probe, q)
                if off > far:
                    continue
                if _reach(parts.part_box, part, probe, q) > near:  # not all of it is that near
                    d = _to_edges(xy, probe, q, part, edges, far, enough, scratch)
                    if d > limit and (
                        off > 0.0 or not _is_inside(xy, probe, q, part, parts, edges, scratch)
                    ):
                        continue
                if count == len(left):
                    left = np.append(left, np.empty(count, np.int64))
                    right = np.append(right, np.empty(count, np.int64))
                left[count], right[count] = q, parts.row[part]
                count += 1
        sort_run(right, first, count)
        kept = first
        for k in range(first, count):  # a row may have several parts that are near
            if kept > first and right[kept - 1] == right[k]:
                continue
            left[kept], right[kept] = q, right[k]
            kept += 1
        count = kept
    return left[:count], right[:count]


@numba.njit(cache=True)
def search_nearest(
    xy: Floats, probe: Floats, order: Ints, k: int, limit: float,
    parts: SearchedParts, edges: Edges, among: Among | None,
) -> tuple[Ints, Floats]:  # fmt: skip
    """The nearest rows of each probe, -1 where there are fewer.

    Where `among` is None its tests are not compiled.
    """
    dims, row, row_start = probe.shape[1], parts.row, parts.row_start
    k = min(k, max(len(row), 1))
    rows = np.full((len(probe), k), -1, np.int64)
    distances = np.full((len(probe), k), np.inf)
    stack, gaps = np.zeros((DEPTH, 3), np.int64), np.zeros(DEPTH)
    scratch = Scratch(np.zeros((DEPTH, 3), np.int64), np.zeros(DEPTH))
    before, farthest = -1, outer_bound(limit, dims)
    for q in order:
        count, far = 0, farthest
        if among is None and before >= 0 and rows[before, k - 1] >= 0:
            # what the last probe found is no farther off than the way there and on
            way = math.sqrt(squared_distance(probe, q, probe, before))
            far = min(far, outer_bound(chord(distances[before, k - 1], dims) + way, 2))
        before = q
        stack[0], gaps[0] = (0, 0, len(row)), 0.0
        top = 1
        if among is not None and among.probe_group[q] < 0:
            top = 0
        while top:
            top, low, high = next_leaf(stack, gaps, top, far, parts.box, 0, PART_LEAF, probe, q)
            for part in range(low, high):
                if among is not None and not admits(among, q, row[part]):
                    continue
                off, d = gap(parts.part_box, part, probe, q), 0.0
                if off > far:
                    continue
                if off > 0.0 or not _is_inside(xy, probe, q, part, parts, edges, scratch):
                    d = _to_edges(xy, probe, q, part, edges, far, 0.0, scratch)
                if d > limit or d == np.inf:
                    continue
                if row_start[row[part] + 1] - row_start[row[part]] > 1:
                    count = _without(rows, distances, q, count, row[part], d)
                    if count < 0:  # it is there, and nearer
                        count = -count
                        continue
                count = insert(rows, distances, q, count, row[part], d)
                if count == k:
                    far = min(far, outer_bound(distances[q, k - 1], dims))
    return rows, distances


@numba.njit(cache=True)
def pair_distances(
    xy: Floats, probe: Floats, rows: Ints, parts: SearchedParts, row_part: Ints, edges: Edges
) -> Floats:
    """How far each probe is from the row it is paired with; NaN where that has no parts."""
    found = np.full(len(rows), np.nan)
    scratch = Scratch(np.zeros((DEPTH, 3), np.int64), np.zeros(DEPTH))
    for q in range(len(rows)):
        for k in range(parts.row_start[rows[q]], parts.row_start[rows[q] + 1]):
            part, d = row_part[k], 0.0
            if not _is_inside(xy, probe, q, part, parts, edges, scratch):
                d = _to_edges(xy, probe, q, part, edges, np.inf, 0.0, scratch)
            if not found[q] <= d:
                found[q] = d
    return found


@numba.njit(cache=True)
def _without(rows: Ints, distances: Floats, q: int, count: int, row: int, d: float) -> int:
    """Take a row out of the nearest of `q` if it is farther than `d`; how many are left.

    Negative, and nothing is done, where the row is there and no farther.
    """
    for i in range(count):
        if rows[q, i] == row:
            if distances[q, i] <= d:
                return -count
            for j in range(i, count - 1):
                rows[q, j], distances[q, j] = rows[q, j + 1], distances[q, j + 1]
            rows[q, count - 1], distances[q, count - 1] = -1, np.inf
            return count - 1
    return count


@numba.njit(cache=True)
def grow_boxes(boxes: Floats, parts: SearchedParts, edges: Edges, axes: Floats) -> None:
    """Let each polygon's box reach to the ends of the axes that the polygon contains."""
    scratch = Scratch(np.zeros((DEPTH, 3), np.int64), np.zeros(DEPTH))
    for part in range(len(parts.row)):
        if not parts.is_area[part]:
            continue
        for end in range(6):
            lon = math.degrees(math.atan2(axes[end, 1], axes[end, 0]))
            if lon >= 180.0:
                lon = -180.0
            north = parts.has_north[part]
            if in_sphere_polygon(edges, part, north, lon, axes, end, scratch):
                if end < 3:
                    boxes[part, 3 + end] = 1.0
                else:
                    boxes[part, end - 3] = -1.0
