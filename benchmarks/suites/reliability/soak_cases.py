"""The queries of the soak: every operator that keeps state, over a stream that never ends.

The stream is Spark's ``rate-micro-batch``, which keeps nothing of what it has given, so that
whatever grows is ours. Objects go round in circles, so that any stretch of it is like any other.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import shapely

import rivermouth as rm

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 1_000  #: of a micro-batch
SECONDS = 10  #: of event time that a micro-batch covers
OBJECTS = 200
ROUND = 600  #: seconds of an object's circle
DISORDER = 3  #: seconds that a record may be late at most
#: of `rm.exact`: one record in so many is late by up to so many seconds
RARE, OUTAGE = 50, 120
BEGIN = 1_767_225_600_000  # 2026-01-01, milliseconds since 1970
_FINE = 1 << 30
HERE, THERE = rm.point("x", "y"), rm.point("u", "v")
LATENESS = "5 seconds"

Made = Callable[["DataFrame", "DataFrame", Path], "DataFrame"]


def stream(spark: SparkSession, *, salt: int = 0, rows: int = ROWS) -> DataFrame:
    """A record each 10 ms of one of the objects; `salt` makes streams differ.

    A micro-batch has so many `rows`; the stream is the same, however it is cut.
    """
    from pyspark.sql import functions as sf

    source = spark.readStream.format("rate-micro-batch").options(
        rowsPerBatch=rows, numPartitions=2, startTimestamp=BEGIN,
        advanceMillisPerBatch=1000 * SECONDS * rows // ROWS,
    )  # fmt: skip

    def draw(number: int) -> Any:
        """Uniform in [0, 1), by record."""
        hashed = sf.xxhash64("value", sf.lit(10 * salt + number))
        return sf.pmod(hashed, sf.lit(_FINE)) / _FINE

    made = sf.lit(BEGIN / 1000) + sf.col("value") * (SECONDS / ROWS)
    object_id = sf.pmod(sf.xxhash64("value", sf.lit(10 * salt)), sf.lit(OBJECTS))
    turn = 2 * sf.pi() * (sf.col("made") / ROUND + sf.col("id") / OBJECTS)
    at = sf.col("made") - DISORDER * draw(1)
    outage = sf.when(sf.pmod("value", sf.lit(RARE)) == 0, OUTAGE * draw(2)).otherwise(0.0)
    return (
        source.load()
        .select("value", made.alias("made"), object_id.alias("id"), draw(3).alias("amount"),
                at.alias("seconds"), (at - outage).alias("seconds_sent"))
        .select(
            "id", (100 * sf.col("amount")).cast("bigint").alias("amount"),
            sf.timestamp_seconds("seconds").alias("at"),
            sf.timestamp_seconds("seconds_sent").alias("sent"),
            (sf.pmod("id", sf.lit(20)) + 3 * sf.cos(turn)).alias("x"),
            (sf.floor(sf.col("id") / 20) + 3 * sf.sin(turn)).alias("y"),
        )
    )  # fmt: skip


def others(spark: SparkSession, *, rows: int = ROWS) -> DataFrame:
    """A second stream, with names of its own."""
    named = {"id": "other", "at": "then", "x": "u", "y": "v"}
    renamed = (f"{name} as {new}" for name, new in named.items())
    return stream(spark, salt=1, rows=rows).selectExpr(*renamed)


def summary(time: str, window: Any) -> Any:
    """What is summed by object."""
    return rm.summary(by="id", time=time, window=window, n=rm.count(), total=rm.sum("amount"))


def aggregate(events: DataFrame, others: DataFrame, folder: Path) -> DataFrame:
    """Sliding windows, K by the promise."""
    window = rm.sliding("60 seconds", every="20 seconds")
    return rm.aggregate(events, summary("sent", window))


def exact(events: DataFrame, store: Path) -> Any:
    """Sliding windows, each corrected, in a store that keeps the last ten minutes."""
    sums = summary("sent", rm.sliding("20 seconds", every="10 seconds"))
    return rm.exact(events, sums, store=store, retention="10 minutes", max_future="5 minutes")


def sessions(events: DataFrame, others: DataFrame, folder: Path) -> DataFrame:
    """Sessions by object, of a gap that is often exceeded."""
    return rm.aggregate(events, summary("at", rm.session("5 seconds")), slack=rm.fixed(LATENESS))


def join_window(events: DataFrame, others: DataFrame, folder: Path) -> DataFrame:
    """Two streams by distance and window."""
    return rm.join_window(
        events, others, on=rm.dwithin(HERE, THERE, distance=0.3), time=("at", "then"),
        window=rm.tumbling("20 seconds"), columns=["other"], lateness=LATENESS,
    )  # fmt: skip


def join_interval(events: DataFrame, others: DataFrame, folder: Path) -> DataFrame:
    """Two streams by distance and interval."""
    return rm.join_interval(
        events, others, on=rm.dwithin(HERE, THERE, distance=0.3), time=("at", "then"),
        between=("-20 seconds", "0 seconds"), columns=["other"], lateness=LATENESS,
    )  # fmt: skip


def fences(folder: Path) -> Any:
    """The table of boxes that the circles enter and leave."""
    boxes = [shapely.box(x, y, x + 2, y + 2) for x in range(-2, 22, 4) for y in range(-2, 12, 4)]
    features = [
        {"type": "Feature", "properties": {"fence": number},
         "geometry": json.loads(shapely.to_geojson(box))}
        for number, box in enumerate(boxes)
    ]  # fmt: skip
    path = folder / "fences.geojson"
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return rm.tables.geojson(str(path))


def fence_events(events: DataFrame, others: DataFrame, folder: Path) -> DataFrame:
    """Objects that enter and leave the boxes."""
    return rm.fence_events(
        events, fences(folder), on=rm.within(HERE, "geometry"), by="id", time="at",
        columns=["fence"], lateness=LATENESS,
    )  # fmt: skip


def trips(events: DataFrame, others: DataFrame, folder: Path) -> DataFrame:
    """Trips that gaps of five seconds part."""
    return rm.trips(events, by="id", time="at", point=HERE, gap="5 seconds", lateness=LATENESS)


def spark_aggregate(events: DataFrame, others: DataFrame, folder: Path) -> DataFrame:
    """Sliding windows of Spark's own: what is flat without us."""
    from pyspark.sql import functions as sf

    windows = events.withWatermark("at", LATENESS).groupBy(
        "id", sf.window("at", "60 seconds", "20 seconds")
    )
    return windows.agg(sf.count("*").alias("n"), sf.sum("amount").alias("total"))


CASES: dict[str, Made] = {
    made.__name__: made
    for made in (
        aggregate, sessions, join_window, join_interval, fence_events, trips, spark_aggregate,
    )
}  # fmt: skip
EXACT = "exact"
