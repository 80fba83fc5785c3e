"""A folder of equal Parquet files as a stream: one file a micro-batch, a sink that keeps nothing.

Or as a batch frame, all files at once, to the same sink.

PySpark and the standard library only: peers import this in their own environments.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: the same for us and for peers
CONF = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "3g",
    "spark.sql.shuffle.partitions": "2",
    # a file is cut into as many tasks as there are cores, however small it is
    "spark.sql.files.openCostInBytes": "1",
    "spark.sql.session.timeZone": "UTC",
}


def read(spark: SparkSession, folder: str, files: int) -> DataFrame:
    """The first `files` files of `folder` as a stream."""
    schema = spark.read.parquet(folder).schema
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    return reader.option("pathGlobFilter", _wanted(files)).parquet(folder)


def read_whole(spark: SparkSession, folder: str, files: int) -> DataFrame:
    """The first `files` files of `folder` as a batch frame."""
    return spark.read.option("pathGlobFilter", _wanted(files)).parquet(folder)


def _wanted(files: int) -> str:
    return "part-{" + ",".join(f"{number:03d}" for number in range(files)) + "}.parquet"


def counted(frame: DataFrame, column: str, values: list[str]) -> DataFrame:
    """The same stream, which also counts the rows that hold each of `values` in `column`."""
    from pyspark.sql import functions as sf

    counts = [sf.count_if(sf.col(column) == value).alias(value) for value in values]
    return frame.observe("counts", *counts)


def write(frame: DataFrame) -> dict[str, Any]:
    """Run the batch frame: wall seconds and rows out."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as sf

    told = Observation("rows")
    start = time.perf_counter()
    frame.observe(told, sf.count("*").alias("out")).write.format("noop").mode("append").save()
    return {"wall_s": time.perf_counter() - start, "batches": 1, "rows_out": told.get["out"]}


def drain(
    frame: DataFrame,
    scratch: Path,
    look: Callable[[StreamingQuery], Mapping[str, Any]] = lambda _: {},
    beside: Callable[[StreamingQuery], AbstractContextManager[Any]] = nullcontext,
) -> dict[str, Any]:
    """Run the stream to its end: wall seconds, rows in and out, and sums of what it `counted`.

    ``batch_ms`` is the median time of a micro-batch, from its trigger to its end.

    What `look` sees in the query that has ended goes with them; `beside` is open while it runs.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    checkpoint = tempfile.mkdtemp(dir=scratch)
    start = time.perf_counter()
    query = (
        frame.writeStream.format("noop")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    with beside(query):
        query.awaitTermination()
    wall = time.perf_counter() - start
    batches = [batch for batch in query.recentProgress if batch.numInputRows]
    shutil.rmtree(checkpoint)
    counts = Counter[str]()
    for batch in batches:
        if row := batch.observedMetrics.get("counts"):
            counts.update(row.asDict())
    return {
        "wall_s": wall,
        "batches": len(batches),
        "batch_ms": statistics.median(batch.durationMs["triggerExecution"] for batch in batches),
        "rows_in": sum(batch.numInputRows for batch in batches),
        "rows_out": sum(batch.sink.numOutputRows for batch in batches),
        "counts": dict(counts),
        **look(query),
    }
