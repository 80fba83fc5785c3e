"""A bucket's step: records in, windows that close out, and those that come too late besides."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rivermouth.kernels.aggregation.checking import (
    WINDOW,
    Checked,
    arrived,
    check,
    early_answers,
    needed_waits,
)
from rivermouth.kernels.aggregation.control import Control
from rivermouth.kernels.aggregation.entries import PANE, Answers, Book
from rivermouth.kernels.aggregation.ledger import Ledger
from rivermouth.kernels.aggregation.thresholds import Shape, needed
from rivermouth.kernels.packing import REASON, Arrivals, latest
from rivermouth.spec import summaries as names
from rivermouth.spec.slack import Quality, Slack

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

#: raised when what is kept in the state changes its meaning
FORMAT = 1
ROW, LATE, FUTURE, ASIDE = "row", "late", "future", "set aside"
_META = "meta"
_BEFORE = -(1 << 62)  # where the clock stands before the first record
_RECENT = 0.05  # the weight of a step's windows in what is known of their shape


@dataclass(frozen=True)
class Output:
    """The result's columns: those of `schema`; with a column ``record``, late records come, too."""

    schema: pa.Schema

    @classmethod
    def of(cls, book: Book, record: pa.DataType | None = None) -> Output:
        """The columns of a summary's results; with late records where their type is given."""
        types, summary = book.types, book.summary
        time = types[summary.time]
        fields = [
            *((name, types[name]) for name in summary.by),
            (names.START, time),
            (names.END, time),
            *((field.name, field.type) for field in book.plan.results),
            (names.RECORDS, pa.int64()),
            (names.COVERAGE, pa.float64()),
            (names.SLACK, pa.float64()),
            (names.REVISION, pa.int64()),
        ]
        if record is not None:
            more = [(names.RECORD, record), (names.REASON, pa.string())]
            fields = [(names.KIND, pa.string()), *fields, *more]
        return cls(pa.schema(fields))

    @property
    def with_records(self) -> bool:
        """Whether late records and such as were set aside are rows of the result."""
        return names.RECORD in self.schema.names

    def table(self, columns: dict[str, Any], rows: int) -> pa.Table:
        """A table of these columns; the others are null."""
        arrays = [
            _in_one(columns[field.name], field.type)
            if field.name in columns
            else pa.nulls(rows, field.type)
            for field in self.schema
        ]
        return pa.table(arrays, schema=self.schema)


def _in_one(column: Any, kind: pa.DataType) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    array = column if isinstance(column, pa.Array) else pa.array(column)
    return array if array.type == kind else array.cast(kind)


@dataclass
class Position:
    """How far a bucket has come.

    Parameters
    ----------
    newest
        The largest event time seen, in microseconds; None before the first.
    closed
        The last window that has closed; None before the first.
    settled
        The last window that was checked.
    heard
        The wall clock at the last record.
    """

    newest: int | None = None
    closed: int | None = None
    settled: int | None = None
    heard: int = 0


class AggregateStepper:
    """The step of `aggregate` in one bucket.

    Parameters
    ----------
    book
        The summary and its columns' types.
    slack
        How long windows wait.
    output
        The result's columns.
    idle
        Microseconds of wall clock without a record after which all windows close; None: never.
    """

    def __init__(self, book: Book, slack: Slack, output: Output, idle: int | None = None) -> None:
        self._book, self._slack, self._output, self._idle = book, slack, output, idle
        self._counts: Counter[str] = Counter()
        self._set_aside: Counter[str] = Counter()
        self._gauges: dict[str, Any] = {}

    def report(self) -> dict[str, Any]:
        """The step's numbers: on time, late, future and set aside add up to the rows that came.

        ``latency_us`` is summed over answers: the largest event time seen less the window's end.
        ``answers_checked`` have settled, ``answers_above`` of them had an error of eps or more,
        ``records_early`` of their ``records_checked`` records were in hand when they closed.
        """
        counts = dict.fromkeys(("rows_in", "rows_out", "on_time", "late", "future"), 0)
        return {
            "counts": counts | self._counts,
            "set_aside": dict(self._set_aside),
            **self._gauges,
        }

    def step(
        self, store: MutableMapping[str, bytes], arrivals: Arrivals, hint: dict[str, Any]
    ) -> Iterator[pa.Table]:
        """Take in what has arrived; give the windows that close, and what came too late."""
        state = _State(self._book, self._slack, store, hint)
        tables = arrivals.sides[0]
        if tables:
            yield from self._take_in(state, pa.concat_tables(tables).combine_chunks())
        yield from self._aside(arrivals)
        position = state.position
        if arrivals.newest[0] is not None:
            position.newest, position.heard = (
                latest(position.newest, arrivals.newest[0]),
                arrivals.now,
            )
        if position.newest is not None:
            self._settle(state, position.newest)
            yield from self._close(state, self._horizon(state, position.newest, arrivals))
            state.forget()
            self._gauges |= {"clock": position.newest, "slack": state.control.wait / 1e6}
        if not arrivals.last:
            self._gauges["state"] = state.save()

    def _take_in(self, state: _State, rows: pa.Table) -> Iterator[pa.Table]:
        """Keep the rows, remember their delays, and give those that come too late."""
        times, grid, position = self._book.times(rows), self._book.grid, state.position
        late = np.zeros(len(times), bool)
        gone = late
        if position.closed is not None:
            pane = grid.panes(times)
            late = grid.first_window(pane) <= position.closed
            gone = grid.last_window(pane) <= state.settled
        many = int(late.sum())
        self._counts.update(rows_in=len(times), late=many, on_time=len(times) - many)
        if position.newest is not None:
            state.delays(np.maximum(position.newest - times, 0), position.newest)
        some = rows if not gone.any() else rows.filter(pa.array(~gone))
        if some.num_rows:
            state.entries.append(self._book.lift(some, times[~gone]))
            if isinstance(self._slack, Quality) and self._slack.calibrate:
                clock = _BEFORE if position.newest is None else position.newest
                state.arrivals.append(arrived(grid.panes(times[~gone]), clock))
        if self._output.with_records and late.any():
            yield self._records(rows.filter(pa.array(late)), [LATE] * many)

    def _aside(self, arrivals: Arrivals) -> Iterator[pa.Table]:
        """The records that could not be taken in."""
        for _, rows in arrivals.aside:
            reasons = rows.column(REASON).to_pylist()
            future = reasons.count(FUTURE)
            self._counts.update(rows_in=len(reasons), future=future)
            self._set_aside.update(reason for reason in reasons if reason != FUTURE)
            if self._output.with_records:
                kinds = [FUTURE if reason == FUTURE else ASIDE for reason in reasons]
                yield self._records(rows.drop_columns([REASON]), kinds, reasons)

    def _records(
        self, rows: pa.Table, kinds: list[str], reasons: list[str] | None = None
    ) -> pa.Table:
        arrays = [column.combine_chunks() for column in rows.columns]
        record = pa.StructArray.from_arrays(arrays, rows.column_names)
        columns: dict[str, Any] = {names.KIND: kinds, names.RECORD: record}
        columns |= {name: rows.column(name) for name in self._book.summary.by}
        if reasons is not None:
            columns[names.REASON] = reasons
        return self._output.table(columns, rows.num_rows)

    def _horizon(self, state: _State, newest: int, arrivals: Arrivals) -> int:
        """The last window that closes now."""
        grid = self._book.grid
        silent = self._idle is not None and arrivals.now - state.position.heard >= self._idle
        if arrivals.last or silent:  # nothing more is waited for
            return int(grid.last_window(np.array([newest // grid.pane]))[0])
        return grid.ended(newest - state.control.wait)

    def _close(self, state: _State, last: int) -> Iterator[pa.Table]:
        """The answers of the windows up to `last` that have not closed yet."""
        position, grid = state.position, self._book.grid
        lowest = state.entries.lowest()
        if position.closed is not None and last <= position.closed:
            return
        first = position.closed + 1 if position.closed is not None else None
        if first is None and lowest is not None:
            first = int(grid.first_window(np.array([lowest]))[0])
        position.closed = last
        answers = None if first is None else state.answers(first, last)
        if answers is None or not len(answers):
            return
        state.early.append(early_answers(answers, with_values=isinstance(self._slack, Quality)))
        yield self._rows(state, answers)

    def _rows(self, state: _State, answers: Answers) -> pa.Table:
        book, newest = self._book, state.position.newest
        assert newest is not None
        start = book.grid.start(answers.spans.window)
        end = start + book.grid.size
        wait = state.control.wait
        count = len(answers)
        groups = dict(zip(book.summary.by, answers.groups.columns, strict=True))
        kind = self._output.schema.field(names.START).type
        self._counts.update(rows_out=count, latency_us=int(np.maximum(newest - end, 0).sum()))
        return self._output.table(
            {
                names.KIND: [ROW] * count,
                **groups,
                names.START: pa.array(start).cast(kind),
                names.END: pa.array(end).cast(kind),
                **answers.values,
                names.RECORDS: answers.records,
                names.COVERAGE: np.full(count, state.coverage()),
                names.SLACK: np.full(count, wait / 1e6),
                names.REVISION: np.zeros(count, np.int64),
            },
            count,
        )

    def _settle(self, state: _State, newest: int) -> None:
        """Check the answers of windows that late records no longer change."""
        position, grid = state.position, self._book.grid
        if position.closed is None:
            return
        last = min(grid.ended(newest - state.settling), position.closed)
        lowest = state.early.lowest() if position.settled is None else position.settled + 1
        if lowest is None or last < lowest:
            return
        final = state.answers(lowest, last)
        position.settled = last
        if final is None or not len(final):
            return
        if not isinstance(self._slack, Quality):
            found = check(self._book, None, state.early.rows(lowest, last), final)
        else:
            found = self._learn(state, self._slack, final, lowest, last)
        self._gauges["settled_coverage"] = found.early / max(1, found.records)
        self._counts.update(
            answers_checked=found.answers,
            answers_above=found.above,
            records_checked=found.records,
            records_early=found.early,
            **{f"above.{name}": count for name, count in found.above_by.items()},
        )

    def _learn(
        self, state: _State, slack: Quality, final: Answers, first: int, last: int
    ) -> Checked:
        """Check the windows from `first` to `last`, and let the controller learn from them."""
        early, newest = state.early.rows(first, last), state.position.newest
        assert newest is not None
        waits = None
        if slack.calibrate and state.shapes:
            share = state.control.wanted(needed(self._book.summary, slack, state.shapes))
            log = state.arrivals.rows(*state.panes(first, last))
            waits = None if log is None else needed_waits(self._book, log, first, last, share)
        found = check(self._book, slack, early, final, waits)
        state.learn(found.shapes)
        share = needed(self._book.summary, slack, state.shapes)
        state.control.settle(found.windows, share, newest, waited=waits is not None)
        self._gauges["wanted"] = state.control.wanted(share)
        return found


class _State:
    """A bucket's state while a step runs over it."""

    def __init__(
        self, book: Book, slack: Slack, store: MutableMapping[str, bytes], hint: dict[str, Any]
    ) -> None:
        self._book, self._store = book, store
        kept = json.loads(store[_META]) if _META in store else {}
        self.position = Position(**kept.get("position", {}))
        self.control = Control.of(slack, kept.get("control"))
        self.shapes: dict[str | None, Shape] = {
            (None if at < 0 else book.summary.columns[at]): Shape(**shape)
            for at, shape in kept.get("shapes", [])
        }
        self.entries = Ledger(
            store, "e", PANE, kept=kept.get("entries"),
            held=hint.setdefault("entries", {}), merge=book.merge,
        )  # fmt: skip
        self.early = Ledger(
            store, "a", WINDOW, kept=kept.get("early"), held=hint.setdefault("early", {})
        )
        self.arrivals = Ledger(
            store, "w", PANE, kept=kept.get("arrivals"), held=hint.setdefault("arrivals", {})
        )

    def save(self) -> dict[str, int]:
        """Write what is not yet in the store; how many segments and rows there are."""
        columns = self._book.summary.columns
        kept = {
            "position": vars(self.position),
            "control": self.control.kept(),
            "shapes": [
                (-1 if name is None else columns.index(name), vars(shape))
                for name, shape in self.shapes.items()
            ],
            "entries": self.entries.kept(),
            "early": self.early.kept(),
            "arrivals": self.arrivals.kept(),
        }
        self._store[_META] = json.dumps(kept).encode()
        return {"entries": len(self.entries), "unchecked": len(self.early)}

    def delays(self, delays: Ints, newest: int) -> None:
        """Remember the delays of records that came when the clock was at `newest`."""
        self.control.delays.add(delays, newest)

    def coverage(self) -> float:
        """The share of its records that a window that closes now can expect to have."""
        return self.control.delays.coverage(self.control.wait, self._book.grid.size)

    @property
    def settling(self) -> int:
        """How long after its end a window is checked, in microseconds."""
        return max(self.control.delays.largest, self.control.wait)

    @property
    def settled(self) -> int:
        """The last window that no record changes any more here; some window has closed."""
        if self.position.settled is not None:
            return self.position.settled
        assert self.position.closed is not None
        first = self.early.lowest()
        return self.position.closed if first is None else first - 1

    def answers(self, first: int, last: int) -> Answers | None:
        """The windows from `first` to `last`, as the records of now have them."""
        entries = self.entries.rows(*self.panes(first, last))
        return None if entries is None else self._book.answers(entries, first, last)

    def panes(self, first: int, last: int) -> tuple[int, int]:
        """The first and the last pane of the windows from `first` to `last`."""
        grid = self._book.grid
        return grid.first_pane(first), grid.first_pane(last) + grid.size // grid.pane - 1

    def learn(self, shapes: dict[str | None, Shape]) -> None:
        """Let what is known of the windows' shape follow what they are like now."""
        for column, new in shapes.items():
            old = self.shapes.get(column, new)
            self.shapes[column] = old.towards(new, _RECENT) if old.is_finite else new

    def forget(self) -> None:
        """Drop what no window that is open or unchecked needs."""
        if self.position.closed is not None:
            pane = self._book.grid.first_pane(self.settled + 1)
            self.entries.forget(pane)
            self.arrivals.forget(pane)
            self.early.forget(self.settled + 1)
