"""Fence events, killed again and again: each event once in the end, those of a batch frame.

Final events and early ones, whose log must amount to the same.
"""

import json
import os
from typing import cast

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely
from tests.support.killing import KILLS, kill_and_finish, output
from tests.support.trajectories import compacted

from rivermouth.testing.fences import fence_events

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FILES, ROWS = 4 * KILLS + 8, 60  # a kill lets one to three batches pass
SHAPES = {f"box {n}": shapely.box(4 * n, 0, 4 * n + 3, 12) for n in range(3)}

QUERY = """
import sys
import rivermouth as rm
from rivermouth.testing import session

folder = sys.argv[1]
spark = session("killed", memory="1g")
schema = "cab long, at timestamp, x double, y double"
source = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
queries = []
for name in ("final", "early"):
    events = rm.fence_events(
        source.parquet(f"{folder}/cabs"), rm.tables.geojson(f"{folder}/zones.geojson"),
        on=rm.within(rm.point("x", "y"), "geometry"), by="cab", time="at",
        events=["enter", "exit", "dwell", "cross", "lost"], dwell="20 seconds", min_outside=2,
        gap="25 seconds", lateness="5 seconds", buckets=2, early=name == "early",
    )
    sink = events.writeStream.format("parquet").option("path", f"{folder}/{name}/out")
    sink = sink.option("checkpointLocation", f"{folder}/{name}/checkpoint")
    queries.append(sink.trigger(availableNow=True).start())
print("started", flush=True)
for query in queries:
    query.awaitTermination()
print("ended", flush=True)
"""


def cabs():
    """Ten seconds a file, out of order by up to five; the last row moves the clock past all."""
    rng = np.random.default_rng(3)
    count = FILES * ROWS
    seconds = np.arange(count) / ROWS * 10
    cab = rng.integers(0, 40, count)
    walk = np.array([np.cumsum(rng.normal(0, 2, count)) % 12 for _ in range(40)])
    arrived = np.argsort(seconds + rng.uniform(0, 4.9, count), kind="stable")
    times = pa.array((seconds[arrived] * 1e6).astype(np.int64))
    table = pa.table(
        {
            "cab": cab[arrived],
            "at": times.cast(pa.timestamp("us", "UTC")),
            "x": walk[cab[arrived], arrived],
            "y": rng.uniform(0, 12, count),
        }
    )
    last = {"cab": [-1], "at": [10**12], "x": [500.0], "y": [0.0]}
    return pa.concat_tables([table, pa.table(last).cast(table.schema)])


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "cabs").mkdir()
    rows = cabs()
    for number in range(FILES):
        size = ROWS + 1 if number == FILES - 1 else ROWS
        file = tmp_path / "cabs" / f"{number:04}.parquet"
        pq.write_table(rows.slice(number * ROWS, size), file)
        os.utime(file, (number, number))  # Spark reads files by age, not by name
    features = [
        {"type": "Feature", "properties": {"zone": name},
         "geometry": json.loads(shapely.to_geojson(shape))}
        for name, shape in SHAPES.items()
    ]  # fmt: skip
    collection = {"type": "FeatureCollection", "features": features}
    (tmp_path / "zones.geojson").write_text(json.dumps(collection))
    return tmp_path


@pytest.mark.timeout(3600)
def test_killed_again_and_again_each_event_comes_once(folder):
    kill_and_finish(QUERY, folder, seed=2)
    log = sorted(output(folder / "early" / "out"), key=lambda row: cast(int, row["revision"]))
    assert "delete" in {row["change"] for row in log}
    identity = ("cab", "at", "x", "y", "zone", "event")
    found, early = plain(output(folder / "final" / "out")), plain(compacted(log, identity))
    truth = fence_events(
        [(row["cab"], row["at"].timestamp(), (row["x"], row["y"])) for row in cabs().to_pylist()],
        SHAPES,
        lambda place, shape: shape.contains(shapely.Point(place)),
        meets=lambda a, b, shape: bool(
            shapely.relate_pattern(shapely.LineString([a, b]), shape, "T********")
        ),
        dwell=20, min_outside=(2, 0), gap=25,
    )  # fmt: skip
    expected = [
        (one.who, one.fence, one.event, round(one.time * 1e6), _milliseconds(one.inside),
         one.reason)
        for one in truth
    ]  # fmt: skip
    assert {event for _, _, event, *_ in expected} == {"enter", "exit", "dwell", "cross", "lost"}
    assert len(found) > 500
    assert found == sorted(expected, key=str)
    assert early == found


def plain(rows):
    """Events that can be compared, in order."""
    found = [
        (row["cab"], row["zone"], row["event"], pd.Timestamp(row["at"]).value // 1000,
         _milliseconds(row["seconds_inside"]), row["reason"])
        for row in rows
    ]  # fmt: skip
    return sorted(found, key=str)


def _milliseconds(seconds):
    return None if seconds is None else round(seconds * 1000)
