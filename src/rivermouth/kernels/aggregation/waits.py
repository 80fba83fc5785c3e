"""How long windows would have had to wait: their records replayed in the order of arrival.

Until a window settles its partials are kept by when they came. Then its result can be computed as
of each arrival, for every kind of aggregate, and compared with the final one: the needed wait is
the shortest with which the error would have been below eps, and would have stayed there.

Of many groups a sample is replayed, and of windows that overlap much only every n-th. Of a window
that has settled only the number of its records is kept: if more come after all its error is not
known, and it counts as missed when they are more than the required coverage lets be missing.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from rivermouth.errors import RivermouthError
from rivermouth.kernels.aggregation.evaluation import (
    EARLY,
    WINDOW,
    as_doubles,
    matched,
    result_errors,
)
from rivermouth.kernels.aggregation.lowering import RECORDS as _COUNT
from rivermouth.kernels.aggregation.panes import WindowLayout, WindowRanges
from rivermouth.kernels.aggregation.plan import PANE, AggPlan, WindowResults
from rivermouth.kernels.arrays import Bools, Floats, Ints
from rivermouth.kernels.state.groups import buckets, group, normalized
from rivermouth.spec.slack import Quality

#: the column of the newest event time before a partial came
CLOCK = "clock"
#: the columns of needed waits in the state besides the window's: the group's hash, microseconds,
#: the share of the window's results that were missed, and how many records it had; rows of
#: records that came after all have the wait that they needed, and null for missed
GROUP, WAIT, MISSED, RECORDS = "group", "wait", "missed", "records"
_SCHEMA = pa.schema(
    [(WINDOW, pa.int64()), (GROUP, pa.int64()), (WAIT, pa.int64()), (MISSED, pa.float64()),
     (RECORDS, pa.int64())]
)  # fmt: skip

_HASHES = (1 << 31) - 1  # a prime: other remainders than those that chose the bucket
_GROUPS = 16  # that are replayed in a bucket
_OVERLAP = 10  # windows that share a record and are replayed


def stride(grid: WindowLayout) -> int:
    """Every so many windows one is replayed."""
    return -(-grid.size // (grid.every * _OVERLAP))


def overlap(grid: WindowLayout) -> int:
    """How many replayed windows share a record."""
    return max(1, grid.size // (grid.every * stride(grid)))


def sample(plan: AggPlan, partials: pa.Table, bound: int | None) -> tuple[pa.Table, int | None]:
    """The partials of groups that are replayed, and the bound of their hashes, which only falls.

    Those are the groups with the smallest hashes, so that a group stays in the sample or leaves it
    for good. None as a bound: all groups.
    """
    if not plan.keys:
        return partials, None
    hashes = _hashes(plan, partials)
    if bound is not None:
        partials, hashes = partials.filter(pa.array(hashes <= bound)), hashes[hashes <= bound]
    if len(distinct := np.unique(hashes)) <= _GROUPS:
        return partials, bound
    bound = int(distinct[_GROUPS - 1])
    return partials.filter(pa.array(hashes <= bound)), bound


def _hashes(plan: AggPlan, rows: pa.Table) -> Ints:
    keys = [normalized(rows.column(key)) for key in plan.keys]
    return buckets(keys, rows.num_rows, _HASHES).astype(np.int64)


def with_clock(grid: WindowLayout, partials: pa.Table, newest: int) -> pa.Table:
    """Partials that came when this was the newest event time.

    What came before its pane's end was in time for any wait.
    """
    in_time = grid.start + (partials.column(PANE).to_numpy() + 1) * grid.pane - 1
    return partials.append_column(CLOCK, pa.array(np.maximum(newest, in_time)))


def merge(plan: AggPlan, arrived: pa.Table) -> pa.Table:
    """The same arrivals, those of one group, pane and time merged."""
    places = np.stack([arrived.column(name).to_numpy() for name in (PANE, CLOCK)])
    both, number = np.unique(places, axis=1, return_inverse=True)
    partials = arrived.drop_columns([CLOCK])
    at = partials.column_names.index(PANE)
    merged = plan.merge(partials.set_column(at, PANE, pa.array(number.ravel())))
    of = merged.column(PANE).to_numpy()
    return merged.set_column(at, PANE, pa.array(both[0, of])).append_column(
        CLOCK, pa.array(both[1, of])
    )


def needed_waits(
    plan: AggPlan, slack: Quality, arrived: pa.Table, final: WindowResults, shares: dict[int, float]
) -> pa.Table:
    """Windows of `final`, in order, and the wait that each needed; `shares` of them were missed.

    A window is there once for each group whose arrivals are all known. The wait is the least K with
    which it would still have been open when its error fell below eps for good; 0 where it was at
    the window's end.
    """
    first, last = int(final.windows.window.min()), int(final.windows.window.max())
    replayed = plan.results(arrived, first, last)
    known = pa.table({**final.groups, WINDOW: final.windows.window, EARLY: final.records})
    records, _ = matched(known, replayed)
    chosen = (records == replayed.records) & (replayed.windows.window % stride(plan.grid) == 0)
    windows = WindowRanges(*(part[chosen] for part in replayed.windows))
    if not len(windows.window):
        return _SCHEMA.empty_table()
    try:
        waits = _needed_waits(plan, slack, replayed.partials, windows)
    except RivermouthError:  # a sum that fits only once all records are there
        return _SCHEMA.empty_table()
    groups = _hashes(plan, pa.table({WINDOW: replayed.windows.window, **replayed.groups}))[chosen]
    missed = np.array([shares[window] for window in windows.window.tolist()])
    columns = (windows.window, groups, waits, missed, records[chosen])
    order = np.argsort(windows.window, kind="stable")
    return pa.table([pa.array(column[order]) for column in columns], _SCHEMA)


def came_after_all(plan: AggPlan, partials: pa.Table, settled: int, newest: int) -> pa.Table:
    """Rows for the windows up to `settled` of partials that came when they had settled."""
    grid, pane = plan.grid, partials.column(PANE).to_numpy()
    first, last = grid.first_window(pane), np.minimum(grid.last_window(pane), settled)
    count = np.maximum(last - first + 1, 0)
    of = np.repeat(np.arange(len(count)), count)
    window = first[of] + np.arange(len(of)) - np.repeat(np.cumsum(count) - count, count)
    chosen = window % stride(grid) == 0
    of, window = of[chosen], window[chosen]
    wait = np.maximum(newest - grid.ends(window) + 1, 0)
    records = partials.column(_COUNT.name).to_numpy()[of]
    columns = (window, _hashes(plan, partials)[of], wait, np.full(len(of), np.nan), records)
    return pa.table([pa.array(column, from_pandas=True) for column in columns], _SCHEMA)


def revised(rows: pa.Table, missing: float) -> tuple[Ints, Ints, Floats]:
    """The windows in order, the wait that each needed, and the share of it that was missed.

    Where more than the share `missing` of a window's records came after all, it was missed.
    """
    window, group_, wait, records = (
        rows.column(name).to_numpy() for name in (WINDOW, GROUP, WAIT, RECORDS)
    )
    missed = np.asarray(rows.column(MISSED).to_numpy(), np.float64)
    codes = group([pa.array(window), pa.array(group_)], len(window))
    code, count = codes.code, len(codes)
    late = np.isnan(missed)
    total = np.bincount(code, records, count)
    needed, share = np.zeros(count, np.int64), np.full(count, np.nan)
    needed[code[~late]], share[code[~late]] = wait[~late], missed[~late]
    order = np.flatnonzero(late)
    order = order[np.lexsort((-wait[order], code[order]))]  # the last first
    after = np.cumsum(records[order])
    is_first = np.ones(len(order), bool)
    is_first[1:] = np.diff(code[order]) != 0
    after = after - np.repeat(  # what came then or later, of the same window
        (after - records[order])[is_first], np.diff(np.append(np.flatnonzero(is_first), len(order)))
    )
    order = order[after > missing * total[code[order]]]
    np.maximum.at(needed, code[order], wait[order])
    share[code[order]] = np.where(np.isnan(share[code[order]]), np.nan, 1.0)
    window = window[codes.first]
    known = np.flatnonzero(~np.isnan(share))  # others have left the memory
    known = known[np.argsort(window[known], kind="stable")]
    return window[known], needed[known], share[known]


def _needed_waits(plan: AggPlan, slack: Quality, arrived: pa.Table, windows: WindowRanges) -> Ints:
    count = windows.high - windows.low
    of = np.repeat(np.arange(len(count)), count)
    high = np.cumsum(count)
    row = np.arange(len(of)) + np.repeat(windows.low - (high - count), count)
    end = plan.grid.ends(windows.window)[of]
    wait = np.maximum(arrived.column(CLOCK).to_numpy()[row] - end + 1, 0)
    order = np.lexsort((wait, of))
    of, wait, taken = of[order], wait[order], arrived.take(pa.array(row[order]))

    is_last = np.ones(len(of), bool)  # of those that came together
    is_last[:-1] = (np.diff(of) != 0) | (np.diff(wait) != 0)
    stop, of_step = np.flatnonzero(is_last) + 1, of[is_last]
    begin = (high - count)[of_step]

    def results(until: Ints) -> WindowResults:
        ranges = WindowRanges(windows.group[of_step], windows.window[of_step], begin, until)
        return WindowResults(plan, taken, ranges)

    missed = _missed(slack, results(stop), results(high[of_step]))
    # a result that was missed before a step needed the wait of that step
    needed = np.zeros(len(count), np.int64)
    is_first = np.ones(len(of_step), bool)
    is_first[1:] = np.diff(of_step) != 0
    before = np.concatenate([[True], missed[:-1]]) | is_first
    np.maximum.at(needed, of_step[before], wait[stop - 1][before])
    return needed


def _missed(slack: Quality, early: WindowResults, final: WindowResults) -> Bools:
    """Which early results have an error of eps or more in some aggregate."""
    values = {
        name: column if pa.types.is_list(column.type) else as_doubles(column)
        for name, column in early.values.items()
    }
    errors = result_errors(slack, values, final)
    return np.asarray(np.any([error >= slack.eps for error in errors.values()], axis=0))
