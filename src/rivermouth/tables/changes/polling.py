"""A feed made of the table itself: the rows whose change column has grown since they were read.

The column says when a row was last changed, or is a number that each change makes larger. Rows are
read from `overlap` before the largest value seen, since a transaction may commit after one that
began later; rows that are as they were are no changes. What such a column cannot tell is a row
that is gone, unless another one marks it as deleted.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rivermouth.errors import ColumnError, missing_column
from rivermouth.spec.changes import Polling
from rivermouth.spec.filters import Comparison, Filter
from rivermouth.spec.identity import identity
from rivermouth.tables.changes.feed import ChangeBatch
from rivermouth.tables.source import Source
from rivermouth.tables.sources.table import Table

_WHERE = "changes.polling"


@dataclass(frozen=True)
class PollingFeed:
    """The rows of a table by its change column; a position is the largest value seen."""

    source: Table
    about: Polling

    @property
    def identity(self) -> str:
        """The table and the columns' names."""
        about = self.about
        return identity(
            feed="polling", table=self.source.identity, column=about.column, deleted=about.deleted
        )

    def check(self, schema: pa.Schema) -> None:
        """Whether the table has these columns, of types that can be followed."""
        for name in (self.about.column, *([self.about.deleted] if self.about.deleted else [])):
            if name not in schema.names:
                raise missing_column(_WHERE, name, schema.names, side="the table", by="it")
        kind = schema.field(self.about.column).type
        if not (pa.types.is_timestamp(kind) or pa.types.is_integer(kind)):
            raise ColumnError(
                _WHERE,
                f"column {self.about.column!r} is {kind}",
                todo="Name a column of timestamps or of whole numbers.",
            )
        if isinstance(self.about.overlap, float) != pa.types.is_timestamp(kind):
            raise ColumnError(
                _WHERE,
                f"overlap is {self.about.overlap} and column {self.about.column!r} is {kind}",
                todo="Give a length of time for timestamps, and a whole number for numbers.",
            )

    def start(self) -> Any:
        """The largest value of the change column."""
        return _told(pc.max(self.source.read([self.about.column])[self.about.column]).as_py())

    def table_at(self, position: Any) -> Source:
        """The table's rows without those that are marked as deleted."""
        if self.about.deleted is None:
            return cast(Source, self.source)
        return cast(Source, _Undeleted(self.source, self.about.deleted))

    def read(self, position: Any, columns: Sequence[str], limit: int) -> ChangeBatch:
        """All rows from `overlap` before a position on."""
        about, where = self.about, cast(Filter, ())
        if position is not None:
            where = (Comparison(about.column, ">=", _since(position, about.overlap)),)
        # of all rows: one that does not count any more is a change as well
        source = replace(cast(Any, self.source), where=where)
        more = [about.column, *([about.deleted] if about.deleted else [])]
        rows = source.read(list(dict.fromkeys([*columns, *more]))).combine_chunks()
        is_gone = np.zeros(rows.num_rows, dtype=bool)
        if about.deleted is not None:
            is_gone |= _is_deleted(rows[about.deleted])
        column = rows[about.column].combine_chunks()
        largest = _told(pc.max(column).as_py()) if rows.num_rows else None
        made = column if pa.types.is_timestamp(column.type) else None
        if made is not None:
            made = made.cast(pa.timestamp("us", made.type.tz))
            made = made if made.type.tz else made.cast(pa.timestamp("us", "UTC"))
        op = pa.array(np.where(is_gone, "delete", "upsert"), pa.string())
        after = position if largest is None else largest
        return ChangeBatch(op, rows.select(list(columns)), after, made, repeats=True)


@dataclass(frozen=True)
class _Undeleted:
    """A table without the rows that are marked as deleted."""

    source: Table
    deleted: str

    def read(self, columns: Sequence[str]) -> pa.Table:
        """All other rows."""
        rows = self.source.read(list(dict.fromkeys([*columns, self.deleted])))
        return rows.filter(pa.array(~_is_deleted(rows[self.deleted]))).select(list(columns))


def _is_deleted(column: pa.ChunkedArray) -> Any:
    """True, or anything that is not null where the column is not of booleans."""
    marked = column.fill_null(False) if pa.types.is_boolean(column.type) else column.is_valid()
    return marked.combine_chunks().to_numpy(zero_copy_only=False)


def _told(value: Any) -> Any:
    """A value of the change column as JSON has it; times in UTC say so."""
    return value.isoformat() if isinstance(value, dt.datetime) else value


def _since(position: Any, overlap: float | int) -> Any:
    if isinstance(position, str):
        return dt.datetime.fromisoformat(position) - dt.timedelta(seconds=overlap)
    return position - overlap
