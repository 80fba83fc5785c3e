"""Routing by hotspots in a running stream: events packed by partition, and tasks that sample.

The tasks that read a stream look up the rule of their micro-batch and send each partition's events
as one message (`kernels.state.bucketing`): Spark shuffles a few messages instead of many rows, and
no job is needed to deliver the rule. A batch frame has no micro-batch to keep a rule for, and an
object store no step that only one task can take: there the newest rule is read by one task and
broadcast, and the JVM applies it to rows.

The join's own tasks count and sample what came to them, and write it to the routing store
(`tables.skew.routing_store`) for the next batch.

Keys are ordered by ``xxhash64``: one integer whatever types and columns they have. Ranges of
it are as good as ranges of the keys themselves, since no row of the join depends on them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (as everybody writes it)

from rivermouth.kernels.arrays import stable_order
from rivermouth.kernels.skew.hotspots import Reservoir, partitions_of
from rivermouth.kernels.state.bucketing import decode, encode
from rivermouth.spark.engines.micro_batch import micro_batch
from rivermouth.spark.engines.partitioning import ROUTE, event_hash, keys_of, to_partitions
from rivermouth.spark.engines.stateless import Step
from rivermouth.spark.runtime.freeze_gc import freeze_gc
from rivermouth.spark.validation.join_table import WHERE, Join
from rivermouth.spec.routing import ByHotspot
from rivermouth.tables.shared_folder import SharedFolder
from rivermouth.tables.skew.routing_store import KEY, RoutingState, RoutingStore, TaskStats

ROUTE_KEY = "_rivermouth_key"
_BOUNDS, _SHARES = "_rivermouth_bounds", "_rivermouth_shares"
_PASSED = "_rivermouth_passed_"
_MESSAGE, _DRAW = "_rivermouth_events", "_rivermouth_draw"
_PACKED_ROWS, _PACKED_BYTES = 1 << 16, 32 << 20  # of events that are packed together
_DRAWS = 1 << 20  # how many there are
_LAST = 2**63 - 1
_RULE = pa.schema([(_BOUNDS, pa.list_(pa.int64())), (_SHARES, pa.list_(pa.float64()))])


@dataclass(frozen=True)
class Hotspots:
    """A routing as it is carried out: its settings, partitions, and its own folder in another."""

    routing: ByHotspot
    partitions: int
    folder: SharedFolder
    name: str

    @property
    def store(self) -> RoutingStore:
        """The rule and statistics, for a task."""
        return RoutingStore(self.folder.seen(where=WHERE) / self.name)

    def routed(self, events: DataFrame, join: Join) -> DataFrame:
        """The events in the partitions of the newest rule, for a `SampledStep`."""
        keyed = events.withColumn(ROUTE_KEY, F.xxhash64(*keys_of(join)))
        if not events.isStreaming or self.folder.location.is_uri:
            return self._by_broadcast(events, keyed)
        packed = keyed.withColumn(_DRAW, event_hash(events.schema)).mapInArrow(
            self.pack, f"{ROUTE} int, {_MESSAGE} binary"
        )
        return to_partitions(packed, F.col(ROUTE), self.partitions)

    def pack(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """A task's events as messages, each with its partition."""
        batch = micro_batch()
        state = RoutingState(self.partitions)
        if batch is not None:
            state = self.store.of_batch(self.routing, self.partitions, batch)
        for rows in _gathered(batches):
            yield _messages(rows, state)
        freeze_gc()

    def _by_broadcast(self, events: DataFrame, keyed: DataFrame) -> DataFrame:
        """The events with columns `ROUTE` and `ROUTE_KEY`, routed by the JVM."""
        ruled = keyed.crossJoin(F.broadcast(self._rule(events.sparkSession)))
        passed, names = F.lit(0), []
        for step in _steps(self.partitions - 1):
            names.append(f"{_PASSED}{step}")
            ruled = ruled.withColumn(names[-1], _passed(passed, step, _draw(events)))
            passed = F.col(names[-1])
        without = F.pmod(F.col(ROUTE_KEY), F.lit(self.partitions)).cast("int")
        route = F.when(F.col(_BOUNDS).isNull(), without).otherwise(passed)
        routed = ruled.withColumn(ROUTE, route).drop(_BOUNDS, _SHARES, *names)
        return to_partitions(routed, F.col(ROUTE), self.partitions)

    def _rule(self, spark: SparkSession) -> DataFrame:
        # one partition: each would end the cycle once more
        return spark.range(0, 1, 1, 1).mapInArrow(
            self.read, f"{_BOUNDS} array<bigint>, {_SHARES} array<double>"
        )

    def read(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rule as one row, null where there is none; the input says nothing."""
        for _ in batches:  # a worker that leaves its input unread is not used again
            pass
        state = self.store.advance(self.routing, self.partitions)
        bounds, shares = None, None
        if state.version:
            spare = self.partitions - 1 - len(state.keys)
            bounds = [*state.keys, *[_LAST] * spare]
            shares = [*state.share, *[1.0] * spare]
        yield pa.RecordBatch.from_pylist([{_BOUNDS: bounds, _SHARES: shares}], _RULE)


def _steps(bounds: int) -> list[int]:
    """The steps of a search among so many bounds: 4, 2, 1 for up to seven of them."""
    return [1 << power for power in reversed(range(bounds.bit_length()))]


def _passed(passed: Column, step: int, draw: Column) -> Column:
    """How many bounds an event is known to lie behind, after a step of the search.

    A column for each step, which Spark computes once: nested they would be written out twice each.
    """
    at, key = passed + F.lit(step - 1), F.col(ROUTE_KEY)
    bound, share = F.get(_BOUNDS, at), F.get(_SHARES, at)
    behind = (key > bound) | ((key == bound) & (draw >= share))
    return passed + F.when(behind, F.lit(step)).otherwise(F.lit(0))


def _draw(events: DataFrame) -> Column:
    """A number in [0, 1) that splits the events of one key."""
    return F.pmod(event_hash(events.schema), F.lit(_DRAWS)) / F.lit(float(_DRAWS))


def _gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The rows of several batches together, as many as are packed at once."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= _PACKED_ROWS or size >= _PACKED_BYTES:
            yield pa.Table.from_batches(held).combine_chunks()
            held, rows, size = [], 0, 0
    if rows:
        yield pa.Table.from_batches(held).combine_chunks()


def _messages(rows: pa.Table, state: RoutingState) -> pa.RecordBatch:
    """The rows by partition: one message for each that has any."""
    key, drawn = (rows.column(name).to_numpy() for name in (ROUTE_KEY, _DRAW))
    if state.version:
        bounds, share = np.array(state.keys, np.int64), np.array(state.share)
        route = partitions_of(key, drawn % _DRAWS / _DRAWS, bounds, share)
    else:
        route = key % state.partitions
    order, start = stable_order(route, state.partitions)
    ordered = rows.drop_columns([_DRAW]).take(pa.array(order))
    used = np.flatnonzero(np.diff(start))
    messages = [encode(ordered.slice(start[n], start[n + 1] - start[n]), {}) for n in used]
    columns = [pa.array(used, pa.int32()), pa.array(messages, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, [ROUTE, _MESSAGE])


def _unpacked(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The events of a batch with column `ROUTE_KEY`; those of several messages are put together.

    As many as were packed together, since a batch may hold thousands of messages.
    """
    if _MESSAGE not in batch.schema.names:
        yield batch.drop_columns([ROUTE])
        return
    decoded = (decode(message.as_buffer())[0] for message in batch.column(_MESSAGE))
    for rows in _gathered(part for events in decoded for part in events.to_batches()):
        yield from rows.to_batches(max_chunksize=_PACKED_ROWS)


class SampledStep:
    """A step that counts and samples its events, for the routing store."""

    def __init__(self, step: Step, hotspots: Hotspots) -> None:
        self._step, self._hotspots = step, hotspots
        self._store = hotspots.store
        self._state = self._store.state(hotspots.partitions)
        share = -(-hotspots.routing.sample // hotspots.partitions)
        seed = hash((os.getpid(), time.time_ns())) & 0xFFFFFFFF
        self._reservoir, self._partition = Reservoir(share, seed), 0
        self._waiting: list[npt.NDArray[np.int64]] = []

    def batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """What the step makes of each batch."""
        for out in self._step.batches(self._unrouted(batches)):
            self._sample_finished()
            yield out

    def report(self) -> dict[str, Any]:
        """The step's report and the routing's; the store gets the statistics."""
        report = self._step.report()
        sample, cache = self._reservoir.sample(), report.get("cache", {})
        if sample is not None:
            self._store.add(
                TaskStats(
                    self._partition,
                    report["rows_in"],
                    cache.get("misses", 0),
                    report["seconds"],
                    cache.get("load_seconds", 0.0),
                    sample.keys.column(KEY).to_numpy(),
                    sample.count,
                    sample.cost,
                )
            )
        state = self._state
        routing = {
            "partition": self._partition,
            "partitions": state.partitions,
            "rule": state.version,
            "cycle": state.cycle,
            "cycle_load_cv": state.load_cv,
            "moved": state.moved,
            "records": list(state.records),
            "cost": list(state.cost),
        }
        return {**report, "routing": routing}

    def _unrouted(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The batches without the columns of the routing."""
        for batch in batches:
            if batch.num_rows:
                self._partition = batch.column(ROUTE)[0].as_py()
            for events in _unpacked(batch):
                self._waiting.append(events.column(ROUTE_KEY).to_numpy())
                yield events.drop_columns([ROUTE_KEY])

    def _sample_finished(self) -> None:
        """Sample the batch that the step has just finished: they come out as they went in."""
        keys = self._waiting.pop(0)
        missed = np.zeros(len(keys))
        fetched = getattr(self._step, "fetched", None)
        if fetched is not None:
            missed[fetched] = 1.0
        self._reservoir.add(pa.table({KEY: keys}), missed)
