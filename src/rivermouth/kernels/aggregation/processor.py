"""What `aggregate` does in a bucket: partials in, results of windows that close out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, MutableMapping
from typing import Any

import numpy as np
import pyarrow as pa

from rivermouth.kernels.aggregation.evaluation import early_results, evaluate
from rivermouth.kernels.aggregation.lowering import RECORDS
from rivermouth.kernels.aggregation.plan import PANE, AggPlan
from rivermouth.kernels.aggregation.slots import Slots, partials_by_slot
from rivermouth.kernels.aggregation.state import BucketState
from rivermouth.kernels.aggregation.thresholds import required_coverage
from rivermouth.kernels.arrays import Ints
from rivermouth.kernels.state.bucketing import COUNT, OLDEST, REASON, Arrivals, encode, latest
from rivermouth.spec import summaries as names
from rivermouth.spec.slack import Quality, Slack

#: the values of the column ``kind``
ROW, LATE, FUTURE, REJECTED, PARTIALS = "row", "late", "future", "rejected", "partials"
CLOSED = "closed"  # no result: the last window that this bucket has closed


class AggregateProcessor:
    """The processor of `aggregate` in one bucket.

    Parameters
    ----------
    plan
        The summary and its columns' types.
    slack
        How long windows wait.
    schema
        The result's columns; with a column ``record`` late and rejected records are rows, too, and
        records come to the bucket (`AggregateRouter`). Otherwise partials do (`PartialsRouter`).
        With a column `PARTIALS` of bytes there are rows of the records' partials, for a store, and
        one of the kind `CLOSED`.
    idle_timeout
        Microseconds of wall clock without a record after which all windows close; None: never.
    """

    def __init__(
        self, plan: AggPlan, slack: Slack, schema: pa.Schema, idle_timeout: int | None = None
    ) -> None:
        self._plan, self._slack, self._schema = plan, slack, schema
        self._idle_timeout = idle_timeout
        self._with_records = names.RECORD in schema.names
        self._slots = Slots.of(plan.grid) if names.PARTIALS in schema.names else None
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
        if arrivals.sides[0] and self._with_records:
            rows = pa.concat_tables(arrivals.sides[0]).combine_chunks()
            yield from self._take_in_rows(state, rows)
        elif arrivals.sides[0]:
            times = pa.concat_tables(arrivals.times)
            oldest, count = (times.column(name).to_numpy() for name in (OLDEST, COUNT))
            self._take_in(state, self._plan.merged(arrivals.sides[0]), oldest, count)
        yield from self._reject(arrivals)
        progress = state.progress
        if arrivals.newest[0] is not None:
            progress.newest = latest(progress.newest, arrivals.newest[0])
            progress.heard = arrivals.now
        if progress.newest is not None:
            self._settle(state, progress.newest)
            yield from self._close(state, progress.newest, arrivals)
            if self._slots is not None:
                start = self._plan.grid.starts(progress.closed)
                yield self._table({names.KIND: [CLOSED], names.START: pa.array([start])})
            state.drop_settled()
            slack = state.controller.k_us
            self._gauges |= {"watermark": progress.newest - slack, "slack": slack / 1e6}
        if not arrivals.last:
            if isinstance(self._slack, Quality):
                self._gauges |= state.controller.promise(self._slack.delta)
            self._gauges["state"] = state.save()

    def _take_in_rows(self, state: BucketState, rows: pa.Table) -> Iterator[pa.Table]:
        """Take in records, and emit those that are late."""
        times, closed = self._plan.times(rows), state.progress.closed
        if closed is not None:
            pane = self._plan.grid.panes(times)
            late = self._plan.grid.first_window(pane) <= closed
            if late.any():
                yield self._records(rows.filter(pa.array(late)), [LATE] * int(late.sum()))
        partials = self._plan.lift(rows, times)
        if self._slots is not None:
            yield self._stored(partials, self._slots, closed)
        self._take_in(state, partials, times)

    def _take_in(
        self, state: BucketState, partials: pa.Table, times: Ints, count: Ints | None = None
    ) -> None:
        """Keep the partials, and remember the delays of their records.

        `times` are the records', `count` how many have each of them. All records of a pane have the
        same windows, so that they are late together.
        """
        grid, progress = self._plan.grid, state.progress
        pane, records = (partials.column(name).to_numpy() for name in (PANE, RECORDS.name))
        late, gone = np.zeros((2, len(pane)), bool)
        if progress.closed is not None:
            late = grid.first_window(pane) <= progress.closed
            gone = grid.last_window(pane) <= state.settled
        rows, late_rows = int(records.sum()), int(records[late].sum())
        self._counts.update(rows_in=rows, late=late_rows, on_time=rows - late_rows)
        newest = progress.newest
        if newest is not None:
            state.controller.delays.add(np.maximum(newest - times, 0), newest, count)
        learns = isinstance(self._slack, Quality) and self._slack.controller == "learned"
        if learns and progress.closed is not None:
            after = grid.first_window(pane) <= state.settled
            if after.any():
                missed = state.came_after_all(
                    partials.filter(pa.array(after)), self._missing(state)
                )
                self._counts.update(results_above_eps=missed)
        if gone.all():
            return
        if gone.any():
            partials = partials.filter(pa.array(~gone))
        state.partials.append(partials)
        if learns:
            state.replay_later(partials)

    def _missing(self, state: BucketState) -> float:
        """The share of a window's records that may be missing."""
        assert isinstance(self._slack, Quality)
        if not state.stats:
            return self._slack.eps
        return 1 - required_coverage(self._plan.summary, self._slack, state.stats)

    def _stored(self, partials: pa.Table, slots: Slots, closed: int | None) -> pa.Table:
        """What a store keeps of the partials that have come, a row for each slot of time."""
        found = partials_by_slot(slots, self._plan.without_stats(partials))
        rows = [encode(part, {"slot": slot, "closed": closed}) for slot, part in found]
        return self._table({names.KIND: [PARTIALS] * len(rows), names.PARTIALS: rows})

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
            last = grid.last_window(grid.panes(newest))  # nothing more is waited for
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
        start, end = grid.starts(results.windows.window), grid.ends(results.windows.window)
        count = len(results)
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
        final = state.results(first, last)
        progress.settled = last
        if final is None:
            return
        found = evaluate(quality, state.early.rows(first, last), final)
        if quality is not None:
            state.learn(found.stats)
            required = required_coverage(self._plan.summary, quality, state.stats)
            if quality.controller == "pd":
                self._gauges["required_coverage"] = required
                controller.settle(found.windows, required)
            else:
                controller.settle(found.windows)
                state.learn_wait(quality, found.windows, final, 1 - required)
        self._gauges["settled_coverage"] = found.early / max(1, found.records)
        self._counts.update(
            results_checked=found.results,
            results_above_eps=found.above,
            records_checked=found.records,
            records_early=found.early,
            **{f"above.{name}": count for name, count in found.above_by.items()},
        )
