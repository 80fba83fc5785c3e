"""The nearest rows among those within the time bounds.

Points are searched in a k-d tree that skips rows of other times and other keys, or in the plane in
a tree of edges if they look for shapes; shapes, and points among shapes on the sphere, by circles
that grow until they contain enough rows. Of rows at the same distance the older comes first, and of
those of the same time the one whose columns sort first: the result does not depend on the order of
arrival.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import shapely

from rivermouth.kernels.arrays import Floats, Ints
from rivermouth.kernels.keys import key_index
from rivermouth.kernels.spatial.edge_tree import LARGE, EdgeTree
from rivermouth.kernels.spatial.kdtree import Among, KdTree
from rivermouth.kernels.spatial.sphere import RADIUS
from rivermouth.kernels.spatial.strtree import FARTHER, nearest_of, rounding
from rivermouth.kernels.stream_join.row_block import RowBlock, concat, sphere_distances
from rivermouth.kernels.stream_join.times import TimeBounds
from rivermouth.spec.conditions import Nearest, is_on_sphere

Groups = npt.NDArray[np.int32]


class Neighbours(NamedTuple):
    """The nearest build rows of probe rows, and their distances."""

    probe: Ints
    build: Ints
    distance: Floats


def nearest(probe: RowBlock, build: RowBlock, bounds: TimeBounds) -> Neighbours:
    """The nearest rows of `build`, which `in_order` has sorted, to each row of `probe`."""
    spatial = probe.join.spatial
    assert isinstance(spatial, Nearest)
    if not len(probe) or not len(build):
        return Neighbours(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))
    groups = np.zeros(len(probe), np.int32), np.zeros(len(build), np.int32)
    if probe.keys:
        index = key_index.build(build.keys)
        groups = index.lookup(probe.keys), index.group
    tree = _tree_for(probe, build)
    if tree is not None:
        among = Among(probe.times, groups[0], build.times, groups[1], *bounds)
        xy = probe.geometries.xy
        return Neighbours(*tree.nearest(*xy, spatial.k, spatial.limit, among))
    return _of_shapes(probe, build, groups, spatial, bounds)


def _tree_for(probe: RowBlock, build: RowBlock) -> KdTree | EdgeTree | None:
    """A tree of the build rows that all probe rows can be searched in: they are points."""
    if not probe.geometries.is_points:
        return None
    if build.geometries.is_points:
        return build.tree
    if is_on_sphere(probe.join.spatial):  # what nearly touches is counted in another way there
        return None
    x, y = (at[probe.geometries.valid] for at in probe.geometries.xy)
    is_small = max(np.abs(x).max(initial=0.0), np.abs(y).max(initial=0.0)) < LARGE
    return build.edge_tree if is_small else None


def in_order(blocks: Sequence[RowBlock]) -> RowBlock:
    """Blocks of one side as one, older rows first, those of the same time by their columns."""
    block = concat(blocks)
    by = {"time": pa.array(block.times)} | {
        f"{number}": column
        for number, column in enumerate(block.rows.columns)
        if not pa.types.is_nested(column.type) and not pa.types.is_null(column.type)
    }
    order = pc.sort_indices(pa.table(by), sort_keys=[(name, "ascending") for name in by])
    return block.take(order.to_numpy().astype(np.int64))


class _PlaneSearch:
    """Shapes near each other in the plane."""

    def __init__(self, probe: RowBlock, build: RowBlock) -> None:
        self._shapes, self._others = probe.geometries.shapes, build.geometries.shapes
        self._tree, self._rounding = shapely.STRtree(self._others), rounding(self._others)

    @property
    def farthest(self) -> float:
        """More than any distance between these shapes."""
        bounds = shapely.total_bounds(np.concatenate([self._shapes, self._others]))
        low_x, low_y, high_x, high_y = bounds
        return float(np.hypot(high_x - low_x, high_y - low_y)) * (1.0 + 1e-9) + 1e-300

    def near(self, rows: Ints, reach: float) -> tuple[Ints, Ints]:
        far = reach * FARTHER + self._rounding
        li, ri = self._tree.query(self._shapes[rows], predicate="dwithin", distance=far)
        return rows[li], ri

    def distances(self, li: Ints, ri: Ints, reach: float) -> Floats:
        return np.asarray(shapely.distance(self._shapes[li], self._others[ri]))


class _SphereSearch:
    """Shapes near each other on the sphere."""

    farthest = math.pi * RADIUS * (1.0 + 1e-9)

    def __init__(self, probe: RowBlock, build: RowBlock) -> None:
        self._probe, self._build = probe, build

    def near(self, rows: Ints, reach: float) -> tuple[Ints, Ints]:
        return self._probe.sphere_shapes.near(rows, self._build.sphere_shapes, reach)

    def distances(self, li: Ints, ri: Ints, reach: float) -> Floats:
        return sphere_distances(self._probe, li, self._build, ri, reach)


def _of_shapes(
    probe: RowBlock,
    build: RowBlock,
    groups: tuple[Groups, Groups],
    spatial: Nearest,
    bounds: TimeBounds,
) -> Neighbours:
    """Circles around each row, twice as wide in each round, until they contain enough rows."""
    sphere = is_on_sphere(spatial)
    search = (_SphereSearch if sphere else _PlaneSearch)(probe, build)
    farthest = search.farthest if spatial.limit is None else min(spatial.limit, search.farthest)
    reach = min(farthest, _spread(build) * (RADIUS if sphere else 1.0) / len(build))
    wanted = np.minimum(spatial.k, _at_most(probe, build, groups, bounds))
    open_rows, found = np.flatnonzero(wanted), []
    while len(open_rows):
        li, ri = search.near(open_rows, reach)
        allowed = bounds.allows(probe.times[li], build.times[ri])
        allowed &= (groups[0][li] == groups[1][ri]) & (groups[0][li] >= 0)
        li, ri = li[allowed], ri[allowed]
        distance = search.distances(li, ri, reach)
        inside = distance <= reach
        li, ri, distance = li[inside], ri[inside], distance[inside]
        done = (np.bincount(li, minlength=len(probe)) >= wanted) | (reach >= farthest)
        found.append((li[done[li]], ri[done[li]], distance[done[li]]))
        open_rows, reach = open_rows[~done[open_rows]], max(reach * 2, farthest * 1e-9)
    none = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0)
    li, ri, distance = (np.concatenate(part) for part in zip(none, *found, strict=True))
    keep, distance = nearest_of(li, ri, distance, spatial.k, spatial.limit)
    return Neighbours(li[keep], ri[keep], distance)


def _spread(build: RowBlock) -> float:
    """How wide the middle half of the rows lies, wherever a few others are."""
    boxes = build.boxes[build.geometries.valid]
    if not len(boxes):
        return 0.0
    dims = boxes.shape[1] // 2
    low, high = np.percentile((boxes[:, :dims] + boxes[:, dims:]) / 2, (25, 75), axis=0)
    return float(np.linalg.norm(high - low))


def _at_most(
    probe: RowBlock, build: RowBlock, groups: tuple[Groups, Groups], bounds: TimeBounds
) -> Ints:
    """More than the rows that each probe row can have: those of its key, those of its time."""
    of_key = np.bincount(groups[1][groups[1] >= 0], minlength=1)
    times = np.sort(build.times)
    first = np.maximum(probe.times + bounds.lower, bounds.first)
    last = np.minimum(probe.times + bounds.upper, bounds.last)
    of_time = np.searchsorted(times, last, side="right") - np.searchsorted(times, first)
    is_known = (groups[0] >= 0) & (groups[0] < len(of_key))
    return np.where(is_known, np.minimum(of_key[np.where(is_known, groups[0], 0)], of_time), 0)
