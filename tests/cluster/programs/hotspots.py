"""A stream routed by hotspots that stops in mid-batch until a host is lost."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import rivermouth as rm

_running: list[Any] = []


def start(spark: SparkSession, *, folder: str, since: int) -> None:
    """Start the query; the first task with an event numbered `since` or later waits to be killed.

    It writes its host's name to ``folder/reached`` before.
    """
    source = spark.readStream.schema("id bigint, key bigint").option("maxFilesPerTrigger", 1)
    routed = rm.join_table(
        source.parquet(f"{folder}/events"), rm.tables.parquet(f"{folder}/table.parquet"),
        on=rm.keys("key"), how="left", cache=rm.full(path=f"{folder}/snapshots"),
        routing=rm.by_hotspot(cycle=500, partitions=3, path=f"{folder}/routing"),
    )  # fmt: skip
    query = _waiting(routed, f"{folder}/reached", since).writeStream.format("parquet")
    query = query.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
    _running.append(query.start(f"{folder}/rows"))


def finish(spark: SparkSession, *, folder: str) -> dict[str, Any]:
    """Wait for the query's end; the routing that it had at last.

    The rows are then in ``folder/read.parquet``: in those of the sink there is what the killed
    task has left, which the sink's log does not name.
    """
    query = _running.pop()
    query.awaitTermination()
    pq.write_table(spark.read.parquet(f"{folder}/rows").toArrow(), f"{folder}/read.parquet")
    (found,) = rm.metrics(query)["operators"].values()
    return dict(found["routing"])


def _waiting(frame: DataFrame, reached: str, since: int) -> DataFrame:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if max(batch.column("id").to_pylist(), default=-1) >= since:
                with suppress(FileExistsError), Path(reached).open("x") as file:
                    file.write(socket.gethostname())
                    file.close()
                    time.sleep(300)  # until this host is killed
            yield batch

    return frame.mapInArrow(work, frame.schema)
