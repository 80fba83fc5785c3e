"""All tasks of a micro-batch join one version of a table, and so does the batch that runs again."""

import multiprocessing
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.fs
import pytest

import rivermouth as rm
from rivermouth.errors import TableMissing
from rivermouth.spec.locations import Location
from rivermouth.tables import files
from rivermouth.tables.cache import batch_versions, snapshot
from rivermouth.tables.cache.batch_versions import BatchVersions, MicroBatch
from rivermouth.tables.cache.snapshot import Snapshot, SnapshotSpec
from rivermouth.tables.cache.snapshot_store import SnapshotStore

SCHEMA = pa.schema([("uid", pa.int64()), ("read", pa.int64())])
FAR = "far://bucket/snapshots"


@dataclass(frozen=True)
class Counting:
    """A table whose rows say how often it was read, by a file that counts it."""

    path: str
    name: str = "counting"
    identity: str = "counting"

    def schema(self):
        return SCHEMA

    def read(self, columns):
        with open(self.path, "a") as file:
            file.write(".")
        return pa.table({"uid": [1], "read": [os.path.getsize(self.path)]}, schema=SCHEMA)


class Hosts:
    """Tasks on several hosts, each of them in a process that has seen no batch before."""

    def __init__(self, tmp_path, monkeypatch, folder):
        self._tmp, self._patch, self.folder = tmp_path, monkeypatch, folder
        self.on("a")
        self.spec = SnapshotSpec(
            Counting(str(tmp_path / "reads")), SCHEMA, keys=rm.keys("uid"), since=0.0
        )

    def task(self, number, now, *, cache=None, host="a", since=0.0, query="q"):
        """Which reading of the table a task of a batch joins, at a time."""
        self.on(host)
        self._patch.setattr(snapshot, "_chosen", type(snapshot._chosen)(size=64))
        cache = rm.full(refresh="10 seconds") if cache is None else cache
        found = Snapshot(
            replace(self.spec, since=since), cache, self.folder, lambda: now,
            batch=MicroBatch(query, number),
        )  # fmt: skip
        version = found.open()
        self.settle()
        return version.rows.column("read")[0].as_py()

    def on(self, host):
        self._patch.setenv("XDG_CACHE_HOME", str(self._tmp / host))

    @property
    def store(self):
        return SnapshotStore.of(self.spec.digest, self.folder)

    def settle(self):
        """Wait for a refresh that is made beside the work, if there is one."""
        thread = snapshot._refreshing.find(self.store.home)
        if thread is not None:
            thread.join(20)

    def versions(self):
        root = Path(self.folder) if "://" not in self.folder else self._tmp / "shared"
        return sorted(path.name for path in root.rglob("v*") if path.is_dir())


@pytest.fixture(params=["folder", "uri"])
def hosts(request, tmp_path, monkeypatch):
    if request.param == "folder":
        return Hosts(tmp_path, monkeypatch, str(tmp_path / "shared"))
    monkeypatch.setattr(batch_versions, "_SETTLING", 0.0)
    (tmp_path / "shared").mkdir()
    tree = pyarrow.fs.SubTreeFileSystem(str(tmp_path / "shared"), pyarrow.fs.LocalFileSystem())
    real = files.filesystem
    far = lambda path: (tree, path.split("://")[1]) if "://" in path else real(path)  # noqa: E731
    monkeypatch.setattr(files, "filesystem", far)
    return Hosts(tmp_path, monkeypatch, FAR)


def test_tasks_that_straddle_a_refresh_join_one_version(hosts):
    assert hosts.task(7, 1000.0) == 1
    assert hosts.task(7, 1011.0, host="b") == 1, "its refresh is made meanwhile"
    assert hosts.task(7, 1012.0) == 1
    assert hosts.task(7, 1013.0, host="c") == 1
    assert hosts.task(8, 1014.0) in (1, 2)
    later = {hosts.task(9, now, host=host) for now, host in ((1015.0, "a"), (1016.0, "b"))}
    assert later == {2}


def test_a_batch_that_runs_again_joins_what_it_has_joined(hosts):
    assert hosts.task(7, 1000.0) == 1
    # another program, which would read the table again: it was defined later
    assert hosts.task(7, 5000.0, cache=rm.full(), since=4999.0) == 1
    assert hosts.task(7, 5000.0, cache=rm.full(max_age="1 minute"), since=4999.0) == 1
    assert hosts.task(8, 5001.0, cache=rm.full(), since=4999.0) == 2
    assert hosts.task(7, 5002.0, cache=rm.full(), since=4999.0, host="b") == 1


def test_two_queries_choose_for_themselves(hosts):
    assert hosts.task(7, 1000.0, query="p") == 1
    assert hosts.task(0, 2000.0, query="q", cache=rm.full(max_age="1 minute")) == 2
    assert hosts.task(7, 2001.0, query="p") == 1


def test_versions_of_the_last_two_batches_are_kept_and_no_more(hosts):
    stale = rm.full(max_age="1 second")
    for batch in range(8):
        assert hosts.task(batch, 1000.0 + 10 * batch, cache=stale) == batch + 1
        if batch:
            assert hosts.task(batch - 1, 1001.0 + 10 * batch, cache=stale, host="b") == batch
    assert len(hosts.versions()) <= 3
    assert len(hosts.store.batches.versions()) == 2


def test_a_query_that_has_not_run_for_a_week_is_forgotten(hosts, tmp_path):
    assert hosts.task(7, 1000.0, query="gone") == 1
    for record in (tmp_path / "shared").rglob("gone/*"):
        os.utime(record, (time.time() - 8 * 86_400, time.time() - 8 * 86_400))
    for batch in range(4):
        hosts.task(batch, 2000.0 + 100 * batch, cache=rm.full(max_age="1 second"))
    assert not list((tmp_path / "shared").rglob("gone/*"))
    assert "v0000001000000000" not in hosts.versions()


def test_a_version_that_is_gone_is_an_error_that_says_what_to_do(hosts, tmp_path):
    hosts.task(7, 1000.0)
    hosts.task(8, 2000.0, cache=rm.full(max_age="1 second"))
    (lost,) = (tmp_path / "shared").rglob("v0000001000000000")
    lost.rename(lost.with_name("lost"))
    with pytest.raises(TableMissing) as raised:
        hosts.task(7, 1001.0, host="b")
    said = str(raised.value)
    assert "micro-batch 7 has joined version v0000001000000000, which is gone" in said
    assert "batches/q/0000000000000007" in said
    assert " says so. Restore the version, or remove that file to join the newest one." in said


def test_without_a_micro_batch_the_newest_is_joined(hosts):
    cache = rm.full(max_age="1 second")
    for count, now in enumerate((1000.0, 2000.0), 1):
        rows = Snapshot(hosts.spec, cache, hosts.folder, lambda now=now: now).open().rows
        assert rows.column("read")[0].as_py() == count
    assert hosts.store.batches.versions() == set()


def _task(folder, reads, number, _):
    spec = SnapshotSpec(Counting(reads), SCHEMA, keys=rm.keys("uid"))
    cache = rm.full(refresh="1 millisecond", max_age="5 milliseconds")
    found = Snapshot(spec, cache, folder, batch=MicroBatch("q", number)).open()
    return found.number, found.rows.column("read")[0].as_py()


def test_processes_that_start_a_batch_at_once_join_one_version(tmp_path):
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        seen = []
        for batch in range(25):
            tasks = [(str(tmp_path / "s"), str(tmp_path / "reads"), batch, n) for n in range(8)]
            (version,) = set(pool.starmap(_task, tasks, chunksize=1))
            seen.append(version)
    assert len(set(seen)) > 5, "the table was refreshed meanwhile"
    assert seen == sorted(seen)


def test_records_are_shown_without_keys():
    far = BatchVersions(Path("/home"), Location("s3://key:secret@bucket/a?region=x"))
    path = far.shown(MicroBatch("q", 7), "v1")
    assert path == "s3://bucket/a/batches/q/0000000000000007-v1?region=x"
