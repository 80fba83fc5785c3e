"""Rows that are routed to the task that joins them, when a host is lost in mid-batch."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cluster.hosts import wait_for
from tests.cluster.lab import SHARED, WORKERS

from rivermouth.testing.replaying import write_batches

pytestmark = [pytest.mark.cluster, pytest.mark.spark]

PROGRAM = "tests.cluster.programs.routed"
BATCHES, RECORDS = 4, 600
#: what makes a lost host known soon
SETTINGS = {
    "spark.network.timeout": "20s",
    "spark.network.timeoutInterval": "5s",
    "spark.executor.heartbeatInterval": "2s",
}


@pytest.mark.parametrize("way", ["by_hotspot", "by_hash", "by_key", "by_place"])
def test_rows_are_the_same_when_a_host_is_killed_in_mid_batch(lab, way):
    folder = lab.shared / f"{way}-killed"
    keys = np.random.default_rng(1).zipf(1.3, BATCHES * RECORDS) % 50
    events = pa.table({"id": np.arange(len(keys)), "key": keys})
    parts = [events.slice(at, RECORDS) for at in range(0, len(keys), RECORDS)]
    write_batches(parts, folder / "events")
    names = pa.table({"key": np.arange(40), "name": [f"name {key}" for key in range(40)]})
    pq.write_table(names, folder / "table.parquet")
    lab.cluster(WORKERS)
    with lab.driver(**SETTINGS) as driver:
        # by the third micro-batch there is a rule
        inside = f"{SHARED}/{folder.name}"
        driver.call(f"{PROGRAM}:start", folder=inside, since=2 * RECORDS, way=way)
        reached = folder / "reached"
        host = wait_for(
            lambda: reached.exists() and reached.read_text(), "no task waits", seconds=240
        )
        lab.host(host).kill()
        routing = driver.call(f"{PROGRAM}:finish", folder=inside)
    if way == "by_hotspot":
        assert routing["rule"] >= 1
        assert all(routing["rows_per_partition"])
    found = pq.read_table(folder / "read.parquet").sort_by("id").select(["id", "key", "name"])
    assert found.to_pylist() == [
        {"id": n, "key": key, "name": f"name {key}" if key < 40 else None}
        for n, key in enumerate(keys.tolist())
    ]
