"""Traffic: delay, stopping time and queue length of each turn of a road network, live.

    python examples/traffic.py --turns 20000

A vehicle that has left a road by a turn reports how long it took. The report meets six tables in
turn: the road (length, free speed, lanes), the turn (what braking and starting cost there), the
junction that the road leads to, the turn's light, and the usual times of road and turn. What it
lost is its delay, what of that it stood still its stopping time, and how many stand on average,
lined up on the road's lanes, is the queue. It is the second workload of paper A.
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
TURNS_OF_A_ROAD, ROADS_OF_A_JUNCTION = 3, 4
DISTRICTS = 16
METRES_OF_A_VEHICLE = 7.5  #: with the gap to the next
SLICE = 300  #: seconds over which a turn's figures are taken
TABLES = {  #: each with the columns that a database would have an index on
    "roads": ("road",),
    "turns": ("turn",),
    "junctions": ("junction",),
    "lights": ("light",),
    "road_times": ("road",),
    "turn_times": ("turn",),
}
BROUGHT = {  #: in the order in which a report meets them: some by what an earlier one brought
    "roads": ["length_m", "free_kmh", "lanes", "junction"],
    "turns": ["lost_s", "light"],
    "junctions": ["district"],
    "lights": ["red_s"],
    "road_times": ["usual_s"],
    "turn_times": ["usual_wait_s"],
}


def delayed(reports: DataFrame, tables: dict[str, Any], cache: Any = None) -> DataFrame:
    """Each report with its delay and stopping time in seconds.

    Parameters
    ----------
    reports
        A batch or streaming frame with ``road``, ``turn``, ``left_at`` and ``took_s``.
    tables
        Those of `TABLES`, each one of `rm.tables`.
    cache
        Of all of them.
    """
    met = reports
    for name, columns in BROUGHT.items():
        met = rm.join_table(
            met, tables[name], on=rm.keys(*TABLES[name]), columns=columns, cache=cache
        )
    return lost(met)


def lost(met: DataFrame) -> DataFrame:
    """Reports that have met their tables, as what they lost.

    ``reds`` is for how many red lights a vehicle stood, ``slower_s`` how much longer than usual it
    took.
    """
    delay = "took_s - length_m / (free_kmh / 3.6)"
    return met.selectExpr(
        "turn",
        "left_at",
        "district",
        "lanes",
        f"greatest({delay}, 0) AS delay_s",
        f"greatest({delay} - lost_s, 0) AS stopped_s",
        f"greatest({delay} - lost_s, 0) / red_s AS reds",
        "took_s - usual_s - usual_wait_s AS slower_s",
    )


def by_turn(delayed: DataFrame) -> DataFrame:
    """Delay, stopping time and queue of each turn in each slice of time.

    By Little's law the number that stand on average is the time that all of them stood, divided
    by the slice's length.
    """
    from pyspark.sql import functions as sf

    slice_ = sf.window("left_at", f"{SLICE} seconds").start.alias("slice")
    return delayed.groupBy(slice_, "turn").agg(
        sf.first("district").alias("district"),
        sf.count("*").alias("vehicles"),
        sf.avg("delay_s").alias("delay_s"),
        sf.avg("stopped_s").alias("stopped_s"),
        sf.avg("reds").alias("reds"),
        sf.avg("slower_s").alias("slower_s"),
        (sf.sum(sf.col("stopped_s") / sf.col("lanes")) / SLICE * METRES_OF_A_VEHICLE).alias(
            "queue_m"
        ),
    )


def make(folder: Path, rows: int) -> None:
    """Write the tables of a network with so many turns as Parquet, the same each time."""
    random, turn = np.random.default_rng((SEED, rows)), np.arange(rows)
    road = np.arange(-(-rows // TURNS_OF_A_ROAD))
    junction = np.arange(-(-len(road) // ROADS_OF_A_JUNCTION))
    light = np.arange(2 * len(junction))  # those who turn left have one of their own
    roads = {
        "road": road,
        "length_m": random.integers(80, 900, len(road)).astype(np.float64),
        "free_kmh": random.choice([30.0, 50.0, 70.0], len(road)),
        "lanes": random.integers(1, 4, len(road)).astype(np.int32),
        "junction": road // ROADS_OF_A_JUNCTION,
    }
    turns = {
        "turn": turn,
        "lost_s": random.uniform(2, 6, rows),
        "light": 2 * (turn // (TURNS_OF_A_ROAD * ROADS_OF_A_JUNCTION))
        + (turn % TURNS_OF_A_ROAD == 0),
    }
    free_s = roads["length_m"] * 3.6 / roads["free_kmh"]
    made = {
        "roads": roads,
        "turns": turns,
        "junctions": {"junction": junction, "district": junction % DISTRICTS},
        "lights": {"light": light, "red_s": random.uniform(20, 90, len(light))},
        "road_times": {"road": road, "usual_s": free_s * random.uniform(1, 2, len(road))},
        "turn_times": {"turn": turn, "usual_wait_s": random.uniform(0, 40, rows)},
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, columns in made.items():
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")


def reports_of(rows: int, count: int, *, stream: int = 0) -> pa.Table:
    """So many reports from a network with so many turns, in the order of an hour's time."""
    random = np.random.default_rng((SEED, stream))
    turn = random.integers(0, rows, count)
    return pa.table(
        {
            "road": turn // TURNS_OF_A_ROAD,
            "turn": turn,
            "left_at": pa.array(np.sort(random.integers(0, 3600, count)) * 1_000_000).cast(
                pa.timestamp("us", "UTC")
            ),
            "took_s": random.gamma(4.0, 20.0, count),
        }
    )


def main(spark: SparkSession, folder: Path, turns: int) -> None:
    """Make a network, send fifty reports a turn as a stream, and show where it is worst."""
    make(folder, turns)
    reports = spark.createDataFrame(reports_of(turns, 50 * turns))
    tables = {name: rm.tables.parquet(str(folder / f"{name}.parquet")) for name in TABLES}
    query = (
        by_turn(delayed(rm.testing.replay(reports, cuts=10 * turns), tables))
        .writeStream.format("memory")
        .queryName("turns")
        .outputMode("complete")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    print(f"{50 * turns:,} reports from {turns:,} turns; the longest queues:")
    rounded = [f"round({name}, 1) AS {name}" for name in ("delay_s", "stopped_s", "queue_m")]
    spark.table("turns").orderBy("queue_m", ascending=False).selectExpr(
        "slice", "turn", "vehicles", *rounded
    ).show(5)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Delay, stopping time and queue of each turn.")
    parser.add_argument("--turns", type=int, default=20_000, help="of the network")
    with tempfile.TemporaryDirectory() as place:
        main(rm.testing.session("traffic"), Path(place), parser.parse_args().turns)
