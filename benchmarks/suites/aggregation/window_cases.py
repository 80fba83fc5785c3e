"""Sliding windows over a disordered stream, each a function DataFrame -> DataFrame."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Frame = Callable[..., "DataFrame"]

WAIT = "20 seconds"  #: longer than every delay, so that both use the same records


def windows(events: DataFrame, *, size: str, every: str, by: str) -> DataFrame:
    """Our windows, of each `by` or of all."""
    import rivermouth as rm

    summary = rm.summary(
        by=by or (), time="at", window=rm.sliding(size, every=every),
        total=rm.sum("value"), n=rm.count(),
    )  # fmt: skip
    return rm.aggregate(events, summary, slack=rm.fixed(WAIT))


def spark_windows(events: DataFrame, *, size: str, every: str, by: str) -> DataFrame:
    """Spark's own, with a watermark that waits as long."""
    from pyspark.sql import functions as sf

    return (
        events.withWatermark("at", WAIT)
        .groupBy(*([by] if by else []), sf.window("at", size, every))
        .agg(sf.sum("value").alias("total"), sf.count("*").alias("n"))
    )


def python_floor(events: DataFrame, **_: object) -> DataFrame:
    """Python is given the three columns and counts the rows: what any work in workers costs."""

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = sum(batch.num_rows for batch in batches)
        yield pa.RecordBatch.from_pydict({"n": pa.array([rows])})

    return events.select("at", "sensor", "value").mapInArrow(count, "n bigint")


CASES: dict[str, Frame] = {
    "windows": windows,
    "spark_windows": spark_windows,
    "python_floor": python_floor,
}
