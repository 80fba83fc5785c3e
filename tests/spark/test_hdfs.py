"""Every folder of a query on HDFS, by real servers: Spark writes by Java, workers by libhdfs."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.spark.test_object_store import QUERY
from tests.support.hdfs import client_environment, hdfs

import rivermouth as rm
from rivermouth.errors import SessionError

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.slow]

UPLOAD = """
import sys, pyarrow.fs
system, folder = pyarrow.fs.FileSystem.from_uri(sys.argv[2])
system.create_dir(folder)
pyarrow.fs.copy_files(sys.argv[1], folder + "/part.parquet", destination_filesystem=system)
"""

REPLACED = """
import sys, threading
import pyarrow.fs
from rivermouth.tables import files

uri = sys.argv[1] + "/head.json"
files.write_json(uri, {"number": 0})
numbers, ended = [], threading.Event()

def look():
    while not ended.is_set():
        numbers.append(files.read_json(uri)["number"])

reader = threading.Thread(target=look)
reader.start()
for number in range(1, 20):
    files.write_json(uri, {"number": number})
ended.set()
reader.join()
assert numbers == sorted(numbers) and len(numbers) > 5, numbers
assert files.read_json(uri) == {"number": 19}

system, path = files.filesystem(uri)
folder = path.rpartition("/")[0]
names = [info.base_name for info in system.get_file_info(pyarrow.fs.FileSelector(folder))]
assert names == ["head.json"], names
system.move(path, folder + "/.head.json.staged-00000000000000000001-0")  # as a writer leaves it
assert files.read_json(uri) == {"number": 19}                           # that is killed
files.write_json(uri, {"number": 20})
assert files.read_json(uri) == {"number": 20}
names = [info.base_name for info in system.get_file_info(pyarrow.fs.FileSelector(folder))]
assert names == ["head.json"], names
files.delete(system, path)
files.delete(system, path)
assert files.read_json(uri) is None
print("done")
"""


@pytest.fixture(scope="module")
def store():
    """An HDFS, and the environment of its clients."""
    environment = {**os.environ, **client_environment()}
    with hdfs() as uri:
        yield uri, environment


def ran(program: str, *arguments: str, env: dict[str, str]) -> str:
    """What a program prints, in a process of its own: pyarrow starts a JVM in it."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=env, capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-6000:]
    return done.stdout


@pytest.mark.since("4.2")  # the first whose Hadoop is that of the servers
def test_every_folder_can_be_on_hdfs(store, tmp_path):
    uri, env = store
    pq.write_table(pa.table({"uid": [1, 2], "name": ["Ann", "Bob"]}), tmp_path / "users.parquet")
    ran(UPLOAD, str(tmp_path / "users.parquet"), f"{uri}/users", env=env)
    names = ("users", "snapshots", "routing", "skew", "published", "store")
    uris = {name: f"{uri}/{name}" for name in names}
    printed = ran(QUERY, str(tmp_path), json.dumps({}), json.dumps(uris), env=env)
    out = json.loads(printed.splitlines()[-1])
    pairs = [{"who": "ann", "name": "Ann"}, {"who": "bob", "name": "Bob"}]
    for name in ("full", "buckets", "routed", "published"):
        assert sorted(out[name], key=str) == sorted(pairs, key=str), name
    assert out["near"] == [{"who": "cyd", "other": "ann"}]
    assert out["exact"] == out["again"] == [{"n": 3, "total": 12, "status": "exact"}]


def test_a_file_that_is_replaced_is_there_all_the_time(store):
    uri, env = store
    assert ran(REPLACED, f"{uri}/replaced", env=env).endswith("done\n")


def test_a_join_says_at_its_definition_what_is_missing(spark, monkeypatch, tmp_path):
    for name in ("JAVA_HOME", "ARROW_LIBHDFS_DIR", "HADOOP_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    pq.write_table(pa.table({"uid": [1, 2]}), tmp_path / "users.parquet")
    users = rm.tables.parquet(tmp_path / "users.parquet")
    cache = rm.full(path="hdfs://names:8020/snapshots")
    with pytest.raises(SessionError, match="pyarrow needs Java, Hadoop's libhdfs"):
        rm.join_table(spark.range(3).toDF("uid"), users, on=rm.keys("uid"), cache=cache)
