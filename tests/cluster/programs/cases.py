"""Every operator in a few forms, to be run on a cluster and in one process.

A case is a function that takes a `Given` and returns a frame. What it gives must not depend on
where it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import rivermouth as rm
from rivermouth.testing.arrow import plain

How = Literal["batch", "stream", "kafka"]

HERE = rm.point("lon", "lat")
_TIMES = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"}


@dataclass(frozen=True)
class Given:
    """What a case has to work with.

    Parameters
    ----------
    spark
        The session.
    how
        Whether streams are read as batches, from files or from Kafka.
    inputs
        The folder that `inputs.write` has filled.
    folder
        A folder for this run of the case alone, which all hosts reach; a path or a URI.
    bucket
        The same in an object store.
    postgres, kafka
        Addresses; None where there is no such server.
    """

    spark: SparkSession
    how: How
    inputs: str
    folder: str
    bucket: str
    postgres: str | None = None
    kafka: str | None = None

    def events(self, name: str) -> DataFrame:
        """An input by its name."""
        path = f"{self.inputs}/{name}"
        files = self.spark.read.parquet(path)
        if self.how == "batch":
            return files
        if self.how == "stream":
            source = self.spark.readStream.schema(files.schema)
            return source.option("maxFilesPerTrigger", 1).parquet(path)
        assert self.kafka is not None
        messages = (
            self.spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self.kafka)
            .option("subscribe", name)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", 1000)
            .load()
        )
        value = F.from_json(F.col("value").cast("string"), files.schema, _TIMES)
        return messages.select(value.alias("value")).select("value.*")

    @property
    def districts(self) -> Any:
        return rm.tables.geojson(f"{self.inputs}/districts.geojson")

    @property
    def drivers(self) -> Any:
        return rm.tables.parquet(f"{self.inputs}/drivers.parquet")

    @property
    def drivers_in_postgres(self) -> Any:
        assert self.postgres is not None
        return rm.tables.postgres(self.postgres, "drivers")


Case = Callable[[Given], DataFrame]
CASES: dict[str, Case] = {}


def case(function: Case) -> Case:
    """Register a case by its function's name."""
    CASES[function.__name__] = function
    return function


def run(spark: SparkSession, *, name: str, output: str, **given: Any) -> int:
    """Run a case to its end and write its rows to the file `output`; how many there are."""
    here = Given(spark, **given)
    Path(output).parent.mkdir(parents=True, exist_ok=True)
    table = collected(CASES[name](here), checkpoint=f"{here.folder}/checkpoint")
    pq.write_table(table, output)
    return table.num_rows


def collected(frame: DataFrame, *, checkpoint: str) -> pa.Table:
    """All rows of a frame; a stream goes through Spark's own Parquet sink to its end."""
    flat = plain(frame)
    if not frame.isStreaming:
        return flat.toArrow()
    sink = f"{checkpoint}-rows"
    query = (
        flat.writeStream.format("parquet")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start(sink)
    )
    query.awaitTermination()
    return frame.sparkSession.read.schema(flat.schema).parquet(sink).toArrow()


def publish(spark: SparkSession, *, inputs: str, kafka: str, names: list[str]) -> None:
    """Send inputs to topics of their names, in the order of their rows."""
    for name in names:
        # one partition here and one there: Kafka keeps the order within one
        rows = spark.read.parquet(f"{inputs}/{name}").coalesce(1)
        time = next(field for field, kind in rows.dtypes if kind == "timestamp")
        value = F.to_json(F.struct(*rows.columns), _TIMES).alias("value")
        messages = rows.sortWithinPartitions(time).select(value)
        messages.write.format("kafka").options(
            **{"kafka.bootstrap.servers": kafka, "topic": name}
        ).save()


def placed(given: Given, **how: Any) -> DataFrame:
    """Each position with its district."""
    on = rm.within(HERE, "geometry")
    return rm.join_table(given.events("taxis"), given.districts, on=on, how="left", **how)


def driven(given: Given, table: Any, **how: Any) -> DataFrame:
    """Each position with the drivers of its taxi."""
    return rm.join_table(given.events("taxis"), table, on=rm.keys("taxi"), how="left", **how)


@case
def table_full(given: Given) -> DataFrame:
    return placed(given, cache=rm.full(path=f"{given.folder}/snapshots"))


@case
def table_full_on_s3(given: Given) -> DataFrame:
    return placed(given, cache=rm.full(path=f"{given.bucket}/snapshots"))


@case
def table_full_refreshed(given: Given) -> DataFrame:
    return placed(given, cache=rm.full(refresh="1 second", path=f"{given.folder}/snapshots"))


@case
def table_native(given: Given) -> DataFrame:
    return placed(given, plan="native", cache=rm.full(path=f"{given.folder}/snapshots"))


@case
def table_of_a_frame(given: Given) -> DataFrame:
    return driven(given, rm.tables.frame(given.spark.read.parquet(given.drivers.path)))


@case
def table_in_buckets(given: Given) -> DataFrame:
    cache = rm.full(path=f"{given.folder}/snapshots", buckets=4)
    return driven(given, given.drivers, cache=cache)


@case
def table_in_buckets_on_s3(given: Given) -> DataFrame:
    return driven(given, given.drivers, cache=rm.full(path=f"{given.bucket}/buckets", buckets=4))


@case
def table_in_buckets_by_place(given: Given) -> DataFrame:
    return placed(given, cache=rm.full(path=f"{given.folder}/snapshots", buckets=4))


@case
def table_incremental(given: Given) -> DataFrame:
    return driven(given, given.drivers_in_postgres, cache=rm.incremental(rows=20))


@case
def table_by_hash(given: Given) -> DataFrame:
    cache = rm.incremental(rows=20)
    return driven(given, given.drivers_in_postgres, cache=cache, routing=rm.by_hash())


@case
def table_by_hotspot(given: Given) -> DataFrame:
    routing = rm.by_hotspot(cycle=500, path=f"{given.folder}/routing")
    cache = rm.incremental(rows=20)
    return driven(given, given.drivers_in_postgres, cache=cache, routing=routing)


@case
def table_external(given: Given) -> DataFrame:
    return driven(given, given.drivers_in_postgres, cache=rm.external())


@case
def table_of_a_snapshot(given: Given) -> DataFrame:
    rows = given.spark.read.parquet(f"{given.inputs}/drivers.parquet")
    table = rm.snapshot(rows, f"{given.folder}/drivers")
    return driven(given, table, cache=rm.full(path=f"{given.folder}/snapshots"))


def near(given: Given, **how: Any) -> DataFrame:
    """Calls with the taxis within 300 m in the two minutes before."""
    return rm.join_interval(
        given.events("calls"),
        given.events("taxis"),
        on=rm.dwithin(rm.point("x", "y"), HERE, meters=300),
        time=("called", "at"),
        between=("-2 minutes", "0 seconds"),
        columns=["taxi", "at"],
        lateness="5 minutes",
        **how,
    )


@case
def interval(given: Given) -> DataFrame:
    return near(given)


@case
def interval_left(given: Given) -> DataFrame:
    return near(given, how="left")


@case
def interval_with_learned_skew(given: Given) -> DataFrame:
    """Calls near each other: in the crowded spot they have so many pairs that salting pays."""
    return rm.join_interval(
        given.events("calls"),
        given.events("calls"),
        on=rm.dwithin(rm.point("x", "y"), rm.point("x", "y"), meters=100),
        time="called",
        between=("-2 minutes", "2 minutes"),
        columns={"other": "call"},
        lateness="5 minutes",
        grid=rm.grid(skew_path=f"{given.folder}/skew"),
    )


@case
def window(given: Given) -> DataFrame:
    return rm.join_window(
        given.events("calls"),
        given.events("taxis"),
        on=rm.dwithin(rm.point("x", "y"), HERE, meters=300),
        time=("called", "at"),
        window=rm.sliding("2 minutes", every="1 minute"),
        columns=["taxi", "at"],
        lateness="5 minutes",
    )


def visits() -> Any:
    """Positions of each taxi by the minute."""
    return rm.summary(
        by="taxi", time="at", window=rm.tumbling("1 minute"),
        n=rm.count(), east=rm.max("lon"), middle=rm.median("lat"),
    )  # fmt: skip


def sums() -> Any:
    """Readings of each sensor by ten seconds."""
    return rm.summary(
        by="sensor", time="at", window=rm.tumbling("10 seconds"),
        n=rm.count(), total=rm.sum("value"),
    )  # fmt: skip


@case
def aggregate(given: Given) -> DataFrame:
    return rm.aggregate(given.events("taxis"), visits(), slack=rm.fixed("5 minutes"))


@case
def aggregate_with_late_rows(given: Given) -> DataFrame:
    early = rm.aggregate(given.events("readings"), sums(), slack=rm.fixed("1 second"), late="rows")
    return early.select("kind", *sums().by, "window_start", "n", "total", "record")


@case
def aggregate_corrected(given: Given) -> DataFrame:
    events = given.events("readings")
    early = rm.aggregate(events, sums(), slack=rm.fixed("1 second"), late="rows")
    folder = f"{given.folder}/early"
    pq.write_table(collected(early, checkpoint=folder), f"{folder}.parquet")
    results = given.spark.read.parquet(f"{folder}.parquet")
    history = given.spark.read.parquet(f"{given.inputs}/readings")
    return rm.correct(
        results.where("kind = 'row'").drop("kind", "record", "reason"),
        history, sums(), late=rm.rejected(results),
    )  # fmt: skip


@case
def exact(given: Given) -> DataFrame:
    events = given.events("readings")
    job = rm.exact(events, sums(), slack=rm.fixed("1 second"), store=f"{given.folder}/store")
    job.start(availableNow=True).awaitTermination()
    return job.results().select("sensor", "window_start", "n", "total", "status")


@case
def fences(given: Given) -> DataFrame:
    return rm.fence_events(
        given.events("taxis"), given.districts, on=rm.within(HERE, "geometry"), by="taxi",
        time="at", events=("enter", "exit", "lost"), gap="2 minutes", lateness="1 minute",
        cache=rm.full(path=f"{given.folder}/snapshots"),
    )  # fmt: skip


@case
def trips(given: Given) -> DataFrame:
    return rm.trips(
        given.events("tracks"), by="object", time="at", point=rm.point("x", "y"),
        gap="10 minutes", stop=(50, "2 minutes"), lateness="1 minute",
    )  # fmt: skip


def hosts(spark: SparkSession, *, tasks: int) -> list[str]:
    """The names of the hosts on which so many tasks run."""

    def name(batches: Any) -> Any:
        import socket
        import time

        time.sleep(0.5)  # long enough for every core to get some of them
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"host": [socket.gethostname()]})

    found = spark.range(0, tasks, 1, tasks).mapInArrow(name, "host string").collect()
    return sorted(row.host for row in found)
