"""What is measured on several hosts, in one process: streams, queries, and what is made of them."""

from __future__ import annotations

import itertools
import threading
import time

import numpy as np
import pyarrow.parquet as pq
import pytest
from benchmarks.harness import hosts_feed, hosts_query
from benchmarks.suites.keys import keyed
from benchmarks.suites.routing import hosts_driver
from tests.support.servers import postgres_server

KEYS, BATCH, FILES = 5_000, 4_000, 4


def drawn(number):
    return np.random.default_rng(number).zipf(1.5, BATCH) % KEYS * keyed.GAP


def test_files_of_a_batch_have_the_same_length_and_all_rows(tmp_path):
    batches = [hosts_feed.table(drawn(n), first=n * BATCH) for n in range(2)]
    hosts_feed.write_batches(batches, tmp_path / "in" / "warm", FILES)
    files = sorted((tmp_path / "in" / "warm").iterdir())
    assert len(files) == 2 * FILES
    assert len({file.stat().st_size for file in files}) == 1
    rows = [pq.read_table(file)["number"].to_pylist() for file in files]
    assert [*itertools.chain(*rows)] == list(range(2 * BATCH))


def test_records_arrive_evenly_and_never_before_they_are_there(tmp_path):
    began = time.time()
    fed = hosts_feed.feed(
        lambda first, count, arrival: hosts_feed.table(
            np.zeros(count, np.int64), first=first, arrival=arrival
        ),
        tmp_path / "live", rate=2000, seconds=1.0, files=2,
    )  # fmt: skip
    files = sorted((tmp_path / "live").iterdir())
    rows = [pq.read_table(file) for file in files]
    arrivals = np.concatenate([one["arrival"].to_numpy() for one in rows])
    assert fed.records == len(arrivals) == 2000
    assert arrivals.min() >= began * 1e6
    assert np.ptp(np.diff(arrivals)) <= 2
    for file, one in zip(files, rows, strict=True):
        assert one["arrival"].to_numpy().max() / 1e6 <= file.stat().st_mtime + 0.01


@pytest.fixture(scope="module")
def url():
    with postgres_server() as server:
        keyed.items_in(server.url, KEYS)
        yield server.url


@pytest.mark.spark
@pytest.mark.server
@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "bound"),
    [
        ("none", ""), ("hash", ""), ("algorithm2", ""), ("ours", ""), ("cost", ""), ("pkg", ""),
        ("wchoices", ""), ("ours", "state"), ("ours", "cache"),
        ("packed_hash", "state"), ("packed_hash", "cache"),
    ],
)  # fmt: skip
def test_a_case_joins_every_record_once_and_tells_its_latency(spark, url, tmp_path, way, bound):
    before = spark.conf.get("spark.sql.shuffle.partitions")
    hosts_feed.write_batches(
        [hosts_feed.table(drawn(n), first=n * BATCH) for n in range(3)],
        tmp_path / "in" / "warm", FILES,
    )  # fmt: skip
    options = {
        "way": way, "url": url, "relation": "items", "held": 500, "partitions": 3,
        "cycle": BATCH, "path": str(tmp_path / "routing"), "bound": bound,
    }  # fmt: skip
    try:
        hosts_driver.start(
            spark, folder=str(tmp_path), files=FILES, options=options, rows=3 * BATCH
        )
        feeding = threading.Thread(target=_feed, args=[tmp_path / "in" / "live"])
        feeding.start()
        feeding.join()
        batches = hosts_query.progress(spark, rows=3 * BATCH + 2000)
    finally:
        hosts_query.stop(spark)
        spark.conf.set("spark.sql.shuffle.partitions", before)
    assert sum(one["rows"] for one in batches) == 3 * BATCH + 2000
    assert [one["rows_out"] for one in batches] == [one["rows"] for one in batches]
    for one in batches:
        assert sum(task["rows_in"] for task in one["tasks"]) == one["rows"]
    left = np.array([pair for one in batches for pair in one["left"]])
    assert len(left) == 2000 // hosts_driver.EVERY
    assert 0 < np.min(left[:, 1] - left[:, 0]) < np.max(left[:, 1] - left[:, 0]) < 120e6


def _feed(folder):
    hosts_feed.feed(
        lambda first, count, arrival: hosts_feed.table(
            drawn(7)[:count], first=first, arrival=arrival
        ),
        folder, rate=2000, seconds=1.0, files=2,
    )  # fmt: skip
