"""What a correction writes: windows by all of their partials, where results have other records."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from rivermouth.kernels.aggregation.panes import WindowLayout, WindowRanges
from rivermouth.kernels.aggregation.plan import PANE, AggPlan, WindowResults
from rivermouth.kernels.arrays import Ints
from rivermouth.kernels.state.groups import group
from rivermouth.spec import summaries as names

WINDOW = "window"


def late_windows(plan: AggPlan, partials: Iterable[tuple[pa.Table, int]]) -> pa.Table:
    """The windows that had closed when these partials came: group and `WINDOW`, some repeatedly.

    Each table comes with the last window that was closed before it.
    """
    found = [_closed_windows(plan, table, closed) for table, closed in partials]
    return pa.concat_tables(found, promote_options="default")


def _closed_windows(plan: AggPlan, partials: pa.Table, closed: int) -> pa.Table:
    pane = partials.column(PANE).to_numpy()
    first, last = plan.grid.first_window(pane), np.minimum(plan.grid.last_window(pane), closed)
    count = np.maximum(last - first + 1, 0)
    row = np.repeat(np.arange(len(pane)), count)
    offset = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    groups = {key: partials.column(key).take(pa.array(row)) for key in plan.keys}
    return pa.table({**groups, WINDOW: pa.array(first[row] + offset)})


def differences(
    plan: AggPlan,
    partials: pa.Table,
    results: pa.Table,
    windows: tuple[int, int],
    *,
    affected: pa.Table | None = None,
) -> pa.Table:
    """The results of windows whose number of records is not that of the newest result.

    Parameters
    ----------
    plan
        What is computed.
    partials
        All partials of these windows' panes; others may be among them.
    results
        Earlier results of these windows, with the columns of `AggPlan.schema`; of several of one
        window the last row counts.
    windows
        The first and the last window.
    affected
        The only windows that are compared, with their groups (see `late_windows`); None: all.

    Returns
    -------
    pa.Table
        Rows with the columns of `AggPlan.schema`, of coverage 1 and with the next revision.
    """
    first, last = windows
    begin, end = plan.grid.pane_range(first, last)
    panes = partials.column(PANE).to_numpy()
    partials = partials.filter(pa.array((panes >= begin) & (panes < end)))
    if not partials.num_rows:
        return plan.schema().empty_table()
    truth = plan.results(partials, first, last)
    known = _keys_of_results(plan, results)
    keys = [_keys_of_truth(truth), known, *([] if affected is None else [affected])]
    codes = _codes(plan, keys)
    size = 1 + max((int(each.max()) for each in codes if len(each)), default=-1)
    records, revision = np.full(size, -1, np.int64), np.zeros(size, np.int64)
    records[codes[1]] = results.column(names.RECORDS).to_numpy()
    revision[codes[1]] = results.column(names.REVISION).to_numpy()
    wanted = np.ones(size, bool)
    if affected is not None:
        wanted[:] = False
        wanted[codes[2]] = True
    differs = wanted[codes[0]] & (records[codes[0]] != truth.records)
    if not differs.any():
        return plan.schema().empty_table()
    chosen = WindowRanges(*(each[differs] for each in truth.windows))
    changed = WindowResults(plan, truth.partials, chosen)
    return _rows(plan, changed, revision[codes[0]][differs] + 1)


def _keys_of_truth(truth: WindowResults) -> pa.Table:
    return pa.table({**truth.groups, WINDOW: pa.array(truth.windows.window)})


def _keys_of_results(plan: AggPlan, results: pa.Table) -> pa.Table:
    groups = {k: results.column(n) for k, n in zip(plan.keys, plan.summary.by, strict=True)}
    window = window_of(plan.grid, results.column(names.START))
    return pa.table({**groups, WINDOW: pa.array(window)})


def window_of(grid: WindowLayout, start: pa.ChunkedArray) -> Ints:
    """The number of each window, by its start."""
    return np.asarray(grid.starting(micros(start)))


def micros(times: pa.ChunkedArray) -> Ints:
    """Times in microseconds since 1970."""
    return np.asarray(times.cast(pa.timestamp("us", times.type.tz)).cast(pa.int64()))


def _codes(plan: AggPlan, tables: list[pa.Table]) -> list[Ints]:
    """One number for each group and window, the same in all tables."""
    columns = [
        pa.chunked_array([chunk for table in tables for chunk in table.column(name).chunks])
        if name == WINDOW
        else _united([table.column(name) for table in tables], plan.types[by])
        for name, by in zip([*plan.keys, WINDOW], [*plan.summary.by, ""], strict=True)
    ]
    rows = [table.num_rows for table in tables]
    code = group([column.combine_chunks() for column in columns], sum(rows)).code
    return np.split(code, np.cumsum(rows)[:-1])


def _united(columns: list[pa.ChunkedArray], dtype: pa.DataType) -> pa.ChunkedArray:
    return pa.chunked_array(
        [chunk for column in columns for chunk in column.cast(dtype).chunks], dtype
    )


def _rows(plan: AggPlan, truth: WindowResults, revision: Ints) -> pa.Table:
    window, count = truth.windows.window, len(truth)
    columns = {
        **dict(zip(plan.summary.by, truth.groups.values(), strict=True)),
        names.START: pa.array(plan.grid.starts(window)),
        names.END: pa.array(plan.grid.ends(window)),
        **truth.values,
        names.RECORDS: pa.array(truth.records),
        names.COVERAGE: pa.array(np.ones(count)),
        names.SLACK: pa.array(np.zeros(count)),
        names.REVISION: pa.array(revision),
    }
    return pa.Table.from_pydict(columns, plan.schema())
