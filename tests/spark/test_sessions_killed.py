"""Sessions of a stream that is killed again and again: as if it had never been."""

from __future__ import annotations

import datetime as dt
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.killing import KILLS, files_by_batch, kill_and_finish, output
from tests.support.micro_batches import processed

import rivermouth as rm

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FILES, ROWS = 4 * KILLS + 8, 60  # a kill lets one to three batches pass
SUMMARY = 'rm.summary(by="key", time="at", window=rm.session("3 seconds"), v=rm.sum("v"))'
QUERY = f"""
import sys
import rivermouth as rm
from rivermouth.testing import session

folder = sys.argv[1]
spark = session("killed", memory="1g")
events = (
    spark.readStream.schema("key bigint, at timestamp, v double").option("maxFilesPerTrigger", 1)
    .parquet(f"{{folder}}/events")
)
sessions = rm.aggregate(
    events, {SUMMARY}, slack=rm.fixed("1 second"), late="rows", buckets=2
)
query = (
    sessions.writeStream.format("parquet").option("path", f"{{folder}}/out")
    .option("checkpointLocation", f"{{folder}}/checkpoint").trigger(availableNow=True).start()
)
print("started", flush=True)
query.awaitTermination()
print("ended", flush=True)
"""


@pytest.fixture
def files(tmp_path):
    """Files of six seconds, some records of which come seconds late; the last ends all sessions."""
    rng = np.random.default_rng(3)
    count = FILES * ROWS
    seconds = np.arange(count) / 10
    arrived = np.argsort(seconds + rng.exponential(6, count) * (rng.random(count) < 0.3))
    table = pa.table(
        {
            "key": rng.integers(0, 30, count),
            "at": pa.array((seconds[arrived] * 1e6).astype(np.int64), pa.timestamp("us", "UTC")),
            "v": rng.random(count),
        }
    )
    end = pa.table({"key": [99], "at": [10**12], "v": [0.0]}).cast(table.schema)
    parts = [table.slice(number * ROWS, ROWS) for number in range(FILES)] + [end]
    (tmp_path / "events").mkdir()
    for number, part in enumerate(parts):
        file = tmp_path / "events" / f"{number:04}.parquet"
        pq.write_table(part, file)
        os.utime(file, (number, number))  # Spark reads files by age, not by name
    return {f"{number:04}.parquet": part for number, part in enumerate(parts)}


@pytest.mark.timeout(3600)
def test_killed_again_and_again_the_same_sessions_come_once(files, tmp_path):
    kill_and_finish(QUERY, tmp_path, seed=4)
    read = files_by_batch(tmp_path / "checkpoint")
    assert sorted(name for batch in read for name in batch) == sorted(files)
    # which records are late depends on the micro-batches, which a kill may have cut otherwise
    batches = [pa.concat_tables([files[name] for name in batch]) for batch in read if batch]
    kernel = processed(batches, eval(SUMMARY, {"rm": rm}), rm.fixed("1 second"), buckets=2)
    names = [name for name in kernel.results().column_names if name != "coverage"]
    wanted = [row for table in (*kernel.rows, *kernel.late) for row in table.to_pylist()]
    found = output(tmp_path / "out")
    assert sum(row["kind"] == "late" for row in found) > 20
    assert sum(row["kind"] == "row" for row in found) > 100
    one, two = (
        sorted(str([plain(row[name]) for name in names]) for row in rows)
        for rows in (found, wanted)
    )
    assert one == two


def plain(value):
    """A value as text, times without their zone, which a file does not keep."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=None).isoformat(timespec="microseconds")
    return str(value)
