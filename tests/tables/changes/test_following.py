"""A table that follows changes is at each version what a full load at its position would be."""

import os
import signal
import threading
import time

import numpy as np
import pyarrow as pa
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.feeds import SCHEMA, Journal, JournalFeed, table_of

import rivermouth as rm
from rivermouth.errors import TableInvalid, TableMissing, TableStale, TableUnavailable
from rivermouth.tables.cache.batch_versions import MicroBatch
from rivermouth.tables.cache.snapshot import SnapshotSpec
from rivermouth.tables.changes import following, overlay
from rivermouth.tables.changes.definition import following_spec
from rivermouth.tables.changes.feed import ChangeBatch
from rivermouth.tables.changes.following import Following

INSIDE = rm.within(rm.point("x", "y"), "shape")


def spec_of(journal, since=0.0, **given):
    changes = rm.changes.feed(JournalFeed(journal), key="id", **given)
    schema = pa.schema([SCHEMA.field("name"), SCHEMA.field("level"), SCHEMA.field("shape")])
    plain = SnapshotSpec(journal, schema, spatial=INSIDE, since=since)
    return following_spec(plain, SCHEMA, changes, where="test")


def opened(journal, folder, *, batch=None, cache=None, clock=time.time, since=None, **given):
    spec = spec_of(journal, time.time() if since is None else since, **given)
    full = cache or rm.full()
    return Following(spec, full, str(folder), clock, batch=batch).opened()


def rows_of(version):
    """The rows that are there, in their order."""
    rows = version.live().to_pylist()
    return [(row["id"], row["name"], row["level"], row["shape"]) for row in rows]


def full_load(journal, position):
    rows = table_of(journal.rows_at(position)).to_pylist()
    return [(row["id"], row["name"], row["level"], row["shape"]) for row in rows]


def forget():
    """As a new process: nothing is open, nothing chosen."""
    for cache in (overlay._layers, overlay._versions):
        cache._values.clear()
    from rivermouth.tables.cache import snapshot

    snapshot._chosen._values.clear()


def wait_for_rebuild(folder):
    for thread in following._rebuilding.values():
        thread.join(30)


changes = st.lists(
    st.tuples(
        st.sampled_from(["insert", "update", "delete", "upsert"]),
        st.one_of(st.none(), st.integers(0, 12)),
        st.text("ab", max_size=3),
        st.integers(0, 3),
        st.one_of(st.none(), st.integers(0, 5)),
        st.integers(0, 5),
    ),
    max_size=12,
)


@given(
    loaded=changes,
    fed=st.lists(st.tuples(changes, st.booleans(), st.booleans()), min_size=1, max_size=6),
    compact_at=st.sampled_from([None, 1, 6]),
    limit=st.sampled_from([1, 3, 100]),
)
@settings(max_examples=examples(60), deadline=None)
def test_any_feed_in_any_cut_gives_the_rows_of_a_full_load(
    tmp_path_factory, loaded, fed, compact_at, limit
):
    folder = tmp_path_factory.mktemp("journal")
    journal = Journal(folder)
    journal.add(*loaded)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(following, "_MOST", limit)
        since = time.time()
        for number, (part, is_restarted, is_lost) in enumerate(fed):
            journal.add(*part)
            if is_restarted:
                forget()
                since = time.time()
            if is_lost:
                (folder / "lost").write_text(str(len(journal.changes())))
            version = opened(
                journal, folder / "snapshots", batch=MicroBatch("q", number), since=since,
                compact_at=compact_at,
            )  # fmt: skip
            position = version.step.position
            assert rows_of(version) == full_load(journal, position)
            assert position == len(journal.changes()) or not version.step.is_last
            wait_for_rebuild(folder)
    counts = version.step.counts
    assert counts["full_loads"] == counts.get("gaps", 0) + 1 == journal.reads()


def test_many_changes_make_few_layers_and_then_a_new_snapshot(tmp_path):
    journal = Journal(tmp_path)
    journal.add(*(("insert", key, "old", 0, key % 9, 0) for key in range(200)))
    folder, seen = tmp_path / "snapshots", []
    for number in range(64):
        journal.add(("update", number, "new", number, 1, 1))
        version = opened(journal, folder, batch=MicroBatch("q", number), compact_at=60)
        wait_for_rebuild(folder)
        seen.append(version)
        assert len(version.layers) <= 8
    assert rows_of(seen[-1]) == full_load(journal, None)
    counts = [version.step.counts for version in seen]
    assert counts[-1] == {
        "full_loads": 1, "applied": 63, "unknown_updates": 0, "absent_deletes": 0, "compactions": 1,
    }  # fmt: skip
    assert journal.reads() == 1
    numbers = [version.number for version in seen]
    assert numbers == sorted(set(numbers))
    kept = list(folder.glob("*/v*"))
    assert len(kept) <= 2
    assert all(len(list((base / "changes").glob("[0-9]*"))) <= 12 for base in kept)


def test_a_batch_that_runs_again_joins_what_it_joined_and_the_next_one_what_is_new(tmp_path):
    journal = Journal(tmp_path)
    journal.add(("insert", 1, "old", 0, 0, 0))
    folder = tmp_path / "snapshots"
    assert rows_of(opened(journal, folder, batch=MicroBatch("q", 7))) == full_load(journal, 1)
    journal.add(("update", 1, "new", 0, 0, 0), ("insert", 2, "two", 0, 0, 0))
    forget()  # a new program, from the checkpoint
    again = opened(journal, folder, batch=MicroBatch("q", 7))
    assert rows_of(again) == full_load(journal, 1)
    assert rows_of(opened(journal, folder, batch=MicroBatch("q", 8))) == full_load(journal, 3)
    assert journal.reads() == 1  # it went on from where it was
    (step,) = [path for path in folder.glob("*/*/changes/*") if path.name in again.name]
    for file in sorted(step.rglob("*"), reverse=True):
        file.unlink() if file.is_file() else file.rmdir()
    step.rmdir()
    forget()
    with pytest.raises(TableMissing, match=r"micro-batch 7 has joined version v\d+_00000000_\w+"):
        opened(journal, folder, batch=MicroBatch("q", 7))


def test_a_feed_that_does_not_answer_serves_the_last_version_up_to_max_age(tmp_path):
    journal, now = Journal(tmp_path), [1000.0]
    journal.add(("insert", 1, "old", 0, 0, 0))
    cache, folder = rm.full(max_age="1 minute"), tmp_path / "snapshots"

    def at(when, number):
        now[0] = when
        return opened(
            journal, folder, batch=MicroBatch("q", number), cache=cache, clock=lambda: now[0],
            since=0.0,
        )  # fmt: skip

    first = at(1000.0, 0)
    journal.add(("update", 1, "new", 0, 0, 0))
    (tmp_path / "down").touch()
    assert rows_of(at(1010.0, 1)) == rows_of(first)
    said = r"journal: its changes were last read 61 s ago and max_age is 60 s; .*nobody answers"
    with pytest.raises(TableStale, match=said):
        at(1061.0, 2)
    (tmp_path / "down").unlink()
    assert rows_of(at(1063.0, 2)) == full_load(journal, 2)
    (tmp_path / "down").touch()
    with pytest.raises(TableUnavailable, match="nobody answers"):
        opened(journal, tmp_path / "elsewhere", batch=MicroBatch("q", 0))


def test_the_feed_is_read_for_each_batch_or_as_often_as_every_says(tmp_path):
    journal, now = Journal(tmp_path), [1000.0]

    def rows(when, number, **given):
        now[0] = when
        journal.add(("insert", int(when), "x", 0, 0, 0))
        batch = MicroBatch("q", number)
        folder = tmp_path / str(sorted(given))
        clock = lambda: now[0]  # noqa: E731
        return len(rows_of(opened(journal, folder, batch=batch, clock=clock, since=0, **given)))

    assert [rows(1000.0 + n, n) for n in range(3)] == [1, 2, 3]
    assert [rows(2000.0 + n, n, every="2 seconds") for n in range(3)] == [4, 4, 6]


def test_a_batch_frame_reads_the_feed_once(tmp_path):
    journal, since = Journal(tmp_path), time.time()
    folder = tmp_path / "snapshots"
    assert rows_of(opened(journal, folder, since=since)) == []
    journal.add(("insert", 1, "a", 0, 0, 0))
    assert rows_of(opened(journal, folder, since=since)) == []
    assert len(rows_of(opened(journal, folder, since=time.time()))) == 1
    assert journal.reads() == 1


def test_what_is_odd_in_a_feed_is_counted(tmp_path):
    journal = Journal(tmp_path)
    journal.add(("insert", 1, "a", 0, 0, 0))
    folder = tmp_path / "snapshots"
    opened(journal, folder, batch=MicroBatch("q", 0))
    journal.add(
        ("update", 9, "unknown", 0, 0, 0),
        ("delete", 8, None, None, None, None),
        ("insert", None, "no key", 0, 0, 0),
    )
    version = opened(journal, folder, batch=MicroBatch("q", 1))
    assert dict(version.step.counts) == {
        "full_loads": 1, "applied": 3, "unknown_updates": 1, "absent_deletes": 1, "null_keys": 1,
    }  # fmt: skip
    assert [row[1] for row in rows_of(version)] == ["a", "unknown"]
    report = version.report(None)["changes"]
    assert (report["overlay_rows"], report["gone_rows"], report["null_keys"]) == (1, 0, 1)


class Told:
    """A feed that gives one batch."""

    identity = "told"

    def __init__(self, op, rows):
        self._op, self._rows = op, rows

    def start(self):
        return 0

    def read(self, position, columns, limit):
        if position:
            return ChangeBatch(pa.array([], pa.string()), pa.table({}), position)
        return ChangeBatch(pa.array(self._op), self._rows, 1)


def told(tmp_path, op, columns):
    journal = Journal(tmp_path)
    plain = SnapshotSpec(journal, SCHEMA, spatial=INSIDE)
    changes = rm.changes.feed(Told(op, pa.table(columns)), key="id")
    spec = following_spec(plain, SCHEMA, changes, where="test")
    return Following(spec, rm.full(), str(tmp_path / "snapshots")).opened()


def test_a_shape_that_cannot_be_used_becomes_null_and_is_counted(tmp_path):
    bow = shapely.from_wkt("POLYGON ((0 0, 1 1, 1 0, 0 1, 0 0))").wkb
    good = shapely.box(0, 0, 1, 1).wkb
    columns = {"id": [1, 2, 3], "name": ["a", "b", "c"], "level": [1, 1, 1]}
    version = told(tmp_path, ["insert"] * 3, columns | {"shape": [bow, b"nonsense", good]})
    assert [row[3] for row in rows_of(version)] == [None, None, good]
    assert version.step.counts["invalid_geometries"] == 2


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"id": [1], "name": ["a"], "level": [1]}, r"journal has no column 'shape'"),
        (
            {"id": [1], "name": ["a"], "level": ["high"], "shape": [b""]},
            r"journal: its changes have a column 'level' that does not fit int64; it is string",
        ),
        ({"name": ["a"], "level": [1], "shape": [b""]}, r"journal has no column 'id'"),
    ],
)
def test_a_schema_that_drifts_is_an_error(tmp_path, columns, said):
    with pytest.raises(TableInvalid, match=said):
        told(tmp_path, ["insert"], columns)


def test_a_column_more_and_a_type_that_fits_are_no_drift(tmp_path):
    narrow = {"id": pa.array([1], pa.int32()), "name": ["a"], "level": pa.array([2], pa.int8())}
    version = told(tmp_path, ["i"], narrow | {"shape": pa.array([None], pa.binary()), "new": [1]})
    assert rows_of(version) == [(1, "a", 2, None)]
    with pytest.raises(TableInvalid, match=r"journal: a change is called 'merge'. Name changes by"):
        told(tmp_path / "other", ["merge"], narrow | {"shape": pa.array([None], pa.binary())})


def test_keys_that_rows_share_are_an_error(tmp_path):
    journal = Journal(tmp_path)
    journal.add(("insert", 1, "a", 0, 0, 0), ("insert", 2, "a", 0, 0, 0))
    changes = rm.changes.feed(JournalFeed(journal), key="name")
    spec = following_spec(SnapshotSpec(journal, SCHEMA, spatial=INSIDE), SCHEMA, changes, where="t")
    said = r"journal: its changes are known by \['name'\], and rows share a key; 2 rows have 1"
    with pytest.raises(TableInvalid, match=said):
        Following(spec, rm.full(), str(tmp_path / "snapshots"))


def test_refresh_reads_the_table_beside_the_work_and_follows_on(tmp_path):
    journal, now = Journal(tmp_path), [1000.0]
    journal.add(("insert", 1, "a", 0, 0, 0))
    folder, cache = tmp_path / "snapshots", rm.full(refresh="1 minute")

    def at(when, number):
        now[0] = when
        return opened(
            journal, folder, batch=MicroBatch("q", number), cache=cache, clock=lambda: now[0],
            since=0.0,
        )  # fmt: skip

    at(1000.0, 0)
    journal.add(("insert", 2, "b", 0, 0, 0))
    at(1059.0, 1)
    assert journal.reads() == 1
    at(1061.0, 2)
    wait_for_rebuild(folder)
    journal.add(("insert", 3, "c", 0, 0, 0))
    version = at(1062.0, 3)
    assert (journal.reads(), version.step.counts["full_loads"]) == (2, 2)
    assert rows_of(version) == full_load(journal, 3)


def follow_until_killed(journal, folder, number, after):
    """Follow in a process that is killed after so many files were written."""
    process = os.fork()
    if process == 0:
        written = [0]
        rename = type(folder).rename

        def counted(self, target):
            written[0] += 1
            if written[0] > after:
                os.kill(os.getpid(), signal.SIGKILL)
            return rename(self, target)

        type(folder).rename = counted
        try:
            opened(journal, folder, batch=MicroBatch("q", number), compact_at=5)
            for thread in following._rebuilding.values():
                thread.join(30)
        finally:
            os._exit(0)
    os.waitpid(process, 0)


@given(
    parts=st.lists(st.tuples(changes, st.integers(0, 4)), min_size=1, max_size=4),
)
@settings(max_examples=examples(25), deadline=None)
def test_any_kill_leaves_what_a_full_load_at_a_position_is(tmp_path_factory, parts):
    folder = tmp_path_factory.mktemp("journal")
    journal = Journal(folder)
    for number, (part, after) in enumerate(parts):
        journal.add(*part)
        follow_until_killed(journal, folder / "snapshots", number, after)
        forget()
        version = opened(journal, folder / "snapshots", batch=MicroBatch("q", number), compact_at=5)
        assert rows_of(version) == full_load(journal, version.step.position)
        again = opened(journal, folder / "snapshots", batch=MicroBatch("q", number), compact_at=5)
        assert again.name == version.name
        wait_for_rebuild(folder)
    last = opened(journal, folder / "snapshots", batch=MicroBatch("q", 99), compact_at=5)
    assert rows_of(last) == full_load(journal, None)


def test_layers_are_mapped_and_shared_by_the_versions_of_a_process(tmp_path):
    journal = Journal(tmp_path)
    journal.add(*(("insert", key, "a", 0, key, 0) for key in range(50)))
    first = opened(journal, tmp_path / "snapshots", batch=MicroBatch("q", 0))
    journal.add(("update", 3, "b", 0, 0, 0))
    second = opened(journal, tmp_path / "snapshots", batch=MicroBatch("q", 1))
    assert second.layers[0].version is first.layers[0].version
    arrays = second.layers[0].version.index.arrays.values()
    assert all(isinstance(array.base, np.memmap) for array in arrays)
    assert (second.layers[0].count_gone, second.layers[1].count_live) == (1, 1)


def test_tasks_of_a_batch_that_start_together_read_the_feed_once(tmp_path, monkeypatch):
    journal, folder = Journal(tmp_path), tmp_path / "snapshots"
    journal.add(("insert", 1, "a", 0, 0, 0))
    opened(journal, folder, batch=MicroBatch("q", 0))
    read, times, names = JournalFeed.read, [], []

    def slow(*given):
        times.append(time.monotonic())
        time.sleep(0.2)
        journal.add(("update", 1, "b", len(times), 0, 0))  # there is always more
        return read(*given)

    monkeypatch.setattr(JournalFeed, "read", slow)
    since = time.time()

    def task():
        names.append(opened(journal, folder, batch=MicroBatch("q", 1), since=since).name)

    tasks = [threading.Thread(target=task) for _ in range(4)]
    for one in tasks:
        one.start()
    for one in tasks:
        one.join()
    assert len(times) == 1
    assert len(names) == 4
    assert len(set(names)) == 1
