"""A table that changes in mid-batch: one version per batch, and the same when it runs again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections import defaultdict

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rivermouth as rm
from rivermouth.testing import replay, rows

BATCHES, TASKS = 3, 6
KEYS, SPOT = rm.keys("uid"), rm.point("uid", "uid")
HOW = {
    "workers": (None, "workers", KEYS),
    "udf": (None, "udf", KEYS),
    "buckets": (TASKS, None, KEYS),
    "buckets by place": (TASKS, None, rm.dwithin(SPOT, SPOT, distance=0)),
    "native": (None, "native", KEYS),
}


def write_table(path, value):
    """The table with this value in all rows, in one step."""
    pq.write_table(pa.table({"uid": list(range(60)), "value": [value] * 60}), f"{path}.new")
    os.replace(f"{path}.new", path)


class Changing:
    """A table that changes ten times a second; each row has the same value at any time."""

    def __init__(self, path):
        self._path, self._over = path, threading.Event()
        self._thread = threading.Thread(target=self._change)

    def __enter__(self):
        write_table(self._path, 0)
        self._thread.start()

    def __exit__(self, *_):
        self._over.set()
        self._thread.join()

    def _change(self):
        value = 0
        while not self._over.wait(0.1):
            write_table(self._path, value := value + 1)


def slowly(batches):
    """The rows, with a pause before them, so that tasks start at different times."""
    time.sleep(0.3)
    yield from batches


@pytest.mark.parametrize(
    ("how", "sink"),
    [
        *(
            pytest.param(how, "memory", marks=[pytest.mark.since("4.1")] if how == "udf" else [])
            for how in HOW
        ),
        ("workers", "foreachBatch"),
    ],
)
def test_tasks_of_a_batch_that_straddle_refreshes_join_one_version(spark, tmp_path, how, sink):
    if sink == "foreachBatch" and "RIVERMOUTH_TEST_REMOTE" in os.environ:
        pytest.skip("a task of foreachBatch is not told its batch through Spark Connect")
    events = spark.range(60 * BATCHES).selectExpr("id div 60 batch", "id % 60 uid")
    stream = replay(events.coalesce(1), cuts=[60] * BATCHES, path=tmp_path / "events")
    slow = stream.repartition(TASKS).mapInArrow(slowly, stream.schema)
    buckets, plan, on = HOW[how]
    cache = rm.full(refresh="10 milliseconds", path=tmp_path / "snapshots", buckets=buckets)
    found = defaultdict(set)

    def keep(batch, number):
        for row in rows(batch):
            found[row["batch"]].add(row["value"])

    with Changing(tmp_path / "table.parquet"):
        joined = rm.join_table(
            slow, rm.tables.parquet(tmp_path / "table.parquet"), on=on, cache=cache, plan=plan,
            columns=["value"],
        )  # fmt: skip
        writer = joined.writeStream.trigger(availableNow=True)
        if sink == "memory":
            name = f"versions_{how}".replace(" ", "_")
            writer.format("memory").queryName(name).start().awaitTermination()
            keep(spark.table(name), 0)
        else:
            writer.foreachBatch(keep).start().awaitTermination()
    assert sorted(found) == list(range(BATCHES))
    assert [len(values) for values in found.values()] == [1] * BATCHES, dict(found)
    assert len(set.union(*found.values())) > 1, "the table was not refreshed"


QUERY = """
import json, os, signal, sys
import pyarrow as pa
import pyarrow.parquet as pq
import rivermouth as rm
from rivermouth.testing import rows, session

folder, attempt = sys.argv[1:]
spark = session("again", memory="1g")
events = (
    spark.readStream.schema("batch bigint, uid bigint").option("maxFilesPerTrigger", 1)
    .parquet(f"{folder}/events")
)
joined = rm.join_table(
    events.repartition(2), rm.tables.parquet(f"{folder}/table.parquet"), on=rm.keys("uid"),
    cache=rm.full(path=f"{folder}/snapshots", **json.loads(os.environ["CACHE"])),
)


def write(batch, number):
    found = sorted([row["uid"], row["value"]] for row in rows(batch))
    with open(f"{folder}/out-{attempt}-{number}.json", "w") as file:
        json.dump(found, file)
    if number == 1 and attempt == "first":  # before Spark has committed it
        changed = pa.table({"uid": [1, 2, 3], "value": ["new"] * 3})
        pq.write_table(changed, f"{folder}/table.parquet")
        os.killpg(0, signal.SIGKILL)


query = joined.writeStream.foreachBatch(write).option("checkpointLocation", f"{folder}/checkpoint")
query.trigger(availableNow=True).start().awaitTermination()
"""


@pytest.mark.parametrize("cache", [{}, {"refresh": "1 millisecond", "buckets": 2}])
def test_a_batch_that_was_killed_after_a_refresh_writes_the_same_rows(tmp_path, cache):
    (tmp_path / "events").mkdir()
    for batch in range(3):
        part = tmp_path / "events" / f"{batch}.parquet"
        pq.write_table(pa.table({"batch": [batch] * 3, "uid": [1, 2, 3]}), part)
        os.utime(part, (batch, batch))
    pq.write_table(pa.table({"uid": [1, 2, 3], "value": ["old"] * 3}), tmp_path / "table.parquet")
    codes = [_run(tmp_path, attempt, cache) for attempt in ("first", "again")]
    assert codes == [-9, 0]
    written = {path.stem: json.loads(path.read_text()) for path in tmp_path.glob("out-*.json")}
    old, new = ([[uid, value] for uid in (1, 2, 3)] for value in ("old", "new"))
    assert written == {
        "out-first-0": old,
        "out-first-1": old,
        "out-again-1": old,  # as it was written before, although the table has changed
        "out-again-2": new,
    }


def _run(folder, attempt, cache):
    command = [sys.executable, "-c", QUERY, str(folder), attempt]
    environment = {**os.environ, "CACHE": json.dumps(cache)}
    done = subprocess.run(command, start_new_session=True, env=environment, check=False)
    return done.returncode
