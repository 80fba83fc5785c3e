"""Sliding windows over a disordered stream, each a function DataFrame -> DataFrame."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Frame = Callable[..., "DataFrame"]

WAIT = "20 seconds"  #: longer than every delay, so that both use the same records


def windows(events: DataFrame, *, size: str, every: str, promised: bool = False) -> DataFrame:
    """Our windows; with `promised` K by quality instead of a fixed one."""
    import rivermouth as rm

    summary = rm.summary(
        by="sensor", time="at", window=rm.sliding(size, every=every),
        total=rm.sum("value"), n=rm.count(),
    )  # fmt: skip
    slack = rm.quality() if promised else rm.fixed(WAIT)
    return rm.aggregate(events, summary, slack=slack)


def spark_windows(events: DataFrame, *, size: str, every: str) -> DataFrame:
    """Spark's own, with a watermark that waits as long."""
    from pyspark.sql import functions as sf

    return (
        events.withWatermark("at", WAIT)
        .groupBy("sensor", sf.window("at", size, every))
        .agg(sf.sum("value").alias("total"), sf.count("*").alias("n"))
    )


CASES: dict[str, Frame] = {"windows": windows, "spark_windows": spark_windows}
