"""Joins of a stream of taxis with itself: ours, and Spark's own on an exploded cell key."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

RADIUS = 6_371_008.7714
LATENESS = "1 minute"
BUCKETS = 4  #: of a join with a skewed cell
PIECE = 1 << 16  #: rows of a batch that leaves a worker
#: what both bring from the other side
OTHER = {"other": "taxi", "seen": "ts", "other_lon": "lon", "other_lat": "lat"}


def join_interval(
    taxis: DataFrame,
    *,
    meters: float,
    seconds: int,
    cell: float | None = None,
    bin: str | None = None,  # noqa: A002
    buckets: int | None = None,
    index: str | None = None,
) -> DataFrame:
    """Taxis within so many metres and seconds of each other."""
    import rivermouth as rm

    return rm.join_interval(
        taxis,
        taxis,
        on=rm.dwithin(rm.point("lon", "lat"), rm.point("lon", "lat"), meters=meters),
        time="ts",
        between=(f"-{seconds} seconds", f"{seconds} seconds"),
        columns=OTHER,
        lateness=LATENESS,
        buckets=buckets,
        grid=rm.grid(cell=cell, bin=bin, index=index),
    )


def crowded(taxis: DataFrame, *, share: float, way: str) -> DataFrame:
    """Taxis within 100 metres and 20 seconds, so many of which have gathered in one street.

    `way` is where the cell's rows go: "one bucket", "spread" (salted by hand), or "learned".
    """
    from pyspark.sql import functions as F  # noqa: N812

    import rivermouth as rm

    def number(*columns: str, seed: int) -> Column:
        return F.pmod(F.xxhash64(*columns, F.lit(seed)), F.lit(1000)) / 1000

    here = number("taxi", seed=0) < share
    lon = 116.4 + 0.0035 * number("taxi", "ts", seed=1)
    lat = 39.9 + 0.0027 * number("taxi", "ts", seed=2)
    taxis = taxis.withColumns(
        {
            "lon": F.when(here, lon).otherwise(F.col("lon")),
            "lat": F.when(here, lat).otherwise(F.col("lat")),
        }
    )
    skew_path = tempfile.mkdtemp(prefix="skew-") if way == "learned" else None
    salt = BUCKETS if way == "spread" else None
    return rm.join_interval(
        taxis,
        taxis,
        on=rm.dwithin(rm.point("lon", "lat"), rm.point("lon", "lat"), meters=100),
        time="ts",
        between=("-20 seconds", "20 seconds"),
        columns=OTHER,
        lateness=LATENESS,
        buckets=BUCKETS,
        grid=rm.grid(salt=salt, skew_path=skew_path),
    )


def join_window(taxis: DataFrame, *, meters: float, seconds: int) -> DataFrame:
    """Taxis within so many metres in the same window."""
    import rivermouth as rm

    return rm.join_window(
        taxis,
        taxis,
        on=rm.dwithin(rm.point("lon", "lat"), rm.point("lon", "lat"), meters=meters),
        time="ts",
        window=rm.tumbling(f"{seconds} seconds"),
        columns=OTHER,
        lateness=LATENESS,
    )


def topological(
    taxis: DataFrame,
    *,
    predicate: str,
    seconds: int,
    cell: float | None = None,
    buckets: int | None = None,
) -> DataFrame:
    """Points within boxes of the same stream, or boxes that meet others, so many seconds apart."""
    import rivermouth as rm

    left = rm.point("lon", "lat") if predicate in ("within", "covered_by") else "area"
    return rm.join_interval(
        taxis,
        taxis,
        on=getattr(rm, predicate)(left, "area"),
        time="ts",
        between=(f"-{seconds} seconds", f"{seconds} seconds"),
        columns=OTHER,
        lateness=LATENESS,
        grid=None if cell is None else rm.grid(cell=cell),
        buckets=buckets,
    )


def nested_loop(taxis: DataFrame, *, meters: float, seconds: int) -> DataFrame:
    """Spark's own join of equal bins of time, each pair in them tested: nothing knows of space."""
    from pyspark.sql import functions as F  # noqa: N812

    bin_ = 2 * seconds
    left = taxis.withWatermark("ts", LATENESS)
    left = left.withColumn("bin", F.floor(F.unix_timestamp("ts") / bin_))
    right = taxis.select(*(F.col(old).alias(new) for new, old in OTHER.items()))
    right = right.withWatermark("seen", LATENESS)
    first, last = (F.floor((F.unix_timestamp("seen") + end) / bin_) for end in (-seconds, seconds))
    right = right.withColumn("other_bin", F.explode(F.sequence(first, last)))
    met = left.join(
        right,
        (F.col("bin") == F.col("other_bin"))
        & _in_time(seconds)
        & (_great_circle(*map(F.col, ("lon", "lat", "other_lon", "other_lat"))) <= meters),
    )
    return met.drop("bin", "other_bin")


def native_cells(taxis: DataFrame, *, meters: float, seconds: int, cells: float = 2.0) -> DataFrame:
    """Spark's own stream-stream join: equal cells, then time and distance; no Python in it.

    Cells are `cells` times as wide as the distance. The left side goes to its cell, the right one
    to all cells that a box around it meets, so that each pair is found once.
    """
    from pyspark.sql import functions as F  # noqa: N812

    side = math.degrees(meters / RADIUS) * cells
    high = F.lit(math.degrees(meters / RADIUS) * (1 + 1e-9))
    wide = high / F.cos(F.radians(F.abs("other_lat") + high))

    def cell(column: Column) -> Column:
        return F.floor(column / side)

    left = taxis.withWatermark("ts", LATENESS).withColumns(
        {"row": cell(F.col("lat")), "column": cell(F.col("lon"))}
    )
    right = taxis.select(*(F.col(old).alias(new) for new, old in OTHER.items()))
    right = right.withWatermark("seen", LATENESS)
    lat, lon = F.col("other_lat"), F.col("other_lon")
    right = right.withColumn("other_row", F.explode(F.sequence(cell(lat - high), cell(lat + high))))
    right = right.withColumn(
        "other_column", F.explode(F.sequence(cell(lon - wide), cell(lon + wide)))
    )
    met = left.join(
        right,
        (F.col("row") == F.col("other_row"))
        & (F.col("column") == F.col("other_column"))
        & _in_time(seconds)
        & (_great_circle(F.col("lon"), F.col("lat"), lon, lat) <= meters),
    )
    return met.drop("row", "column", "other_row", "other_column")


def _in_time(seconds: int) -> Column:
    """Both rows of a pair are so close in time."""
    from pyspark.sql import functions as F  # noqa: N812

    reach = F.expr(f"INTERVAL {seconds} SECONDS")
    return F.col("seen").between(F.col("ts") - reach, F.col("ts") + reach)


def rows_out(taxis: DataFrame, *, each: int) -> DataFrame:
    """Every row `each` times, beside itself: what it costs that rows leave a Python worker."""
    from pyspark.sql.types import StructType

    schema = StructType(list(taxis.schema.fields))
    for new, old in OTHER.items():
        schema = schema.add(new, taxis.schema[old].dataType)

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for begin in range(0, batch.num_rows, PIECE // each + 1):
                part = batch.slice(begin, PIECE // each + 1)
                rows = part.take(pa.array(np.repeat(np.arange(part.num_rows), each)))
                others = [rows.column(old) for old in OTHER.values()]
                yield pa.RecordBatch.from_arrays([*rows.columns, *others], schema.names)

    return taxis.mapInArrow(work, schema)


def rows_in(taxis: DataFrame) -> DataFrame:
    """A number for each task: what it costs that rows come to a Python worker."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        count = sum(batch.num_rows for batch in batches)
        yield pa.RecordBatch.from_pydict({"rows": [count]})

    return taxis.mapInArrow(work, "rows long")


def _great_circle(lon: Column, lat: Column, other_lon: Column, other_lat: Column) -> Column:
    from pyspark.sql import functions as F  # noqa: N812

    up, along = F.radians(other_lat - lat) / 2, F.radians(other_lon - lon) / 2
    shrink = F.cos(F.radians(lat)) * F.cos(F.radians(other_lat))
    half = F.sin(up) * F.sin(up) + shrink * F.sin(along) * F.sin(along)
    return 2 * RADIUS * F.asin(F.sqrt(half))


CASES = {
    "join_interval": join_interval,
    "crowded": crowded,
    "join_window": join_window,
    "topological": topological,
    "nested_loop": nested_loop,
    "native_cells": native_cells,
    "rows_out": rows_out,
    "rows_in": rows_in,
}
