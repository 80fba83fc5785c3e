"""A table in PostgreSQL as a source of rows, and as a store that answers conditions itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from psycopg import sql

from rivermouth.spec.conditions import Condition, Nearest, split
from rivermouth.tables.postgresql.access import Access
from rivermouth.tables.postgresql.catalog import Description, describe, parts_of
from rivermouth.tables.postgresql.connections import Connection, run
from rivermouth.tables.postgresql.records import records_of
from rivermouth.tables.postgresql.statements import is_on_sphere, spot_of, statement

_ROWS = 50_000  # fetched at a time


@dataclass(frozen=True, repr=False)
class PostgresTable:
    """The rows of a table or view, by primary key, or else in the order in which they lie."""

    access: Access
    table: str

    def __post_init__(self) -> None:
        parts_of(self.table)

    def __repr__(self) -> str:
        return f"PostgresTable({self.table!r} of {self.access.shown})"

    @property
    def name(self) -> str:
        """The table's name, as it was given."""
        return self.table

    @property
    def identity(self) -> str:
        """Server, database, user (whose search path may decide) and table; no password."""
        return f"postgres:{self.access.shown}/{self.table}"

    def schema(self) -> pa.Schema:
        """The columns as the server's catalog describes them now."""
        return self._describe().schema

    def read(self, columns: Sequence[str]) -> pa.Table:
        """All rows, these columns only, through a cursor.

        Of 1,000,000 rows with polygons, a binary cursor took 2.9 s of CPU time, COPY as CSV
        parsed by Arrow 4.3 s, binary COPY 5.0 s.
        """
        table = self._describe()
        schema = pa.schema([table.columns[name].field for name in columns])

        def fetch(connection: Connection) -> pa.Table:
            batches = []
            with connection.transaction(), connection.cursor("rivermouth", binary=True) as cursor:
                cursor.execute(_select(table, columns), [])
                while rows := cursor.fetchmany(_ROWS):
                    batches.append(_batch(schema, rows))
            return pa.Table.from_batches(batches, schema)

        return run(self.access, self._shown, fetch)

    def answer(
        self, condition: Condition, columns: Sequence[str], left: Mapping[str, pa.Array]
    ) -> tuple[npt.NDArray[np.int64], pa.Table]:
        """The rows that match each record, found by PostGIS, by one statement.

        Rows come by record, then in the table's order; for `nearest` by distance, equal ones in
        the table's order. Records and rows without a place (null, empty, not finite) match
        nothing, nor do records whose shape is not valid; a collection is sent as the union of its
        parts. Shapes of the table that are not valid are judged as PostGIS judges them, or are a
        `TableInvalid` where it cannot. If it has a GEOS older than 3.13, it may take a line that
        ends within a last digit of an edge for one that touches it, two lines that share a piece
        for lines that cross, and points or lines beside a polygon in one collection for others
        than they are.
        """
        equal, place, _ = split(condition)
        table = _known.get(self) or self._describe()
        schema = pa.schema([table.columns[name].field for name in columns])
        if isinstance(place, Nearest):
            schema = schema.append(pa.field("distance", pa.float64()))
        records = records_of(
            left,
            equal,
            place,
            table,
            srid=spot_of(place, table).srid if place else 0,
            on_sphere=is_on_sphere(place),
        )
        if not len(records.rows):
            return records.rows, schema.empty_table()
        text, parameters = statement(table, equal, place, columns, records)

        def ask(connection: Connection) -> list[tuple[Any, ...]]:
            with connection.cursor(binary=True) as cursor:
                return cursor.execute(text, parameters).fetchall()

        rows = run(self.access, self._shown, ask)
        places = np.fromiter((row[0] for row in rows), np.int64, len(rows))
        found = _batch(schema, [row[1:] for row in rows])
        return records.rows[places - 1], pa.Table.from_batches([found])

    @property
    def _shown(self) -> str:
        return f"table {self.table!r}"

    def _describe(self) -> Description:
        described = run(self.access, self._shown, lambda found: describe(found, self.table))
        _known[self] = described
        return described


#: tables as they were last described in this process, so that an answer takes one statement
_known: dict[PostgresTable, Description] = {}


def _select(table: Description, columns: Sequence[str]) -> sql.Composed:
    read = sql.SQL(", ").join([table.columns[name].read("t") for name in columns])
    chosen = sql.SQL("SELECT {} FROM {} AS t").format(read, table.relation)
    order = table.ordered("t")
    return chosen + sql.SQL(" ORDER BY {}").format(sql.SQL(", ").join(order)) if order else chosen


def _batch(schema: pa.Schema, rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True) if rows else ([] for _ in schema)
    arrays = [pa.array(values, field.type) for field, values in zip(schema, columns, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
