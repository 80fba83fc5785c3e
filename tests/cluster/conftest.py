"""Fixtures of the lab: one for the whole run, its parts started when a test asks for them.

Tests marked ``cluster`` run only where ``-m`` asks for them, as ``make test-cluster`` does.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.cluster import hosts, inputs
from tests.cluster.comparing import Comparison
from tests.cluster.lab import Lab
from tests.cluster.lab import lab as opened

from rivermouth.testing import assert_same_rows


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "cluster" not in config.option.markexpr:
        left_out = [item for item in items if item.get_closest_marker("cluster")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("cluster")]


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """The lab, without hosts yet."""
    if (reason := hosts.why_not()) is not None:
        pytest.skip(reason)
    with opened() as made:
        yield made


@pytest.fixture(scope="session")
def compare(lab: Lab, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """Compares cases on the lab with those in this process."""
    inputs.write(lab.shared / "inputs")
    folder: Path = tmp_path_factory.mktemp("expected")
    return Comparison(lab, spark, folder)


@pytest.fixture
def placed(lab: Lab, spark: SparkSession, compare: Comparison) -> Iterator[None]:
    """Checks what the application of the page has written."""
    output = lab.shared / "placed"
    shutil.rmtree(output, ignore_errors=True)
    shutil.rmtree(lab.shared / "snapshots", ignore_errors=True)
    yield
    expected = compare.expected("table_full", "batch")
    assert_same_rows(spark.read.parquet(str(output)).toArrow().to_pylist(), expected.to_pylist())
