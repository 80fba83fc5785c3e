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
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import rivermouth as rm

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SEED = 20080203
ROWS_OF_A_ROAD = 512
DAY, REACH = 86_400, 600  #: seconds
TABLES = {"history": ("road", "second")}  #: with the columns that a database would have an index on


def compared(live: DataFrame, tables: dict[str, Any], cache: Any = None) -> DataFrame:
    """Each report with every row of history of its road and its time of day.

    Parameters
    ----------
    live
        A batch or streaming frame with ``report``, ``road``, ``second`` of the day and ``took_s``.
    tables
        ``history``, one of `rm.tables`.
    cache
        Of the history.
    """
    return rm.join_table(
        live,
        tables["history"],
        on=rm.between("second", "second", lower=-REACH, upper=REACH, by="road"),
        columns=["usual_s"],
        cache=cache,
    )


def congestion(compared: DataFrame) -> DataFrame:
    """How many times as long as usual each report took."""
    from pyspark.sql import functions as sf

    return compared.groupBy("report", "road").agg(
        (sf.first("took_s") / sf.avg("usual_s")).alias("times_usual"),
        sf.count("*").alias("rows"),
    )


def make(folder: Path, rows: int) -> None:
    """Write a history of so many rows as Parquet, the same each time."""
    random = np.random.default_rng((SEED, rows))
    history = {
        "road": random.integers(0, roads_of(rows), rows),
        "second": random.integers(0, DAY, rows),
        "usual_s": random.gamma(4.0, 20.0, rows),
    }
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(history), folder / "history.parquet")


def live_of(rows: int, count: int, *, stream: int = 0) -> pa.Table:
    """So many reports from the roads of a history of so many rows."""
    random = np.random.default_rng((SEED, stream))
    return pa.table(
        {
            "report": np.arange(count),
            "road": random.integers(0, roads_of(rows), count),
            "second": np.sort(random.integers(0, DAY, count)),
            "took_s": random.gamma(4.0, 25.0, count),
        }
    )


def roads_of(rows: int) -> int:
    """How many roads a history of so many rows is about."""
    return max(1, rows // ROWS_OF_A_ROAD)


def main(spark: SparkSession, folder: Path, power: int) -> None:
    """Make a history, send reports as a stream, and show the worst of them."""
    rows = 1 << power
    make(folder, rows)
    tables = {"history": rm.tables.parquet(str(folder / "history.parquet"))}
    count = rows // 8
    live = rm.testing.replay(spark.createDataFrame(live_of(rows, count)), cuts=count // 4)
    query = (
        congestion(compared(live, tables))
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
