"""How long a pair of two streams waits: interval join and window join at a steady rate.

Spark's rate source gives each side 1,000 rows a second, all over a square of 300 x 300; a pair
lies within 1. What is measured is the time from the later of a pair's rows to the end of the
micro-batch that told it, as its sink sees it. The first seconds do not count.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.harness import streams
from benchmarks.harness.experiment import SEED, arguments, save

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RATE, SIDE = 1000, 300
SECONDS, WARM = 60, 25
CASES = {
    "interval, 10 s": ("join_interval", {"between": ("-5 seconds", "5 seconds")}),
    "window, 10 s": ("join_window", {"window": "10 seconds"}),
    "window, 10 s, early": ("join_window", {"window": "10 seconds", "early": True}),
}


def side(spark: SparkSession, prime: int) -> DataFrame:
    """Rows whose places jump about; `prime` tells the sides apart."""
    from pyspark.sql import functions as F  # noqa: N812

    source = spark.readStream.format("rate").option("rowsPerSecond", RATE).load()
    x, y = (F.pmod(F.col("value") * prime * step, F.lit(SIDE)) for step in (7919, 104_729))
    return source.select("timestamp", x.cast("double").alias("x"), y.cast("double").alias("y"))


def joined(spark: SparkSession, case: str, options: dict[str, Any]) -> DataFrame:
    """The join of both sides, lateness zero: the rate source is in order."""
    import rivermouth as rm

    options = dict(options)
    if "window" in options:
        options["window"] = rm.tumbling(options["window"])
    return getattr(rm, case)(
        side(spark, 1),
        side(spark, 3),
        on=rm.dwithin(rm.point("x", "y"), rm.point("x", "y"), distance=1),
        time="timestamp",
        columns={"seen": "timestamp"},
        lateness="0 seconds",
        **options,
    )


def waits(frame: DataFrame, seconds: float, warm: float) -> np.ndarray:
    """Milliseconds that each pair has waited, those of the first `warm` seconds left out."""
    found: list[np.ndarray] = []
    begun = time.time()
    lock = threading.Lock()

    def look(batch: DataFrame, _: int) -> None:
        table = batch.select("timestamp", "seen").toArrow()
        now = time.time()
        if now - begun >= warm and table.num_rows:
            times = [table[name].cast("int64").to_numpy() / 1e3 for name in table.column_names]
            with lock:
                found.append(now * 1e3 - np.maximum(*times))

    query = frame.writeStream.foreachBatch(look).start()
    query.awaitTermination(int(warm + seconds))
    query.stop()
    return np.concatenate(found)


def main() -> None:
    """Leave ``stream_stream_latency``."""
    from rivermouth.spark.runtime.session import local_session

    given = arguments(__doc__)
    seconds, warm = (8, 12) if given.quick else (SECONDS, WARM)
    spark = local_session("bench", cores=2, conf=streams.CONF)
    rows = []
    for title, (case, options) in CASES.items():
        waited = waits(joined(spark, case, options), seconds, warm)
        rows.append(
            {
                "title": title,
                "case": case,
                "pairs": len(waited),
                "median_ms": float(np.median(waited)),
                "p99_ms": float(np.quantile(waited, 0.99)),
            }
        )
        print(rows[-1])
    spark.stop()
    about = {"quick": given.quick, "seed": SEED, "data": "Spark's rate source"}
    print(save("stream_stream_latency", rows, **about, conf=streams.CONF))


if __name__ == "__main__":
    main()
