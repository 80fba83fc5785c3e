"""What a task of join_table does in Python: batches of events meet the table, and are counted.

The cache says where the table's rows come from: a mapped snapshot (`Full`), rows of
recently used keys (`Incremental`), or the table's own store (`External`). What comes out is a
matter of the `Shape`: whole rows for the plan "workers", what was found for each event for "udf".
"""

from __future__ import annotations

import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rivermouth.kernels.table_join.layered import Layer, LayeredMatcher
from rivermouth.kernels.table_join.map_sketch import MOST_ROWS, Sketch
from rivermouth.kernels.table_join.matching import Matcher, Pairs, reject_counts
from rivermouth.spark import types
from rivermouth.spark.engines.micro_batch import micro_batch
from rivermouth.spark.engines.stateless import Step
from rivermouth.spark.validation.join_table import WHERE, Join
from rivermouth.spec.caches import Full, Incremental
from rivermouth.spec.conditions import Nearest
from rivermouth.tables.cache.fetching import LookupSpec
from rivermouth.tables.cache.incremental import GAUGES, shared
from rivermouth.tables.cache.snapshot import Snapshot, SnapshotSpec
from rivermouth.tables.cache.snapshot_store import Version
from rivermouth.tables.changes.following import Following
from rivermouth.tables.changes.overlay import LayeredVersion
from rivermouth.tables.shared_folder import SharedFolder
from rivermouth.tables.source import Queryable, check_unchanged
from rivermouth.tables.worker_cache import WorkerCache

#: what is made of a batch's pairs and the table's columns, and how many joined rows that is
Shape = Callable[
    [Join, pa.RecordBatch, Pairs, dict[str, pa.Array]],
    tuple[pa.RecordBatch, int],
]
#: makes a task's step, which gives its result in a shape
MakeStep = Callable[[Shape], Step]


def full_step(join: Join, cache: Full, folder: SharedFolder) -> MakeStep:
    """Against a snapshot under `folder`, whole and indexed before the first record."""
    spec = join.snapshot_spec(cache)
    step = _FullStep if cache.changes is None else _FollowingStep
    return lambda shape: step(join, shape, spec, cache, folder)


def incremental_step(join: Join, cache: Incremental) -> MakeStep:
    """Against the rows of recently used keys, others being fetched."""
    spec = LookupSpec(
        join.source,
        join.keys,
        join.range,
        tuple(dict.fromkeys(old for _, old in join.columns)),
        join.probe_schema,
        join.table,
    )
    return lambda shape: _IncrementalStep(join, shape, spec, cache)


def external_step(join: Join) -> MakeStep:
    """By the table's own store, one statement per batch."""
    return lambda shape: _ExternalStep(join, shape)


@dataclass
class _Counts:
    """What a task has seen; `rejected` counts the records that could not match, by reason."""

    rows_in: int = 0
    rows_out: int = 0
    matched: int = 0
    seconds: float = 0.0
    rejected: Counter[str] = field(default_factory=Counter)

    def add(self, batch: pa.RecordBatch, pairs: Pairs, rows_out: int, seconds: float) -> None:
        self.rows_in += batch.num_rows
        self.rows_out += rows_out
        self.matched += int(np.count_nonzero(np.diff(pairs.left, prepend=-1)))
        self.seconds += seconds
        self.rejected.update(pairs.reject_counts)


class TableStep:
    """A task of the join, whatever its cache, which counts what it sees."""

    _clock: Callable[[], float] = staticmethod(time.perf_counter)  #: of the seconds counted

    def __init__(self, join: Join, shape: Shape) -> None:
        self._join, self._shape, self._counts = join, shape, _Counts()

    def _probe(self, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        """The columns that the condition names."""
        return {name: batch.column(name) for name in self._join.left_columns}

    def _emit(
        self, batch: pa.RecordBatch, pairs: Pairs, table: dict[str, pa.Array], began: float
    ) -> pa.RecordBatch:
        """What these pairs give, counted; `began` is by `_clock` when the work on them did."""
        out, rows = self._shape(self._join, batch, pairs, table)
        self._counts.add(batch, pairs, rows, self._clock() - began)
        return out


class _FullStep(TableStep):
    """A task with one version of the table for all its batches."""

    def __init__(
        self, join: Join, shape: Shape, spec: SnapshotSpec, cache: Full, folder: SharedFolder
    ) -> None:
        super().__init__(join, shape)
        self._version = Snapshot(spec, cache, folder.seen(where=WHERE), batch=micro_batch()).open()
        self._matcher, self._table = open_matcher(join, spec, self._version)
        self._sketch, self._refresh = _sketch(join, self._version), cache.refresh

    def batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The joined rows of each batch."""
        for batch in batches:
            began, left = self._clock(), self._probe(batch)
            pairs = self._matcher.match(left)
            if self._sketch is not None:
                self._sketch.add(left, pairs)
            yield self._emit(batch, pairs, self._table, began)

    def report(self) -> dict[str, Any]:
        """What was seen, how old and large the table was, and what a map shows of it."""
        table = self._version.report(self._refresh)
        sketch = {} if self._sketch is None else {"sketch": self._sketch.report()}
        return {**vars(self._counts), "table": table, **sketch}


class _FollowingStep(TableStep):
    """A task with one version of a table that follows changes."""

    def __init__(
        self, join: Join, shape: Shape, spec: SnapshotSpec, cache: Full, folder: SharedFolder
    ) -> None:
        super().__init__(join, shape)
        at = folder.seen(where=WHERE)
        self._version = Following(spec, cache, at, batch=micro_batch()).opened()
        self._matcher = _layered(join, spec, self._version)
        self._refresh = cache.refresh

    def batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The joined rows of each batch."""
        columns = list(dict.fromkeys(old for _, old in self._join.columns))
        for batch in batches:
            began = self._clock()
            pairs = self._matcher.match(self._probe(batch))
            table = self._matcher.take(columns, pairs.right)
            numbered = replace(pairs, right=np.arange(len(pairs.right)))
            yield self._emit(batch, numbered, table, began)

    def report(self) -> dict[str, Any]:
        """What was seen, how old and large the table was, and what has changed in it."""
        return {**vars(self._counts), "table": self._version.report(self._refresh)}


def _sketch(join: Join, version: Version) -> Sketch | None:
    """What counts the matches of each row, where the table has places and is not too large."""
    rows = version.rows.num_rows
    return None if join.spatial is None or rows > MOST_ROWS else Sketch(join.spatial.left, rows)


class _Timed:
    """Batches, with the CPU time that it takes to get them from Spark."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches, self._seconds = batches, 0.0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        began = time.thread_time()
        for batch in self._batches:
            self._seconds += time.thread_time() - began
            yield batch
            began = time.thread_time()

    def taken(self) -> float:
        """The seconds since the last call."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds


class _IncrementalStep(TableStep):
    """A task that shares its process's cache of keys.

    It counts CPU time: between two batches it also waits, for the store and for Spark.
    """

    _clock = staticmethod(time.thread_time)

    def __init__(self, join: Join, shape: Shape, spec: LookupSpec, cache: Incremental) -> None:
        super().__init__(join, shape)
        self._cache = shared(spec, cache)
        self._before = self._cache.counts
        self.fetched: npt.NDArray[np.int64] = np.empty(0, np.int64)  #: of the batch last finished

    def batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The joined rows of each batch; while keys of one are fetched, the one before goes on."""
        source, began = _Timed(batches), self._clock()
        for batch, rows in self._cache.each(source, self._probe):
            out = self._emit(batch, rows.pairs, rows.table, began + source.taken())
            self.fetched = rows.fetched
            yield out
            began = self._clock()

    def report(self) -> dict[str, Any]:
        """What was seen, what the cache did meanwhile, and what it holds now."""
        now = self._cache.counts
        since = {name: n if name in GAUGES else n - self._before[name] for name, n in now.items()}
        worker = f"{socket.gethostname()}:{os.getpid()}"
        return {**vars(self._counts), "cache": {"worker": worker, **since}}


class _ExternalStep(TableStep):
    """A task that queries the table's store, batch by batch."""

    def __init__(self, join: Join, shape: Shape) -> None:
        super().__init__(join, shape)
        assert isinstance(join.source, Queryable)
        self._source = join.source

    def batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The joined rows of each batch."""
        columns = list(dict.fromkeys(old for _, old in self._join.columns))
        for batch in batches:
            began, left = self._clock(), self._probe(batch)
            li, rows = self._source.lookup(self._join.on, columns, left)
            distance = None
            if isinstance(self._join.spatial, Nearest):
                distance = rows.column(rows.num_columns - 1).to_numpy()
                rows = rows.remove_column(rows.num_columns - 1)
            check_unchanged(rows, self._join.table, columns, table=self._source.name)
            table = {name: rows.column(name).combine_chunks() for name in rows.column_names}
            rejected = reject_counts(
                self._join.keys, self._join.spatial, left,
                srid=self._join.srid, span=self._join.range,
            )  # fmt: skip
            yield self._emit(batch, Pairs(li, np.arange(len(li)), distance, rejected), table, began)

    def report(self) -> dict[str, Any]:
        """What was seen."""
        return vars(self._counts)


def cast(join: Join, columns: dict[str, pa.Array]) -> dict[str, pa.Array]:
    """The columns, those brought from the table in the types that Spark expects of them."""
    for added in join.added:
        expected = types.to_arrow(added.dataType, where=WHERE, column=added.name)
        if columns[added.name].type != expected:
            columns[added.name] = columns[added.name].cast(expected)
    return columns


#: the condition over a version of the table, and its columns
OpenMatcher = tuple[Matcher, dict[str, pa.Array]]
_MOST_BUCKETS = 4  # of one table, that a worker keeps open
_matchers: WorkerCache[str, WorkerCache[int, OpenMatcher]] = WorkerCache(size=16)


def open_matcher(join: Join, spec: SnapshotSpec, version: Version, bucket: int = 0) -> OpenMatcher:
    """The matcher over a version; a worker keeps the newest of each table, or a few buckets."""

    def make() -> OpenMatcher:
        table, index = version.columns, version.index
        return Matcher(
            join.keys, join.spatial, table, index, span=join.range, srid=join.srid
        ), table

    of_table = _matchers.get(spec.digest, lambda: WorkerCache(_MOST_BUCKETS))
    return of_table.get(bucket, make, version=version.number)


_layers: WorkerCache[str, dict[Path, Matcher]] = WorkerCache(size=16)


def _layered(join: Join, spec: SnapshotSpec, version: LayeredVersion) -> LayeredMatcher:
    """The matcher over a version's layers; a worker keeps those of the newest version of each."""
    known, made = _layers.find(spec.digest) or {}, {}
    layers = []
    for layer in version.layers:
        columns = layer.version.columns
        matcher = known.get(layer.path) or Matcher(
            join.keys, join.spatial, columns, layer.version.index, span=join.range, srid=join.srid
        )
        made[layer.path] = matcher
        layers.append(Layer(matcher, columns, layer.gone, layer.hidden))
    _layers.put(spec.digest, made)
    return LayeredMatcher(layers, spatial=join.spatial, span=join.range)
