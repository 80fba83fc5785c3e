"""The nearest rows among those within the time bounds.

Points are searched in a k-d tree that skips rows of other times and other keys; shapes by circles
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
from rivermouth.kernels.spatial.kdtree import Among
from rivermouth.kernels.spatial.sphere import RADIUS
from rivermouth.kernels.spatial.strtree import FARTHER, nearest_of
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
    if probe.geometries.is_points and build.geometries.is_points:
        among = Among(probe.times, groups[0], build.times, groups[1], *bounds)
        xy = probe.geometries.xy
        return Neighbours(*build.tree.nearest(*xy, spatial.k, spatial.limit, among))
    return _of_shapes(probe, build, groups, spatial, bounds)


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
        self._tree = shapely.STRtree(self._others)

    @property
    def farthest(self) -> float:
        """More than any distance between these shapes."""
        bounds = shapely.total_bounds(np.concatenate([self._shapes, self._others]))
        low_x, low_y, high_x, high_y = bounds
        return float(np.hypot(high_x - low_x, high_y - low_y)) * (1.0 + 1e-9) + 1e-300

    def near(self, rows: Ints, reach: float) -> tuple[Ints, Ints]:
        li, ri = self._tree.query(self._shapes[rows], predicate="dwithin", distance=reach * FARTHER)
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
    search = (_SphereSearch if is_on_sphere(spatial) else _PlaneSearch)(probe, build)
    farthest = search.farthest if spatial.limit is None else spatial.limit
    reach = farthest / len(build) if spatial.limit is None else farthest
    open_rows, found = np.arange(len(probe)), []
    while len(open_rows):
        li, ri = search.near(open_rows, reach)
        allowed = bounds.allows(probe.times[li], build.times[ri])
        allowed &= (groups[0][li] == groups[1][ri]) & (groups[0][li] >= 0)
        li, ri = li[allowed], ri[allowed]
        distance = search.distances(li, ri, reach)
        inside = distance <= reach
        li, ri, distance = li[inside], ri[inside], distance[inside]
        done = (np.bincount(li, minlength=len(probe)) >= spatial.k) | (reach >= farthest)
        found.append((li[done[li]], ri[done[li]], distance[done[li]]))
        open_rows, reach = open_rows[~done[open_rows]], max(reach * 2, farthest * 1e-9)
    li, ri, distance = (np.concatenate(part) for part in zip(*found, strict=True))
    keep, distance = nearest_of(li, ri, distance, spatial.k, spatial.limit)
    return Neighbours(li[keep], ri[keep], distance)
