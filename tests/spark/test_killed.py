"""A stream killed in mid-run and started again gives the same output, each row once."""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely

pytestmark = pytest.mark.spark

FILES, ROWS = 12, 40

QUERY = """
import sys, time
import rivermouth as rm
from rivermouth.testing import session

folder = sys.argv[1]
spark = session("killed", memory="1g")
events = (
    spark.readStream.schema("id long, x double, y double")
    .option("maxFilesPerTrigger", 1).parquet(f"{folder}/events")
)
joined = rm.join_table(
    events, rm.tables.parquet(f"{folder}/zones.parquet", geometry="shape"),
    on=rm.intersects(rm.point("x", "y"), "shape"), how="left", columns=["zone"],
    cache=rm.full(path=f"{folder}/snapshots"),
)
query = (
    joined.writeStream.format("parquet").option("path", f"{folder}/out")
    .option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start()
)
print("started", flush=True)
query.awaitTermination()
print("ended", flush=True)
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "events").mkdir()
    zones = pa.table(
        {
            "zone": ["west", "east"],
            "shape": [shapely.box(0, 0, 5, 9).wkb, shapely.box(5, 0, 9, 9).wkb],
        }
    )
    pq.write_table(zones, tmp_path / "zones.parquet")
    for number in range(FILES):
        ids = range(number * ROWS, (number + 1) * ROWS)
        part = {"id": list(ids), "x": [float(i % 11) for i in ids], "y": [1.0] * ROWS}
        pq.write_table(pa.table(part), tmp_path / "events" / f"{number:04}.parquet")
    return tmp_path


def start(folder):
    return subprocess.Popen(
        [sys.executable, "-c", QUERY, str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # driver, JVM and workers die together
    )


def kill(process):
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()


def output(folder):
    """What a reader of the file sink sees: the files its log names."""
    log = folder / "out" / "_spark_metadata"
    return pq.read_table(_committed(log)).to_pylist() if log.exists() else []


def _committed(log: pathlib.Path):
    names = []
    for file in sorted(log.iterdir(), key=lambda f: f.name):
        if file.name[0] != ".":
            lines = file.read_text().splitlines()[1:]
            names += [json.loads(line)["path"].removeprefix("file://") for line in lines]
    return sorted(set(names))


def batches(folder):
    commits = folder / "checkpoint" / "commits"
    return len([f for f in commits.iterdir() if f.name.isdigit()]) if commits.exists() else 0


def test_killed_and_started_again_each_row_comes_once(folder):
    rng = random.Random(1)
    for kills in range(3):
        process = start(folder)
        assert process.stdout.readline() == "started\n"
        target, deadline = batches(folder) + 1 + kills, time.monotonic() + 120
        while batches(folder) < target and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(rng.uniform(0, 0.4))
        kill(process)
    before = batches(folder)
    assert 0 < before < FILES, "the kills must fall in the middle of the work"
    last = start(folder)
    assert last.communicate(timeout=240)[0] == "started\nended\n"
    expected = sorted(
        (i, zone)
        for i in range(FILES * ROWS)
        for zone in {0: ["west"], 1: ["west", "east"], 2: ["east"], 3: [None]}[
            (i % 11 >= 5) + (i % 11 > 5) + (i % 11 > 9)
        ]
    )
    found = [(row["id"], row["zone"]) for row in output(folder)]
    assert sorted(found, key=str) == sorted(expected, key=str)
