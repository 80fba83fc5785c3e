"""What is said where pyarrow cannot open HDFS; tests/spark/test_hdfs.py has the servers."""

import pytest

import rivermouth as rm
from rivermouth.errors import SessionError
from rivermouth.spec.locations import Location
from rivermouth.tables import hdfs
from rivermouth.tables.files import filesystem

NEEDS = "cannot be opened: pyarrow needs Java, Hadoop's libhdfs.so and its jars; "
TODO = (
    ". On the driver and, as spark.executorEnv.*, on the executors set JAVA_HOME, "
    "ARROW_LIBHDFS_DIR to the folder of libhdfs.so (lib/native of a Hadoop), and CLASSPATH "
    'to "$SPARK_HOME/jars/*".'
)


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """An environment in which neither Java nor Hadoop is found."""
    for name in ("JAVA_HOME", "ARROW_LIBHDFS_DIR", "HADOOP_HOME"):
        monkeypatch.setenv(name, str(tmp_path))


def test_what_is_missing_is_said_in_one_line(bare):
    with pytest.raises(SessionError) as raised:
        filesystem("hdfs://names:8020/snapshots")
    said = str(raised.value)
    assert said.startswith(f"path: 'hdfs://names:8020/snapshots' {NEEDS}")
    assert "to load lib" in said
    assert said.endswith(TODO)
    assert "\n" not in said


def test_a_table_says_it_where_it_is_defined(bare):
    with pytest.raises(SessionError, match="to load lib"):
        rm.tables.parquet("hdfs://names:8020/users").schema()


def test_a_class_path_is_asked_for_and_other_failures_stay_what_they_are(monkeypatch):
    failed, location = OSError("HDFS connection failed"), Location("hdfs://names:8020/a")
    monkeypatch.delenv("CLASSPATH", raising=False)
    said = str(hdfs.explained(location, failed))
    assert said == f"path: 'hdfs://names:8020/a' {NEEDS}CLASSPATH is not set{TODO}"
    monkeypatch.setenv("CLASSPATH", "/opt/spark/jars/*")
    assert hdfs.explained(location, failed) is failed
