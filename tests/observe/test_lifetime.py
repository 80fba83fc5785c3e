"""Counts over a query's life: many batches, tasks that ran twice, a query that is started again."""

from __future__ import annotations

import glob
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

import rivermouth as rm
from rivermouth.observe.run_api import RunApi
from rivermouth.testing import replay

pytestmark = pytest.mark.spark

ROWS = "rivermouth_rows_total"
SUMMARY = rm.summary(by="k", time="at", window=rm.tumbling("1 minute"), n=rm.count())


def events(spark: SparkSession, rows: int) -> DataFrame:
    return spark.range(rows).select(
        "id", (F.col("id") % 4).alias("k"), F.timestamp_seconds("id").alias("at")
    )


def joined(stream: DataFrame, folder: Path, **more: Any) -> DataFrame:
    """Three of four events have a row in the table."""
    pq.write_table(pa.table({"k": [0, 1, 2], "name": list("abc")}), folder / "t.parquet")
    table = rm.tables.parquet(folder / "t.parquet")
    return rm.join_table(stream, table, on=rm.keys("k"), how="left", **more)


def started(frame: DataFrame, folder: Path, **trigger: Any) -> StreamingQuery:
    writer = frame.writeStream.format("noop").queryName("lifetime")
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    return writer.trigger(**trigger or {"availableNow": True}).start()


@pytest.mark.slow
def test_more_batches_than_spark_keeps_reports_of(spark: SparkSession, tmp_path: Path) -> None:
    query = started(joined(replay(events(spark, 104), cuts=1), tmp_path), tmp_path)
    seen = [rm.metrics(query)["rows"]]
    while query.isActive:
        seen.append(rm.metrics(query)["rows"])
        time.sleep(0.5)
    numbers = rm.metrics(query)
    assert len(query.recentProgress) < 104
    assert (numbers["batches"], numbers["since_batch"], numbers["missed_batches"]) == (104, 0, 0)
    assert (numbers["rows"], numbers["source_rows"]) == (104, 104)
    operator = numbers["operators"]["join_table.t.parquet"]
    assert (operator["rows_in"], operator["matched"], operator["unmatched"]) == (104, 78, 26)
    assert seen == sorted(seen)


def losing(frame: DataFrame, local_dir: str, flag: Path) -> DataFrame:
    """`frame`, the first of whose tasks to end deletes all shuffle files: a lost executor's."""
    path = str(flag)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        if not os.path.exists(path):
            lost = glob.glob(f"{local_dir}/**/shuffle_*", recursive=True)
            for file in lost:
                Path(file).unlink(missing_ok=True)  # another task may delete, too
            Path(path).write_text(str(len(lost)))

    return frame.mapInArrow(work, frame.schema)


@pytest.fixture
def six_partitions(spark: SparkSession) -> Iterator[None]:
    """More tasks than cores after a shuffle, so that some of them find the files lost."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", 6)
    yield
    spark.conf.set("spark.sql.shuffle.partitions", before or 2)


@pytest.mark.usefixtures("six_partitions")
@pytest.mark.parametrize("case", ["aggregate", "by_hash", "workers", "native", "chain"])
def test_rows_of_a_stage_that_ran_twice_count_once(
    spark: SparkSession, tmp_path: Path, case: str
) -> None:
    stream = replay(events(spark, 1200), cuts=400)
    if case == "aggregate":
        out = rm.aggregate(stream, SUMMARY, slack=rm.fixed("0 seconds"))
    elif case == "by_hash":
        out = joined(stream, tmp_path, routing=rm.by_hash(partitions=6))
    elif case == "chain":
        placed = joined(stream, tmp_path)
        out = rm.aggregate(placed, SUMMARY, slack=rm.fixed("0 seconds"))
    else:
        out = joined(stream, tmp_path, plan=case).repartition(6, "k")
    local_dir = spark.conf.get("spark.local.dir")
    assert local_dir
    query = started(losing(out, local_dir, tmp_path / "lost"), tmp_path)
    query.awaitTermination()
    numbers = rm.metrics(query)
    assert int((tmp_path / "lost").read_text()) > 0
    assert numbers["source_rows"] > 1200  # the loss was felt
    assert numbers["rows"] == 1200
    assert {operator["rows_in"] for operator in numbers["operators"].values()} == {1200}


def test_rows_of_a_source_that_is_read_twice_count_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    """An exact aggregation reads its events for the answers and for the backup."""
    job = rm.exact(replay(events(spark, 200)), SUMMARY, store=tmp_path / "store")
    running = job.start(availableNow=True)
    running.awaitTermination()
    numbers = rm.metrics(running)
    assert (numbers["rows"], numbers["source_rows"]) == (200, 400)


def test_no_counter_decreases_when_the_query_is_started_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    histories, source = tmp_path / "histories", tmp_path / "source"
    runs, before = RunApi(histories), dict[Any, float]()
    stream = joined(replay(events(spark, 40), cuts=5, path=source), tmp_path)

    def look() -> float:
        families = text_string_to_metric_families(runs.prometheus().decode())
        counters = {
            (sample.name, *sample.labels.items()): sample.value
            for family in families
            if family.type == "counter"
            for sample in family.samples
        }
        for key in before.keys() & counters.keys():
            assert counters[key] >= before[key], key
        before.update(counters)
        return max((value for key, value in counters.items() if key[0] == ROWS), default=0.0)

    for total in (40, 80):
        query = started(stream, tmp_path, processingTime="0 seconds")
        with rm.watch(query, history=histories, page=False):
            deadline = time.monotonic() + 120
            while look() < total:
                assert time.monotonic() < deadline
                time.sleep(0.1)
            query.stop()
        for file in sorted(source.glob("batch-*.parquet")):  # as many again for the next run
            table = pq.read_table(file)
            pq.write_table(table, source / f"again-{file.name}")
    assert {dict(key[1:])["query"] for key in before} == {"lifetime"}
    assert len({dict(key[1:])["query_id"] for key in before}) == 1
