"""The columns of a summary's results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from rivermouth.kernels.aggregation.partials import Book
from rivermouth.spec import summaries as names


@dataclass(frozen=True)
class Output:
    """The result's columns: those of `schema`; with a column ``record``, late records come, too."""

    schema: pa.Schema

    @classmethod
    def of(cls, book: Book, record: pa.DataType | None = None) -> Output:
        """The columns of a summary's results; with late records where their type is given."""
        types, summary = book.types, book.summary
        time = types[summary.time]
        fields = [
            *((name, types[name]) for name in summary.by),
            (names.START, time),
            (names.END, time),
            *((field.name, field.type) for field in book.plan.results),
            (names.RECORDS, pa.int64()),
            (names.COVERAGE, pa.float64()),
            (names.SLACK, pa.float64()),
            (names.REVISION, pa.int64()),
        ]
        if record is not None:
            more = [(names.RECORD, record), (names.REASON, pa.string())]
            fields = [(names.KIND, pa.string()), *fields, *more]
        return cls(pa.schema(fields))

    @property
    def with_records(self) -> bool:
        """Whether late records and such as were set aside are rows of the result."""
        return names.RECORD in self.schema.names

    def table(self, columns: dict[str, Any], rows: int) -> pa.Table:
        """A table of these columns; the others are null."""
        arrays = [
            _in_one(columns[field.name], field.type)
            if field.name in columns
            else pa.nulls(rows, field.type)
            for field in self.schema
        ]
        return pa.table(arrays, schema=self.schema)


def _in_one(column: Any, kind: pa.DataType) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    array = column if isinstance(column, pa.Array) else pa.array(column)
    return array if array.type == kind else array.cast(kind)
