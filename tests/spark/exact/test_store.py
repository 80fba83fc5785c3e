"""The store of an exact aggregation without Spark: batches, corrections, compactions, any order.

The tasks' functions run here on batches of the same processor, with the store in a folder.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import tempfile
import time

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.kernels.aggregation.test_processor import cut, everything, table_of
from tests.support.examples import examples

import rivermouth as rm
from rivermouth.errors import StateError
from rivermouth.kernels.aggregation.plan import AggPlan
from rivermouth.kernels.aggregation.processor import LATE, ROW, AggregateProcessor
from rivermouth.kernels.aggregation.slots import Slots
from rivermouth.kernels.state.bucketing import Arrivals
from rivermouth.spark.exact import store as store_module
from rivermouth.spark.exact import tasks
from rivermouth.spark.exact.compaction import compact
from rivermouth.spark.exact.corrector import due_at
from rivermouth.spark.exact.pieces import (
    BACKUP,
    EMITTED,
    EXPIRED,
    WRITTEN,
    Files,
    by_slot,
    packed,
    unpacked,
)
from rivermouth.spark.exact.results import Results, Schemas
from rivermouth.spark.exact.slot_files import SlotFiles, read_slot
from rivermouth.spark.exact.store import Store
from rivermouth.spec.locations import Location
from rivermouth.spec.slack import Quality
from rivermouth.testing.recompute import by_window, differences, recompute

MINUTE = 60_000_000
#: a slot of each has at least a quarter of an hour, and the records of two hours span several
WINDOWS = [
    rm.tumbling("4 minutes"),
    rm.sliding("6 minutes", every="2 minutes"),
    rm.sliding("5 minutes", every="3 minutes"),
    rm.sliding("5 minutes", every="3 minutes", start="70 seconds"),
]
SLOT = pa.schema([("slot", pa.int64())])
ROWS = st.lists(
    st.tuples(
        st.integers(-60 * MINUTE, 60 * MINUTE),
        st.sampled_from(["a", "b", None]),
        st.one_of(st.none(), st.floats(-1e3, 1e3), st.sampled_from([0.0, 1e300, float("nan")])),
        st.one_of(st.none(), st.integers(-(2**40), 2**40)),
        st.one_of(st.none(), st.decimals(-1000, 1000, places=2)),
        st.sampled_from(["x", "y", "", None]),
    ),
    min_size=1,
    max_size=30,
)
FAST = settings(max_examples=examples(30), deadline=None, suppress_health_check=list(HealthCheck))


class Run:
    """An exact aggregation in this process: what the query and its corrector do, step by step.

    Each of the `keys` has a bucket of its own; without any there is one.
    """

    def __init__(self, folder, summary, slack, table, keys=()):
        types = {name: table.schema.field(name).type for name in table.column_names}
        wanted = {name: types[name] for name in summary.columns}
        self.store, self.types, self.slack = Store(Location.of(folder)), types, slack
        self.plan, self.live = AggPlan(summary, wanted), AggPlan(summary, wanted, _stats(slack))
        self.schema = self.live.schema(pa.struct(list(types.items())), partials=True)
        self.state, self.slots = {bucket: {} for bucket in keys or [...]}, Slots.of(self.plan.grid)

    def batch(self, number, table, *, commit=True):
        """One micro-batch; the state is Spark's, which is written even where nothing else is."""
        before = {bucket: dict(state) for bucket, state in self.state.items()}
        newest = int(self.plan.times(table).max()) if table.num_rows else None
        rows = []
        for bucket, state in self.state.items():
            mine = table if bucket is ... else _of_key(table, bucket)
            processor = AggregateProcessor(self.live, self.slack, self.schema)
            arrivals = Arrivals(((mine,) if mine.num_rows else (),), (newest,), number)
            rows += processor.process(state, arrivals, {})
        self.emitted = sum(pc.sum(pc.equal(some["kind"], ROW)).as_py() or 0 for some in rows)
        path = self.store.path
        log = tasks.log_writer(path, self.plan, self.types)(_batches(rows))
        backup = tasks.backup_writer(path, self.plan, self.types)(table.to_batches())
        if commit:
            self.store.commit_batch(number, pa.Table.from_batches([*log, *backup], WRITTEN))
        return before

    def correct(self, *, final):
        snapshot = self.store.snapshot()
        if snapshot.upto is None:
            return
        work = tasks.slot_corrector(
            self.store.path, self.plan, after=snapshot.late_upto, final=final
        )
        written = work(_slot_batches(snapshot.to_correct(self.slots, final=final)))
        self.store.commit_correction(
            pa.Table.from_batches(list(written), WRITTEN),
            number=snapshot.number + 1, upto=snapshot.upto, final=final, seconds=0.0,
        )  # fmt: skip

    def compact(self, *, killed=False, retention=None):
        """As in the corrector; `killed` ends it before it is written down."""
        self.correct(final=False)
        snapshot, plan = self.store.snapshot(), self.plan
        jobs = NoJobs(killed=killed)
        with contextlib.suppress(Killed):
            compact(Results(jobs, self.store, Schemas(plan, None, None, None), snapshot, None),
                    retention=retention)  # fmt: skip

    def disturb(self, steps, number, batch, before, *, retention=None):
        """What may happen after a micro-batch, `before` which the state was this."""
        for step in steps:
            match step:
                case "correct":
                    self.correct(final=False)
                case "compact" | "killed":
                    self.compact(killed=step == "killed", retention=retention)
                case "again":  # Spark had not committed the batch, which ran before
                    self.state = before
                    self.batch(number, batch)

    def rows(self, kind=ROW):
        snapshot = self.store.snapshot()
        there = by_slot(snapshot.pieces)
        found = [
            table
            for slot in {*self.store.slots(), *there}
            if snapshot.head.keeps(slot)
            for table in read_slot(self.store.files, slot, [kind], there.get(slot, []))[kind]
        ]
        return pa.concat_tables(found, promote_options="default") if found else None

    def newest(self):
        """The table as it stands: of each window the newest result."""
        rows = self.rows().sort_by([(EMITTED, "ascending"), ("revision", "ascending")])
        by = [*self.plan.summary.by, "window_start"]
        numbered = rows.append_column("_n", pa.array(range(rows.num_rows)))
        last = numbered.group_by(by).aggregate([("_n", "max")]).column("_n_max")
        return by_window(rows.take(last), self.plan.summary)


class Killed(Exception):
    """The process has ended."""


class NoJobs:
    """Stands for a session: runs what is mapped over a frame of slots in this process."""

    def __init__(self, *, killed):
        self.killed = killed

    def createDataFrame(self, rows, schema):  # noqa: N802
        self.batches = _slot_batches({slot: unpacked(pieces) for slot, pieces in rows})
        return self

    def coalesce(self, count):
        return self

    def mapInArrow(self, work, schema):  # noqa: N802
        self.made = [*work(self.batches)]
        return self

    def toArrow(self):  # noqa: N802
        if self.killed:
            raise Killed
        return pa.Table.from_batches(self.made, self.made[0].schema if self.made else SLOT)


def _of_key(table, key):
    return table.filter(pc.equal(table["key"], key) if key else pc.is_null(table["key"]))


def _stats(slack):
    return isinstance(slack, Quality)


def _batches(tables):
    return [batch for table in tables for batch in table.to_batches()]


def _slot_batches(slots):
    rows = [{"slot": slot, "pieces": packed(pieces)} for slot, pieces in slots.items()]
    schema = SLOT.append(pa.field("pieces", pa.string()))
    return pa.Table.from_pylist(rows, schema).to_batches()


@FAST
@given(
    ROWS,
    st.lists(st.floats(0, 1), max_size=6),
    st.sampled_from(WINDOWS),
    st.sampled_from([rm.fixed("0 seconds"), rm.fixed("3 minutes"), rm.quality(eps=0.2)]),
    st.lists(st.sampled_from(["correct", "compact", "killed", "again", "nothing"]), max_size=12),
    st.sampled_from([("key",), ()]),
)
def test_the_store_ends_exact_whatever_happens_in_between(rows, ends, window, slack, steps, by):
    table, summary = table_of(rows), everything(window, by)
    steps = iter(steps)
    with tempfile.TemporaryDirectory() as folder:
        run = Run(folder, summary, slack, table)
        for number, batch in enumerate(cut(table, ends)):
            before = run.batch(number, batch)
            run.disturb(itertools.islice(steps, 2), number, batch, before)
        run.correct(final=True)
        assert differences(run.newest(), recompute(table, summary)) == []
        run.correct(final=True)
        assert run.store.corrections()[-1].rows == 0, "correcting the correct changes nothing"
        backup = run.rows(BACKUP).column("record").combine_chunks()
        assert sorted(map(str, backup.to_pylist())) == sorted(map(str, table.to_pylist()))
        run.compact()
        assert differences(run.newest(), recompute(table, summary)) == []


@FAST
@given(
    ROWS,
    st.lists(st.floats(0, 1), max_size=6),
    st.sampled_from(WINDOWS),
    st.sampled_from([("key",), ()]),
)
def test_a_correction_covers_the_late_records_and_no_open_window(rows, ends, window, by):
    table, summary = table_of(rows), everything(window, by)
    with tempfile.TemporaryDirectory() as folder:
        run = Run(folder, summary, rm.fixed("0 seconds"), table)
        newest = None
        for number, batch in enumerate(cut(table, ends)):
            run.batch(number, batch)
            newest = max(newest or -(2**62), int(run.plan.times(batch).max()))
            run.correct(final=False)
            so_far = recompute(pa.concat_tables(cut(table, ends)[: number + 1]), summary)
            ended = newest - window.size_us
            closed = {key: value for key, value in so_far.items() if key[-1] <= ended}
            if closed:
                assert differences(run.newest(), closed) == []


@FAST
@given(
    ROWS,
    st.lists(st.floats(0, 1), max_size=6),
    st.sampled_from(WINDOWS),
    st.lists(st.sampled_from(["correct", "compact", "killed", "again", "nothing"]), max_size=12),
    st.sampled_from([1, 17 * MINUTE, 60 * MINUTE]),
    st.sampled_from([rm.fixed("0 seconds"), rm.max_delay()]),
    st.sampled_from([(), ("a", "b", None)]),
)
def test_what_a_retention_keeps_is_exact_and_only_older_records_go(
    rows, ends, window, steps, kept, slack, keys
):
    """Windows that begin in slots that are kept equal recomputation by all but expired records.

    By `max_delay` buckets wait for different times: one may close windows that another has open.
    """
    table, summary = table_of(rows), everything(window, ("key",))
    steps = iter(steps)
    with tempfile.TemporaryDirectory() as folder:
        run = Run(folder, summary, slack, table, keys)
        for number, batch in enumerate(cut(table, ends)):
            before = run.batch(number, batch)
            made = run.store.snapshot().batches[-1].pieces
            closing = sum(each.rows for each in made if each.kind == ROW)
            assert closing == run.emitted, "a window that closes now is not forgotten yet"
            run.disturb(itertools.islice(steps, 2), number, batch, before, retention=kept)
        run.correct(final=True)
        run.compact(retention=kept)
        first = run.store.snapshot().head.first
        begin = -(2**62) if first is None else first * run.slots.length + run.plan.grid.start
        wanted = {key: row for key, row in recompute(table, summary).items() if key[-1] >= begin}
        found = run.newest() if run.rows() is not None else {}
        assert differences(found, wanted) == []
        stored = {kind: run.rows(kind) for kind in (BACKUP, EXPIRED)}
        there = {
            kind: [] if found is None else found.column("record").combine_chunks().to_pylist()
            for kind, found in stored.items()
        }
        kept_rows = [*map(str, there[BACKUP])]
        older = [row for row in table.to_pylist() if str(row) not in kept_rows]
        forgotten = pa.Table.from_pylist(there[EXPIRED] + older, table.schema)
        times = run.plan.times(forgotten)
        assert (times < begin).all(), "only what is older than the retention is expired"


def records(seconds):
    return table_of([(second * 1_000_000, "a", 1.0, 1, 1, "x") for second in seconds])


@pytest.fixture
def run(tmp_path):
    window = rm.tumbling("4 minutes")
    summary = rm.summary(by="key", time="at", window=window, n=rm.count(), mid=rm.median("v"))
    return Run(tmp_path, summary, rm.fixed("0 seconds"), records([0]))


def test_a_correction_reads_its_slots_and_no_others(run, monkeypatch):
    """Slots of a day are compacted; then a record comes late, and few files are opened."""
    slot = run.slots.length // 1_000_000
    for number in range(90):
        run.batch(number, records([number * slot + 5]))
        if number % 8 == 7:
            run.compact()
    run.batch(90, records([3 * slot + 7]))
    opened = []
    read = Files.table
    monkeypatch.setattr(Files, "table", lambda self, path: opened.append(path) or read(self, path))
    run.correct(final=False)
    assert run.store.corrections()[-1].rows == 1
    slots = {path.split("/")[1] for path in opened if path.startswith("data/")}
    assert slots <= {"2", "3", "4"}
    assert len([path for path in opened if path.startswith("batches/")]) < 30
    fixed = run.newest()[("a", 3 * slot * 1_000_000)]
    assert (fixed["records"], fixed["mid"]) == (2, 1.0)


def test_the_number_of_files_is_bounded_by_the_slots(run, monkeypatch, tmp_path):
    monkeypatch.setattr(store_module, "GRACE", 0.0)
    for number in range(200):
        run.batch(number, records([number * 10]))
        if number % 8 == 7:
            run.compact()
    run.compact()
    run.batch(200, records([2001]))
    run.compact()  # what was replaced is removed by the next compaction
    assert len(run.store.slots()) == 3
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) < 60, sorted(files)


def test_a_retention_bounds_the_files_and_keeps_expired_records(run, monkeypatch, tmp_path):
    monkeypatch.setattr(store_module, "GRACE", 0.0)
    slot = run.slots.length // 1_000_000
    for number in range(60):
        run.batch(number, records([number * slot // 2 + 5]))
        if number % 8 == 7:
            run.compact(retention=2 * run.slots.length)
    first = run.store.snapshot().head.first
    assert first == 24  # two slots and one more behind that of the newest closed window, 27
    assert run.store.slots() == [*range(first, 28)]
    run.batch(60, records([3 * slot + 7, (first + 1) * slot + 7]))
    assert run.rows(EXPIRED).num_rows == 1
    run.correct(final=False)
    assert run.store.corrections()[-1].rows == 1, "the other one is within the retention"
    assert run.newest()["a", (first + 1) * slot * 1_000_000]["records"] == 2
    for retention in (2 * run.slots.length, None):  # what is forgotten stays so
        run.compact(retention=retention)
        run.compact(retention=retention)
        assert run.store.snapshot().head.first == 26
        expired = run.rows(EXPIRED).column("record").to_pylist()
        assert [row["at"].minute for row in expired] == [(3 * slot + 7) % 3600 // 60]
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == [
        "26", "27", "28", "29", "none",
    ]  # fmt: skip
    assert min(key[-1] for key in run.newest()) == 26 * slot * 1_000_000


def test_a_bucket_that_waits_longer_than_others_holds_the_retention_back(tmp_path):
    """By `max_delay` the bucket of "b" waits for 100 minutes, that of "a" for nothing."""

    def at(**minutes):
        return table_of([(minute * MINUTE, key, 1.0, 1, 1, "x") for key, minute in minutes.items()])

    summary = rm.summary(by="key", time="at", window=rm.tumbling("4 minutes"), n=rm.count())
    run = Run(tmp_path, summary, rm.max_delay(), at(a=0), keys=("a", "b"))
    steps = [{"a": 100}, {"b": 0}, {"a": 200}, {"a": 204}, {"b": 120}, {"a": 260}]
    for number, minutes in enumerate(steps):
        run.compact(retention=17 * MINUTE)
        run.batch(number, at(**minutes))
    windows = {(key, start // MINUTE) for key, start in run.newest()}
    assert windows == {("a", 100), ("b", 120), ("a", 200), ("a", 204)}


def test_a_time_of_1970_or_of_long_ago_is_one_slot_more(run):
    for number, second in enumerate([1_700_000_000, -86_400, 0, -1, 1_700_000_100]):
        run.batch(number, records([second]))
    run.correct(final=True)
    assert {key[-1] for key in run.newest()} == {
        second // 240 * 240_000_000 for second in (1_700_000_000, -86_400, 0, -1, 1_700_000_100)
    }
    run.compact()
    assert {-1, 0} < set(run.store.slots())


def test_a_reader_with_an_old_listing_sees_each_row_once(run):
    for number in range(4):
        run.batch(number, records([number * 60]))
    old = run.store.snapshot()
    run.compact()
    there = by_slot(old.pieces)
    (slot,) = [slot for slot in there if slot is not None]
    found = read_slot(run.store.files, slot, [BACKUP], there[slot])[BACKUP]
    assert pa.concat_tables(found).num_rows == 4
    for piece in old.pieces:  # also long after
        run.store.files.delete(piece.path)
    found = read_slot(run.store.files, slot, [BACKUP], there[slot])[BACKUP]
    assert pa.concat_tables(found).num_rows == 4


def test_times_of_batches_grow_also_where_the_clock_goes_back(run, monkeypatch):
    run.batch(0, records([1]))
    first = run.store.snapshot().upto
    monkeypatch.setattr(time, "time_ns", lambda: 1_000_000)
    run.batch(1, records([2]))
    assert run.store.snapshot().upto == first + 1


def test_a_batch_without_the_one_before_it_is_an_error(run):
    run.batch(0, records([1]))
    with pytest.raises(StateError, match="has no batch 1, and 2 comes"):
        run.batch(2, records([2]))


def test_a_store_without_its_checkpoint_is_an_error(run, tmp_path):
    schema = _Schema()
    assert not run.store.claim(run.plan.summary, schema)
    run.batch(0, records([1]))
    with pytest.raises(StateError, match="has lost its folder 'checkpoint'"):
        run.store.claim(run.plan.summary, schema)
    (tmp_path / "checkpoint" / "offsets").mkdir(parents=True)
    assert not run.store.claim(run.plan.summary, schema)


class _Schema:
    def simpleString(self):  # noqa: N802
        return "struct<>"


def test_rejected_records_are_kept_and_are_in_no_result(run):
    log = pa.Table.from_pylist(
        [{"kind": "future", "record": records([9]).to_pylist()[0], "reason": "future"},
         {"kind": "rejected", "record": records([9]).to_pylist()[0], "reason": "null_time"}],
        run.schema,
    )  # fmt: skip
    written = tasks.log_writer(run.store.path, run.plan, run.types)(log.to_batches())
    run.store.commit_batch(0, pa.Table.from_batches(list(written), WRITTEN))
    run.correct(final=True)
    assert run.rows() is None
    assert run.rows("future").column("reason").to_pylist() == ["future"]
    run.compact()
    assert run.rows("rejected").column("reason").to_pylist() == ["null_time"]


def test_late_records_are_due_when_they_span_more_than_gamma_or_have_waited(run):
    second = 1_000_000
    run.batch(0, records([5000]))
    assert due_at(run.store.snapshot(), span=0, wait=0) == math.inf
    run.batch(1, records([10, 30]))
    run.batch(2, records([5010, 20, 4]))
    snapshot = run.store.snapshot()
    assert [piece.kind for piece in snapshot.pending] == [LATE, LATE]
    assert snapshot.span == 26 * second
    assert due_at(snapshot, span=26 * second - 1, wait=3600 * second) == -math.inf
    waited = due_at(snapshot, span=26 * second, wait=3600 * second)
    assert waited == snapshot.batches[1].emitted / 1e6 + 3600
    run.correct(final=False)
    assert run.store.snapshot().pending == []
    assert due_at(run.store.snapshot(), span=0, wait=0) == math.inf
    run.batch(3, records([70]))
    assert due_at(run.store.snapshot(), span=5 * second, wait=0) < math.inf


def test_large_pieces_are_files_and_stay_as_they_are(run, tmp_path, monkeypatch):
    monkeypatch.setattr("rivermouth.spark.exact.slot_files._LARGE", 1 << 16)
    run.batch(0, records([1] * 5000))
    (path,) = [piece.path for piece in run.store.snapshot().pieces if piece.kind == BACKUP]
    run.compact()
    index = SlotFiles.load(run.store.files, 0)
    assert path in [each["path"] for each in index.files]
    found = run.rows(BACKUP)
    assert found.num_rows == 5000
    assert pc.all(pc.is_valid(found.column(EMITTED))).as_py()


def test_all_corrections_are_listed_also_those_that_were_compacted(run, monkeypatch):
    monkeypatch.setattr(store_module, "_ARCHIVED", 3)
    run.batch(0, records([5000]))
    for number in range(1, 9):
        run.batch(number, records([number]))
        run.correct(final=False)
        if number % 2:
            run.compact()
    made = run.store.corrections()
    assert [each.number for each in made] == list(range(1, len(made) + 1))
    assert [each.rows for each in made if each.rows] == [1] * 8
    assert run.store.corrections() == made
