"""A summary made ready to run: which partial aggregates are kept, and the results of windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from rivermouth.kernels.state.groups import Groups, group
from rivermouth.spec import summaries as names
from rivermouth.spec.aggregates import Standard
from rivermouth.spec.preferences import Preference
from rivermouth.spec.summaries import Summary
from rivermouth.spec.windows import Window

#: what an accumulator is lifted from: a column, several as structs, or None for rows as such
Lifted = str | tuple[str, ...] | None

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
        return type(self), (self.summary, self.types, self.with_stats)  # without what is cached

    @cached_property
    def grid(self) -> WindowLayout:
        """The windows."""
        window = self.summary.window
        assert isinstance(window, Window)
        return WindowLayout(window.size_us, window.every_us, window.pane_us, window.start_us)

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
    def accumulators(self) -> tuple[tuple[Lifted, Accumulator], ...]:
        """Each accumulator once, with what it is lifted from."""
        found: dict[tuple[Lifted, Accumulator], None] = {(None, RECORDS): None}
        for name, each in self.summary.aggregates:
            of = each.kept if isinstance(each, Preference) else each.column
            found |= {(of, one): None for one in self.lowerings[name].accumulators}
        return (*found, *self.power_sums.items())

    @property
    def keys(self) -> list[str]:
        """The names of the group columns in partials."""
        return [f"by.{k}" for k in range(len(self.summary.by))]

    def without_stats(self, partials: pa.Table) -> pa.Table:
        """The columns of partials that results need."""
        empty = np.zeros(0, np.int64)
        stats = {
            name
            for column, sums in self.power_sums.items()
            for name in sums.lift(pa.array([], self.types[column]), empty, 0)
        }
        return partials.select([name for name in partials.column_names if name not in stats])

    def schema(self, record: pa.DataType | None = None, *, partials: bool = False) -> pa.Schema:
        """The result's columns; with those of rejected records where their type is given.

        `partials` adds a column for encoded partials, which a store keeps.
        """
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
        if partials:
            fields.append((names.PARTIALS, pa.binary()))
        return pa.schema(fields)

    def times(self, rows: pa.Table) -> Ints:
        """The event time of each row, in microseconds since 1970."""
        column = rows.column(self.summary.time).combine_chunks()
        return np.asarray(column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()))

    def lift(self, rows: pa.Table, times: Ints) -> pa.Table:
        """The partials of rows: one for each group and pane that they fall into."""
        return self.lift_indexed(rows, times)[0]

    def lift_indexed(self, rows: pa.Table, times: Ints) -> tuple[pa.Table, Ints]:
        """The partials of rows, and the partial of each row."""
        columns = {name: rows.column(name).combine_chunks() for name in self.types}
        keys = [columns[name] for name in self.summary.by]
        index, first, places = self._indexed(group(keys, rows.num_rows), times)
        taken = (column.take(pa.array(first)) for column in keys)
        partials = dict(zip(self.keys, taken, strict=True)) | places
        for of, accumulator in self.accumulators:
            partials |= accumulator.lift(_lifted(of, columns), index, len(first))
        return pa.table(partials), index

    def _indexed(self, groups: Groups, times: Ints) -> tuple[Ints, Ints, dict[str, pa.Array]]:
        """The partial of each row, the first row of each partial, and where partials lie."""
        pane = self.grid.panes(times)
        index, first = partial_index(groups.code, len(groups), pane)
        return index, first, {PANE: pa.array(pane[first])}

    def merged(self, tables: Sequence[pa.Table]) -> pa.Table:
        """The partials of several tables as one, in which each group and pane is once."""
        if len(tables) == 1:
            return tables[0]
        return self.merge(pa.concat_tables(tables, promote_options="default").combine_chunks())

    def merge(self, partials: pa.Table) -> pa.Table:
        """The same partials, those of one group and pane merged."""
        code, ordered = self._sorted(partials)
        is_first = np.ones(len(code), bool)
        is_first[1:] = (np.diff(code) != 0) | (np.diff(ordered.column(PANE).to_numpy()) != 0)
        low = np.flatnonzero(is_first)
        merged = columns_of(ordered.select([*self.keys, PANE]).take(pa.array(low)))
        for _, accumulator in self.accumulators:
            merged |= accumulator.merge(columns_of(ordered), low, np.append(low[1:], len(code)))
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


def _lifted(of: Lifted, columns: Mapping[str, pa.Array]) -> pa.Array:
    """What an accumulator is lifted from."""
    if isinstance(of, tuple):
        return pa.StructArray.from_arrays([columns[name] for name in of], list(of))
    return pa.nulls(0) if of is None else columns[of]


def columns_of(table: pa.Table) -> dict[str, pa.ChunkedArray]:
    """The columns of a table by name."""
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
        return Ranges(columns_of(self.partials), self.windows.low, self.windows.high)

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
