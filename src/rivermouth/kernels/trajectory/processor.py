"""What an operator on trajectories does in a bucket, whatever it makes of them.

A position is late if it is older than the watermark before the micro-batch. Others wait in
`positions` until the watermark, the newest time less the lateness, has passed them. Then the
operator's `Fold` gets, per object, the positions that are released and the row it carries for that
object (`objects`), and gives results and the row to carry on. Since every object's positions come
in the order of their times and once, what a fold gives depends neither on the order of arrival nor
on the cut into micro-batches, as long as no position is late.

Results can also be emitted early, as a changelog (`changelog`): after every micro-batch a second
fold goes over the positions that still wait, as if no more came, and what it gives is compared with
what was emitted before. After each micro-batch the changelog then amounts to what a batch frame of
all positions so far would give, those that were late left out.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rivermouth.kernels.arrays import Bools, Ints
from rivermouth.kernels.keys.values import ints
from rivermouth.kernels.state.bucketing import FUTURE, Arrivals
from rivermouth.kernels.state.bucketing import REASON as WHY
from rivermouth.kernels.state.groups import group
from rivermouth.kernels.state.watermark import NO_MORE_INPUT, Watermarks
from rivermouth.kernels.trajectory.changelog import Changelog, numbers
from rivermouth.kernels.trajectory.objects import NEVER, Objects
from rivermouth.kernels.trajectory.positions import Positions, ordered
from rivermouth.kernels.trajectory.query import (
    CHANGE,
    DELETE,
    INSERT,
    KIND,
    REASON,
    RECORD,
    UPDATE,
    Trajectory,
)
from rivermouth.kernels.trajectory.routing import FIRST

#: raised when what is kept in the state changes its meaning
FORMAT = 1
#: the watermark before the first position
BEGIN = -(1 << 62)
_META, _CACHED = "meta", "trajectory"


@dataclass(frozen=True)
class Released:
    """What a fold gets: objects, their positions that are due, and what is known of them.

    Parameters
    ----------
    objects
        The key columns of each object.
    rows
        The positions in order of object and time; times are int64, microseconds since 1970.
    starts
        Object i has the rows from ``starts[i]`` to ``starts[i + 1]``, perhaps none: then its
        deadline has passed.
    carry
        The row that each object carries, nulls where there is none.
    known
        Which objects carry a row.
    watermark
        Every position older than this has been released, now or before.
    slots
        The number by which each object is known while it is in the state.
    is_last
        Whether nothing more is waited for.
    log
        What the operator keeps besides the rows of objects; None where it keeps nothing.
    is_early
        Whether the rows are not released in fact: they are folded again. The log must not be
        written to, and what is carried on is not kept.
    """

    objects: pa.Table
    rows: pa.Table
    starts: Ints
    carry: pa.Table
    known: Bools
    watermark: int
    slots: Ints
    is_last: bool
    log: Any = None
    is_early: bool = False


@dataclass(frozen=True)
class Folded:
    """What a fold gives: results, and for each object the row to carry on.

    Parameters
    ----------
    results
        Rows in columns of the output; those that are absent are null.
    carry
        One row per object.
    deadline
        The event time after which each object is folded again even without a new position: when
        the watermark is later. `objects.NEVER` for none.
    keep
        Which objects stay in the state. One that leaves and comes back is new.
    """

    results: pa.Table
    carry: pa.Table
    deadline: Ints
    keep: Bools


class Fold(Protocol):
    """What an operator makes of trajectories; one instance per micro-batch."""

    @property
    def carry(self) -> pa.Schema:
        """The columns of the row that is carried per object."""
        ...

    def fold(self, released: Released) -> Folded:
        """Results of these positions, and what to carry on."""
        ...

    def counts(self) -> dict[str, int]:
        """What is counted besides rows in and out, for the metrics."""
        ...

    def sketch(self) -> dict[str, Any] | None:
        """What a map shows of this micro-batch; None where there is no map."""
        ...


class Log(Protocol):
    """What an operator keeps in a bucket's state besides a row per object."""

    def kept(self) -> dict[str, Any]:
        """What is there, as JSON for the state."""
        ...

    def attach(self, store: MutableMapping[str, bytes]) -> None:
        """Use the store of another micro-batch, which holds the same state."""
        ...

    def sizes(self) -> dict[str, int]:
        """What it adds to the sizes of the state."""
        ...


#: creates a log over a store, given what its `kept` returned when the state was last written
MakeLog = Callable[[MutableMapping[str, bytes], dict[str, Any] | None], Log]


@dataclass
class BucketState:
    """What a bucket keeps between micro-batches.

    Parameters
    ----------
    watermarks
        The newest time less the lateness, and when input last came.
    watermark
        The time before which all positions are late: those before it have been released.
    positions, objects
        The positions that wait, and the rows of the objects.
    log
        What the operator keeps besides; None where it keeps nothing.
    changelog
        What was emitted early; None where nothing is.
    early_watermark
        The watermark that early results stand for: later than all positions.
    """

    watermarks: Watermarks
    watermark: int
    positions: Positions
    objects: Objects
    log: Log | None = None
    changelog: Changelog | None = None
    early_watermark: int = BEGIN

    def attach(self, store: MutableMapping[str, bytes]) -> None:
        """Use the store of another micro-batch, which holds the same state."""
        for part in (self.positions, self.objects, self.log, self.changelog):
            if part is not None:
                part.attach(store)


class TrajectoryProcessor:
    """Processes one micro-batch in one bucket.

    Parameters
    ----------
    query
        The operator's definition.
    fold
        What it makes of the positions.
    bucket
        The number of the bucket.
    log
        Creates what the fold keeps besides a row per object; None: it keeps nothing.
    early
        A second fold, of early results; None: there are only final ones.
    """

    def __init__(
        self,
        query: Trajectory,
        fold: Fold,
        bucket: int,
        log: MakeLog | None = None,
        *,
        early: Fold | None = None,
    ) -> None:
        self._query, self._fold, self._bucket, self._log = query, fold, bucket, log
        self._early = early
        self._is_last = False
        self._counts: Counter[str] = Counter(rows_in=0, rows_out=0, late=0, future=0)
        self._reasons: Counter[str] = Counter()
        changes = (INSERT, UPDATE, DELETE) if early is not None else ()
        self._changes = Counter({f"{change}s": 0 for change in changes})
        self._gauges: dict[str, Any] = {}
        self._notes: tuple[dict[str, Any], ...] = ()

    def process(
        self, store: MutableMapping[str, bytes], arrivals: Arrivals, cache: dict[str, Any]
    ) -> Iterator[pa.Table]:
        """Process what has arrived and emit results."""
        state: BucketState = cache.pop(_CACHED, None) or self._restored(store)
        state.attach(store)
        self._notes = arrivals.notes
        yield from self._rejected(arrivals)
        moved = [self._query.positions.empty_table()]
        if arrivals.sides[0]:
            rows = pa.concat_tables(arrivals.sides[0]).combine_chunks()
            admitted, late = self._admitted(state, rows)
            state.positions.add(admitted)
            moved.append(admitted)
            yield from self._late(late)
        before = state.watermark
        self._advance(state, arrivals)
        released = state.positions.release(before, state.watermark)
        objects, results = self._fold_released(state, released)
        if state.changelog is not None:
            moved = [rows.select(list(self._query.by)) for rows in moved]
            results = self._revised(state, state.changelog, [*moved, objects], results)
        yield from self._emitted(results)
        if not arrivals.last:
            self._save(store, state)
            cache[_CACHED] = state

    def report(self) -> dict[str, Any]:
        """The metrics of this micro-batch, by the names of `rm.metrics`."""
        return {
            "bucket": self._bucket,
            "counts": {**self._counts, **self._fold.counts(), **self._changes},
            "rejected": dict(self._reasons),
            "events": self._fold.sketch(),
            "tables": [note["table"] for note in self._notes],
            **self._gauges,
        }

    # -- input

    def _rejected(self, arrivals: Arrivals) -> Iterator[pa.Table]:
        for _, rows in arrivals.rejected:
            reasons = rows.column(WHY)
            is_future = pc.equal(reasons, FUTURE)
            self._counts["rows_in"] += rows.num_rows
            self._counts["future"] += pc.sum(is_future).as_py()
            self._reasons.update(reasons.filter(pc.invert(is_future)).to_pylist())
            if self._query.late_rows:
                kinds = pc.if_else(is_future, FUTURE, "rejected")
                yield self._records(rows.drop_columns([WHY]), kinds, reasons)

    def _admitted(self, state: BucketState, rows: pa.Table) -> tuple[pa.Table, pa.Table]:
        """The positions as the state keeps them, and those that are late instead, each once."""
        query = self._query
        first = rows.column(FIRST).to_numpy()
        times = ints(rows.column(query.time).combine_chunks())
        late = times < state.watermark
        self._counts["rows_in"] += int(first.sum())
        columns = {name: rows.column(name) for name in query.positions.names}
        kept = pa.table({**columns, query.time: pa.array(times)}, query.positions)
        if late.any():
            kept = kept.filter(pa.array(~late)).combine_chunks()
        return kept, rows.filter(pa.array(late & first))

    def _late(self, rows: pa.Table) -> Iterator[pa.Table]:
        self._counts["late"] += rows.num_rows
        if rows.num_rows and self._query.late_rows:
            kinds = pa.repeat("late", rows.num_rows)
            yield self._records(rows, kinds, pa.nulls(rows.num_rows, pa.string()))

    def _records(self, rows: pa.Table, kinds: pa.Array, reasons: pa.Array) -> pa.Table:
        """Positions that are no part of the results, as rows of the output."""
        dtype = self._query.output.field(RECORD).type
        record = rows.select([field.name for field in dtype]).combine_chunks().to_struct_array()
        columns = {KIND: kinds, RECORD: record.cast(dtype), REASON: reasons}
        return _filled(columns, self._query.output)

    # -- output

    def _emitted(self, results: pa.Table) -> Iterator[pa.Table]:
        self._counts["rows_out"] += results.num_rows
        if results.num_rows:
            columns = dict(zip(results.column_names, results.columns, strict=True))
            yield _filled(columns, self._query.output)

    def _fold_released(
        self, state: BucketState, rows: pa.Table | None
    ) -> tuple[pa.Table, pa.Table]:
        """Fold the objects whose positions are released or whose deadline has passed.

        Gives their key columns and their results.
        """
        query, by = self._query, list(self._query.by)
        rows = query.positions.empty_table() if rows is None else rows
        groups = group([rows.column(name) for name in by], rows.num_rows)
        objects = rows.select(by).take(pa.array(groups.first))
        slots = state.objects.slots(objects)
        closes = query.closes and self._is_last
        due = state.objects.due(NEVER + 1 if closes else state.watermark)
        due = np.setdiff1d(due, slots, assume_unique=True)
        if len(due):
            slots = np.concatenate([slots, due])
            objects = pa.concat_tables([objects, state.objects.keys(due)]).combine_chunks()
        if not len(slots):
            return objects, query.results.empty_table()
        released = self._released(state, objects, slots, rows, groups.code)
        folded = self._fold.fold(released)
        state.objects.put(slots, objects, folded.carry, folded.deadline, folded.keep)
        return objects, self._results(folded.results)

    def _released(
        self, state: BucketState, objects: pa.Table, slots: Ints, rows: pa.Table, whose: Ints
    ) -> Released:
        """What a fold gets: objects, and the positions of those that have some."""
        query = self._query
        rows, order = ordered(rows, whose, time=query.time, tie_break=query.tie_break)
        found, known = state.objects.rows(slots)
        carry = found.select(self._fold.carry.names)
        return Released(
            objects,
            rows,
            np.searchsorted(whose[order], np.arange(len(slots) + 1)),
            carry.take(pa.array(np.cumsum(known) - 1, mask=~known)),
            known,
            state.watermark,
            slots,
            self._is_last,
            state.log,
        )

    def _results(self, folded: pa.Table) -> pa.Table:
        """What a fold gave, in the columns of a result."""
        kind = {KIND: pa.repeat("row", folded.num_rows)} if self._query.late_rows else {}
        columns = dict(zip(folded.column_names, folded.columns, strict=True))
        return _filled(kind | columns, self._query.results)

    # -- early results

    def _revised(
        self,
        state: BucketState,
        changelog: Changelog,
        touched: list[pa.Table],
        final: pa.Table,
    ) -> pa.Table:
        """The changes of objects with new or released positions, or whose deadline has passed.

        `touched` are the key columns of the former, `final` results that no longer change.
        """
        query, since = self._query, state.early_watermark
        (time,) = state.watermarks.times
        newest = BEGIN if time is None else time + query.lateness + 1
        state.early_watermark = max(since, state.watermark, newest)
        due = state.objects.due(state.early_watermark, since)
        more = [state.objects.keys(due)] if len(due) else []
        more += [each for each in (changelog.due(state.early_watermark),) if each is not None]
        objects = _distinct(pa.concat_tables([*touched, *more]))
        if not objects.num_rows:
            return query.results.empty_table()
        early, last, deadline = self._fold_held(state, objects)
        deadline[(last == BEGIN) | (deadline < state.early_watermark)] = NEVER
        changes = changelog.revise(
            objects, final, early, last=last, deadline=deadline, watermark=state.watermark
        )
        self._changes.update(f"{change}s" for change in changes.column(CHANGE).to_pylist())
        return changes

    def _fold_held(self, state: BucketState, objects: pa.Table) -> tuple[pa.Table, Ints, Ints]:
        """The early results of objects; the newest held position of each, and its deadline."""
        assert self._early is not None
        query, count = self._query, objects.num_rows
        last, deadline = np.full(count, BEGIN), np.full(count, NEVER)
        held = state.positions.held(state.watermark)
        rows = query.positions.empty_table() if held is None else held
        whose = numbers(objects, rows.select(list(query.by)))
        rows, whose = rows.filter(pa.array(whose >= 0)), whose[whose >= 0]
        np.maximum.at(last, whose, rows.column(query.time).to_numpy())
        slots = state.objects.known_slots(objects)
        there = np.flatnonzero((last != BEGIN) | (slots >= 0))
        if not len(there):
            return query.results.empty_table(), last, deadline
        number = np.cumsum(np.isin(np.arange(count), there)) - 1
        released = self._released(
            state, objects.take(pa.array(there)), slots[there], rows, number[whose]
        )
        folded = self._early.fold(
            replace(released, watermark=state.early_watermark, is_last=True, is_early=True)
        )
        deadline[there] = folded.deadline
        return self._results(folded.results), last, deadline

    # -- the watermark and the state

    def _advance(self, state: BucketState, arrivals: Arrivals) -> None:
        """Advance the watermark to where the newest position brings it."""
        newest, lateness = arrivals.newest[0], self._query.lateness
        time = None if newest is None else newest - lateness
        state.watermarks = state.watermarks.advance([time], now=arrivals.now)
        reached = state.watermarks.lowest(idle_timeout=self._query.idle_timeout, now=arrivals.now)
        self._is_last = arrivals.last or reached == NO_MORE_INPUT
        if self._is_last:
            # nothing more is waited for; what comes yet must be newer than what was released
            (time,) = state.watermarks.times
            reached = None if time is None else time + lateness + 1
        state.watermark = max(state.watermark, BEGIN if reached is None else reached)

    def _restored(self, store: MutableMapping[str, bytes]) -> BucketState:
        meta = json.loads(store[_META]) if _META in store else {}
        marks = Watermarks.of(1)
        if meta:
            marks = Watermarks((meta["time"],), (meta["active"],))
        query = self._query
        return BucketState(
            marks,
            meta.get("watermark", BEGIN),
            Positions(store, query.time, meta.get("positions")),
            Objects(store, query.by, self._fold.carry, meta.get("objects")),
            None if self._log is None else self._log(store, meta.get("log")),
            None if self._early is None else Changelog(
                store, query.by, query.identity, query.results, meta.get("changelog")
            ),
            meta.get("early_watermark", BEGIN),
        )  # fmt: skip

    def _save(self, store: MutableMapping[str, bytes], state: BucketState) -> None:
        meta = {
            "time": state.watermarks.times[0],
            "active": state.watermarks.active[0],
            "watermark": state.watermark,
            "positions": state.positions.kept(),
            "objects": state.objects.kept(),
            **({} if state.log is None else {"log": state.log.kept()}),
        }
        if state.changelog is not None:
            meta |= {
                "changelog": state.changelog.kept(),
                "early_watermark": state.early_watermark,
            }
        store[_META] = json.dumps(meta).encode()
        self._gauges = {
            "watermark": None if state.watermark == BEGIN else state.watermark,
            "state": {
                "positions": len(state.positions),
                "objects": len(state.objects),
                **({} if state.log is None else state.log.sizes()),
                **({} if state.changelog is None else {"revisable": len(state.changelog)}),
            },
        }


def _filled(columns: dict[str, Any], schema: pa.Schema) -> pa.Table:
    """A table of these columns; the schema's others are null."""
    rows = len(next(iter(columns.values())))
    nulls = {field.name: pa.nulls(rows, field.type) for field in schema}
    return pa.Table.from_pydict(nulls | columns, schema)


def _distinct(objects: pa.Table) -> pa.Table:
    """Each object once."""
    groups = group(objects.columns, objects.num_rows)
    return objects.take(pa.array(groups.first)).combine_chunks()
