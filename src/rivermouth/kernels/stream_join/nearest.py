"""The nearest rows among those within the time bounds.

Points are searched in a k-d tree that skips rows of other times and other keys; shapes by circles
that grow until they contain enough rows. Of rows at the same distance the older comes first, and of
those of the same time the one whose columns sort first: the result does not depend on the order of
arrival.
"""

from __future__ import annotations

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
from rivermouth.kernels.spatial.strtree import nearest_of
from rivermouth.kernels.stream_join.row_block import RowBlock, concat
from rivermouth.kernels.stream_join.times import TimeBounds
from rivermouth.spec.conditions import Nearest

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


def _of_shapes(
    probe: RowBlock,
    build: RowBlock,
    groups: tuple[Groups, Groups],
    spatial: Nearest,
    bounds: TimeBounds,
) -> Neighbours:
    """Circles around each row, twice as wide in each round, until they contain enough rows."""
    shapes, others = probe.geometries.shapes, build.geometries.shapes
    tree = shapely.STRtree(others)
    if spatial.limit is not None:
        farthest = reach = spatial.limit
    else:  # more than any distance between these shapes
        low_x, low_y, high_x, high_y = shapely.total_bounds(np.concatenate([shapes, others]))
        farthest = float(np.hypot(high_x - low_x, high_y - low_y)) * (1.0 + 1e-9) + 1e-300
        reach = farthest / len(build)
    open_rows, found = np.arange(len(probe)), []
    while len(open_rows):
        li, ri = tree.query(shapes[open_rows], predicate="dwithin", distance=reach)
        li = open_rows[li]
        allowed = bounds.allows(probe.times[li], build.times[ri])
        allowed &= (groups[0][li] == groups[1][ri]) & (groups[0][li] >= 0)
        li, ri = li[allowed], ri[allowed]
        done = (np.bincount(li, minlength=len(probe)) >= spatial.k) | (reach >= farthest)
        found.append((li[done[li]], ri[done[li]]))
        open_rows, reach = open_rows[~done[open_rows]], max(reach * 2, farthest * 1e-9)
    li, ri = (np.concatenate(part) for part in zip(*found, strict=True))
    distance = shapely.distance(shapes[li], others[ri])
    keep, distance = nearest_of(li, ri, distance, spatial.k, spatial.limit)
    return Neighbours(li[keep], ri[keep], distance)
