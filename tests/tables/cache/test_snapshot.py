import gc
import multiprocessing
import pickle
import threading
import time
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
import shapely
from tests.support.far_folder import share

import rivermouth as rm
from rivermouth.errors import TableInvalid, TableStale, TableUnavailable
from rivermouth.tables.cache.snapshot import Snapshot, SnapshotSpec
from rivermouth.tables.cache.snapshot_store import SnapshotStore, write
from rivermouth.tables.source import geometry_field

SCHEMA = pa.schema([("name", pa.string()), geometry_field("shape", 4326)])
PLACE = rm.within(rm.point("x", "y"), "shape")


@dataclass(frozen=True)
class Memory:
    """A table in memory that counts how often it is read, and fails when told to."""

    name: str = "memory"
    reads: list = field(default_factory=list, compare=False, hash=False)
    faults: list = field(default_factory=list, compare=False, hash=False)
    shapes: tuple = (shapely.box(0, 0, 1, 1), shapely.box(1, 0, 2, 1))

    @property
    def identity(self):
        return f"memory:{self.name}"

    def schema(self):
        return SCHEMA

    def read(self, columns):
        if self.faults:
            raise self.faults[-1]
        self.reads.append(tuple(columns))
        names = [f"{n}-{len(self.reads)}" for n in range(len(self.shapes))]
        return pa.table([names, shapely.to_wkb(list(self.shapes))], schema=SCHEMA).select(columns)


def spec(source, index=None):
    return SnapshotSpec(source, SCHEMA, spatial=PLACE, index=index)


def names(version):
    return version.rows.column("name").to_pylist()


def settle(store, version):
    """Wait for a refresh that is made beside the work."""
    deadline = time.monotonic() + 20
    while store.newest() == version and time.monotonic() < deadline and not store.failure():
        time.sleep(0.01)


def test_the_table_is_read_once_and_served_from_the_snapshot(tmp_path):
    source = Memory()
    first = Snapshot(spec(source), rm.full(), str(tmp_path)).open()
    again = Snapshot(spec(source), rm.full(), str(tmp_path)).open()
    assert source.reads == [("name", "shape")]
    assert names(first) == names(again) == ["0-1", "1-1"]
    assert first.index.kind == "cells"


def test_rows_and_index_are_mapped_not_copied(tmp_path):
    gc.collect()  # what earlier tests have left may go meanwhile, but nothing may come
    before = pa.total_allocated_bytes()
    version = Snapshot(spec(Memory()), rm.full(), str(tmp_path)).open()
    assert pa.total_allocated_bytes() <= before
    assert all(isinstance(array.base, np.memmap) for array in version.index.arrays.values())


def test_many_at_once_make_one_version(tmp_path):
    source = Memory()
    found = []
    threads = [
        threading.Thread(
            target=lambda: found.append(Snapshot(spec(source), rm.full(), str(tmp_path)).open())
        )
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(source.reads) == 1
    assert {version.number for version in found} == {found[0].number}


def _open_in_process(folder):
    return Snapshot(spec(Memory()), rm.full(), folder).open().number


def test_processes_share_one_version(tmp_path):
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        numbers = pool.map(_open_in_process, [str(tmp_path)] * 6)
    assert len(set(numbers)) == 1


def test_a_refresh_is_made_beside_the_work_and_seen_by_the_next_task(tmp_path):
    source, cache, now = Memory(), rm.full(refresh="10 seconds"), [1000.0]
    store = SnapshotStore.of(spec(source).digest, str(tmp_path))

    def clock():
        return now[0]

    first = Snapshot(spec(source), cache, str(tmp_path), clock).open()
    now[0] = 1009.0
    assert Snapshot(spec(source), cache, str(tmp_path), clock).open().number == first.number
    assert len(source.reads) == 1
    now[0] = 1011.0
    before = store.newest()
    assert Snapshot(spec(source), cache, str(tmp_path), clock).open().number == first.number
    settle(store, before)
    assert names(Snapshot(spec(source), cache, str(tmp_path), clock).open()) == ["0-2", "1-2"]
    assert names(first) == ["0-1", "1-1"]  # a task keeps the version it has


@dataclass(frozen=True)
class Revised(Memory):
    """A table that says whether it has changed."""

    revisions: list = field(default_factory=lambda: ["a"], compare=False, hash=False)

    def revision(self):
        return self.revisions[-1]


@pytest.mark.parametrize("buckets", [None, 3])
def test_a_table_that_says_it_is_unchanged_is_not_read_again(tmp_path, buckets):
    source, now = Revised(), [1000.0]
    keyed = SnapshotSpec(source, SCHEMA, keys=rm.keys("name"), buckets=buckets)
    cache, folder = rm.full(refresh="10 seconds", max_age="30 seconds"), str(tmp_path)

    def opened():
        # older than max_age: it is refreshed before it is used
        made = Snapshot(keyed, cache, folder, lambda: now[0])
        return made.open(None if buckets is None else 0)

    first = opened()
    now[0] = 1031.0
    again = opened()
    assert (len(source.reads), again.number) == (1, first.number)
    if buckets is None:
        assert (first.loaded, again.loaded) == (1000.0, 1031.0)
    source.revisions.append("b")
    now[0] = 1050.0
    assert opened().number == first.number  # found unchanged 19 s ago
    now[0] = 1062.0
    assert opened().number > first.number
    assert len(source.reads) == 2


def test_a_table_that_changes_while_it_is_read_is_read_again(tmp_path):
    source, now = Revised(), [1000.0]
    cache = rm.full(refresh="10 seconds", max_age="30 seconds")
    for before, after in (("a", "b"), ("b", "b"), ("b", "b")):
        source.revisions[:] = [before]
        changing = replace(spec(source), source=Changing(source, after))
        Snapshot(changing, cache, str(tmp_path), lambda: now[0]).open()
        now[0] += 31
    assert len(source.reads) == 2


@dataclass(frozen=True)
class Changing:
    """A table whose revision is another one after it was read."""

    table: Revised
    after: str
    name: str = "memory"
    identity: str = "memory:memory"

    def schema(self):
        return SCHEMA

    def revision(self):
        return self.table.revision()

    def read(self, columns):
        rows = self.table.read(columns)
        self.table.revisions.append(self.after)
        return rows


def test_a_failed_refresh_serves_the_last_good_version_up_to_max_age_then_says_why(tmp_path):
    source, now = Memory(), [1000.0]
    cache = rm.full(refresh="10 seconds", max_age="60 seconds")
    store = SnapshotStore.of(spec(source).digest, str(tmp_path))

    def clock():
        return now[0]

    first = Snapshot(spec(source), cache, str(tmp_path), clock).open()
    source.faults.append(TableUnavailable("memory", "the store is away", todo="Start it."))
    now[0] = 1030.0
    assert Snapshot(spec(source), cache, str(tmp_path), clock).open().number == first.number
    settle(store, store.newest())
    assert store.failure()["message"] == "memory: the store is away. Start it."
    now[0] = 1061.0
    with pytest.raises(TableStale) as caught:
        Snapshot(spec(source), cache, str(tmp_path), clock).open()
    assert str(caught.value) == (
        "memory: its last good version is 61 s old and max_age is 60 s; reading it again fails: "
        "memory: the store is away. Start it. "
        "Restore the table or its store, or allow a larger max_age."
    )
    source.faults.clear()
    assert names(Snapshot(spec(source), cache, str(tmp_path), clock).open()) == ["0-2", "1-2"]
    assert store.failure() is None


def test_a_first_load_that_fails_fails_clearly_and_can_be_tried_again(tmp_path):
    source = Memory(faults=[TableUnavailable("memory", "the store is away", todo="Start it.")])
    with pytest.raises(TableUnavailable, match="the store is away"):
        Snapshot(spec(source), rm.full(), str(tmp_path)).open()
    source.faults.clear()
    assert names(Snapshot(spec(source), rm.full(), str(tmp_path)).open()) == ["0-1", "1-1"]


def test_invalid_shapes_are_named_with_their_row_and_reason(tmp_path):
    bow = shapely.from_wkt("POLYGON ((0 0, 1 1, 1 0, 0 1, 0 0))")
    source = Memory(shapes=(shapely.box(0, 0, 1, 1), bow))
    with pytest.raises(TableInvalid) as caught:
        Snapshot(spec(source), rm.full(), str(tmp_path)).open()
    assert str(caught.value) == (
        "memory: 1 geometries of column 'shape' are not valid; the first is row 1: "
        "Self-intersection[0.5 0.5]. "
        "Repair them (shapely.make_valid, ST_MakeValid) or leave them out."
    )


def test_old_versions_leave_but_what_is_open_stays_readable(tmp_path):
    source = Memory()
    store = SnapshotStore.of(spec(source).digest, str(tmp_path))
    first = Snapshot(spec(source), rm.full(), str(tmp_path), lambda: 1.0).open()
    for second in range(2, 6):
        rows, index = spec(source).indexed(source.read(SCHEMA.names))
        about = {"loaded": float(second), "seconds": 0.0}
        store.add(float(second), partial(write, rows=rows, index=index, **about))
    assert len(list(store.home.glob("v*"))) == 2
    assert names(first) == ["0-1", "1-1"]


def test_a_version_that_leaves_before_a_task_has_opened_it_is_replaced_by_the_newest(tmp_path):
    source, cache = Memory(), rm.full(max_age="1 second")
    slow = Snapshot(spec(source), cache, str(tmp_path), lambda: 1000.0)
    for now in (1010.0, 1020.0, 1030.0):
        Snapshot(spec(source), cache, str(tmp_path), lambda now=now: now)
    assert names(slow.open()) == ["0-4", "1-4"]


def test_a_snapshot_travels_through_a_uri_and_is_copied_once_per_host(tmp_path, monkeypatch):
    """A URI of a file system other than the local folder's: pyarrow's, on a sub-tree."""
    far = f"{share(tmp_path / 'shared', monkeypatch)}/snapshots"
    source = Memory()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "host-a"))
    first = Snapshot(spec(source), rm.full(), far).open()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "host-b"))
    other = Snapshot(spec(source), rm.full(), far).open()
    assert names(first) == names(other) == ["0-1", "1-1"]
    assert len(source.reads) == 1
    assert first.number == other.number


def test_what_an_earlier_program_left_is_used_only_while_it_is_young(tmp_path):
    source = Memory()
    Snapshot(spec(source), rm.full(), str(tmp_path), lambda: 1000.0).open()
    later = replace(spec(source), since=1010.0)
    young = rm.full(refresh="1 minute")
    assert names(Snapshot(later, young, str(tmp_path), lambda: 1011.0).open()) == ["0-1", "1-1"]
    assert names(Snapshot(later, rm.full(), str(tmp_path), lambda: 1011.0).open()) == [
        "0-2",
        "1-2",
    ]
    assert names(Snapshot(later, rm.full(), str(tmp_path), lambda: 1012.0).open()) == [
        "0-2",
        "1-2",
    ]


def test_a_reader_of_the_table_finds_what_another_host_has_shared_meanwhile(tmp_path, monkeypatch):
    """It asks for the newest while it holds the lock, and must not wait for itself."""
    far = share(tmp_path / "shared", monkeypatch)
    source, cache = Memory(), rm.full(max_age="10 seconds")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "host-a"))
    Snapshot(spec(source), cache, far, lambda: 1000.0).open()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "host-b"))
    for now in (1011.0, 1022.0, 1033.0):
        Snapshot(spec(source), cache, far, lambda now=now: now).open()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "host-a"))
    found = Snapshot(spec(source), cache, far, lambda: 1034.0).open()
    assert names(found) == ["0-4", "1-4"]
    kept = [path.name for path in (tmp_path / "shared").rglob("v*") if path.is_dir()]
    assert len(kept) == 2


def test_nothing_in_a_snapshot_is_a_pickle(tmp_path):
    version = Snapshot(spec(Memory()), rm.full(), str(tmp_path)).open()
    for path in tmp_path.rglob("*"):
        if path.is_file() and path.stat().st_size:
            with pytest.raises(
                (pickle.UnpicklingError, EOFError, ValueError, KeyError, IndexError)
            ):
                pickle.loads(path.read_bytes())
    assert version.rows.num_rows == 2
