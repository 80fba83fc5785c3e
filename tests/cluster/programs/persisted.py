"""Queries that go on from what an earlier version left; called on the driver's host."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession
from tests.spark import test_persisted as persisted


def run(spark: SparkSession, *, name: str) -> Any:
    """The rows of a case, as JSON values."""
    (case,) = (case for case in persisted.CASES if case.__name__ == name)
    return persisted.plain(case(spark, persisted.ROOT / name))
