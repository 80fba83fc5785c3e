"""Trips of a stream, killed again and again: each row once in the end."""

import datetime as dt
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely
from tests.support.killing import KILLS, kill_and_finish, output

import rivermouth as rm
from rivermouth.testing.tracks import Fleet, arrivals, tracks
from rivermouth.testing.trips import trips

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FILES, SECONDS = 4 * KILLS + 8, 600  # a kill lets one to three batches pass
HOW = {"gap": "4 minutes", "stop": (30.5, "2 minutes")}

QUERY = f"""
import sys
import rivermouth as rm
from rivermouth.testing import session

folder = sys.argv[1]
spark = session("killed", memory="1g")
source = spark.readStream.schema("object int, at timestamp, x double, y double")
found = rm.trips(
    source.option("maxFilesPerTrigger", 1).parquet(f"{{folder}}/in"),
    by="object", time="at", point=rm.point("x", "y"), lateness="1 minute", buckets=4, **{HOW!r},
)
query = (
    found.writeStream.format("parquet").option("path", f"{{folder}}/out")
    .option("checkpointLocation", f"{{folder}}/checkpoint").trigger(availableNow=True).start()
)
print("started", flush=True)
query.awaitTermination()
print("ended", flush=True)
"""


def positions():
    """Out of order by up to a minute; the last position, days later, ends all the others' rows."""
    made = tracks(
        Fleet(silence=(300, 900), silent=0.4), objects=30, seconds=FILES * SECONDS, seed=8
    )
    last = {"object": [-1], "at": [dt.datetime(2026, 1, 9)], "x": [0.0], "y": [0.0]}
    return pa.concat_tables([arrivals(made, lateness=60), pa.table(last).cast(made.schema)])


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "in").mkdir()
    rows = positions()
    size = -(-rows.num_rows // FILES)
    for number in range(FILES):
        file = tmp_path / "in" / f"{number:04}.parquet"
        pq.write_table(rows.slice(number * size, size), file)
        os.utime(file, (number, number))  # Spark reads files by age, not by name
    return tmp_path


@pytest.mark.timeout(3600)
def test_killed_again_and_again_each_row_comes_once(folder):
    kill_and_finish(QUERY, folder, seed=3)
    truth = trips(positions().to_pylist(), by="object", time="at", point=rm.point("x", "y"), **HOW)
    expected = [shown(row, row["path"]) for row in truth if row["object"] >= 0]
    out = output(folder / "out")
    paths = shapely.from_wkb([row["path"] for row in out])
    found = [shown(row, path) for row, path in zip(out, paths, strict=True)]
    assert len(expected) > 300
    assert sorted(found) == sorted(expected)


def shown(row, path):
    times = (row[name].replace(tzinfo=None) for name in ("begin", "end"))
    return row["object"], row["kind"], *times, row["positions"], shapely.to_wkt(path, -1)
