"""A stream routed to the tasks that join it, which stops in mid-batch until a host is lost."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import rivermouth as rm

_running: list[Any] = []


def start(spark: SparkSession, *, folder: str, since: int, way: str) -> None:
    """Start the query; the first task with an event numbered `since` or later waits to be killed.

    It writes its host's name to ``folder/reached`` before.
    """
    source = spark.readStream.schema("id bigint, key bigint").option("maxFilesPerTrigger", 1)
    cache, here = partial(rm.full, path=f"{folder}/snapshots"), rm.point("key", "key")
    hotspots = rm.by_hotspot(cycle=500, partitions=3, path=f"{folder}/routing")
    ways: dict[str, dict[str, Any]] = {
        "by_hotspot": {"on": rm.keys("key"), "cache": cache(), "routing": hotspots},
        "by_hash": {"on": rm.keys("key"), "cache": cache(), "routing": rm.by_hash(3)},
        "by_key": {"on": rm.keys("key"), "cache": cache(buckets=3)},
        "by_place": {"on": rm.dwithin(here, here, distance=0), "cache": cache(buckets=3)},
    }
    routed = rm.join_table(
        source.parquet(f"{folder}/events"), rm.tables.parquet(f"{folder}/table.parquet"),
        how="left", columns=["name"], **ways[way],
    )  # fmt: skip
    query = _waiting(routed, f"{folder}/reached", since).writeStream.format("parquet")
    query = query.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
    _running.append(query.start(f"{folder}/rows"))


def finish(spark: SparkSession, *, folder: str) -> dict[str, Any] | None:
    """Wait for the query's end; the routing that it had at last, if any.

    The rows are then in ``folder/read.parquet``: in those of the sink there is what the killed
    task has left, which the sink's log does not name.
    """
    query = _running.pop()
    query.awaitTermination()
    pq.write_table(spark.read.parquet(f"{folder}/rows").toArrow(), f"{folder}/read.parquet")
    (found,) = rm.metrics(query)["operators"].values()
    return found.get("routing")


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
