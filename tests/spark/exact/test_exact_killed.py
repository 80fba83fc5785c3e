"""An exact aggregation killed at random points ends exact: no record twice, none missing."""

from __future__ import annotations

import datetime as dt
import os
import random
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.killing import KILLS, kill_and_finish

import rivermouth as rm

pytestmark = [pytest.mark.spark]

FILES, ROWS = 5 * KILLS + 4, 30
BEGIN = dt.datetime(2026, 11, 16, tzinfo=dt.UTC)

QUERY = """
import sys
import rivermouth as rm
from rivermouth.spark.exact import corrector
from rivermouth.testing import session

corrector.COMPACT_AFTER = 4  # so that kills fall into compactions, too

folder = sys.argv[1]
spark = session("killed", memory="1g")
events = (
    spark.readStream.schema("number bigint, at timestamp").option("maxFilesPerTrigger", 1)
    .parquet(f"{folder}/events")
)
summary = rm.summary(
    time="at", window=rm.sliding("6 seconds", every="2 seconds"),
    total=rm.sum("number"), n=rm.count(),
)
running = rm.exact(
    events, summary, slack=rm.fixed("2 seconds"), store=f"{folder}/store", span="3 seconds"
).start(availableNow=True)
print("started", flush=True)
running.awaitTermination()
running.results().coalesce(1).write.parquet(f"{folder}/results")
running.records().coalesce(1).write.parquet(f"{folder}/backup")
running.rejected().coalesce(1).write.parquet(f"{folder}/late")
print("ended", flush=True)
"""


@pytest.fixture
def folder(tmp_path):
    rng = random.Random(7)
    (tmp_path / "events").mkdir()
    order = sorted(range(FILES * ROWS), key=lambda i: i + (rng.random() < 0.2) * rng.uniform(0, 60))
    for file in range(FILES):
        numbers = order[file * ROWS : (file + 1) * ROWS]
        times = [BEGIN + dt.timedelta(milliseconds=200 * number) for number in numbers]
        part = pa.table({"number": numbers, "at": pa.array(times, pa.timestamp("us", "UTC"))})
        path = tmp_path / "events" / f"{file:04}.parquet"
        pq.write_table(part, path)
        os.utime(path, (file, file))  # Spark reads files by age, not by name
    return tmp_path


@pytest.mark.timeout(3600)
def test_killed_and_started_again_the_store_ends_exact(spark, folder):
    kill_and_finish(QUERY, folder, seed=2)
    backup = Counter(pq.read_table(folder / "backup").column("number").to_pylist())
    assert backup == Counter(range(FILES * ROWS)), "every record once"
    late = Counter(pq.read_table(folder / "late").column("number").to_pylist())
    assert late
    assert max(late.values()) == 1
    assert list((folder / "store" / "slots").iterdir()), "there were compactions"
    events = spark.read.parquet(str(folder / "events"))
    summary = rm.summary(
        time="at", window=rm.sliding("6 seconds", every="2 seconds"),
        total=rm.sum("number"), n=rm.count(),
    )  # fmt: skip
    names = ["window_start", "total", "n", "records"]
    truth = rm.aggregate(events, summary).select(*names).collect()
    found = spark.read.parquet(str(folder / "results"))
    assert sorted(found.select(*names).collect()) == sorted(truth)
    assert found.where("status <> 'exact'").count() == 0
