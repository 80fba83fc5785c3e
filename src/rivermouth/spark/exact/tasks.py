"""What Spark's tasks do with a store: write pieces, read them, correct slots and compact them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rivermouth.kernels.aggregation.differences import differences, late_windows, micros
from rivermouth.kernels.aggregation.plan import AggPlan
from rivermouth.kernels.aggregation.processor import CLOSED, LATE, PARTIALS, ROW
from rivermouth.kernels.aggregation.slots import Slots, by_slot, partials_by_slot
from rivermouth.kernels.state.bucketing import decode
from rivermouth.spark.exact.pieces import BACKUP, EMITTED, WRITTEN, Files, Piece, unpacked
from rivermouth.spark.exact.slot_files import compact_slot, read_slot
from rivermouth.spec.locations import Location
from rivermouth.spec.summaries import KIND, REASON, RECORD, REVISION, START
from rivermouth.spec.summaries import PARTIALS as ENCODED

Work = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]
_ALL = 1 << 62  # behind all windows
_GATHERED = 1 << 26  # bytes of the backup that a task gathers before it writes


def log_writer(root: Location, plan: AggPlan, record: Mapping[str, pa.DataType]) -> Work:
    """Writes the log of an aggregation: results, partials, late and rejected records."""
    results = plan.schema()
    records = pa.schema([(RECORD, pa.struct(list(record.items()))), (REASON, pa.string())])

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = _Gathered(Files(root), Slots.of(plan.grid), plan.summary.time)
        for batch in batches:
            found.add_log(pa.Table.from_batches([batch]), results, records)
        yield from found.written()

    return work


def converter(
    root: Location, plan: AggPlan, record: Mapping[str, pa.DataType], max_future: int
) -> Work:
    """Writes a log that a file sink wrote; the partials of its records are made now."""
    emitted = pa.field(EMITTED, pa.timestamp("us", "UTC"))
    results = plan.schema().append(emitted)
    records = pa.schema([(RECORD, pa.struct(list(record.items()))), (REASON, pa.string()), emitted])

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = _Gathered(Files(root), Slots.of(plan.grid), plan.summary.time)
        for batch in batches:
            rows = pa.Table.from_batches([batch])
            found.add_log(rows, results, records)
            backup = rows.filter(pc.equal(rows.column(KIND), BACKUP)).select(records.names)
            found.add_partials(backup.cast(records), plan, max_future)
        yield from found.written()

    return work


def backup_writer(root: Location, plan: AggPlan, record: Mapping[str, pa.DataType]) -> Work:
    """Writes all records."""
    schema = pa.schema(list(record.items()))

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = _Gathered(Files(root), Slots.of(plan.grid), plan.summary.time)
        for batch in batches:
            rows = pa.Table.from_batches([batch]).cast(schema)
            found.add_records(BACKUP, pa.table({RECORD: rows.to_struct_array()}))
            if found.size > _GATHERED:
                yield from found.written()
        yield from found.written()

    return work


def results_writer(root: Location, plan: AggPlan) -> Work:
    """Writes results, as a correction has them."""
    schema = plan.schema()

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = _Gathered(Files(root), Slots.of(plan.grid), plan.summary.time)
        for batch in batches:
            found.add_results(pa.Table.from_batches([batch]).select(schema.names).cast(schema))
        yield from found.written()

    return work


class _Gathered:
    """Rows of a task by kind and slot, until they are written."""

    def __init__(self, files: Files, slots: Slots, time: str) -> None:
        self._files, self._slots, self._time = files, slots, time
        self._tables: dict[tuple[str, int | None, int | None], list[pa.Table]] = {}
        self.size = 0

    def add_log(self, rows: pa.Table, results: pa.Schema, records: pa.Schema) -> None:
        """Rows of `aggregate`, of all kinds, with the columns of these schemas."""
        kinds = rows.column(KIND)
        for kind in pc.unique(kinds).to_pylist():
            some = rows.filter(pc.equal(kinds, kind))
            if kind == ROW:
                self.add_results(some.select(results.names).cast(results))
            elif kind == CLOSED:
                slowest = micros(some.column(START)).min()
                self._add(CLOSED, int(self._slots.of_time(slowest)), some.select([START])[:1])
            elif kind == PARTIALS:
                for message in some.column(ENCODED):
                    part, about = decode(message.as_buffer())
                    self._add(PARTIALS, about["slot"], part, about["closed"])
            else:
                self.add_records(kind, some.select(records.names).cast(records))

    def add_results(self, rows: pa.Table) -> None:
        """Results of windows, by their start."""
        for slot, some in by_slot(rows, self._slots.of_time(micros(rows.column(START)))):
            self._add(ROW, slot, some)

    def add_records(self, kind: str, rows: pa.Table) -> None:
        """Records; those of the stream by their times, those that were rejected together."""
        if kind not in (BACKUP, LATE):
            self._add(kind, None, rows)
            return
        times = self._times(rows)
        is_null = times.is_null()
        if pc.any(is_null).as_py():
            self._add(kind, None, rows.filter(is_null))
            rows, times = rows.filter(times.is_valid()), times.drop_null()
        for slot, some in by_slot(rows, self._slots.of_time(micros(times))):
            self._add(kind, slot, some)

    def add_partials(self, backup: pa.Table, plan: AggPlan, max_future: int) -> None:
        """The partials of records that an earlier version has backed up."""
        times, emitted = self._times(backup), backup.column(EMITTED)
        limit = pc.add(emitted.cast(pa.int64()), max_future)
        usable = pc.fill_null(pc.less_equal(times.cast(pa.int64()), limit), False)
        record = backup.column(RECORD).filter(usable).combine_chunks()
        rows = pa.Table.from_arrays(record.flatten(), record.type.names)
        if rows.num_rows:
            lifted = plan.lift(rows, plan.times(rows))
            for slot, part in partials_by_slot(self._slots, lifted):
                self._add(PARTIALS, slot, part, _ALL)

    def written(self) -> Iterator[pa.RecordBatch]:
        """Write what was gathered; a row of `WRITTEN` for each piece."""
        made = []
        for (kind, slot, closed), tables in self._tables.items():
            table = pa.concat_tables(tables, promote_options="default").combine_chunks()
            more: dict[str, Any] = {"closed": closed}
            if kind == LATE:
                times = micros(self._times(table))
                more |= {"low": int(times.min()), "high": int(times.max())}
            made.append(self._files.piece(kind, slot, table, **more))
        self._tables, self.size = {}, 0
        yield pa.RecordBatch.from_pylist(made, WRITTEN)

    def _times(self, rows: pa.Table) -> pa.ChunkedArray:
        return pc.struct_field(rows.column(RECORD), self._time)

    def _add(self, kind: str, slot: int | None, table: pa.Table, closed: int | None = None) -> None:
        if table.num_rows:
            self._tables.setdefault((kind, slot, closed), []).append(table)
            self.size += table.nbytes


def reader(
    root: Location, kind: str, arrow: pa.Schema, *, until: int, only_pieces: bool = False
) -> Work:
    """Reads the rows of a kind in some slots that were emitted until then.

    With `only_pieces` those of the pieces that are given, not of the slots' files.
    """
    limit = pa.scalar(until, pa.int64()).cast(pa.timestamp("us", "UTC"))

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = Files(root)
        for slot, pieces in _slots(batches):
            if only_pieces:
                tables = [files.read(each) for each in pieces]
            else:
                tables = read_slot(files, slot, [kind], pieces)[kind]
            for table in tables:
                rows = table.filter(pc.less_equal(table.column(EMITTED), limit))
                columns = [
                    rows.column(field.name).cast(field.type)
                    if field.name in rows.column_names
                    else pa.nulls(rows.num_rows, field.type)
                    for field in arrow
                ]
                yield from pa.Table.from_arrays(columns, schema=arrow).to_batches()

    return work


def slot_corrector(root: Location, plan: AggPlan, *, after: int | None, final: bool) -> Work:
    """Writes the corrected results of slots.

    Of the windows of partials that came late after a time, or of all where it is `final`.
    """

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = Files(root)
        for slot, pieces in _slots(batches):
            late = None if final else _late(files, plan, pieces, after)
            rows = slot_differences(files, plan, slot, pieces, late)
            if rows.num_rows:
                yield pa.RecordBatch.from_pylist([files.piece(ROW, slot, rows)], WRITTEN)

    return work


def slot_checker(root: Location, plan: AggPlan) -> Work:
    """Finds the slots whose results differ from their partials."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = Files(root)
        for slot, pieces in _slots(batches):
            if slot_differences(files, plan, slot, pieces, None).num_rows:
                yield pa.RecordBatch.from_pydict({"slot": pa.array([slot], pa.int64())})

    return work


def slot_compactor(root: Location, plan: AggPlan) -> Work:
    """Compacts slots; returns the files that are not needed any more."""

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files = Files(root)
        for slot, pieces in _slots(batches):
            removed = compact_slot(files, slot, pieces, plan.merge)
            yield pa.RecordBatch.from_pydict({"path": pa.array(removed, pa.string())})

    return work


def slot_differences(
    files: Files, plan: AggPlan, slot: int | None, pieces: list[Piece], late: pa.Table | None
) -> pa.Table:
    """What a correction has to write of the windows that start in the slot."""
    assert slot is not None  # partials have a time
    here = read_slot(files, slot, [PARTIALS, ROW], pieces)
    behind = read_slot(files, slot + 1, [PARTIALS], pieces)
    partials, results = [*here[PARTIALS], *behind[PARTIALS]], here[ROW]
    if not partials or (late is not None and not late.num_rows):
        return plan.schema().empty_table()
    known = pa.concat_tables(results) if results else plan.schema().empty_table()
    if results:
        known = known.sort_by([(EMITTED, "ascending"), (REVISION, "ascending")])
    return differences(
        plan,
        pa.concat_tables(partials, promote_options="default").combine_chunks(),
        known,
        Slots.of(plan.grid).windows(slot),
        affected=late,
    )


def _late(files: Files, plan: AggPlan, pieces: list[Piece], after: int | None) -> pa.Table:
    found = [
        (files.read(each), each.closed)
        for each in pieces
        if each.kind == PARTIALS
        and each.closed is not None
        and (after is None or each.emitted is None or each.emitted > after)
    ]
    none = pa.table({**{key: pa.nulls(0) for key in plan.keys}, "window": np.zeros(0, np.int64)})
    return late_windows(plan, found) if found else none


def _slots(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int | None, list[Piece]]]:
    """The slots that a task was given, and the pieces that are not in their files."""
    rows = [row for batch in batches for row in batch.to_pylist()]
    for row in rows:
        yield row["slot"], unpacked(row["pieces"])
