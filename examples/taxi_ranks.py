"""Taxi ranks: which cabs come to wait at a rank, for how long, and where they stand.

    python examples/taxi_ranks.py --cabs 200 --map waiting.png

A cab is at a rank while it is within 600 m of it. One that passes is not waiting: it must be seen
there three times in a row, and be away for a minute to have left. After three minutes it waits. The
reports arrive out of order; the events do not depend on it.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import shapely

import rivermouth as rm
from rivermouth.testing.city import City, city
from rivermouth.testing.taxis import positions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SEED = 20080205
RADIUS = 600  #: metres around a rank
DELAY = 60  #: seconds that a report may be under way


def visits(reports: DataFrame, ranks: Any) -> DataFrame:
    """Who comes to a rank, waits there, and leaves.

    Parameters
    ----------
    reports
        A batch or streaming frame with ``taxi``, ``at``, ``lon`` and ``lat``.
    ranks
        One of `rm.tables`, with ``rank``, ``rank_lon`` and ``rank_lat``.
    """
    return rm.fence_events(
        reports,
        ranks,
        on=rm.dwithin(rm.point("lon", "lat"), rm.point("rank_lon", "rank_lat"), meters=RADIUS),
        by="taxi",
        time="at",
        events=["enter", "dwell", "exit"],
        dwell="3 minutes",
        min_inside=3,
        min_outside="1 minute",
        columns=["rank"],
        gap="10 minutes",
        lateness=f"{DELAY} seconds",
    )


def by_rank(events: DataFrame) -> DataFrame:
    """How many came to each rank, how many of them waited, and for how many minutes."""
    from pyspark.sql import functions as sf

    came, waits, left = (sf.col("event") == event for event in ("enter", "dwell", "exit"))
    return events.groupBy("rank").agg(
        sf.count_if(came).alias("came"),
        sf.count_if(waits).alias("waited"),
        sf.round(sf.avg(sf.when(left, sf.col("seconds_inside") / 60)), 1).alias("minutes"),
    )


def make(folder: Path) -> Path:
    """Write a rank in the middle of each district of a city as Parquet; where that is."""
    town = city()
    lon, lat = town.on_map(*town.centres.T)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "ranks.parquet"
    pq.write_table(pa.table({"rank": town.names, "rank_lon": lon, "rank_lat": lat}), path)
    return path


def reports_of(cabs: int, *, seconds: float = 3600) -> pa.Table:
    """What so many cabs report in an hour, in the order of arrival."""
    made = positions(city(), taxis=cabs, seconds=seconds)
    delay = np.random.default_rng(SEED).uniform(0, DELAY, made.num_rows)
    times = made["at"].cast(pa.int64()).to_numpy()
    return made.take(pa.array(np.argsort(times + delay * 1e6, kind="stable")))


def draw(events: DataFrame, town: City, path: Path) -> None:
    """A map of the city: where cabs waited, and in which district how many."""
    waited = events.where("event = 'dwell'").select("rank", "lon", "lat").collect()
    places = np.array([(row.lon, row.lat) for row in waited]).reshape(-1, 2)
    counts = Counter(row.rank for row in waited)
    rm.plot.map(
        town.districts,
        [counts[name] for name in town.names],
        labels=town.names,
        points=shapely.points(places),
        path=path,
        title="Cabs that waited at a rank",
        legend="cabs",
    )


def main(spark: SparkSession, folder: Path, cabs: int, path: Path | None = None) -> None:
    """Send an hour of reports as a stream, and show where cabs wait."""
    ranks = rm.tables.parquet(str(make(folder)))
    reports = reports_of(cabs)
    stream = rm.testing.replay(spark.createDataFrame(reports), cuts=-(-reports.num_rows // 4))
    query = (
        visits(stream, ranks)
        .writeStream.format("memory")
        .queryName("visits")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    print(f"{reports.num_rows:,} reports of {cabs:,} cabs; the ranks where most waited:")
    events = spark.table("visits")
    by_rank(events).orderBy("waited", "rank", ascending=False).show(5)
    draw(events, city(), path or folder / "waiting.png")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Cabs that wait at taxi ranks.")
    parser.add_argument("--cabs", type=int, default=200)
    parser.add_argument("--map", type=Path, default=Path("waiting.png"), help="written at the end")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        main(rm.testing.session("ranks"), Path(place), given.cabs, given.map)
