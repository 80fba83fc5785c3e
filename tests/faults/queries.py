"""The queries of the campaign; called on the driver's host by `tests.cluster.programs.driver`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.listener import StreamingQueryListener

import rivermouth as rm

HERE, THERE = rm.point("x", "y"), rm.point("u", "v")
#: seconds before an event in which the other stream's are joined
REACH = 10
DISTANCE = 1.0
SCHEMA = "id bigint, key bigint, value bigint, at timestamp, sent timestamp, x double, y double"

Made = Callable[["Given"], DataFrame]


class Given:
    """What a query is built from."""

    def __init__(self, spark: SparkSession, folder: str, postgres: str | None) -> None:
        self.spark, self.folder, self.postgres = spark, folder, postgres

    def stream(self, name: str) -> DataFrame:
        """A stream of the campaign, a file in each micro-batch."""
        source = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        return source.parquet(f"{self.folder}/{name}")

    @property
    def others(self) -> DataFrame:
        """The second stream, with names of its own."""
        named = {"id": "other", "at": "then", "x": "u", "y": "v"}
        return self.stream("others").select(
            *(F.col(name).alias(alias) for name, alias in named.items())
        )


def refresh(given: Given) -> DataFrame:
    """A table that is written again and again, in full caches."""
    cache = rm.full(refresh="1 second", path=f"{given.folder}/snapshots")
    table = rm.tables.parquet(f"{given.folder}/table.parquet")
    events = given.stream("events").select("id", "key")
    return rm.join_table(events, table, on=rm.keys("key"), how="left", cache=cache)


def hotspots(given: Given) -> DataFrame:
    """A table in PostgreSQL, in incremental caches behind routing by hotspots."""
    table = rm.tables.postgres(given.postgres or "", "names")
    routing = rm.by_hotspot(cycle=500, path=f"{given.folder}/routing")
    events = given.stream("events").select("id", "key")
    return rm.join_table(
        events, table, on=rm.keys("key"), cache=rm.incremental(rows=30), routing=routing
    )


def interval(given: Given) -> DataFrame:
    """Two streams by distance and interval."""
    return rm.join_interval(
        given.stream("events"), given.others, on=rm.dwithin(HERE, THERE, distance=DISTANCE),
        time=("at", "then"), between=(f"-{REACH} seconds", "0 seconds"), columns=["other"],
        lateness="30 seconds",
    ).select("id", "other")  # fmt: skip


def window(given: Given) -> DataFrame:
    """Two streams by distance and window."""
    return rm.join_window(
        given.stream("events"), given.others, on=rm.dwithin(HERE, THERE, distance=DISTANCE),
        time=("at", "then"), window=rm.tumbling(f"{REACH} seconds"), columns=["other"],
        lateness="30 seconds",
    ).select("id", "other")  # fmt: skip


def summary(time: str) -> Any:
    """Sums by key and ten seconds."""
    return rm.summary(
        by="key", time=time, window=rm.tumbling("10 seconds"), n=rm.count(), total=rm.sum("value")
    )


def aggregate(given: Given) -> DataFrame:
    """Windows over records that come out of order, none of them late."""
    sums = rm.aggregate(given.stream("events"), summary("at"), slack=rm.fixed("30 seconds"))
    return sums.select("key", "window_start", "n", "total")


def spark_aggregate(given: Given) -> DataFrame:
    """The same by Spark's own windows: what recovery takes without us."""
    windows = (
        given.stream("events").withWatermark("at", "30 seconds")
        .groupBy("key", F.window("at", "10 seconds").alias("w"))
    )  # fmt: skip
    sums = windows.agg(F.count("*").alias("n"), F.sum("value").alias("total"))
    return sums.select("key", F.col("w.start").alias("window_start"), "n", "total")


WORKLOADS: dict[str, Made] = {
    made.__name__: made
    for made in (refresh, hotspots, interval, window, aggregate, spark_aggregate)
}

_running: dict[str, Any] = {}


def start(spark: SparkSession, *, workload: str, folder: str, postgres: str | None) -> bool:
    """Start a workload's query, or start it again; its progress goes to files."""
    given = Given(spark, folder, postgres)
    if "listener" not in _running:
        _running["listener"] = Reporter(f"{folder}/progress")
        spark.streams.addListener(_running["listener"])
    if workload == "exact":
        job = rm.exact(
            given.stream("events"), summary("sent"), slack=rm.fixed("1 second"),
            store=f"{folder}/store", span="20 seconds", wait="5 seconds",
        )  # fmt: skip
        _running["exact"] = job.start(processingTime="0 seconds")
        _running["query"] = _running["exact"].query
        return True
    frame = WORKLOADS[workload](given)
    writer = frame.writeStream.format("parquet").option("path", f"{folder}/out")
    _running["query"] = writer.option("checkpointLocation", f"{folder}/checkpoint").start()
    return True


def failure(spark: SparkSession) -> str | None:
    """Why the query does not run; None while it does."""
    if (running := _running.get("exact")) is not None and not running.isActive:
        return str(running.query.exception() or running._corrector.error or "it has ended")
    query = _running["query"]
    return None if query.isActive else str(query.exception() or "it has ended")


def finish(spark: SparkSession, *, workload: str, folder: str) -> bool:
    """Wait until all input is processed, and stop the query."""
    _running["query"].processAllAvailable()
    if workload == "exact":
        running = _running["exact"]
        running.stop()
        running.results().coalesce(1).write.parquet(f"{folder}/results")
        running.changelog().coalesce(1).write.parquet(f"{folder}/changelog")
        return True
    _running["query"].stop()
    return True


class Reporter(StreamingQueryListener):
    """Writes the progress of every batch to a file of its number."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._folder.mkdir(exist_ok=True)

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802  (Spark's names)
        """Nothing to write."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """Write what the batch reports, unless the query only waits."""
        progress = json.loads(event.progress.json)
        if "addBatch" in progress["durationMs"]:
            file = self._folder / f"{progress['batchId']}.json"
            staged = file.with_suffix(".part")
            staged.write_text(json.dumps(progress))
            staged.rename(file)

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Nothing to write."""
