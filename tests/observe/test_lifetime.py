"""Counts over a query's life: many batches, tasks that ran twice, a query that is started again."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession
from tests.support.lost_shuffle import SUMMARY, events, joined, started

import rivermouth as rm
from rivermouth.observe.run_api import RunApi
from rivermouth.testing import replay

pytestmark = pytest.mark.spark

ROWS = "rivermouth_rows_total"
_KEPT = "spark.sql.streaming.numRecentProgressUpdates"


@pytest.fixture
def few_reports(spark: SparkSession) -> Iterator[int]:
    """Spark keeps the newest 20 reports of a query that is started, instead of 100."""
    spark.conf.set(_KEPT, "20")
    yield 20
    spark.conf.unset(_KEPT)


@pytest.mark.slow
def test_more_batches_than_spark_keeps_reports_of(
    spark: SparkSession, few_reports: int, tmp_path: Path
) -> None:
    count = few_reports + 8
    query = started(joined(replay(events(spark, count), cuts=1), tmp_path), tmp_path)
    seen = [rm.metrics(query)["rows"]]
    while query.isActive:
        seen.append(rm.metrics(query)["rows"])
        time.sleep(0.5)
    numbers = rm.metrics(query)
    assert len(query.recentProgress) <= few_reports
    assert (numbers["batches"], numbers["since_batch"], numbers["missed_batches"]) == (count, 0, 0)
    assert (numbers["rows"], numbers["source_rows"]) == (count, count)
    operator = numbers["operators"]["join_table.t.parquet"]
    matches = (operator["rows_in"], operator["matched"], operator["unmatched"])
    assert matches == (count, 3 * count // 4, count // 4)
    assert seen == sorted(seen)


@pytest.fixture(scope="module")
def ran_twice(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The numbers of queries that lost a stage's output, from a Spark of their own.

    Spark takes its executor for lost then; of a local Spark that is the driver itself, whose
    heartbeats fail from there on and which ends after ten minutes of that.
    """
    program = [sys.executable, "-m", "tests.support.lost_shuffle"]
    folder = str(tmp_path_factory.mktemp("lost"))
    ran = subprocess.run([*program, folder], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("case", ["aggregate", "by_hash", "by_place", "workers", "native", "chain"])
def test_rows_of_a_stage_that_ran_twice_count_once(ran_twice: dict[str, Any], case: str) -> None:
    numbers = ran_twice[case]
    assert numbers["lost"] > 0
    assert numbers["source_rows"] > 1200  # the loss was felt
    assert (numbers["rows"], numbers["rows_in"]) == (1200, [1200])


@pytest.mark.parametrize("case", ["by_hash", "by_key", "by_place", "by_hotspot"])
def test_routed_rows_are_the_same_after_a_lost_shuffle(
    ran_twice: dict[str, Any], case: str
) -> None:
    numbers = ran_twice["rows"][case]
    assert numbers["lost"] > 0
    assert numbers["source_rows"] > 1200  # the loss was felt
    assert numbers["rows"] == [[n, n % 4, "abc"[n % 4 : n % 4 + 1] or None] for n in range(1200)]
    if case == "by_hotspot":
        assert numbers["routing"]["rule"] >= 1
        assert all(numbers["routing"]["rows_per_partition"])  # four keys split over six partitions


def test_rows_of_a_source_that_is_read_twice_count_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    """An exact aggregation reads its events for the answers and for the backup."""
    job = rm.exact(replay(events(spark, 200)), SUMMARY, store=tmp_path / "store")
    running = job.start(availableNow=True)
    running.awaitTermination()
    numbers = rm.metrics(running)
    assert (numbers["rows"], numbers["source_rows"]) == (200, 400)


def test_no_counter_decreases_when_the_query_is_started_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    histories, source = tmp_path / "histories", tmp_path / "source"
    runs, before = RunApi(histories), dict[Any, float]()
    stream = joined(replay(events(spark, 40), cuts=5, path=source), tmp_path)

    def look() -> float:
        families = text_string_to_metric_families(runs.prometheus().decode())
        counters = {
            (sample.name, *sample.labels.items()): sample.value
            for family in families
            if family.type == "counter"
            for sample in family.samples
        }
        for key in before.keys() & counters.keys():
            assert counters[key] >= before[key], key
        before.update(counters)
        return max((value for key, value in counters.items() if key[0] == ROWS), default=0.0)

    for total in (40, 80):
        query = started(stream, tmp_path, processingTime="0 seconds")
        with rm.watch(query, history=histories, page=False):
            deadline = time.monotonic() + 120
            while look() < total:
                assert time.monotonic() < deadline
                time.sleep(0.1)
            query.stop()
        for file in sorted(source.glob("batch-*.parquet")):  # as many again for the next run
            table = pq.read_table(file)
            pq.write_table(table, source / f"again-{file.name}")
    assert {dict(key[1:])["query"] for key in before} == {"lifetime"}
    assert len({dict(key[1:])["query_id"] for key in before}) == 1
