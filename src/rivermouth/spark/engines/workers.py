"""join_table's plan "workers": Arrow batches meet the table's rows in Python workers.

Where the rows come from is the cache's affair: a mapped snapshot (`Full`), rows of
recently used keys (`Incremental`), or the table's own store (`External`).
"""

from __future__ import annotations

import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as t

from rivermouth.kernels.table_join.assemble import assemble
from rivermouth.kernels.table_join.map_sketch import MOST_ROWS, Sketch
from rivermouth.kernels.table_join.matching import Matcher, Pairs, reject_counts
from rivermouth.spark import types
from rivermouth.spark.engines import partitioning
from rivermouth.spark.engines.hotspots import Hotspots, SampledStep
from rivermouth.spark.engines.stateless import Step, run
from rivermouth.spark.validation.join_table import WHERE, Join
from rivermouth.spec.caches import Full, Incremental
from rivermouth.spec.conditions import Nearest
from rivermouth.tables.cache.fetching import LookupSpec
from rivermouth.tables.cache.incremental import GAUGES, shared
from rivermouth.tables.cache.snapshot import Snapshot, SnapshotSpec
from rivermouth.tables.cache.snapshot_store import Version
from rivermouth.tables.source import Queryable, check_unchanged
from rivermouth.tables.worker_cache import WorkerCache

Routed = Hotspots | int | None  #: where events go: by a rule, by hash to so many, where they are


def join_in_workers(
    events: DataFrame, join: Join, cache: Full, folder: str, routed: Routed = None
) -> DataFrame:
    """The join against a snapshot under `folder`, whole and indexed before the first record."""
    spec = join.snapshot_spec(cache)
    return _run(events, join, lambda: _FromSnapshot(join, spec, cache, folder), routed)


def join_in_buckets(
    events: DataFrame, join: Join, cache: Full, count: int, folder: str
) -> DataFrame:
    """The join against a snapshot in `count` buckets, each event where its bucket is mapped."""
    spec = join.snapshot_spec(cache)
    bucketed = partitioning.to_partitions(events, partitioning.by_hash(join, count), count)
    return _run(bucketed, join, lambda: _FromBuckets(join, spec, cache, folder), None)


def join_by_keys(
    events: DataFrame, join: Join, cache: Incremental, routed: Routed = None
) -> DataFrame:
    """The join against the rows of recently used keys, others being fetched."""
    spec = LookupSpec(
        join.source,
        join.keys,
        join.range,
        tuple(dict.fromkeys(old for _, old in join.columns)),
        pa.schema(asked_fields(join)),
        join.table,
    )
    return _run(events, join, lambda: _FromCache(join, spec, cache), routed)


def join_by_store(events: DataFrame, join: Join, routed: Routed = None) -> DataFrame:
    """The join answered by the table's own store, one statement per batch."""
    return _run(events, join, lambda: _FromStore(join), routed)


def _run(events: DataFrame, join: Join, make: Callable[[], Step], routed: Routed) -> DataFrame:
    """The events through a step, in the partitions they are routed to."""
    made = make
    if isinstance(routed, Hotspots):
        events = routed.routed(events, join)
        made = lambda: SampledStep(make(), routed)  # noqa: E731
    elif routed is not None:
        route = partitioning.by_hash(join, routed)
        events = partitioning.to_partitions(events, route, routed).drop(partitioning.ROUTE)
    return run(events, made, join.output, name=f"{WHERE}.{join.source.name}", about=join)


@dataclass
class _Counts:
    """What a task has seen; `rejected` counts the records that could not match, by reason."""

    rows_in: int = 0
    rows_out: int = 0
    matched: int = 0
    seconds: float = 0.0
    rejected: Counter[str] = field(default_factory=Counter)

    def add(self, batch: pa.RecordBatch, pairs: Pairs, out: pa.RecordBatch, seconds: float) -> None:
        self.rows_in += batch.num_rows
        self.rows_out += out.num_rows
        self.matched += int(np.count_nonzero(np.diff(pairs.left, prepend=-1)))
        self.seconds += seconds
        self.rejected.update(pairs.reject_counts)


class _FromSnapshot:
    """A task: one version of the table for all its batches."""

    def __init__(self, join: Join, spec: SnapshotSpec, cache: Full, folder: str) -> None:
        self._join, self._counts = join, _Counts()
        self._version = Snapshot(spec, cache, folder).open()
        self._matcher, self._table = _opened(join, spec, self._version)
        self._sketch, self._refresh = _sketch(join, self._version), cache.refresh

    def batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The joined rows of each batch."""
        for batch in batches:
            watch = time.perf_counter()
            left = {name: batch.column(name) for name in self._join.left_columns}
            pairs = self._matcher.match(left)
            out = _joined(self._join, batch, pairs, self._table)
            if self._sketch is not None:
                self._sketch.add(left, pairs)
            self._counts.add(batch, pairs, out, time.perf_counter() - watch)
            yield out

    def report(self) -> dict[str, Any]:
        """What was seen, how old and large the table was, and what a map shows of it."""
        table = {
            "rows": self._version.rows.num_rows,
            "version": self._version.number,
            "age_seconds": time.time() - self._version.loaded,
            "load_seconds": self._version.seconds,
            "refresh_seconds": self._refresh,
            "index": self._version.index.kind,
        }
        sketch = {} if self._sketch is None else {"sketch": self._sketch.report()}
        return {**vars(self._counts), "table": table, **sketch}


def _sketch(join: Join, version: Version) -> Sketch | None:
    """What counts the matches of each row, where the table has places and is not too large."""
    rows = version.rows.num_rows
    return None if join.spatial is None or rows > MOST_ROWS else Sketch(join.spatial.left, rows)


class _FromBuckets:
    """A task that maps the buckets of its events, as a rule one."""

    def __init__(self, join: Join, spec: SnapshotSpec, cache: Full, folder: str) -> None:
        self._join, self._spec, self._counts = join, spec, _Counts()
        self._snapshot = Snapshot(spec, cache, folder)
        self._versions: dict[int, Version] = {}

    def batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The joined rows of each batch, bucket by bucket."""
        for batch in batches:
            for bucket, part in partitioning.parts(batch):
                watch = time.perf_counter()
                matcher, table = self._opened(bucket)
                left = {name: part.column(name) for name in self._join.left_columns}
                pairs = matcher.match(left)
                out = _joined(self._join, part, pairs, table)
                self._counts.add(part, pairs, out, time.perf_counter() - watch)
                yield out

    def _opened(self, bucket: int) -> tuple[Matcher, dict[str, pa.Array]]:
        if bucket not in self._versions:
            self._versions[bucket] = self._snapshot.open(bucket)
        return _opened(self._join, self._spec, self._versions[bucket], bucket)

    def report(self) -> dict[str, Any]:
        """What was seen, and how old and large the buckets were."""
        versions = self._versions.values()
        table = {
            "rows": sum(version.rows.num_rows for version in versions),
            "version": max((version.number for version in versions), default=0),
            "age_seconds": time.time() - min((v.loaded for v in versions), default=time.time()),
            "load_seconds": sum(version.seconds for version in versions),
            "index": next((version.index.kind for version in versions), None),
            "buckets": sorted(self._versions),
        }
        return {**vars(self._counts), "table": table}


class _FromCache:
    """A task that shares its process's cache of keys."""

    def __init__(self, join: Join, spec: LookupSpec, cache: Incremental) -> None:
        self._join, self._counts = join, _Counts()
        self._cache = shared(spec, cache)
        self._before = self._cache.counts
        self.fetched: npt.NDArray[np.int64] = np.empty(0, np.int64)  #: of the batch last finished

    def batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The joined rows of each batch; while keys of one are fetched, the one before goes on."""
        for batch, rows in self._cache.each(batches, self._left):
            watch = time.perf_counter()
            out = _joined(self._join, batch, rows.pairs, rows.table)
            self._counts.add(batch, rows.pairs, out, time.perf_counter() - watch)
            self.fetched = rows.fetched
            yield out

    def _left(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        return {name: batch.column(name) for name in self._join.left_columns}

    def report(self) -> dict[str, Any]:
        """What was seen, what the cache did meanwhile, and what it holds now."""
        now = self._cache.counts
        since = {name: n if name in GAUGES else n - self._before[name] for name, n in now.items()}
        worker = f"{socket.gethostname()}:{os.getpid()}"
        return {**vars(self._counts), "cache": {"worker": worker, **since}}


class _FromStore:
    """A task that asks the table's store, batch by batch."""

    def __init__(self, join: Join) -> None:
        assert isinstance(join.source, Queryable)
        self._join, self._source, self._counts = join, join.source, _Counts()

    def batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The joined rows of each batch."""
        columns = list(dict.fromkeys(old for _, old in self._join.columns))
        for batch in batches:
            watch = time.perf_counter()
            left = {name: batch.column(name) for name in self._join.left_columns}
            li, rows = self._source.lookup(self._join.on, columns, left)
            distance = None
            if isinstance(self._join.spatial, Nearest):
                distance = rows.column(rows.num_columns - 1).to_numpy()
                rows = rows.remove_column(rows.num_columns - 1)
            check_unchanged(rows, self._join.table, columns, table=self._source.name)
            table = {name: rows.column(name).combine_chunks() for name in rows.column_names}
            aside = reject_counts(
                self._join.keys, self._join.spatial, left,
                srid=self._join.srid, span=self._join.range,
            )  # fmt: skip
            pairs = Pairs(li, np.arange(len(li)), distance, aside)
            out = _joined(self._join, batch, pairs, table)
            self._counts.add(batch, pairs, out, time.perf_counter() - watch)
            yield out

    def report(self) -> dict[str, Any]:
        """What was seen."""
        return vars(self._counts)


_GEOMETRY = pa.struct([("srid", pa.int32()), ("wkb", pa.binary())])


def asked_fields(join: Join) -> list[pa.Field]:
    """The events' columns that the condition names, as they come to a worker."""
    fields = []
    for name in join.left_columns:
        kind = join.events[name].dataType
        is_geometry = isinstance(kind, t.GeometryType)
        arrow = _GEOMETRY if is_geometry else types.to_arrow(kind, where=WHERE, column=name)
        fields.append(pa.field(name, arrow))
    return fields


def _joined(
    join: Join, batch: pa.RecordBatch, pairs: Pairs, table: dict[str, pa.Array]
) -> pa.RecordBatch:
    """The result's columns, in the types Spark expects of those brought from the table."""
    result = assemble(batch, pairs, join.how, table, join.columns, distance=join.distance)
    for added in join.added:
        expected = types.to_arrow(added.dataType, where=WHERE, column=added.name)
        if result[added.name].type != expected:
            result[added.name] = result[added.name].cast(expected)
    return pa.RecordBatch.from_arrays(list(result.values()), list(result))


_Opened = tuple[Matcher, dict[str, pa.Array]]
_MOST_BUCKETS = 4  # of one table, that a worker keeps open
_matchers: WorkerCache[str, WorkerCache[int, _Opened]] = WorkerCache(size=16)


def _opened(join: Join, spec: SnapshotSpec, version: Version, bucket: int = 0) -> _Opened:
    """The matcher over a version; a worker keeps the newest of each table, or a few buckets."""

    def make() -> _Opened:
        table, index = version.columns, version.index
        return Matcher(
            join.keys, join.spatial, table, index, span=join.range, srid=join.srid
        ), table

    of_table = _matchers.get(spec.digest, lambda: WorkerCache(_MOST_BUCKETS))
    return of_table.get(bucket, make, version=version.number)
