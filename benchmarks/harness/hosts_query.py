"""A query on several hosts, run by a driver for whoever feeds it: started, looked at and stopped.

One at a time. Called on the driver's host by ``tests.cluster.programs.driver``.
"""

from __future__ import annotations

import json
import time
import urllib.request
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_GLANCE, _PATIENCE = 0.1, 900.0  # seconds
_LONG_AGO = 10**15  # microseconds since 1970: an arrival before is none
_running: list[StreamingQuery] = []


def read(
    spark: SparkSession, folder: str, *, schema: str, files: int, at_least: int = 0
) -> DataFrame:
    """The files of ``folder/in/*`` as a stream: up to the bytes of so many, or `at_least` so many.

    The files are those of ``folder/in/warm``, which are there. What arrives later in smaller files
    is taken as it comes: a limit of files would let records wait for the micro-batch after next.
    """
    each = next(Path(folder, "in", "warm").glob("*.parquet")).stat().st_size
    limit = max(each * files + each // 2, at_least)
    source = spark.readStream.schema(schema).option("maxBytesPerTrigger", limit)
    return source.parquet(f"{folder}/in/*")


def run(joined: DataFrame, *, folder: str, rows: int, every: int) -> None:
    """Start a query of rows with ``number`` and ``arrival``; wait until so many rows went in.

    One record in `every`, by its number, tells when it arrived and when its row left.
    """
    query = (
        stamped(joined, every)
        .writeStream.format("noop")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .start()
    )
    _running.append(query)
    _wait_for_rows(query, rows)


def stamped(joined: DataFrame, every: int) -> DataFrame:
    """The rows; each micro-batch reports when some of them had arrived, and when they left.

    A row leaves when its task hands it to the sink: by the clock of its host, not by Spark's
    ``current_timestamp``, which is the micro-batch's.
    """
    from pyspark.sql import functions as sf

    is_told = (sf.col("arrival") > _LONG_AGO) & (sf.col("number") % every == 0)
    clock = sf.reflect(sf.lit("java.lang.System"), sf.lit("currentTimeMillis")).cast("bigint")
    told = joined.withColumn("left", sf.when(is_told, clock))
    both = sf.when(sf.col("left").isNotNull(), sf.array("arrival", sf.col("left") * 1000))
    return told.observe("left", sf.collect_list(both).alias("left"), sf.count("*").alias("rows"))


def progress(spark: SparkSession, *, rows: int) -> list[dict[str, Any]]:
    """Wait until so many rows went in since the query started; all its micro-batches.

    Each has its rows, when it began and how long it took, how much of that the driver alone was at
    work (planning, and the logs of offsets and commits), its tasks' reports, and the arrivals and
    departures of some rows in microseconds since 1970.
    """
    _wait_for_rows(_running[0], rows)
    return [_batch(one) for one in _running[0].recentProgress if one["numInputRows"]]


def stages(spark: SparkSession, *, since: float) -> list[dict[str, Any]]:
    """The stages that were submitted after `since`: when, and the seconds that each task took.

    As Spark's page has them (``spark.ui.enabled``).
    """
    context = spark.sparkContext
    url = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/stages"
    found = []
    for stage in _asked(f"{url}?status=complete"):
        submitted = datetime.strptime(stage["submissionTime"], "%Y-%m-%dT%H:%M:%S.%fGMT")
        began = submitted.replace(tzinfo=UTC).timestamp()
        if began >= since:
            tasks = _asked(f"{url}/{stage['stageId']}/{stage['attemptId']}/taskList?length=1000")
            found.append({"began": began, "seconds": [one["duration"] / 1000 for one in tasks]})
    return found


def stop(spark: SparkSession) -> None:
    """Stop the query."""
    _running.pop().stop()


def _asked(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return json.load(answer)


def _wait_for_rows(query: StreamingQuery, rows: int) -> None:
    deadline = time.monotonic() + _PATIENCE
    while (done := sum(one["numInputRows"] for one in query.recentProgress)) < rows:
        if (error := query.exception()) is not None:
            raise error
        if time.monotonic() > deadline:
            raise TimeoutError(f"{done} of {rows} rows after {_PATIENCE:.0f} s")
        time.sleep(_GLANCE)


def _batch(one: Any) -> dict[str, Any]:
    observed = one["observedMetrics"]
    reports = [
        json.loads(report)
        for name, row in observed.items()
        if name.startswith("rivermouth.")
        for report in row["tasks"]
    ]
    told, duration = observed["left"], one["durationMs"]
    return {
        "rows": one["numInputRows"],
        "rows_out": told["rows"],
        "began": datetime.fromisoformat(one["timestamp"]).timestamp(),
        "seconds": duration["triggerExecution"] / 1000,
        "driver_seconds": (duration["triggerExecution"] - duration["addBatch"]) / 1000,
        "tasks": reports,
        "left": [list(pair) for pair in told["left"]],
    }
