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

_queries: dict[str, Any] = {}  # by workload
_exact: list[Any] = []  # the newest job of `exact` is the last
_listening: list[Any] = []


def start(spark: SparkSession, *, workload: str, folder: str, postgres: str | None) -> bool:
    """Start a workload's query, or start it again; its progress goes to files."""
    given = Given(spark, folder, postgres)
    if not _listening:
        _listening.append(Reporter())
        spark.streams.addListener(_listening[0])
    if workload == "exact":
        job = rm.exact(
            given.stream("events"), summary("sent"), slack=rm.fixed("1 second"),
            store=f"{folder}/store", span="20 seconds", wait="5 seconds",
        )  # fmt: skip
        _exact.append(job.start(processingTime="0 seconds"))
        _queries["exact"] = _exact[-1].query
        return True
    _listening[0].folders[workload] = Path(folder, "progress")
    writer = WORKLOADS[workload](given).writeStream.queryName(workload).format("parquet")
    writer = writer.option("path", f"{folder}/out")
    _queries[workload] = writer.option("checkpointLocation", f"{folder}/checkpoint").start()
    return True


def failures(spark: SparkSession) -> dict[str, str]:
    """The workloads whose queries do not run, and why."""
    found = {
        workload: str(query.exception() or "it has ended")
        for workload, query in _queries.items()
        if not query.isActive
    }
    if _exact and not _exact[-1].isActive:
        found["exact"] = str(_exact[-1].query.exception() or _exact[-1]._corrector.error or "ended")
    return found


def finish(spark: SparkSession, *, workload: str, folder: str) -> bool:
    """Wait until all input is processed, and stop the query."""
    query = _queries[workload]
    query.processAllAvailable()
    if workload == "exact":
        running = _exact[-1]
        running.stop()
        for name, frame in (("results", running.results()), ("changelog", running.changelog())):
            frame.coalesce(1).write.mode("overwrite").parquet(f"{folder}/{name}")
    else:
        query.stop()
    del _queries[workload]
    if workload == "exact":
        _exact.clear()
    return True


class Reporter(StreamingQueryListener):
    """Writes the progress of every batch to a file of its number, in its query's folder."""

    def __init__(self) -> None:
        self.folders: dict[str, Path] = {}

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802  (Spark's names)
        """Nothing to write."""

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """Write what the batch reports, unless the query only waits."""
        progress = json.loads(event.progress.json)
        folder = self.folders.get(progress.get("name"))
        if folder is not None and "addBatch" in progress["durationMs"]:
            folder.mkdir(exist_ok=True)
            file = folder / f"{progress['batchId']}.json"
            staged = file.with_suffix(".part")
            staged.write_text(json.dumps(progress))
            staged.rename(file)

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Nothing to write."""
