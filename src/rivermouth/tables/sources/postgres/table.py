"""A table in PostgreSQL as a source of rows, and as a store that answers conditions itself."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from psycopg import ClientCursor, sql

from rivermouth.errors import DefinitionError, TableInvalid
from rivermouth.spec.conditions import Condition, Nearest, split
from rivermouth.spec.filters import Filter, shown
from rivermouth.tables.source import T
from rivermouth.tables.sources.naming import parts_of
from rivermouth.tables.sources.notebook import Shown
from rivermouth.tables.sources.postgres.access import WHERE, Access
from rivermouth.tables.sources.postgres.catalog import Description, describe
from rivermouth.tables.sources.postgres.connections import Connection, run, write
from rivermouth.tables.sources.postgres.fetching import arrays_of, copied, rows_of
from rivermouth.tables.sources.postgres.records import records_of
from rivermouth.tables.sources.postgres.selection import filtered
from rivermouth.tables.sources.postgres.statements import is_on_sphere, spot_of, statement
from rivermouth.tables.sources.postgres.wire import Changed, Endless, batch_of_rows
from rivermouth.tables.sources.postgres.writing import delete_rows, upsert_rows


@dataclass(frozen=True, repr=False)
class PostgresTable(Shown):
    """The rows of a table or view, by primary key, or else in the order in which they lie."""

    access: Access
    table: str
    where: Filter = ()

    def __post_init__(self) -> None:
        parts_of(self.table, where=WHERE)

    def __repr__(self) -> str:
        return f"PostgresTable({self.table!r} of {self.access.shown}{self._only})"

    @property
    def name(self) -> str:
        """The table's name, as it was given."""
        return self.table

    @property
    def identity(self) -> str:
        """Server, database, user (whose search path may decide), table and filter; no password."""
        return f"postgres:{self.access.shown}/{self.table}{self._only}"

    def schema(self) -> pa.Schema:
        """The columns as the server's catalog describes them now."""
        return self._describe().schema

    def read(self, columns: Sequence[str]) -> pa.Table:
        """All rows, these columns only."""
        return self.scan(columns, pa.Table.from_batches)

    def scan(self, columns: Sequence[str], use: Callable[[Iterator[pa.RecordBatch]], T]) -> T:
        """All rows, these columns only, by COPY in its binary form, as they come."""
        table = self._describe()
        schema = table.chosen(columns)

        def fetch(connection: Connection) -> T:
            text = ClientCursor(connection).mogrify(_copy(table, columns), table.parameters)
            return use(
                self._made(functools.partial(batch_of_rows, schema, rows))
                for rows in copied(connection, text)
            )

        return run(self.access, self._shown, fetch)

    def lookup(
        self, condition: Condition, columns: Sequence[str], left: Mapping[str, pa.Array]
    ) -> tuple[npt.NDArray[np.int64], pa.Table]:
        """The rows that match each record, found by PostgreSQL and PostGIS, by one statement.

        Rows come by record, then in the table's order; for `nearest` by distance, equal ones in
        the table's order. Records and rows without a place (null, empty, not finite) match
        nothing, nor do records whose shape is not valid; a collection is sent as the union of its
        parts. Shapes of the table that are not valid are judged as PostGIS judges them, or are a
        `TableInvalid` where it cannot. If it has a GEOS older than 3.13, it may take a line that
        ends within a last digit of an edge for one that touches it, two lines that share a piece
        for lines that cross, and points or lines beside a polygon in one collection for others
        than they are.
        """
        if (known := _known.get(self)) is not None:
            # the table may have changed since it was described
            with contextlib.suppress(TableInvalid, DefinitionError):
                return self._answer(known, condition, columns, left)
        return self._answer(self._describe(), condition, columns, left)

    def _answer(
        self,
        table: Description,
        condition: Condition,
        columns: Sequence[str],
        left: Mapping[str, pa.Array],
    ) -> tuple[npt.NDArray[np.int64], pa.Table]:
        parts = split(condition)
        schema = table.chosen(columns)
        if isinstance(parts.spatial, Nearest):
            schema = schema.append(pa.field("distance", pa.float64()))
        records = records_of(
            left,
            *parts,
            table,
            srid=spot_of(parts.spatial, table).srid if parts.spatial is not None else 0,
            on_sphere=is_on_sphere(parts.spatial),
        )
        if not len(records.rows):
            return records.rows, schema.empty_table()
        text, parameters = statement(table, parts, columns, records)
        numbered = pa.schema([pa.field("", pa.int64()), *schema])
        asked = rows_of if pa.binary() in schema.types else arrays_of
        found = run(
            self.access,
            self._shown,
            lambda connection: self._made(lambda: asked(connection, text, parameters, numbered)),
        )
        numbers = records.rows[found.column(0).to_numpy() - 1]
        order = np.argsort(numbers, kind="stable")
        rows = pa.table(found.columns[1:], schema=schema)
        return numbers[order], rows if _is_sorted(numbers) else rows.take(pa.array(order))

    @property
    def _only(self) -> str:
        return f" where {shown(self.where)}" if self.where else ""

    @property
    def _shown(self) -> str:
        return f"table {self.table!r}"

    def upsert(self, rows: pa.Table, *, keys: Sequence[str], order: Sequence[str]) -> None:
        """Write rows over those with the same keys, unless these come later by `order`.

        A table that is not there is made, with an index on `keys`. One that is must have a
        unique index on them in which nulls are equal (``NULLS NOT DISTINCT``).
        """
        if rows.num_rows:
            place = sql.Identifier(*parts_of(self.table, where=WHERE))
            write(self.access, self.table, lambda to: upsert_rows(to, place, rows, keys, order))

    def delete(self, keys: pa.Table) -> None:
        """Remove the rows with these keys."""
        if keys.num_rows:
            place = sql.Identifier(*parts_of(self.table, where=WHERE))
            write(self.access, self.table, lambda to: delete_rows(to, place, keys))

    def _describe(self) -> Description:
        described = run(self.access, self._shown, lambda found: describe(found, self.table))
        _known[self] = filtered(described, self.where)
        return _known[self]

    def _made(self, make: Callable[[], pa.RecordBatch]) -> pa.RecordBatch:
        try:
            return make()
        except Changed:
            raise TableInvalid(
                WHERE,
                f"{self._shown} has a column whose type has changed",
                todo="Define the join anew.",
            ) from None
        except Endless:
            raise TableInvalid(
                WHERE,
                f"{self._shown} holds a value that cannot be brought over",
                there="a date or time is infinite",
                todo="Make a view without it, as in nullif(until, 'infinity').",
            ) from None


#: tables as they were last described in this process, so that an answer takes one statement
_known: dict[PostgresTable, Description] = {}


def _is_sorted(numbers: npt.NDArray[np.int64]) -> bool:
    return bool((numbers[1:] >= numbers[:-1]).all())


def _copy(table: Description, columns: Sequence[str]) -> sql.Composed:
    read = sql.SQL(", ").join([table.columns[name].read("t") for name in columns])
    chosen = sql.SQL("SELECT {} FROM {} AS t").format(read, table.relation)
    if order := table.ordered("t"):
        chosen += sql.SQL(" ORDER BY {}").format(sql.SQL(", ").join(order))
    return sql.SQL("COPY ({}) TO STDOUT (FORMAT binary)").format(chosen)
