"""The pairs of two row blocks: the condition by an index, the times pair by pair.

Points within a distance go through `band_join`, which tests times on the way; shapes within metres
through `sphere_pairs`, times first; everything else through the indexes of table joins (see
`matching`), and the times afterwards. `nearest` is answered
in `nearest`, since it must know the times before it chooses.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rivermouth.kernels.arrays import Ints
from rivermouth.kernels.keys.row_hash import same
from rivermouth.kernels.papers import bin_rtree
from rivermouth.kernels.stream_join import band_join
from rivermouth.kernels.stream_join.row_block import RowBlock, sphere_distances
from rivermouth.kernels.stream_join.times import TimeBounds
from rivermouth.spec.conditions import DWithin

#: probe rows, build rows, and how many candidates were tested
PairBatch = tuple[Ints, Ints, int]

_AT_ONCE = 1 << 14  # rows that probe an index at a time: its candidates must fit in memory


def pairs(probe: RowBlock, build: RowBlock, bounds: TimeBounds) -> Iterator[PairBatch]:
    """The pairs of two blocks that satisfy the condition and the time bounds."""
    if not len(probe) or not len(build):
        return
    first, last = bounds.around(probe.first, probe.last)
    if build.last < first or last < build.first:
        return
    spatial = probe.join.spatial
    if isinstance(spatial, DWithin) and probe.geometries.is_points and build.geometries.is_points:
        for rows, others, tested in _points(probe, build, spatial.limit, bounds):
            if probe.keys:  # bands compare hashes of keys, trees none
                equal = same(probe.keys, rows, build.keys, others)
                rows, others = rows[equal], others[equal]
            yield rows, others, tested
    elif isinstance(spatial, DWithin) and spatial.metric == "sphere":
        yield from _on_sphere(probe, build, spatial.limit, bounds)
    else:
        yield from _by_index(probe, build, bounds)


def _points(
    probe: RowBlock, build: RowBlock, limit: float, bounds: TimeBounds
) -> Iterator[PairBatch]:
    if probe.join.index == "binrtree":
        return bin_rtree.join(probe.bin_rtree, build.bin_rtree, limit, bounds)
    return band_join.join(probe.bands, build.bands, limit, bounds)


def _by_index(probe: RowBlock, build: RowBlock, bounds: TimeBounds) -> Iterator[PairBatch]:
    columns = probe.columns
    is_near = isinstance(probe.join.spatial, DWithin) and probe.geometries.is_points
    matcher = build.near_points if is_near else build.matcher
    for begin in range(0, len(probe), _AT_ONCE):
        part = {name: column.slice(begin, _AT_ONCE) for name, column in columns.items()}
        candidates = matcher.match(part)
        rows, others = candidates.left + begin, candidates.right
        keep = bounds.allows(probe.times[rows], build.times[others])
        yield rows[keep], others[keep], len(rows)


def _on_sphere(
    probe: RowBlock, build: RowBlock, limit: float, bounds: TimeBounds
) -> Iterator[PairBatch]:
    for begin in range(0, len(probe), _AT_ONCE):
        some = np.arange(begin, min(begin + _AT_ONCE, len(probe)))
        rows, others = probe.sphere_shapes.near(some, build.sphere_shapes, limit)
        tested = len(rows)
        keep = bounds.allows(probe.times[rows], build.times[others])
        rows, others = rows[keep], others[keep]
        if probe.keys:
            equal = same(probe.keys, rows, build.keys, others)
            rows, others = rows[equal], others[equal]
        keep = sphere_distances(probe, rows, build, others, limit) <= limit
        yield rows[keep], others[keep], tested
