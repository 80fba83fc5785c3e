"""A table in buckets, without Spark: cut in one pass, indexed part by part, swapped as a whole."""

import multiprocessing
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.far_folder import share

import rivermouth as rm
from rivermouth.errors import DefinitionError, TableStale, TableUnavailable
from rivermouth.kernels.keys import murmur
from rivermouth.tables.cache import buckets
from rivermouth.tables.cache.snapshot import Snapshot, SnapshotSpec
from rivermouth.tables.cache.snapshot_store import SnapshotStore

SCHEMA = pa.schema([("key", pa.int64()), ("name", pa.string())])
EQUAL = rm.keys("key")


@dataclass(frozen=True)
class Pieces:
    """A table that comes in pieces, counts how often, and fails when told to."""

    keys: tuple = tuple(range(100))
    scans: list = field(default_factory=list, compare=False, hash=False)
    faults: list = field(default_factory=list, compare=False, hash=False)
    name: str = "pieces"
    identity: str = "pieces"

    def schema(self):
        return SCHEMA

    def read(self, columns):
        raise AssertionError("a table that can be read in pieces is never held whole")

    def scan(self, columns, use):
        if self.faults:
            raise self.faults[-1]
        self.scans.append(tuple(columns))
        rows = [{"key": key, "name": f"{key}-{len(self.scans)}"} for key in self.keys]
        whole = pa.Table.from_pylist(rows, SCHEMA).select(columns)
        return use(iter(whole.to_batches(max_chunksize=7)))


def spec(source, count):
    return SnapshotSpec(source, SCHEMA, keys=EQUAL, buckets=count)


def names(version):
    return version.rows.column("name").to_pylist()


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.none(), max_size=60), st.integers(1, 20))
@settings(max_examples=examples(40), deadline=None)
def test_every_row_that_can_match_is_in_the_bucket_of_its_key(tmp_path_factory, keys, count):
    folder, source = str(tmp_path_factory.mktemp("store")), Pieces(tuple(keys))
    found = Snapshot(spec(source, count), rm.full(buckets=count), folder)
    of = murmur.buckets([pa.array(keys, pa.int64())], count)
    for bucket in range(count):
        rows = found.open(bucket).rows.column("key").to_pylist()
        assert rows == [
            key for key, own in zip(keys, of, strict=True) if key is not None and own == bucket
        ]


def test_pieces_are_cut_as_they_come(tmp_path, monkeypatch):
    monkeypatch.setattr(buckets, "_PIECE", 100)
    found = Snapshot(spec(Pieces(), 3), rm.full(buckets=3), str(tmp_path))
    rows = [name for bucket in range(3) for name in names(found.open(bucket))]
    assert sorted(rows) == sorted(f"{key}-1" for key in range(100))
    assert [version.num_chunks for version in found.open(0).rows.columns] == [1, 1]


def mapped_files(folder):
    """What this process has mapped of a folder."""
    with open("/proc/self/maps") as maps:
        return {line.split()[-1] for line in maps if folder in line}


def serve(folder, bucket, told):
    version = Snapshot(spec(Pieces(), 8), rm.full(buckets=8), folder).open(bucket)
    told.put((version.rows.num_rows, mapped_files(folder)))


def test_a_process_maps_the_bucket_it_serves_and_no_other(tmp_path):
    of = murmur.buckets([pa.array(range(100))], 8)
    context = multiprocessing.get_context("fork")
    told = context.Queue()
    for bucket in (2, 5):
        process = context.Process(target=serve, args=(str(tmp_path), bucket, told))
        process.start()
        count, mapped = told.get(timeout=60)
        process.join()
        assert count == np.count_nonzero(of == bucket)
        assert {Path(file).relative_to(tmp_path).parts[2] for file in mapped} == {f"{bucket:05d}"}


def test_a_new_version_is_cut_anew_and_the_old_one_serves_who_has_it(tmp_path):
    source, cache = Pieces(), rm.full(max_age="10 seconds", buckets=4)
    first = Snapshot(spec(source, 4), cache, str(tmp_path), lambda: 1000.0)
    assert names(first.open(1))[0].endswith("-1")
    second = Snapshot(spec(source, 4), cache, str(tmp_path), lambda: 1011.0)
    assert names(second.open(1))[0].endswith("-2")
    assert names(first.open(2))[0].endswith("-1")


def test_a_task_whose_version_was_removed_goes_on_with_the_newest(tmp_path):
    source, cache = Pieces(), rm.full(max_age="10 seconds", buckets=4)
    slow = Snapshot(spec(source, 4), cache, str(tmp_path), lambda: 1000.0)
    for now in (1011.0, 1022.0, 1033.0):
        Snapshot(spec(source, 4), cache, str(tmp_path), lambda now=now: now)
    slow._clock = lambda: 1034.0
    assert names(slow.open(1))[0].endswith("-4")


def test_a_refresh_that_fails_leaves_the_last_good_buckets_up_to_max_age(tmp_path):
    source, cache = Pieces(), rm.full(refresh="5 seconds", max_age="20 seconds", buckets=2)
    Snapshot(spec(source, 2), cache, str(tmp_path), lambda: 1000.0)
    source.faults.append(TableUnavailable("pieces", "it is down"))
    later = Snapshot(spec(source, 2), cache, str(tmp_path), lambda: 1006.0)
    assert names(later.open(0))[0].endswith("-1")
    store = SnapshotStore.of(spec(source, 2).digest, str(tmp_path))
    deadline = time.monotonic() + 20
    while not store.failure() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert "it is down" in store.failure()["message"]
    with pytest.raises(TableStale, match="its last good version is 21 s old"):
        Snapshot(spec(source, 2), cache, str(tmp_path), lambda: 1021.0)


def test_a_host_fetches_the_parts_it_needs_from_where_they_are_shared(tmp_path, monkeypatch):
    far = share(tmp_path / "shared", monkeypatch)
    source, cache = Pieces(), rm.full(buckets=4)
    for host, bucket in (("a", 1), ("b", 3)):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / host))
        found = Snapshot(spec(source, 4), cache, far)
        assert len(names(found.open(bucket))) == np.count_nonzero(
            murmur.buckets([pa.array(range(100))], 4) == bucket
        )
        here = [path.name for path in (tmp_path / host).rglob("0000?*")]
        assert all(name.startswith(f"{bucket:05d}") for name in here)
        assert here
    assert len(source.scans) == 1
    assert len(list((tmp_path / "shared").rglob("*.arrow"))) == 4


@pytest.mark.parametrize("count", [0, -1, 513, 1.5, 4.0, "4", True])
def test_a_number_of_buckets_out_of_bounds_is_refused(count):
    with pytest.raises(DefinitionError, match="Give a whole number from 1 to 512"):
        rm.full(buckets=count)
