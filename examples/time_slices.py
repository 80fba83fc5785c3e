"""Time slices: how live travel times compare with those of the same time of day, road by road.

    python examples/time_slices.py --power 18

Congestion comes back every day, so a report is judged by the history of its road within ten minutes
of its time of day: `rm.between` with `by=`. It is the third workload of paper A, whose history has
2^18 to 2^23 rows.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import rivermouth as rm

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SEED = 20080203
ROWS_OF_A_ROAD = 512
DAY, REACH = 86_400, 600  #: seconds
Index = Literal["sorted", "skiplist", "ideal_skiplist"]


def compared(live: DataFrame, history: Any, *, index: Index | None = None) -> DataFrame:
    """Each report with every row of history of its road and its time of day.

    Parameters
    ----------
    live
        A batch or streaming frame with ``report``, ``road``, ``second`` of the day and ``took_s``.
    history
        The table, with ``road``, ``second`` and ``took_s``.
    index
        The ordered index to use; None: the fastest.
    """
    return rm.join_table(
        live,
        history,
        on=rm.between("second", "second", lower=-REACH, upper=REACH, by="road"),
        columns={"usual_s": "took_s"},
        cache=rm.full(index=index),
    )


def congestion(compared: DataFrame) -> DataFrame:
    """How many times as long as usual each report took."""
    from pyspark.sql import functions as sf

    return compared.groupBy("report", "road").agg(
        (sf.first("took_s") / sf.avg("usual_s")).alias("times_usual"),
        sf.count("*").alias("rows"),
    )


def make(folder: Path, power: int) -> Path:
    """Write a history of 2^power rows as Parquet, the same each time; its path."""
    random, rows = np.random.default_rng((SEED, power)), 1 << power
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"history-{power}.parquet"
    pq.write_table(
        pa.table(
            {
                "road": random.integers(0, rows // ROWS_OF_A_ROAD, rows),
                "second": random.integers(0, DAY, rows),
                "took_s": random.gamma(4.0, 20.0, rows),
            }
        ),
        path,
    )
    return path


def live_of(power: int, count: int) -> pa.Table:
    """So many reports from the roads of a history of 2^power rows."""
    random = np.random.default_rng(SEED)
    return pa.table(
        {
            "report": np.arange(count),
            "road": random.integers(0, (1 << power) // ROWS_OF_A_ROAD, count),
            "second": np.sort(random.integers(0, DAY, count)),
            "took_s": random.gamma(4.0, 25.0, count),
        }
    )


def main(spark: SparkSession, folder: Path, power: int) -> None:
    """Make a history, send reports as a stream, and show the worst of them."""
    history, count = rm.tables.parquet(str(make(folder, power))), (1 << power) // 8
    live = rm.testing.replay(spark.createDataFrame(live_of(power, count)), cuts=count // 4)
    query = (
        congestion(compared(live, history))
        .writeStream.format("memory")
        .queryName("congestion")
        .outputMode("complete")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    print(f"{count:,} reports against 2^{power} rows of history; those that took longest:")
    spark.table("congestion").orderBy("times_usual", ascending=False).selectExpr(
        "report", "road", "round(times_usual, 1) AS times_usual", "rows"
    ).show(5)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Live travel times beside those of the same time.")
    parser.add_argument("--power", type=int, default=18, help="of two: the history's rows")
    with tempfile.TemporaryDirectory() as place:
        main(rm.testing.session("time slices"), Path(place), parser.parse_args().power)
