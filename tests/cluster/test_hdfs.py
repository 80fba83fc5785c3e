"""Operators whose every folder is on HDFS, checkpoint and sink included, give the same rows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.cluster.lab import WORKERS, Driver, Lab

pytestmark = [pytest.mark.cluster, pytest.mark.spark, pytest.mark.server]

BATCHES = ("table_full", "table_in_buckets", "table_of_a_snapshot")
STREAMS = ("table_full", "table_in_buckets", "interval_with_learned_skew", "fences", "exact")


@pytest.fixture(scope="module")
def driver(lab: Lab) -> Iterator[Driver]:
    """A driver on two workers that all know the HDFS."""
    assert lab.hdfs
    lab.cluster(WORKERS[:2])
    with lab.driver() as made:
        yield made


def check(lab, driver, compare, name, how):
    folder = compare.check(driver, name, how, by="-hdfs", on=lab.hdfs)
    assert [path.name for path in folder.iterdir()] == ["rows.parquet"]  # all else is there


@pytest.mark.parametrize("name", BATCHES)
def test_a_batch(lab, driver, compare, name):
    check(lab, driver, compare, name, "batch")


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream(lab, driver, compare, name):
    check(lab, driver, compare, name, "stream")
