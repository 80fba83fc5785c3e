"""A table in buckets: events are sent to where their bucket is mapped, and joined there.

By keys Spark itself computes the bucket. By place a task does, from the cut of the table's version;
that is only where an event is sent to, since the task that joins it finds its buckets anew, by the
version that it joins. A shape that lies across a cut is sent to one bucket, that of its low corner,
and looked up in the others from there: it is one row all the way, so that left, semi and anti
joins know all that it has found.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (as everybody writes it)
from pyspark.sql import types as t

from rivermouth.kernels.arrays import Floats
from rivermouth.kernels.table_join.matching import reject_counts
from rivermouth.kernels.table_join.pairs import Columns, Pairs
from rivermouth.kernels.table_join.place_buckets import CrossingMatcher, OpenBucket, event_boxes
from rivermouth.spark.engines import partitioning
from rivermouth.spark.engines.micro_batch import micro_batch
from rivermouth.spark.engines.partitioning import ROUTE
from rivermouth.spark.engines.stateless import nullable
from rivermouth.spark.engines.table_steps import (
    MakeStep,
    OpenMatcher,
    Shape,
    TableStep,
    open_matcher,
)
from rivermouth.spark.runtime.freeze_gc import freeze_gc
from rivermouth.spark.validation.join_table import WHERE, Join
from rivermouth.spec.caches import Full
from rivermouth.tables.cache.snapshot import Snapshot, SnapshotSpec
from rivermouth.tables.cache.snapshot_store import Version
from rivermouth.tables.shared_folder import SharedFolder

_HELD = 64 << 20  # bytes of events across a cut that wait, so that buckets are opened once for many


def in_buckets(events: DataFrame, join: Join, cache: Full, folder: SharedFolder) -> DataFrame:
    """The events, each where its bucket is mapped, with a column `partitioning.ROUTE`."""
    assert cache.buckets is not None
    if join.keys is not None:
        route = partitioning.by_hash(join, cache.buckets)
        return partitioning.to_partitions(events, route, cache.buckets)
    schema = t.StructType([*nullable(join.events), t.StructField(ROUTE, t.IntegerType())])
    make = _snapshots(join.snapshot_spec(cache), cache, folder)
    routed = events.mapInArrow(_by_place(join, make), schema)
    return partitioning.to_partitions(routed, F.col(ROUTE), cache.buckets)


def buckets_step(join: Join, cache: Full, folder: SharedFolder) -> MakeStep:
    """Against a snapshot in buckets; the events have a column `partitioning.ROUTE`."""
    step = _BucketsStep if join.keys is not None else _PlacesStep
    make = _snapshots(join.snapshot_spec(cache), cache, folder)
    return lambda shape: step(join, shape, cache, make)


#: a task's view of the snapshot: in a stream, of the version of its micro-batch
MakeSnapshot = Callable[[], Snapshot]


def _snapshots(spec: SnapshotSpec, cache: Full, folder: SharedFolder) -> MakeSnapshot:
    return lambda: Snapshot(spec, cache, folder.seen(where=WHERE), batch=micro_batch())


def _by_place(
    join: Join, make: MakeSnapshot
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Adds the bucket of each event's low corner; of one without a place the last bucket."""
    assert join.spatial is not None
    spatial = join.spatial

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        cut = make().cut()
        for batch in batches:
            boxes = event_boxes(spatial, {name: batch.column(name) for name in join.left_columns})
            columns = [*batch.columns, pa.array(cut.home(boxes))]
            yield pa.RecordBatch.from_arrays(columns, [*batch.schema.names, ROUTE])
        freeze_gc()

    return work


class _BucketsStep(TableStep):
    """A task that maps the buckets of its events, as a rule one."""

    def __init__(self, join: Join, shape: Shape, cache: Full, make: MakeSnapshot) -> None:
        super().__init__(join, shape)
        self._spec, self._refresh, self._snapshot = join.snapshot_spec(cache), cache.refresh, make()
        self._versions: dict[int, Version] = {}

    def batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The joined rows of each batch, bucket by bucket."""
        for batch in batches:
            for bucket, part in partitioning.parts(batch):
                yield self._in_bucket(bucket, part)

    def report(self) -> dict[str, Any]:
        """What was seen, and how old and large the buckets were."""
        versions = self._versions.values()
        table = {
            "rows": sum(version.rows.num_rows for version in versions),
            "version": max((version.number for version in versions), default=0),
            "age_seconds": time.time() - min((v.loaded for v in versions), default=time.time()),
            "load_seconds": sum(version.seconds for version in versions),
            "refresh_seconds": self._refresh,
            "index": next((version.index.kind for version in versions), None),
            "buckets": sorted(self._versions),
        }
        return {**vars(self._counts), "table": table}

    def _in_bucket(self, bucket: int, part: pa.RecordBatch) -> pa.RecordBatch:
        """The joined rows of events that have all they can find in one bucket."""
        began = self._clock()
        matcher, table = self._matcher(bucket, self._own(bucket))
        return self._emit(part, matcher.match(self._probe(part)), table, began)

    def _own(self, bucket: int) -> Version:
        """A bucket of this task's own, which it reports."""
        if bucket not in self._versions:
            before, version = self._snapshot.version, self._snapshot.open(bucket)
            if self._snapshot.version != before:
                self._versions.clear()
            self._versions[bucket] = version
        return self._versions[bucket]

    def _matcher(self, bucket: int, version: Version) -> OpenMatcher:
        return open_matcher(self._join, self._spec, version, bucket)


class _PlacesStep(_BucketsStep):
    """A task whose events may lie across a cut: these wait, and are looked up in many buckets."""

    def __init__(self, join: Join, shape: Shape, cache: Full, make: MakeSnapshot) -> None:
        super().__init__(join, shape, cache, make)
        assert join.spatial is not None
        self._spatial, self._cut = join.spatial, self._snapshot.cut()
        self._held: list[pa.RecordBatch] = []
        brought = dict.fromkeys(old for _, old in join.columns)
        self._crossing = CrossingMatcher(
            self._spatial, self._cut, self._other, [join.table.field(name) for name in brought]
        )

    def batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The joined rows of each batch, bucket by bucket, then of the events across a cut."""
        for batch in batches:
            rows = batch.remove_column(batch.schema.get_field_index(ROUTE))
            alone, across = self._cut.alone(event_boxes(self._spatial, self._probe(rows)))
            for bucket, chosen in alone:
                whole = len(chosen) == rows.num_rows
                yield self._in_bucket(bucket, rows if whole else rows.take(pa.array(chosen)))
            if len(across):
                self._held.append(rows.take(pa.array(across)))
            if sum(held.nbytes for held in self._held) >= _HELD:
                yield self._across()
        if self._held:
            yield self._across()

    def report(self) -> dict[str, Any]:
        """As of buckets by key, and how often events were looked up in further buckets."""
        return {
            **super().report(),
            "counts": {"replicated_rows": self._crossing.replicated_rows},
        }

    def _across(self) -> pa.RecordBatch:
        """The joined rows of the events that wait."""
        began, held = self._clock(), pa.Table.from_batches(self._held)
        (rows,) = held.combine_chunks().to_batches()
        self._held = []
        left = self._probe(rows)
        boxes = event_boxes(self._spatial, left)
        pairs, table = self._in_one_version(left, boxes)
        rejected = reject_counts(None, self._spatial, left, srid=self._join.srid)
        return self._emit(rows, Pairs(pairs.left, pairs.right, None, rejected), table, began)

    def _in_one_version(self, left: Columns, boxes: Floats) -> tuple[Pairs, dict[str, pa.Array]]:
        """What these events find in all their buckets, anew if the version is removed meanwhile."""
        homes = np.unique(self._cut.home(boxes)).tolist()
        while True:
            for bucket in homes:  # other tasks report the rest
                self._own(bucket)
            try:
                return self._crossing.match(left, boxes)
            except _VersionMovedError:
                self._versions.clear()

    def _other(self, bucket: int) -> OpenBucket:
        before = self._snapshot.version
        version = self._versions.get(bucket) or self._snapshot.open(bucket)
        if self._snapshot.version != before:
            raise _VersionMovedError
        return OpenBucket(*self._matcher(bucket, version))


class _VersionMovedError(Exception):
    """The version that a task has begun with was removed, and its snapshot goes on with another."""
