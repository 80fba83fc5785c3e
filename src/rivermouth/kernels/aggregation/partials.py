"""Rows and entries of a summary: what is kept of records, and the answers that are read off it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rivermouth.kernels.aggregation.groups import group
from rivermouth.kernels.aggregation.panes import Grid, Spans, cells, spans
from rivermouth.kernels.aggregation.plan import RECORDS, Plan, Runs, plan
from rivermouth.spec.summaries import Summary

Ints = npt.NDArray[np.int64]

PANE = "pane"


@dataclass(frozen=True)
class Book:
    """A summary over columns of known types: how its records are kept and answered.

    `types` are those of the columns that the summary names; `shapes` asks for the windows' shape.
    """

    summary: Summary
    types: Mapping[str, pa.DataType]
    shapes: bool = False

    def __reduce__(self) -> tuple[object, ...]:
        return Book, (self.summary, self.types, self.shapes)  # what is cached is made anew

    @cached_property
    def grid(self) -> Grid:
        """The windows."""
        return Grid.of(self.summary.window)

    @cached_property
    def plan(self) -> Plan:
        """What is kept and how it is read."""
        return plan(self.summary, self.types, shapes=self.shapes)

    @property
    def keys(self) -> list[str]:
        """What the columns of groups are called in entries."""
        return [f"by.{k}" for k in range(len(self.summary.by))]

    def times(self, rows: pa.Table) -> Ints:
        """The event time of each row, in microseconds since 1970."""
        column = rows.column(self.summary.time).combine_chunks()
        return np.asarray(column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()))

    def lift(self, rows: pa.Table, times: Ints) -> pa.Table:
        """The entries of rows: one for each group and pane that they fall into."""
        columns = [rows.column(name).combine_chunks() for name in self.summary.by]
        groups, pane = group(columns, rows.num_rows), self.grid.panes(times)
        found = cells(groups.code, len(groups), pane)
        first = pa.array(found.first)
        return pa.table(
            {
                **{key: col.take(first) for key, col in zip(self.keys, columns, strict=True)},
                PANE: pane[found.first],
                **self.plan.lift(rows, found.place, len(found.first)),
            }
        )

    def merge(self, entries: pa.Table) -> pa.Table:
        """The same entries, those of one group and pane put together."""
        code, ordered = self._sorted(entries)
        pane = ordered.column(PANE).to_numpy()
        new = np.ones(len(code), bool)
        new[1:] = (np.diff(code) != 0) | (np.diff(pane) != 0)
        low = np.flatnonzero(new)
        kept = self.plan.fold(_columns(ordered), low, np.append(low[1:], len(code)))
        heads = ordered.select([*self.keys, PANE]).take(pa.array(low))
        return pa.table({**_columns(heads), **kept})

    def answers(self, entries: pa.Table, first: int, last: int) -> Answers:
        """All windows from `first` to `last` that have a record."""
        code, ordered = self._sorted(entries)
        found = spans(self.grid, code, ordered.column(PANE).to_numpy(), first, last)
        return Answers(self, ordered, found)

    def _sorted(self, entries: pa.Table) -> tuple[Ints, pa.Table]:
        """The entries by group and pane, and the numbers of their groups."""
        columns = [entries.column(key).combine_chunks() for key in self.keys]
        code = group(columns, entries.num_rows).code
        order = np.lexsort((entries.column(PANE).to_numpy(), code))
        if (order[1:] > order[:-1]).all():
            return code, entries
        return code[order], entries.combine_chunks().take(pa.array(order))


def _columns(table: pa.Table) -> dict[str, pa.ChunkedArray]:
    return dict(zip(table.column_names, table.columns, strict=True))


@dataclass(frozen=True)
class Answers:
    """Windows that have records, by group and window; what is asked of them is computed then."""

    book: Book
    entries: pa.Table
    spans: Spans

    def __len__(self) -> int:
        return len(self.spans.window)

    @cached_property
    def runs(self) -> Runs:
        """The run of entries of each window."""
        return Runs(_columns(self.entries), self.spans.low, self.spans.high)

    @cached_property
    def records(self) -> Ints:
        """How many records each window has."""
        count = self.entries.column(RECORDS).to_numpy()
        ahead = np.zeros(len(count) + 1, np.int64)
        np.cumsum(count, out=ahead[1:])
        return ahead[self.spans.high] - ahead[self.spans.low]

    @cached_property
    def groups(self) -> pa.Table:
        """The key of each window's group."""
        return self.entries.select(self.book.keys).take(pa.array(self.spans.low))

    @cached_property
    def values(self) -> dict[str, pa.Array]:
        """Each aggregate of each window."""
        return self.book.plan.answers(self.runs)
