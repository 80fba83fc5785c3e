"""The stateful engine: a running count per bucket stands for every operator behind it."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import functions as F
from pyspark.sql import types as t

import rivermouth as rm
from rivermouth.kernels.state.bucketing import Routed
from rivermouth.spark.engines import stateful

ARROW = pa.schema([("bucket", pa.int32()), ("rows", pa.int64()), ("newest", pa.int64())])
SCHEMA = t.StructType(
    [
        t.StructField("bucket", t.IntegerType()),
        t.StructField("rows", t.LongType()),
        t.StructField("newest", t.LongType()),
    ]
)


class ByRest:
    def __init__(self, column: str, buckets: int) -> None:
        self._column, self._buckets = column, buckets

    def route(self, batch: pa.RecordBatch, now: int) -> Routed:
        values = batch.column(self._column).to_numpy().astype(np.int64)
        newest = int(values.max()) if len(values) else None
        return Routed(batch, (values % self._buckets).astype(np.int32), newest)

    def note(self) -> None:
        """Nothing."""


class Counting:
    """Says how many rows the bucket has had, and whether its cache agreed with its state."""

    def __init__(self, bucket: int) -> None:
        self._bucket = bucket

    def process(self, store, arrivals, cache):
        before = int(store.get("rows", b"0"))
        assert cache.get("rows", before) == before
        rows = before + sum(table.num_rows for side in arrivals.sides for table in side)
        newest = max((time for time in arrivals.newest if time is not None), default=None)
        store["rows"], cache["rows"], self._rows = str(rows).encode(), rows, rows
        yield pa.table([[self._bucket], [rows], [newest]], schema=ARROW)

    def report(self):
        return {"rows": self._rows}


def counting(*frames, column="id", buckets=4, identity="count", idle_timeout=None):
    sides = [stateful.Input(frame, lambda: ByRest(column, buckets)) for frame in frames]
    operator = stateful.Operator(
        "counting", Counting, SCHEMA, ARROW, buckets, identity, identity, idle_timeout
    )
    return stateful.run(sides, operator)


def drained(frame, checkpoint, *, spark):
    """The query that has run to its end, and all rows of its sink."""
    sink = f"{checkpoint}/sink"
    query = (
        frame.writeStream.format("parquet").option("path", sink)
        .option("checkpointLocation", f"{checkpoint}/log")
        .trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    return query, sorted(map(tuple, spark.read.parquet(sink).collect()))


@pytest.mark.quick
def test_a_batch_frame_is_one_call_per_bucket(spark):
    rows = counting(spark.range(100), spark.range(50)).collect()
    assert sorted(map(tuple, rows)) == [(0, 38, 99), (1, 38, 99), (2, 37, 99), (3, 37, 99)]


@pytest.mark.quick
def test_a_stream_keeps_its_state_from_batch_to_batch(spark, tmp_path):
    frame = counting(rm.testing.replay(spark.range(100), cuts=50))
    query, rows = drained(frame, tmp_path, spark=spark)
    assert [row[1] for row in rows] == [13, 25, 13, 25, 12, 25, 12, 25]
    assert {row[2] for row in rows} == {49, 99}
    reports = [
        json.loads(report)["buckets"]
        for progress in query.recentProgress
        for row in progress["observedMetrics"].values()
        for report in row.asDict()["tasks"]
    ]
    assert sum(report["rows"] for task in reports for report in task) == 150


def test_state_survives_a_restart_and_operators_chain(spark, tmp_path):
    folder = tmp_path / "files"
    source = rm.testing.replay(spark.range(100), cuts=50, path=folder)
    once = counting(source).select(F.col("bucket").alias("id"))
    drained(counting(once, identity="second"), tmp_path / "check", spark=spark)
    spark.range(100, 200).coalesce(1).write.mode("append").parquet(str(folder))
    _, rows = drained(counting(once, identity="second"), tmp_path / "check", spark=spark)
    assert [row[:2] for row in rows] == [(b, rows) for b in range(4) for rows in (1, 2, 3)]


@pytest.mark.parametrize(
    ("change", "said"),
    [({"buckets": 2}, "Give buckets=4"), ({"identity": "sum"}, "a new checkpoint")],
)
def test_state_of_another_query_is_an_error(spark, tmp_path, change, said):
    folder = tmp_path / "files"
    source = rm.testing.replay(spark.range(100), cuts=50, path=folder)
    drained(counting(source), tmp_path / "check", spark=spark)
    spark.range(100, 200).coalesce(1).write.mode("append").parquet(str(folder))
    with pytest.raises(Exception, match="the checkpoint's state is not this query's") as caught:
        drained(counting(source, **change), tmp_path / "check", spark=spark)
    assert said in str(caught.value)


def test_a_session_with_another_state_store_is_told_so(spark):
    other = spark.newSession()
    other.conf.unset("spark.sql.streaming.stateStore.providerClass")
    other.conf.set(
        "spark.sql.streaming.stateStore.providerClass",
        "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    )
    rates = other.readStream.format("rate").load().selectExpr("value AS id")
    with pytest.raises(rm.RivermouthError, match="RocksDBStateStoreProvider"):
        counting(rates)


def test_an_idle_bucket_is_processed_again(spark, tmp_path):
    source = rm.testing.replay(spark.range(40))
    query = (
        counting(source, idle_timeout=0.5).writeStream.format("memory").queryName("idle")
        .option("checkpointLocation", str(tmp_path))
        .trigger(processingTime="200 milliseconds").start()
    )  # fmt: skip
    try:
        for _ in range(100):
            if spark.table("idle").where("newest IS NULL").count() >= 4:
                break
            query.awaitTermination(0.2)
    finally:
        query.stop()
    rows = sorted(map(tuple, spark.table("idle").where("newest IS NULL").collect()))
    assert rows == [(bucket, 10, None) for bucket in range(4)]
