"""What the driver of the scale-out runs: one query at a time, started, measured and stopped."""

from __future__ import annotations

import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

import rivermouth as rm
from benchmarks.papers.paper_b.games import DELTA, EPS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_GLANCE, _PATIENCE = 0.2, 900.0  # seconds
_running: list[StreamingQuery] = []


def start(
    spark: SparkSession, *, records: str, files: int, grouped: bool, checkpoint: str, warm: int
) -> None:
    """Start the paper's query, and wait for `warm` micro-batches."""
    source = spark.readStream.schema(spark.read.parquet(records).schema)
    events = source.option("maxFilesPerTrigger", files).parquet(records)
    summary = rm.summary(
        by="sensor" if grouped else (),
        time="at",
        window=rm.sliding("500 milliseconds", every="100 milliseconds"),
        total=rm.sum("value"),
    )
    rows = rm.aggregate(events, summary, slack=rm.quality(EPS, DELTA))
    query = rows.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
    _running.append(query)
    _wait(query, 0.0, warm)


def measure(_: SparkSession, *, rows: int, batches: int) -> list[dict[str, Any]]:
    """The next so many micro-batches of so many rows that begin from now on: rows and seconds."""
    (query,) = _running
    return _wait(query, time.time(), batches, rows)


def stop(_: SparkSession) -> None:
    """Stop the query."""
    _running.pop().stop()


def _wait(query: StreamingQuery, since: float, count: int, rows: int = 1) -> list[dict[str, Any]]:
    deadline = time.monotonic() + _PATIENCE
    while len(found := _batches(query, since, rows)) < count:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(found)} of {count} micro-batches after {_PATIENCE:.0f} s")
        if (error := query.exception()) is not None:
            raise error
        time.sleep(_GLANCE)
    return found[:count]


def _batches(query: StreamingQuery, since: float, rows: int) -> list[dict[str, Any]]:
    return [
        {"rows": batch["numInputRows"], "seconds": batch["durationMs"]["triggerExecution"] / 1000}
        for batch in query.recentProgress
        if batch["numInputRows"] >= rows and _began(batch["timestamp"]) >= since
    ]


def _began(stamp: str) -> float:
    return datetime.fromisoformat(stamp).timestamp()
