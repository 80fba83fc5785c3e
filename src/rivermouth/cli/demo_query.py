"""The demo's query: positions arrive as files and leave with their district."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from rich.console import Console

import rivermouth as rm
from rivermouth.cli.arrivals import Arrivals
from rivermouth.observe.progress import follow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def place(
    spark: SparkSession, reported: pa.Table, out: Path, *, seconds: float, console: Console
) -> tuple[pa.Table, dict[str, Any]]:
    """The positions with their districts of ``districts.geojson`` in `out`, and the metrics."""
    # within `out`, so that the workers of another master can reach it, too
    with tempfile.TemporaryDirectory(prefix=".work-", dir=out) as name:
        work = Path(name).resolve()
        (work / "arriving").mkdir()
        query = _start(spark, out / "districts.geojson", work)
        try:
            with Arrivals(reported, work / "arriving", seconds=seconds) as arrivals:
                numbers = follow(
                    query,
                    until=lambda now: arrivals.over and now["rows"] >= reported.num_rows,
                    console=console,
                )
        finally:
            query.stop()
        return spark.read.parquet(str(work / "placed")).toArrow(), numbers


def _start(spark: SparkSession, districts: Path, work: Path) -> StreamingQuery:
    positions = spark.readStream.schema("taxi int, at timestamp, lon double, lat double").parquet(
        str(work / "arriving")
    )
    placed = rm.join_table(
        positions,
        rm.tables.geojson(districts),
        on=rm.within(rm.point("lon", "lat"), "geometry"),
        how="left",
        columns=["district"],
        cache=rm.full(path=str(work / "snapshots")),
    )
    return (
        placed.writeStream.format("parquet")
        .option("path", str(work / "placed"))
        .option("checkpointLocation", str(work / "checkpoint"))
        .trigger(processingTime="1 second")
        .start()
    )
