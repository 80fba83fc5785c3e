"""Small data for the pipelines beside this file, the same each time.

python examples/pipelines/make_data.py districts
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

SEED = 20080203
START = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
US = pa.timestamp("us", "UTC")
WRITTEN = 1_767_268_800  #: when the first file was, in seconds since 1970


def traffic(folder: Path) -> None:
    """Roads, turns, and what vehicles report that left a road by a turn."""
    random, count = np.random.default_rng(SEED), 30
    roads = {
        "road": np.arange(count),
        "length_m": random.integers(100, 900, count).astype(float),
        "free_kmh": random.choice([30.0, 50.0], count),
        "lanes": random.integers(1, 4, count),
    }
    turns = {
        "turn": np.arange(3 * count),
        "lost_s": random.integers(2, 20, 3 * count).astype(float),
    }
    write(folder / "roads.parquet", roads)
    write(folder / "turns.parquet", turns)
    turn = random.integers(0, 3 * count, 600)
    reports = {
        "turn": turn,
        "road": turn // 3,
        "left_at": times(np.sort(random.integers(0, 1800, 600))),
        "took_s": random.integers(10, 200, 600).astype(float),
    }
    in_parts(folder / "reports", reports, 3)


def sums(folder: Path) -> None:
    """Readings of sensors, in the order in which they arrive, a third of them late."""
    random, count = np.random.default_rng(SEED), 900
    at = np.sort(random.integers(0, 60, count))
    delay = np.where(random.random(count) < 0.33, random.exponential(4.0, count), 0.0)
    order = np.argsort(at + delay, kind="stable")
    readings = {
        "sensor": random.integers(0, 3, count)[order],
        "at": times(at[order]),
        "value": random.integers(50, 150, count).astype(float)[order],
    }
    in_parts(folder / "readings", readings, 4)


def districts(folder: Path) -> None:
    """Four square districts, taxis that drive through them, and calls."""
    corners = {"north west": (0, 1), "north east": (1, 1), "south west": (0, 0)}
    corners["south east"] = (1, 0)
    features = [
        {"type": "Feature", "properties": {"district": name}, "geometry": square(10 + x, 50 + y)}
        for name, (x, y) in corners.items()
    ]
    folder.mkdir(parents=True, exist_ok=True)
    collection = {"type": "FeatureCollection", "features": features}
    (folder / "districts.geojson").write_text(json.dumps(collection))
    random, count = np.random.default_rng(SEED), 400
    seconds = np.sort(random.integers(0, 3600, count))
    lon, lat = 10 + 2.2 * random.random(count), 50 + 2 * random.random(count)
    taxis = {"taxi": random.integers(1, 9, count), "at": times(seconds), "lon": lon, "lat": lat}
    in_parts(folder / "taxis", taxis, 3)
    near = random.integers(0, count, 12)
    calls = {
        "caller": [f"caller {number}" for number in range(12)],
        "called": times(seconds[near] + 60).cast(pa.timestamp("s")),
        "x": lon[near] + 0.001,
        "y": lat[near],
    }
    (folder / "calls").mkdir(exist_ok=True)
    pa.csv.write_csv(pa.table(calls), folder / "calls" / "calls.csv")


def times(seconds: np.ndarray) -> pa.Array:
    """Instants so many seconds after the start."""
    return pa.array((seconds + START.timestamp()).astype("int64") * 1_000_000).cast(US)


def square(x: float, y: float) -> dict[str, object]:
    """A square of one degree as GeoJSON."""
    ring = [[x, y], [x + 1, y], [x + 1, y + 1], [x, y + 1], [x, y]]
    return {"type": "Polygon", "coordinates": [ring]}


def write(path: Path, columns: Mapping[str, object]) -> None:
    """A Parquet file of these columns."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)


def in_parts(folder: Path, columns: Mapping[str, object], parts: int) -> None:
    """The rows as a stream: so many files, one after the other."""
    table = pa.table(columns)
    size = -(-table.num_rows // parts)
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(parts):
        path = folder / f"part-{number}.parquet"
        pq.write_table(table.slice(number * size, size), path)
        os.utime(path, (WRITTEN + number, WRITTEN + number))  # the order in which Spark reads them


MAKERS: dict[str, Callable[[Path], None]] = {"traffic": traffic, "sums": sums,
                                             "districts": districts}  # fmt: skip

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Make small data for a pipeline.")
    parser.add_argument("pipeline", choices=MAKERS)
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent / "data")
    given = parser.parse_args()
    MAKERS[given.pipeline](given.folder)
    print(f"data of {given.pipeline} is in {given.folder}")
