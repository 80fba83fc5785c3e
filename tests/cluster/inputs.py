"""What the cases of the lab read: streams of a few micro-batches, and two tables."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from rivermouth.testing.city import city
from rivermouth.testing.disorder import Disorder, disordered
from rivermouth.testing.replaying import write_batches
from rivermouth.testing.taxis import positions
from rivermouth.testing.tracks import arrivals, tracks

BATCHES = 4
TAXIS = 60


def write(folder: Path) -> None:
    """Write all inputs, a file for each micro-batch of a stream."""
    taxis = positions(city(), taxis=TAXIS, seconds=600)
    made = {
        "taxis": taxis,
        "calls": _calls(taxis),
        "tracks": arrivals(tracks(objects=15, seconds=5400), lateness=60),
        "readings": disordered(Disorder(3000, 20.0, 8, 0.7, 500.0, 30.0, 2000.0, 1.5, 60.0)),
    }
    for name, table in made.items():
        cuts = np.linspace(0, table.num_rows, BATCHES + 1).astype(int)
        parts = [table.slice(at, to - at) for at, to in itertools.pairwise(cuts)]
        write_batches(parts, folder / name)
    city().write(folder / "districts.geojson")
    pq.write_table(drivers(), folder / "drivers.parquet")


def drivers() -> pa.Table:
    """Who drives a taxi; some taxis have two drivers, some none."""
    numbers = [number for number in range(TAXIS) for _ in range(number % 3)]
    names = [f"driver {at}" for at, _ in enumerate(numbers)]
    return pa.table({"taxi": pa.array(numbers, pa.int32()), "name": names})


def create_drivers(url: str) -> None:
    """The same table in PostgreSQL."""
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE drivers (taxi int, name text)")
        rows = [tuple(row.values()) for row in drivers().to_pylist()]
        cursor.executemany("INSERT INTO drivers VALUES (%s, %s)", rows)


def _calls(taxis: pa.Table) -> pa.Table:
    """Some of the places where taxis were, a minute later; most of them in one crowded spot."""
    there = taxis.filter(pc.is_valid(taxis["lon"]))
    chosen = there.take(np.random.default_rng(1).choice(there.num_rows, 600, replace=False))
    crowd = np.arange(chosen.num_rows) % 4 > 0
    lon, lat = (
        np.where(crowd, chosen[name].to_numpy()[0], chosen[name].to_numpy())
        for name in ("lon", "lat")
    )
    minute = pa.scalar(np.timedelta64(60, "s"))
    calls = {"call": np.arange(chosen.num_rows), "called": pc.add(chosen["at"], minute)}
    return pa.table({**calls, "x": lon, "y": lat}).sort_by("called")
