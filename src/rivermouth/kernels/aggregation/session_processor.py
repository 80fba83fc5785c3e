"""What `aggregate` does in a bucket with sessions: runs of records in, sessions that close out.

A session closes when the largest event time seen, less K, reaches its end. Runs that arrive are
appended to the state; those of open sessions, and of closed ones as long as a late record may
reach into them, are merged in memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, MutableMapping
from typing import Any

import numpy as np
import pyarrow as pa

from rivermouth.kernels.aggregation.control import SlackController
from rivermouth.kernels.aggregation.lowering import RECORDS
from rivermouth.kernels.aggregation.plan import AggPlan
from rivermouth.kernels.aggregation.processor import LATE, ROW, AggregateProcessor
from rivermouth.kernels.aggregation.sessions import LAST, SessionPlan, times_of
from rivermouth.kernels.aggregation.state import Progress
from rivermouth.kernels.arrays import Floats, Ints
from rivermouth.kernels.state.bucketing import COUNT, OLDEST, Arrivals, latest
from rivermouth.kernels.state.segments import Segments
from rivermouth.spec import summaries as names
from rivermouth.spec.slack import Slack

_META, _SESSIONS = "meta", "sessions"
_BEFORE = -(1 << 62)  # earlier than all event times
_SPARE = 256  # rows of the state that are not worth rewriting it


class SessionProcessor(AggregateProcessor):
    """The processor of `aggregate` with sessions in one bucket; `slack` promises no quality."""

    def __init__(
        self, plan: SessionPlan, slack: Slack, schema: pa.Schema, idle_timeout: int | None = None
    ) -> None:
        super().__init__(plan, slack, schema, idle_timeout)
        self._sessions = plan

    def process(
        self, store: MutableMapping[str, bytes], arrivals: Arrivals, cache: dict[str, Any]
    ) -> Iterator[pa.Table]:
        """Take in what has arrived; emit sessions that close, and late and rejected records."""
        state = SessionState(self._sessions, self._slack, store, cache)
        if arrivals.sides[0]:
            yield from self._take_in_runs(state, arrivals)
        yield from self._reject(arrivals)
        progress = state.progress
        if arrivals.newest[0] is not None:
            progress.newest = latest(progress.newest, arrivals.newest[0])
            progress.heard = arrivals.now
        if progress.newest is not None:
            yield from self._close_sessions(state, progress.newest, arrivals)
            slack = state.controller.k_us
            self._gauges |= {"watermark": progress.newest - slack, "slack": slack / 1e6}
        if not arrivals.last:
            self._gauges["state"] = {"entries": state.save(), "unchecked": 0}

    def _take_in_runs(self, state: SessionState, arrivals: Arrivals) -> Iterator[pa.Table]:
        """Keep the runs that are on time, remember delays, and emit the records that are late."""
        plan, progress, rows = self._sessions, state.progress, None
        if self._with_records:
            rows = pa.concat_tables(arrivals.sides[0]).combine_chunks()
            times, count = plan.times(rows), None
            runs, index = plan.lift_indexed(rows, times)
        else:
            both = pa.concat_tables(arrivals.times)
            times, count = (both.column(name).to_numpy() for name in (OLDEST, COUNT))
            runs = plan.merged(arrivals.sides[0])
        records = runs.column(RECORDS.name).to_numpy()
        late = np.zeros(len(records), bool)
        if progress.closed is not None:
            late = plan.late(runs, state.sessions, progress.closed, state.horizon)
        count_in, count_late = int(records.sum()), int(records[late].sum())
        self._counts.update(rows_in=count_in, late=count_late, on_time=count_in - count_late)
        if progress.newest is not None:
            delays = np.maximum(progress.newest - times, 0)
            state.controller.delays.add(delays, progress.newest, count)
        if not late.all():
            state.add(runs.filter(pa.array(~late)) if late.any() else runs)
        if rows is not None and late.any():
            is_late = late[index]
            yield self._records(rows.filter(pa.array(is_late)), [LATE] * int(is_late.sum()))

    def _close_sessions(
        self, state: SessionState, newest: int, arrivals: Arrivals
    ) -> Iterator[pa.Table]:
        """Emit the sessions that close now."""
        progress, k, gap = state.progress, state.controller.k_us, self._sessions.gap
        until, timeout = newest - k, self._idle_timeout
        if arrivals.last or (timeout is not None and arrivals.now - progress.heard >= timeout):
            until = newest + gap  # nothing more is waited for
        before = _BEFORE if progress.closed is None else progress.closed
        progress.closed = max(before, until)
        closing = state.ending(before, progress.closed)
        state.forget(min(progress.closed, newest - state.controller.delays.largest) - gap)
        if closing is None:
            return
        columns, count = self._sessions.session_rows(closing), closing.num_rows
        first, last = times_of(closing)
        coverage = _coverage(state.controller, k + gap, last - first)
        if arrivals.last:
            k, coverage = 0, np.ones(count)
        late = np.maximum(newest - last - gap, 0)
        self._counts.update(rows_out=count, latency_us=int(late.sum()))
        yield self._table(
            {
                names.KIND: [ROW] * count,
                **columns,
                names.COVERAGE: coverage,
                names.SLACK: np.full(count, k / 1e6),
                names.REVISION: np.zeros(count, np.int64),
            }
        )


def processor_of(
    plan: AggPlan, slack: Slack, schema: pa.Schema, idle_timeout: int | None = None
) -> AggregateProcessor:
    """The processor of a plan; parameters as `AggregateProcessor`."""
    if isinstance(plan, SessionPlan):
        return SessionProcessor(plan, slack, schema, idle_timeout)
    return AggregateProcessor(plan, slack, schema, idle_timeout)


def _coverage(controller: SlackController, wait: int, length: Ints) -> Floats:
    """The share of each session's records that `wait` after its last lets in, by recent delays."""
    sizes, index = np.unique(np.maximum(length, 1), return_inverse=True)
    shares = [controller.delays.coverage(wait, size) for size in sizes.tolist()]
    return np.array(shares, float)[index]


class SessionState:
    """A bucket's state while a micro-batch is processed.

    `progress.closed` and `progress.settled` are times here: sessions that end then or before have
    closed, or are forgotten.
    """

    def __init__(
        self,
        plan: SessionPlan,
        slack: Slack,
        store: MutableMapping[str, bytes],
        cache: dict[str, Any],
    ) -> None:
        self._plan, self._store, self._cache = plan, store, cache
        kept = json.loads(store[_META]) if _META in store else {}
        self.progress = Progress(**kept.get("position", {}))
        self.controller = SlackController.of(slack, kept.get("control"))
        self._runs = Segments(
            store, "r", LAST, kept=kept.get("runs"), cache=cache.setdefault("runs", {}),
            merge=plan.merge,
        )  # fmt: skip
        if _SESSIONS not in cache:
            tables = [table for _, table in self._runs.tables()]
            whole = plan.merge(_united(tables)) if tables else None
            cache[_SESSIONS] = None if whole is None else self._after(whole, self.horizon)

    @property
    def sessions(self) -> pa.Table | None:
        """All sessions that are not forgotten, merged."""
        found: pa.Table | None = self._cache[_SESSIONS]
        return found

    @property
    def horizon(self) -> int:
        """Sessions that end then or before are forgotten."""
        return _BEFORE if self.progress.settled is None else self.progress.settled

    def add(self, runs: pa.Table) -> None:
        """Keep these runs."""
        self._runs.append(runs)
        known = self.sessions
        tables = [runs] if known is None else [known, runs]
        self._cache[_SESSIONS] = self._plan.merge(_united(tables))

    def ending(self, after: int, until: int) -> pa.Table | None:
        """The sessions that end in (after, until], None where there are none."""
        if self.sessions is None:
            return None
        end = times_of(self.sessions)[1] + self._plan.gap
        chosen = (end > after) & (end <= until)
        return self.sessions.filter(pa.array(chosen)).combine_chunks() if chosen.any() else None

    def forget(self, horizon: int) -> None:
        """Drop the sessions that end at `horizon` or before."""
        self.progress.settled = max(self.horizon, horizon)
        if self.sessions is not None:
            self._cache[_SESSIONS] = self._after(self.sessions, self.horizon)

    def save(self) -> int:
        """Write what is not yet in the store; how many sessions there are."""
        count = 0 if self.sessions is None else self.sessions.num_rows
        if len(self._runs) > 2 * count + _SPARE:  # most runs are merged or forgotten
            self._runs.clear()
            if self.sessions is not None:
                self._runs.append(self.sessions)
        self._runs.drop_below(_BEFORE)  # merges segments where there are many
        kept = {
            "position": vars(self.progress),
            "control": self.controller.kept(),
            "runs": self._runs.kept(),
        }
        self._store[_META] = json.dumps(kept).encode()
        return count

    def _after(self, sessions: pa.Table, horizon: int) -> pa.Table | None:
        kept = times_of(sessions)[1] + self._plan.gap > horizon
        if kept.all():
            return sessions
        return sessions.filter(pa.array(kept)).combine_chunks() if kept.any() else None


def _united(tables: list[pa.Table]) -> pa.Table:
    return pa.concat_tables(tables, promote_options="default").combine_chunks()
