"""A summary made ready to run: which partial aggregates are kept, and the results of windows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from rivermouth.kernels.aggregation.accumulators import Accumulator, PowerSums, Ranges
from rivermouth.kernels.aggregation.lowering import RECORDS, Lowering, lowering
from rivermouth.kernels.aggregation.panes import (
    WindowLayout,
    WindowRanges,
    partial_index,
    window_ranges,
)
from rivermouth.kernels.arrays import Ints
from rivermouth.kernels.state.groups import group
from rivermouth.spec import summaries as names
from rivermouth.spec.aggregates import Standard
from rivermouth.spec.summaries import Summary

PANE = "pane"
_POWERS = {"sum": 2, "mean": 2, "var": 4, "std": 4}  # that their required coverage depends on


@dataclass(frozen=True)
class AggPlan:
    """How a summary is computed of columns of known types.

    Parameters
    ----------
    summary
        The windows, groups and aggregates.
    types
        Those of the columns that the summary names.
    with_stats
        Whether the statistics of windows are kept, too, from which the required coverage follows.
    """

    summary: Summary
    types: Mapping[str, pa.DataType]
    with_stats: bool = False

    def __reduce__(self) -> tuple[object, ...]:
        return AggPlan, (self.summary, self.types, self.with_stats)  # without what is cached

    @cached_property
    def grid(self) -> WindowLayout:
        """The windows."""
        window = self.summary.window
        return WindowLayout(window.size_us, window.every_us, window.pane_us)

    @cached_property
    def lowerings(self) -> dict[str, Lowering]:
        """How each aggregate is computed."""
        return {
            name: lowering(name, each, self.summary.columns, self.types)
            for name, each in self.summary.aggregates
        }

    @cached_property
    def power_sums(self) -> dict[str, PowerSums]:
        """The accumulator of each column on whose statistics the required coverage depends."""
        powers: dict[str, int] = {}
        for _, each in self.summary.aggregates if self.with_stats else ():
            if isinstance(each, Standard) and each.column and each.kind in _POWERS:
                powers[each.column] = max(powers.get(each.column, 0), _POWERS[each.kind])
        at = self.summary.columns.index
        return {column: PowerSums(str(at(column)), most) for column, most in powers.items()}

    @cached_property
    def accumulators(self) -> tuple[tuple[str | None, Accumulator], ...]:
        """Each accumulator once, with the column it is lifted from; None for rows as such."""
        found: dict[tuple[str | None, Accumulator], None] = {(None, RECORDS): None}
        for name, each in self.summary.aggregates:
            found |= {(each.column, one): None for one in self.lowerings[name].accumulators}
        return (*found, *self.power_sums.items())

    @property
    def keys(self) -> list[str]:
        """The names of the group columns in partials."""
        return [f"by.{k}" for k in range(len(self.summary.by))]

    def schema(self, record: pa.DataType | None = None) -> pa.Schema:
        """The result's columns; with those of rejected records where their type is given."""
        time = self.types[self.summary.time]
        fields = [
            *((name, self.types[name]) for name in self.summary.by),
            (names.START, time),
            (names.END, time),
            *((name, lowering.dtype) for name, lowering in self.lowerings.items()),
            (names.RECORDS, pa.int64()),
            (names.COVERAGE, pa.float64()),
            (names.SLACK, pa.float64()),
            (names.REVISION, pa.int64()),
        ]
        if record is not None:
            more = [(names.RECORD, record), (names.REASON, pa.string())]
            fields = [(names.KIND, pa.string()), *fields, *more]
        return pa.schema(fields)

    def times(self, rows: pa.Table) -> Ints:
        """The event time of each row, in microseconds since 1970."""
        column = rows.column(self.summary.time).combine_chunks()
        return np.asarray(column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()))

    def lift(self, rows: pa.Table, times: Ints) -> pa.Table:
        """The partials of rows: one for each group and pane that they fall into."""
        columns = {name: rows.column(name).combine_chunks() for name in self.types}
        keys, pane = [columns[name] for name in self.summary.by], self.grid.panes(times)
        groups = group(keys, rows.num_rows)
        index, first = partial_index(groups.code, len(groups), pane)
        taken = (column.take(pa.array(first)) for column in keys)
        partials = dict(zip(self.keys, taken, strict=True)) | {PANE: pa.array(pane[first])}
        for name, accumulator in self.accumulators:
            column = pa.nulls(0) if name is None else columns[name]
            partials |= accumulator.lift(column, index, len(first))
        return pa.table(partials)

    def merge(self, partials: pa.Table) -> pa.Table:
        """The same partials, those of one group and pane merged."""
        code, ordered = self._sorted(partials)
        is_first = np.ones(len(code), bool)
        is_first[1:] = (np.diff(code) != 0) | (np.diff(ordered.column(PANE).to_numpy()) != 0)
        low = np.flatnonzero(is_first)
        merged = _columns(ordered.select([*self.keys, PANE]).take(pa.array(low)))
        for _, accumulator in self.accumulators:
            merged |= accumulator.merge(_columns(ordered), low, np.append(low[1:], len(code)))
        return pa.table(merged)

    def results(self, partials: pa.Table, first: int, last: int) -> WindowResults:
        """All windows from `first` to `last` that have a record."""
        code, ordered = self._sorted(partials)
        pane = ordered.column(PANE).to_numpy()
        return WindowResults(self, ordered, window_ranges(self.grid, code, pane, first, last))

    def _sorted(self, partials: pa.Table) -> tuple[Ints, pa.Table]:
        """The partials by group and pane, and the codes of their groups."""
        columns = [partials.column(key).combine_chunks() for key in self.keys]
        code = group(columns, partials.num_rows).code
        order = np.lexsort((partials.column(PANE).to_numpy(), code))
        if (order[1:] > order[:-1]).all():
            return code, partials
        return code[order], partials.combine_chunks().take(pa.array(order))


def _columns(table: pa.Table) -> dict[str, pa.ChunkedArray]:
    return dict(zip(table.column_names, table.columns, strict=True))


@dataclass(frozen=True)
class WindowResults:
    """Windows that have records, by group and window; values are computed when asked for."""

    plan: AggPlan
    partials: pa.Table
    windows: WindowRanges

    def __len__(self) -> int:
        return len(self.windows.window)

    @cached_property
    def ranges(self) -> Ranges:
        """The range of partials of each window."""
        return Ranges(_columns(self.partials), self.windows.low, self.windows.high)

    @cached_property
    def records(self) -> Ints:
        """How many records each window has."""
        return np.asarray(self.ranges.merged(RECORDS)[RECORDS.name])

    @cached_property
    def groups(self) -> dict[str, pa.ChunkedArray]:
        """The key columns of each window's group."""
        first = pa.array(self.windows.low)
        return {key: self.partials.column(key).take(first) for key in self.plan.keys}

    @cached_property
    def values(self) -> dict[str, pa.Array]:
        """Each aggregate of each window."""
        return {name: each.lower(self.ranges) for name, each in self.plan.lowerings.items()}
