"""Rows of one side, and the columns and indexes derived from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa

from rivermouth.kernels.arrays import Bools, Floats, Ints, one_batch
from rivermouth.kernels.keys import row_hash
from rivermouth.kernels.keys.values import ints
from rivermouth.kernels.papers import bin_rtree
from rivermouth.kernels.spatial import edge_tree, kdtree, sphere_pairs
from rivermouth.kernels.spatial.boxes import boxes_of
from rivermouth.kernels.spatial.geometry import Geometries, geometries_of
from rivermouth.kernels.spatial.sphere_parts import PAD
from rivermouth.kernels.stream_join import band_join
from rivermouth.kernels.stream_join.query import REPLICA, RIGHT, StreamJoin
from rivermouth.kernels.table_join.matching import Matcher, prepare
from rivermouth.spec.conditions import DWithin, Nearest, Point, is_on_sphere, named


class RowBlock:
    """Rows of one side. A row without a usable geometry or key is not valid or has a null key.

    Coordinates and indexes are computed at first use and kept as long as the block.

    Parameters
    ----------
    join, side
        The join, and whose rows these are.
    rows
        The rows.
    matched
        Which of them have a partner; `is_changed` where that is not in the state yet.
    """

    def __init__(
        self, join: StreamJoin, side: int, rows: pa.RecordBatch, matched: Bools | None = None
    ) -> None:
        self.join, self.side, self.rows = join, side, rows
        self.matched = np.zeros(rows.num_rows, dtype=bool) if matched is None else matched
        self.is_changed = False
        self._side = join.sides[side]

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    @cached_property
    def times(self) -> Ints:
        """The rows' times in microseconds since 1970."""
        return ints(self.rows.column(self._side.time))

    @cached_property
    def is_home(self) -> Bools:
        """Which rows are at home in this bucket: those that `REPLICA` does not number."""
        return np.asarray(self.rows.column(REPLICA).to_numpy() == 0)

    @cached_property
    def first(self) -> int:
        """The oldest time."""
        return int(self.times.min())

    @cached_property
    def last(self) -> int:
        """The newest time."""
        return int(self.times.max())

    @cached_property
    def geometries(self) -> Geometries:
        """The rows' geometries in the form that the condition needs."""
        spatial, geometry = self.join.spatial, self._side.geometry
        assert spatial is not None
        assert geometry is not None
        columns = {name: self.rows.column(name) for name in named(geometry)}
        found = geometries_of(columns, geometry, srid=self.join.srid)
        return found.shapes_on_sphere() if is_on_sphere(spatial) else found

    @cached_property
    def boxes(self) -> Floats:
        """The rows' bounding boxes, low corner then high corner.

        On the sphere they are those of unit vectors, and where there is no geometry all zero. A
        row has the same box in every block: in a column of shapes a point's is that of a part.
        """
        if self._side.geometry is None:
            return np.zeros((len(self), 2))
        geometries = self.geometries
        if not is_on_sphere(self.join.spatial):
            return boxes_of(geometries)
        if not geometries.is_points:
            return self.sphere_shapes.boxes
        corner = boxes_of(geometries, sphere=True)
        pad = 0.0 if isinstance(self._side.geometry, Point) else PAD
        return np.asarray(corner + np.repeat([-pad, pad], 3))

    @cached_property
    def keys(self) -> list[pa.Array]:
        """The rows' key columns."""
        return [self.rows.column(name) for name in self._side.keys]

    @cached_property
    def codes(self) -> Ints:
        """A hash of each row's keys, 0 where there are none."""
        return row_hash.codes(self.keys) if self.keys else np.zeros(len(self), np.int64)

    @cached_property
    def bands(self) -> band_join.Bands:
        """The rows' points, sorted for a join by distance."""
        spatial = self.join.spatial
        assert isinstance(spatial, DWithin)
        return band_join.build(
            *self.geometries.xy, self.times, self.codes, limit=spatial.limit,
            sphere=spatial.metric == "sphere", width=self.join.when.slot,
        )  # fmt: skip

    @cached_property
    def bin_rtree(self) -> bin_rtree.BinRTree:
        """The rows' points in paper C's tree."""
        spatial = self.join.spatial
        return bin_rtree.build(*self.geometries.xy, self.times, sphere=is_on_sphere(spatial))

    @cached_property
    def tree(self) -> kdtree.KdTree:
        """The rows' points in a k-d tree."""
        spatial, rows = self.join.spatial, np.arange(len(self))
        assert isinstance(spatial, Nearest)
        return kdtree.build(*self.geometries.xy, rows, sphere=spatial.metric == "sphere")

    @cached_property
    def edge_tree(self) -> edge_tree.EdgeTree | None:
        """The rows' shapes in a tree of edges in the plane, where it can hold them."""
        shapes = self.geometries.shapes
        return edge_tree.build(shapes) if edge_tree.can_index(shapes) else None

    @cached_property
    def sphere_shapes(self) -> sphere_pairs.SphereShapes:
        """The rows' shapes on the sphere."""
        return sphere_pairs.build(self.geometries.shapes)

    @cached_property
    def matcher(self) -> Matcher:
        """An index of the rows, probed by the other side's."""
        return self._matcher(None if self.join.spatial is None else "strtree")

    @cached_property
    def near_points(self) -> Matcher:
        """An index of the rows' shapes, probed by points for what is near them."""
        return self._matcher(None)

    def _matcher(self, index: str | None) -> Matcher:
        keys, spatial = self.join.condition(probe=1 - self.side)
        columns = self.columns
        made = prepare(spatial, columns, where="stream", keys=keys, index=index)
        return Matcher(keys, spatial, columns, made, srid=self.join.srid)

    @property
    def columns(self) -> dict[str, pa.Array]:
        """The columns that the condition names."""
        geometry = self._side.geometry
        names = (*(() if geometry is None else named(geometry)), *self._side.keys)
        return {name: self.rows.column(name) for name in dict.fromkeys(names)}

    def mark_matched(self, rows: Ints) -> None:
        """Note that these rows have a partner."""
        self.is_changed |= not self.matched[rows].all()
        self.matched[rows] = True

    def take(self, rows: Ints) -> RowBlock:
        """These rows as a block of their own."""
        return RowBlock(self.join, self.side, self.rows.take(pa.array(rows)), self.matched[rows])

    def split(self, most: int) -> Iterator[RowBlock]:
        """Blocks of at most `most` rows, the block itself where it is no longer."""
        if len(self) <= most:
            yield self
            return
        for begin in range(0, len(self), max(1, most)):
            yield self.take(np.arange(begin, min(begin + max(1, most), len(self))))

    def between(self, first: int, last: int) -> RowBlock:
        """The rows whose time lies in [first, last]: the block itself where all do."""
        if not len(self) or (first <= self.first and self.last <= last):
            return self
        return self.take(np.flatnonzero((self.times >= first) & (self.times <= last)))


def concat(blocks: Sequence[RowBlock]) -> RowBlock:
    """Blocks of one side as one, in this order."""
    rows = one_batch(pa.Table.from_batches([block.rows for block in blocks]))
    matched = np.concatenate([block.matched for block in blocks])
    return RowBlock(blocks[0].join, blocks[0].side, rows, matched)


def sphere_distances(
    probe: RowBlock, rows: Ints, build: RowBlock, others: Ints, limit: float
) -> Floats:
    """Metres between the two of each pair, the same whichever side probes."""
    if probe.side == RIGHT:
        return build.sphere_shapes.distances(others, probe.sphere_shapes, rows, limit)
    return probe.sphere_shapes.distances(rows, build.sphere_shapes, others, limit)
