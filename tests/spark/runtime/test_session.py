from __future__ import annotations

import os
import sys

import pyarrow as pa
import pytest

from rivermouth.spark.runtime.session import ROCKSDB, launch_environment, settings


@pytest.mark.spark
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.master", "local[2]"),
        ("spark.driver.memory", "2g"),
        ("spark.driver.bindAddress", "127.0.0.1"),
        ("spark.driver.host", "127.0.0.1"),
        ("spark.ui.enabled", "false"),
        ("spark.sql.shuffle.partitions", "2"),
        ("spark.sql.session.timeZone", "UTC"),
        ("spark.sql.streaming.stateStore.providerClass", ROCKSDB),
    ],
)
def test_the_session_that_runs_these_tests(spark, key, value):
    assert spark.conf.get(key) == value


@pytest.mark.spark
def test_workers_run_our_python(spark):
    def executable(batches):
        for _ in batches:
            yield pa.record_batch({"path": [sys.executable]})

    frame = spark.range(1, numPartitions=1).mapInArrow(executable, "path string")
    assert frame.first().path == sys.executable


@pytest.mark.parametrize("before", [None, "/opt/java"])
def test_java_home_is_put_back(monkeypatch, before):
    if before is None:
        monkeypatch.delenv("JAVA_HOME", raising=False)
    else:
        monkeypatch.setenv("JAVA_HOME", before)
    monkeypatch.setenv("PYSPARK_PYTHON", "python2")
    with launch_environment():
        assert os.access(f"{os.environ['JAVA_HOME']}/bin/java", os.X_OK)
        assert os.environ["PYSPARK_PYTHON"] == sys.executable
    assert os.environ.get("JAVA_HOME") == before


def test_everything_that_is_written_is_written_to_a_passing_folder():
    ours = settings(cores=3, memory="1g")
    assert ours["spark.sql.warehouse.dir"].startswith(ours["spark.local.dir"])
    assert os.path.isdir(ours["spark.local.dir"])
    assert ours["spark.sql.shuffle.partitions"] == "3"
