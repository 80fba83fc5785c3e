"""Paper C's BinR-tree: an R-tree for each bin of time, over the points in it (its section 3.3).

Kept to be measured beside the bands (`stream_join.band_join`); both give the same pairs.
A bin's rows are row blocks, each with a tree of its own, packed as those of `papers.rtree`. A probe
descends to the points within the distance and tests their times there: a bin that is longer than
the interval has points that are near and too old.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numba
import numpy as np

from rivermouth.kernels.arrays import Floats, Ints
from rivermouth.kernels.papers.rtree import FAN, levels, tiles
from rivermouth.kernels.spatial.box_tree import gap
from rivermouth.kernels.spatial.distance import distance, inner_bound, outer_bound
from rivermouth.kernels.spatial.sphere import unit_vectors

_AT_ONCE = 1 << 13  # rows that probe the tree at a time: their pairs must fit in memory


@dataclass(frozen=True)
class BinRTree:
    """Points of a bin in a packed R-tree; all arrays but the tree's are in the order of the leaves.

    Parameters
    ----------
    row
        The number of each point's row.
    time, xy, position
        Its time, its coordinates as they came, and its position in chord space (see `distance`).
    box, level_start
        The boxes level by level from the leaves, which are the points, and where levels start.
    """

    row: Ints
    time: Ints
    xy: Floats
    position: Floats
    box: Floats
    level_start: Ints


def build(x: Floats, y: Floats, time: Ints, *, sphere: bool) -> BinRTree:
    """Finite points in a tree."""
    order = tiles(np.column_stack([x, y, x, y]))
    xy = np.column_stack([x, y])[order]
    position = np.ascontiguousarray(unit_vectors(*xy.T) if sphere else xy)
    box, level_start = levels(np.hstack([position, position]))
    return BinRTree(order, time[order], xy, position, box, level_start)


def join(
    probe: BinRTree, build: BinRTree, limit: float, bounds: tuple[int, int, int, int]
) -> Iterator[tuple[Ints, Ints, int]]:
    """Pairs (probe row, build row) within the distance and the times, and how many were tested.

    `bounds` are a `stream_join.times.TimeBounds`.
    """
    for begin in range(0, len(probe.row) if len(build.row) else 0, _AT_ONCE):
        left, right, tested = _join(
            begin, min(begin + _AT_ONCE, len(probe.row)), probe.xy, probe.position, probe.time,
            build.xy, build.time, build.box, build.level_start, limit, *bounds,
        )  # fmt: skip
        yield probe.row[left], build.row[right], tested


@numba.njit(cache=True)
def _join(
    begin: int, end: int, xy: Floats, position: Floats, time: Ints, other_xy: Floats,
    other_time: Ints, box: Floats, level_start: Ints, limit: float, lower: int, upper: int,
    first: int, last: int,
) -> tuple[Ints, Ints, int]:  # fmt: skip
    dims = position.shape[1]
    far, near = outer_bound(limit, dims), inner_bound(limit, dims)
    left, right = np.empty(end - begin + 16, np.int64), np.empty(end - begin + 16, np.int64)
    stack = np.empty((512, 2), np.int64)
    count, tested = 0, 0
    for q in range(begin, end):
        earliest, latest = max(time[q] + lower, first), min(time[q] + upper, last)
        stack[0, 0], stack[0, 1] = len(level_start) - 2, 0
        top = 1
        while top:
            top -= 1
            level, slot = stack[top, 0], stack[top, 1]
            off = gap(box, level_start[level] + slot, position, q)
            if off > far:
                continue
            if level:
                below = level_start[level] - level_start[level - 1]
                for k in range(slot * FAN, min((slot + 1) * FAN, below)):
                    stack[top, 0], stack[top, 1] = level - 1, k
                    top += 1
                continue
            tested += 1
            is_near = off <= near or distance(xy, q, other_xy, slot, dims) <= limit
            if not is_near or not earliest <= other_time[slot] <= latest:
                continue
            if count == len(left):
                left = np.append(left, np.empty(count, np.int64))
                right = np.append(right, np.empty(count, np.int64))
            left[count], right[count] = q, slot
            count += 1
    return left[:count], right[:count], tested
