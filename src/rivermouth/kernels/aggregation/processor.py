"""What `aggregate` does in a bucket: records in, results of windows that close out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, MutableMapping
from typing import Any

import numpy as np
import pyarrow as pa

from rivermouth.kernels.aggregation import evaluation
from rivermouth.kernels.aggregation.evaluation import early_results, evaluate, required_waits
from rivermouth.kernels.aggregation.plan import AggPlan
from rivermouth.kernels.aggregation.state import BucketState
from rivermouth.kernels.aggregation.thresholds import required_coverage
from rivermouth.kernels.state.bucketing import REASON, Arrivals, latest
from rivermouth.spec import summaries as names
from rivermouth.spec.slack import Quality, Slack

#: the values of the column ``kind``
ROW, LATE, FUTURE, REJECTED = "row", "late", "future", "rejected"
_BEFORE = -(1 << 62)  # the newest event time before the first record


class AggregateProcessor:
    """The processor of `aggregate` in one bucket.

    Parameters
    ----------
    plan
        The summary and its columns' types.
    slack
        How long windows wait.
    schema
        The result's columns; with a column ``record`` late and rejected records are rows, too.
    idle_timeout
        Microseconds of wall clock without a record after which all windows close; None: never.
    """

    def __init__(
        self, plan: AggPlan, slack: Slack, schema: pa.Schema, idle_timeout: int | None = None
    ) -> None:
        self._plan, self._slack, self._schema = plan, slack, schema
        self._idle_timeout = idle_timeout
        self._with_records = names.RECORD in schema.names
        self._counts: Counter[str] = Counter()
        self._rejected: Counter[str] = Counter()
        self._gauges: dict[str, Any] = {}

    def report(self) -> dict[str, Any]:
        """The micro-batch's metrics: on time, late, future and rejected add up to the rows in.

        ``latency_us`` is summed over results: the largest event time seen less the window's end.
        ``results_checked`` have settled, ``results_above_eps`` of them had an error of eps or more,
        ``records_early`` of their ``records_checked`` records were there when they closed.
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
        """Take in what has arrived; emit the windows that close, and late and rejected records."""
        state = BucketState(self._plan, self._slack, store, cache)
        if arrivals.sides[0]:
            yield from self._take_in(state, pa.concat_tables(arrivals.sides[0]).combine_chunks())
        yield from self._reject(arrivals)
        progress = state.progress
        if arrivals.newest[0] is not None:
            progress.newest = latest(progress.newest, arrivals.newest[0])
            progress.heard = arrivals.now
        if progress.newest is not None:
            self._settle(state, progress.newest)
            yield from self._close(state, progress.newest, arrivals)
            state.drop_settled()
            slack = state.controller.k_us
            self._gauges |= {"watermark": progress.newest - slack, "slack": slack / 1e6}
        if not arrivals.last:
            self._gauges["state"] = state.save()

    def _take_in(self, state: BucketState, rows: pa.Table) -> Iterator[pa.Table]:
        """Keep the rows, remember their delays, and emit those that are late."""
        times, grid, progress = self._plan.times(rows), self._plan.grid, state.progress
        pane = grid.panes(times)
        late, gone = np.zeros((2, len(times)), bool)
        if progress.closed is not None:
            late = grid.first_window(pane) <= progress.closed
            gone = grid.last_window(pane) <= state.settled
        late_rows = int(late.sum())
        self._counts.update(rows_in=len(times), late=late_rows, on_time=len(times) - late_rows)
        if progress.newest is not None:
            state.controller.delays.add(np.maximum(progress.newest - times, 0), progress.newest)
        kept = rows.filter(pa.array(~gone)) if gone.any() else rows
        if kept.num_rows:
            state.partials.append(self._plan.lift(kept, times[~gone]))
            if isinstance(self._slack, Quality) and self._slack.calibrate:
                newest = _BEFORE if progress.newest is None else progress.newest
                state.arrivals.append(evaluation.arrivals(pane[~gone], newest))
        if self._with_records and late_rows:
            yield self._records(rows.filter(pa.array(late)), [LATE] * late_rows)

    def _reject(self, arrivals: Arrivals) -> Iterator[pa.Table]:
        """Count the records without a usable time, and emit them."""
        for _, rows in arrivals.rejected:
            reasons = rows.column(REASON).to_pylist()
            self._counts.update(rows_in=len(reasons), future=reasons.count(FUTURE))
            self._rejected.update(reason for reason in reasons if reason != FUTURE)
            if self._with_records:
                kinds = [FUTURE if reason == FUTURE else REJECTED for reason in reasons]
                yield self._records(rows.drop_columns([REASON]), kinds, {names.REASON: reasons})

    def _records(
        self, rows: pa.Table, kinds: list[str], more: dict[str, Any] | None = None
    ) -> pa.Table:
        groups = {name: rows.column(name) for name in self._plan.summary.by}
        record = rows.to_struct_array()
        return self._table({names.KIND: kinds, **groups, names.RECORD: record, **(more or {})})

    def _table(self, columns: dict[str, Any]) -> pa.Table:
        """A table of these columns; the result's others are null."""
        rows = len(next(iter(columns.values())))
        nulls = {field.name: pa.nulls(rows, field.type) for field in self._schema}
        return pa.Table.from_pydict(nulls | columns, self._schema)

    def _close(self, state: BucketState, newest: int, arrivals: Arrivals) -> Iterator[pa.Table]:
        """Emit the results of the windows that close now."""
        progress, grid, k = state.progress, self._plan.grid, state.controller.k_us
        last = grid.last_ended(newest - k)
        timeout = self._idle_timeout
        if arrivals.last or (timeout is not None and arrivals.now - progress.heard >= timeout):
            last = grid.last_window(newest // grid.pane)  # nothing more is waited for
        if progress.closed is not None and last <= progress.closed:
            return
        first, lowest = progress.closed, state.partials.lowest()
        progress.closed = last
        if first is not None:
            first += 1
        elif lowest is not None:
            first = grid.first_window(lowest)
        results = None if first is None else state.results(first, last)
        if results is None:
            return
        state.early.append(early_results(results, with_values=isinstance(self._slack, Quality)))
        coverage = state.controller.delays.coverage(k, grid.size)
        if arrivals.last:
            k, coverage = 0, 1.0
        start, count = results.windows.window * grid.every, len(results)
        end = start + grid.size
        self._counts.update(rows_out=count, latency_us=int(np.maximum(newest - end, 0).sum()))
        yield self._table(
            {
                names.KIND: [ROW] * count,
                **dict(zip(self._plan.summary.by, results.groups.values(), strict=True)),
                names.START: pa.array(start),
                names.END: pa.array(end),
                **results.values,
                names.RECORDS: results.records,
                names.COVERAGE: np.full(count, coverage),
                names.SLACK: np.full(count, k / 1e6),
                names.REVISION: np.zeros(count, np.int64),
            }
        )

    def _settle(self, state: BucketState, newest: int) -> None:
        """Evaluate the early results of windows that late records no longer change, and learn."""
        progress, grid, controller = state.progress, self._plan.grid, state.controller
        quality = self._slack if isinstance(self._slack, Quality) else None
        if progress.closed is None:
            return
        wait = max(controller.delays.largest, controller.k_us)
        last = min(grid.last_ended(newest - wait), progress.closed)
        first = state.early.lowest() if progress.settled is None else progress.settled + 1
        if first is None or last - first + 1 < grid.size // grid.every:
            return  # windows that overlap are evaluated together
        final, waits = state.results(first, last), None
        progress.settled = last
        if final is None:
            return
        if quality is not None and quality.calibrate and state.stats:
            share = required_coverage(self._plan.summary, quality, state.stats)
            arrived = state.arrivals.rows(*state.panes(first, last))
            if arrived is not None:
                windows = final.windows.window
                waits = required_waits(grid, arrived, windows, controller.required(share))
        found = evaluate(quality, state.early.rows(first, last), final, waits)
        if quality is not None:
            state.learn(found.stats)
            share = required_coverage(self._plan.summary, quality, state.stats)
            controller.settle(found.windows, share, newest, with_waits=waits is not None)
            self._gauges["required_coverage"] = controller.required(share)
        self._gauges["settled_coverage"] = found.early / max(1, found.records)
        self._counts.update(
            results_checked=found.results,
            results_above_eps=found.above,
            records_checked=found.records,
            records_early=found.early,
            **{f"above.{name}": count for name, count in found.above_by.items()},
        )
