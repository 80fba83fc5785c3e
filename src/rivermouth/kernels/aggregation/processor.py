"""A bucket's step: records in, windows that close out, and those that come too late besides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, MutableMapping
from typing import Any

import numpy as np
import pyarrow as pa

from rivermouth.kernels.aggregation.evaluation import (
    Checked,
    arrived,
    check,
    early_answers,
    needed_waits,
)
from rivermouth.kernels.aggregation.output import Output
from rivermouth.kernels.aggregation.partials import Answers, Book
from rivermouth.kernels.aggregation.state import State
from rivermouth.kernels.aggregation.thresholds import needed
from rivermouth.kernels.state.bucketing import REASON, Arrivals, latest
from rivermouth.spec import summaries as names
from rivermouth.spec.slack import Quality, Slack

ROW, LATE, FUTURE, ASIDE = "row", "late", "future", "set aside"
_BEFORE = -(1 << 62)  # where the clock stands before the first record


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
        self._rejected: Counter[str] = Counter()
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
            "rejected": dict(self._rejected),
            **self._gauges,
        }

    def process(
        self, store: MutableMapping[str, bytes], arrivals: Arrivals, cache: dict[str, Any]
    ) -> Iterator[pa.Table]:
        """Take in what has arrived; give the windows that close, and what came too late."""
        state = State(self._book, self._slack, store, cache)
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
            last = self._horizon(state, position.newest, arrivals)
            yield from self._close(state, last, complete=arrivals.last)
            state.forget()
            self._gauges |= {"clock": position.newest, "slack": state.control.wait / 1e6}
        if not arrivals.last:
            self._gauges["state"] = state.save()

    def _take_in(self, state: State, rows: pa.Table) -> Iterator[pa.Table]:
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
        for _, rows in arrivals.rejected:
            reasons = rows.column(REASON).to_pylist()
            future = reasons.count(FUTURE)
            self._counts.update(rows_in=len(reasons), future=future)
            self._rejected.update(reason for reason in reasons if reason != FUTURE)
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

    def _horizon(self, state: State, newest: int, arrivals: Arrivals) -> int:
        """The last window that closes now."""
        grid = self._book.grid
        silent = self._idle is not None and arrivals.now - state.position.heard >= self._idle
        if arrivals.last or silent:  # nothing more is waited for
            return int(grid.last_window(np.array([newest // grid.pane]))[0])
        return grid.ended(newest - state.control.wait)

    def _close(self, state: State, last: int, *, complete: bool) -> Iterator[pa.Table]:
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
        wait, coverage = (0, 1.0) if complete else (state.control.wait, state.coverage())
        yield self._rows(state, answers, wait, coverage)

    def _rows(self, state: State, answers: Answers, wait: int, coverage: float) -> pa.Table:
        book, newest = self._book, state.position.newest
        assert newest is not None
        start = book.grid.start(answers.spans.window)
        end = start + book.grid.size
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
                names.COVERAGE: np.full(count, coverage),
                names.SLACK: np.full(count, wait / 1e6),
                names.REVISION: np.zeros(count, np.int64),
            },
            count,
        )

    def _settle(self, state: State, newest: int) -> None:
        """Check the answers of windows that late records no longer change."""
        position, grid = state.position, self._book.grid
        if position.closed is None:
            return
        last = min(grid.ended(newest - state.settling), position.closed)
        lowest = state.early.lowest() if position.settled is None else position.settled + 1
        together = grid.size // grid.every  # windows that overlap are checked together
        if lowest is None or last - lowest + 1 < together:
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
        self, state: State, slack: Quality, final: Answers, first: int, last: int
    ) -> Checked:
        """Check the windows from `first` to `last`, and let the controller learn from them."""
        early, newest = state.early.rows(first, last), state.position.newest
        assert newest is not None
        waits = None
        if slack.calibrate and state.shapes:
            share = state.control.wanted(needed(self._book.summary, slack, state.shapes))
            log = state.arrivals.rows(*state.panes(first, last))
            if log is not None:
                waits = needed_waits(self._book, log, final.spans.window, share)
        found = check(self._book, slack, early, final, waits)
        state.learn(found.shapes)
        share = needed(self._book.summary, slack, state.shapes)
        state.control.settle(found.windows, share, newest, waited=waits is not None)
        self._gauges["wanted"] = state.control.wanted(share)
        return found
