"""Routing by hotspots in a running stream: a rule as a broadcast row, and tasks that sample.

Every batch reads the newest rule by one task, as the native plan reads its index, and the JVM
applies it: no event goes through Python to be routed. The join's own tasks count and sample what
came to them, and write it to the routing store (`tables.skew.routing_store`) for the next batch.

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
from pyspark.sql import types as t

from rivermouth.kernels.skew.hotspots import Reservoir
from rivermouth.spark.engines.native.columns import quoted
from rivermouth.spark.engines.partitioning import ROUTE, keys_of, to_partitions
from rivermouth.spark.engines.stateless import Step
from rivermouth.spark.validation.join_table import WHERE, Join
from rivermouth.spec.routing import ByHotspot
from rivermouth.tables.shared_folder import SharedFolder
from rivermouth.tables.skew.routing_store import KEY, RoutingStore, TaskStats

ROUTE_KEY = "_rivermouth_key"
_BOUNDS, _SHARES = "_rivermouth_bounds", "_rivermouth_shares"
_PASSED = "_rivermouth_passed_"
_SALT, _DRAWS = 20_260, 1 << 20  # what tells draws from keys, and how many there are
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
        """The events with columns `ROUTE` and `ROUTE_KEY`, in the partitions of the newest rule."""
        keyed = events.withColumn(ROUTE_KEY, F.xxhash64(*keys_of(join)))
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
    """A number in [0, 1) that splits the events of one key: the same whenever it is computed.

    It comes from all of the event. ``rand`` would have another seed in every micro-batch, which
    Spark would compile again, and a map cannot be hashed.
    """
    columns = [F.col(quoted(field.name)) for field in events.schema if _hashable(field.dataType)]
    return F.pmod(F.xxhash64(F.lit(_SALT), *columns), F.lit(_DRAWS)) / F.lit(float(_DRAWS))


def _hashable(kind: t.DataType) -> bool:
    return not any(name in kind.simpleString() for name in ("map<", "variant"))


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
                    sample.keys.column(KEY).to_pylist(),
                    sample.count.tolist(),
                    sample.cost.tolist(),
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
            self._waiting.append(batch.column(ROUTE_KEY).to_numpy())
            yield batch.drop_columns([ROUTE, ROUTE_KEY])

    def _sample_finished(self) -> None:
        """Sample the batch that the step has just finished: they come out as they went in."""
        keys = self._waiting.pop(0)
        missed = np.zeros(len(keys))
        fetched = getattr(self._step, "fetched", None)
        if fetched is not None:
            missed[fetched] = 1.0
        self._reservoir.add(pa.table({KEY: keys}), missed)
