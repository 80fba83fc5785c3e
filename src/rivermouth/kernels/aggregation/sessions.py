"""Sessions: windows that the records make, of which a pause of a stated length is the end.

A partial is a run of a group's records: its first and last time, and what is kept of it. Runs with
less than the gap between them are one run, so that partials merge in any order. A run whose records
are all there is a session.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numba
import numpy as np
import pyarrow as pa

from rivermouth.kernels.aggregation.accumulators import Ranges
from rivermouth.kernels.aggregation.lowering import RECORDS
from rivermouth.kernels.aggregation.panes import WindowLayout
from rivermouth.kernels.aggregation.plan import AggPlan, columns_of
from rivermouth.kernels.arrays import Bools, Ints
from rivermouth.kernels.state.groups import Groups, group, normalized
from rivermouth.spec import summaries as names
from rivermouth.spec.summaries import Summary
from rivermouth.spec.windows import Session

FIRST, LAST = "first", "last"


class SessionPlan(AggPlan):
    """How a summary of sessions is computed; as `AggPlan`, whose partials are of panes."""

    @property
    def gap(self) -> int:
        """The shortest pause between two sessions, in microseconds."""
        window = self.summary.window
        assert isinstance(window, Session)
        return window.gap_us

    @cached_property
    def grid(self) -> WindowLayout:
        """There is no grid; delays are told apart as finely as for windows as long as the gap."""
        return WindowLayout(self.gap, self.gap, self.gap)

    def _indexed(self, groups: Groups, times: Ints) -> tuple[Ints, Ints, dict[str, pa.Array]]:
        """The run of each row, the first row of each run, and where runs begin and end."""
        order = np.lexsort((times, groups.code))
        code, ordered = groups.code[order], times[order]
        begins = np.ones(len(order), bool)
        begins[1:] = (np.diff(code) != 0) | (np.diff(ordered) >= self.gap)
        index = np.empty(len(order), np.int64)
        index[order] = np.cumsum(begins) - 1
        low = np.flatnonzero(begins)
        last = ordered[np.append(low[1:], len(order)) - 1]
        return index, order[low], {FIRST: pa.array(ordered[low]), LAST: pa.array(last)}

    def merge(self, partials: pa.Table) -> pa.Table:
        """The same partials by group and time, those with less than the gap between them merged."""
        columns = [partials.column(key).combine_chunks() for key in self.keys]
        code = group(columns, partials.num_rows).code
        first, last = times_of(partials)
        order = np.lexsort((first, code))
        code, first, last = code[order], first[order], last[order]
        low = np.flatnonzero(_begins(code, first, last, self.gap))
        ordered = partials.combine_chunks().take(pa.array(order))
        merged = columns_of(ordered.select(self.keys).take(pa.array(low)))
        merged |= {FIRST: pa.array(first[low]), LAST: pa.array(np.maximum.reduceat(last, low))}
        for _, accumulator in self.accumulators:
            merged |= accumulator.merge(columns_of(ordered), low, np.append(low[1:], len(code)))
        return pa.table(merged)

    def session_rows(self, sessions: pa.Table) -> dict[str, pa.Array]:
        """The result's columns of merged sessions, as far as the records determine them."""
        first, last = times_of(sessions)
        at = np.arange(len(first))
        ranges = Ranges(columns_of(sessions), at, at + 1)
        groups = (sessions.column(key) for key in self.keys)
        return {
            **dict(zip(self.summary.by, groups, strict=True)),
            names.START: pa.array(first),
            names.END: pa.array(last + self.gap),
            **{name: each.lower(ranges) for name, each in self.lowerings.items()},
            names.RECORDS: normalized(sessions.column(RECORDS.name)),
        }

    def late(self, runs: pa.Table, sessions: pa.Table | None, closed: int, horizon: int) -> Bools:
        """Which of these runs, merged and just arrived, are late.

        Parameters
        ----------
        runs
            Runs that have arrived.
        sessions
            The sessions that are remembered: open ones, and closed ones that end after `horizon`.
        closed
            Sessions that end then or before have closed, also such as had no record.
        horizon
            Sessions that end then or before are forgotten.
        """
        first, last = times_of(runs)
        if sessions is None or not sessions.num_rows:
            return (last + self.gap <= closed) | (first < horizon)
        keys = [
            pa.concat_arrays([normalized(table.column(key)) for table in (runs, sessions)])
            for key in self.keys
        ]
        code = group(keys, runs.num_rows + sessions.num_rows).code
        arrived, known = code[: len(first)], code[len(first) :]
        known_first, known_last = times_of(sessions)
        order = np.lexsort((known_first, known))
        begins = np.searchsorted(known[order], arrived)
        return _late(
            begins, arrived, first, last,
            known[order], known_first[order], known_last[order], self.gap, closed, horizon,
        )  # fmt: skip


def plan_of(
    summary: Summary, types: Mapping[str, pa.DataType], with_stats: bool = False
) -> AggPlan:
    """The plan of a summary, whatever its windows; parameters as `AggPlan`."""
    kind = SessionPlan if isinstance(summary.window, Session) else AggPlan
    return kind(summary, types, with_stats)


def times_of(partials: pa.Table) -> tuple[Ints, Ints]:
    """The first and the last time of each partial."""
    first, last = (partials.column(name).to_numpy() for name in (FIRST, LAST))
    return first, last


@numba.njit(cache=True)
def _begins(code: Ints, first: Ints, last: Ints, gap: int) -> Bools:
    """Which partials, sorted by group and first time, begin a session."""
    begins = np.ones(len(code), np.bool_)
    end = 0
    for k in range(len(code)):
        if k and code[k] == code[k - 1] and first[k] < end:
            begins[k] = False
            end = max(end, last[k] + gap)
        else:
            end = last[k] + gap
    return begins


@numba.njit(cache=True)
def _late(
    begins: Ints, group_: Ints, first: Ints, last: Ints,
    code: Ints, known_first: Ints, known_last: Ints, gap: int, closed: int, horizon: int,
) -> Bools:  # fmt: skip
    """Which runs reach into a session that has closed, or end before without an open one.

    A run that ends later than `closed` and reaches into no session that closed lies behind all of
    them; so one reaches into a closed or forgotten session exactly if it begins before the last of
    them ends, unless it begins in an open one.
    """
    late = np.zeros(len(first), np.bool_)
    for i in range(len(first)):
        bound, is_inside, joins = horizon, False, False
        k = begins[i]
        while k < len(code) and code[k] == group_[i]:
            end = known_last[k] + gap
            if end <= closed:
                bound = max(bound, end)
            elif first[i] < end and known_first[k] < last[i] + gap:
                joins = True
                is_inside = is_inside or known_first[k] <= first[i]
            k += 1
        late[i] = (first[i] < bound and not is_inside) or (last[i] + gap <= closed and not joins)
    return late
