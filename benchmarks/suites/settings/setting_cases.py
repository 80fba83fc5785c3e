"""What is set, and the queries that it is set for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rivermouth as rm
from benchmarks.suites.reliability import soak_cases

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SMALL, LARGE = 1_000, 50_000  #: rows of a micro-batch
STATELESS = ("workers", "udf", "native")
STATEFUL = ("aggregate", "sessions", "join_window", "join_interval", "fence_events", "trips")
PEER = "spark_aggregate"
WITH_STATE = (*STATEFUL, soak_cases.EXACT, PEER)
OPERATORS = (*STATELESS, *WITH_STATE)


@dataclass(frozen=True)
class Setting:
    """A session's settings, or a writer's options, beside the baseline.

    Parameters
    ----------
    rows
        Of a micro-batch: what is fixed is seen in small ones, what rows cost in large ones.
    conf
        Of the session, over the baseline's.
    options
        Of the query's writer.
    operators
        Those that it can make a difference to.
    """

    rows: int
    conf: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    operators: tuple[str, ...] = OPERATORS


_PARTITIONS = "spark.sql.shuffle.partitions"
_CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
BASELINES = {SMALL: "baseline, small", LARGE: "baseline, large"}
SETTINGS = {
    BASELINES[SMALL]: Setting(SMALL),
    BASELINES[LARGE]: Setting(LARGE),
    "no changelog": Setting(SMALL, {_CHANGELOG: "false"}, operators=WITH_STATE),
    "8 partitions": Setting(SMALL, {_PARTITIONS: "8"}, operators=WITH_STATE),
    "32 partitions": Setting(SMALL, {_PARTITIONS: "32"}, operators=WITH_STATE),
    "asynchronous": Setting(
        SMALL, options={"asyncProgressTrackingEnabled": "true"}, operators=STATELESS
    ),
    "pipelined": Setting(LARGE, {"spark.python.udf.pipelined.enabled": "true"}),
    "domain sockets": Setting(LARGE, {"spark.python.unix.domain.socket.enabled": "true"}),
}


def join_table(events: DataFrame, others: DataFrame, folder: Path, *, plan: str) -> DataFrame:
    """The box that each position is in."""
    return rm.join_table(
        events, soak_cases.fences(folder), on=rm.within(soak_cases.HERE, "geometry"), how="left",
        columns=["fence"], plan=plan,
    )  # fmt: skip


CASES: dict[str, Callable[..., DataFrame]] = {
    **{plan: partial(join_table, plan=plan) for plan in STATELESS},
    **{name: soak_cases.CASES[name] for name in (*STATEFUL, PEER)},
}


def start(
    spark: SparkSession, operator: str, *, rows: int, options: Mapping[str, str], folder: Path
) -> tuple[Any, Callable[[], None]]:
    """A running query of an operator, and what stops it; all that it writes is under `folder`."""
    events = soak_cases.stream(spark, rows=rows)
    if operator == soak_cases.EXACT:
        window = rm.sliding("60 seconds", every="20 seconds")
        job = rm.exact(events, soak_cases.summary("sent", window), store=folder / "store")
        running = job.start()
        return running.query, running.stop
    frame = CASES[operator](events, soak_cases.others(spark, rows=rows), folder)
    writer = frame.writeStream.format("noop").options(**options)
    query = writer.option("checkpointLocation", str(folder / "store")).start()
    return query, query.stop
