"""Queries that lose a stage's output in mid-batch; prints their numbers as JSON, by case.

Usage: python -m tests.support.lost_shuffle FOLDER
"""

from __future__ import annotations

import glob
import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

import rivermouth as rm
from rivermouth.testing import replay, session

SUMMARY = rm.summary(by="k", time="at", window=rm.tumbling("1 minute"), n=rm.count())


#: by case: how events find the task that joins them
ROUTED: dict[str, dict[str, Any]] = {
    "by_hash": {"routing": rm.by_hash(partitions=6)},
    "by_key": {"cache": rm.full(buckets=6)},
    "by_place": {
        "on": rm.dwithin(rm.point("k", "k"), rm.point("k", "k"), distance=0),
        "cache": rm.full(buckets=6),
    },
}


def events(spark: SparkSession, rows: int) -> DataFrame:
    return spark.range(rows).select(
        "id", (F.col("id") % 4).alias("k"), F.timestamp_seconds("id").alias("at")
    )


def joined(stream: DataFrame, folder: Path, **more: Any) -> DataFrame:
    """Three of four events have a row in the table."""
    pq.write_table(pa.table({"k": [0, 1, 2], "name": list("abc")}), folder / "t.parquet")
    table = rm.tables.parquet(folder / "t.parquet")
    given = {"on": rm.keys("k"), "how": "left", "columns": ["name"], **more}
    return rm.join_table(stream, table, **given)


def started(frame: DataFrame, folder: Path, **trigger: Any) -> StreamingQuery:
    writer = frame.writeStream.format("noop").queryName("lifetime")
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    return writer.trigger(**trigger or {"availableNow": True}).start()


def losing(frame: DataFrame, local_dir: str, flag: Path, *, since: int = 0) -> DataFrame:
    """`frame`, the first of whose tasks to end deletes all shuffle files: a lost executor's.

    Of those tasks that had an event numbered `since` or later.
    """
    path = str(flag)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        last = 0
        for batch in batches:
            if since:
                last = max([last, *batch.column("id").to_pylist()])
            yield batch
        if last < since:
            return
        with suppress(FileExistsError), open(path, "x") as flag_file:  # of all tasks, one
            lost = glob.glob(f"{local_dir}/**/shuffle_*", recursive=True)
            for file in lost:
                Path(file).unlink(missing_ok=True)  # Spark may delete, too
            flag_file.write(str(len(lost)))

    return frame.mapInArrow(work, frame.schema)


def numbers(spark: SparkSession, case: str, folder: Path) -> dict[str, Any]:
    """What a query that has lost files counts."""
    folder.mkdir()
    stream = replay(events(spark, 1200), cuts=400)
    if case == "aggregate":
        out = rm.aggregate(stream, SUMMARY, slack=rm.fixed("0 seconds"))
    elif case in ROUTED:
        out = joined(stream, folder, **ROUTED[case])
    elif case == "chain":
        out = rm.aggregate(joined(stream, folder), SUMMARY, slack=rm.fixed("0 seconds"))
    else:
        out = joined(stream, folder, plan=case).repartition(6, "k")
    local_dir = spark.conf.get("spark.local.dir")
    assert local_dir
    query = started(losing(out, local_dir, folder / "lost"), folder)
    query.awaitTermination()
    found = rm.metrics(query)
    return {
        "lost": int((folder / "lost").read_text()),
        "rows": found["rows"],
        "source_rows": found["source_rows"],
        "rows_in": sorted({operator["rows_in"] for operator in found["operators"].values()}),
    }


def routed_rows(spark: SparkSession, folder: Path, **routed: Any) -> dict[str, Any]:
    """The rows of a stream whose third batch loses files; by then a rule may split keys."""
    folder.mkdir()
    frame = joined(replay(events(spark, 1200), cuts=400), folder, **routed)
    local_dir = spark.conf.get("spark.local.dir")
    assert local_dir
    query = (
        losing(frame, local_dir, folder / "lost", since=800)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "rows"))
    )
    query.awaitTermination()
    rows = spark.read.parquet(str(folder / "rows")).orderBy("id").select("id", "k", "name")
    (found,) = rm.metrics(query)["operators"].values()
    return {
        "lost": int((folder / "lost").read_text()),
        "source_rows": rm.metrics(query)["source_rows"],
        "routing": found.get("routing"),
        "rows": [list(row) for row in rows.collect()],
    }


if __name__ == "__main__":
    # more tasks than cores after a shuffle, so that some of them find the files lost
    spark = session("lost", conf={"spark.sql.shuffle.partitions": "6"})
    cases = ("aggregate", "by_hash", "by_place", "workers", "native", "chain")
    found = {case: numbers(spark, case, Path(sys.argv[1]) / case) for case in cases}
    folder = Path(sys.argv[1]) / "rows"
    folder.mkdir()
    hotspots = rm.by_hotspot(partitions=6, cycle=400, path=folder / "routing")
    found["rows"] = {
        case: routed_rows(spark, folder / case, **routed)
        for case, routed in {**ROUTED, "by_hotspot": {"routing": hotspots}}.items()
    }
    sys.stdout.write(json.dumps(found) + "\n")
    spark.stop()
