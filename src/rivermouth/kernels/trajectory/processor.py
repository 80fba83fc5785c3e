"""What an operator on trajectories does in a bucket, whatever it makes of them.

A position is late if it is older than the watermark before the micro-batch. Others wait in
`positions` until the watermark, the newest time less the lateness, has passed them. Then the
operator's `Fold` gets, per object, the positions that are released and the row it carries for that
object (`objects`), and gives results and the row to carry on. Since every object's positions come
in the order of their times and once, what a fold gives depends neither on the order of arrival nor
on the cut into micro-batches, as long as no position is late.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass
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
from rivermouth.kernels.trajectory.objects import NEVER, Objects
from rivermouth.kernels.trajectory.positions import Positions, ordered
from rivermouth.kernels.trajectory.query import KIND, REASON, RECORD, Trajectory
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
    """

    watermarks: Watermarks
    watermark: int
    positions: Positions
    objects: Objects
    log: Log | None = None


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
    """

    def __init__(
        self, query: Trajectory, fold: Fold, bucket: int, log: MakeLog | None = None
    ) -> None:
        self._query, self._fold, self._bucket, self._log = query, fold, bucket, log
        self._is_last = False
        self._counts: Counter[str] = Counter(rows_in=0, rows_out=0, late=0, future=0)
        self._reasons: Counter[str] = Counter()
        self._gauges: dict[str, Any] = {}

    def process(
        self, store: MutableMapping[str, bytes], arrivals: Arrivals, cache: dict[str, Any]
    ) -> Iterator[pa.Table]:
        """Process what has arrived and emit results."""
        state: BucketState = cache.pop(_CACHED, None) or self._restored(store)
        state.positions.attach(store)
        state.objects.attach(store)
        if state.log is not None:
            state.log.attach(store)
        yield from self._rejected(arrivals)
        if arrivals.sides[0]:
            yield from self._admit(state, pa.concat_tables(arrivals.sides[0]).combine_chunks())
        before = state.watermark
        self._advance(state, arrivals)
        released = state.positions.release(before, state.watermark)
        yield from self._folded(state, released)
        if not arrivals.last:
            self._save(store, state)
            cache[_CACHED] = state

    def report(self) -> dict[str, Any]:
        """The metrics of this micro-batch, by the names of `rm.metrics`."""
        return {
            "bucket": self._bucket,
            "counts": {**self._counts, **self._fold.counts()},
            "rejected": dict(self._reasons),
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

    def _admit(self, state: BucketState, rows: pa.Table) -> Iterator[pa.Table]:
        """Keep the positions that are not late, and emit the others."""
        query = self._query
        first = rows.column(FIRST).to_numpy()
        times = ints(rows.column(query.time).combine_chunks())
        late = times < state.watermark
        self._counts["rows_in"] += int(first.sum())
        if late.any():
            once = rows.filter(pa.array(late & first))
            self._counts["late"] += once.num_rows
            if query.late_rows:
                kinds = pa.repeat("late", once.num_rows)
                yield self._records(once, kinds, pa.nulls(once.num_rows, pa.string()))
        columns = {name: rows.column(name) for name in query.positions.names}
        kept = pa.table({**columns, query.time: pa.array(times)}, query.positions)
        state.positions.add(kept.filter(pa.array(~late)).combine_chunks() if late.any() else kept)

    def _records(self, rows: pa.Table, kinds: pa.Array, reasons: pa.Array) -> pa.Table:
        """Positions that are no part of the results, as rows of the output."""
        dtype = self._query.output.field(RECORD).type
        record = rows.select([field.name for field in dtype]).combine_chunks().to_struct_array()
        return self._table({KIND: kinds, RECORD: record.cast(dtype), REASON: reasons})

    def _table(self, columns: dict[str, Any]) -> pa.Table:
        """A table of these columns; the output's others are null."""
        rows, schema = len(next(iter(columns.values()))), self._query.output
        nulls = {field.name: pa.nulls(rows, field.type) for field in schema}
        return pa.Table.from_pydict(nulls | columns, schema)

    # -- output

    def _folded(self, state: BucketState, rows: pa.Table | None) -> Iterator[pa.Table]:
        """Fold the objects whose positions are released or whose deadline has passed."""
        slots, released = self._gathered(state, rows)
        if not len(slots):
            return
        folded = self._fold.fold(released)
        state.objects.put(slots, released.objects, folded.carry, folded.deadline, folded.keep)
        count = folded.results.num_rows
        self._counts["rows_out"] += count
        if count:
            columns = dict(zip(folded.results.column_names, folded.results.columns, strict=True))
            kind = {KIND: pa.repeat("row", count)} if self._query.late_rows else {}
            yield self._table(kind | columns)

    def _gathered(self, state: BucketState, rows: pa.Table | None) -> tuple[Ints, Released]:
        """The objects to fold: those that have moved, then those that only are due."""
        query, by = self._query, list(self._query.by)
        rows = query.positions.empty_table() if rows is None else rows
        groups = group([rows.column(name) for name in by], rows.num_rows)
        moved = rows.select(by).take(pa.array(groups.first))
        slots = state.objects.slots(moved)
        closes = query.closes and self._is_last
        due = state.objects.due(NEVER + 1 if closes else state.watermark)
        due = np.setdiff1d(due, slots, assume_unique=True)
        slots = np.concatenate([slots, due])
        rows, order = ordered(rows, groups.code, time=query.time, tie_break=query.tie_break)
        found, known = state.objects.rows(slots)
        objects = (
            [moved, found.select(by).slice(found.num_rows - len(due))] if len(due) else [moved]
        )
        carry = found.select(self._fold.carry.names)
        return slots, Released(
            pa.concat_tables(objects).combine_chunks(),
            rows,
            np.searchsorted(groups.code[order], np.arange(len(slots) + 1)),
            carry.take(pa.array(np.cumsum(known) - 1, mask=~known)),
            known,
            state.watermark,
            slots,
            self._is_last,
            state.log,
        )

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
        )

    def _save(self, store: MutableMapping[str, bytes], state: BucketState) -> None:
        meta = {
            "time": state.watermarks.times[0],
            "active": state.watermarks.active[0],
            "watermark": state.watermark,
            "positions": state.positions.kept(),
            "objects": state.objects.kept(),
            **({} if state.log is None else {"log": state.log.kept()}),
        }
        store[_META] = json.dumps(meta).encode()
        self._gauges = {
            "watermark": None if state.watermark == BEGIN else state.watermark,
            "state": {
                "positions": len(state.positions),
                "objects": len(state.objects),
                **({} if state.log is None else state.log.sizes()),
            },
        }
