"""A table in PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from psycopg import ClientCursor

from rivermouth.spec.conditions import Condition, Nearest, split
from rivermouth.tables.sources.postgres.address import PostgresAddress
from rivermouth.tables.sources.postgres.catalog import describe, quoted
from rivermouth.tables.sources.postgres.driver import Connection, PostgresDriver
from rivermouth.tables.sources.postgres.fetching import arrays_of, copied, rows_of
from rivermouth.tables.sources.postgres.records import records_of
from rivermouth.tables.sources.postgres.statements import geometry_of, statement
from rivermouth.tables.sources.postgres.wire import batch_of_rows
from rivermouth.tables.sources.postgres.writing import delete_rows, upsert_rows
from rivermouth.tables.sources.sql.relation import (
    NUMBER,
    Column,
    Columns,
    Dialect,
    Relation,
    SQLType,
    parts_of,
)
from rivermouth.tables.sources.sql.table import Batches, Left, SQLTable, Statement

_DISTANCE = Column(pa.field("distance", pa.float64()), "far", SQLType(pa.float64()))


class _Postgres(Dialect):
    def among(
        self, column: Column, operator: str, name: str, values: Sequence[Any]
    ) -> tuple[str, dict[str, Any]]:
        """One array, however many values there are."""
        test = "= ANY" if operator == "IN" else "<> ALL"
        same, array = column.type.same.format(column.at), f"{self.mark(name, column.type)}[]"
        return f"{same} {test}({array})", {name: values}


@dataclass(frozen=True, repr=False)
class PostgresTable(SQLTable):
    """The rows of a table or view, by primary key, or else in the order in which they are stored.

    PostgreSQL and PostGIS evaluate every condition. `lookup` gives rows by record, then in the
    table's order; for `nearest` by distance, equal ones in the table's order. Records and rows
    without a place (null, empty, not finite) match nothing, nor do records whose shape is not
    valid; a collection is sent as the union of its parts. Shapes of the table that are not valid
    are evaluated as PostGIS does, or are a `TableInvalid` where it cannot. If it has a GEOS older
    than 3.13, it may take a line that ends within a last digit of an edge for one that touches it,
    two lines that share a piece for lines that cross, and points or lines beside a polygon in one
    collection for others than they are.
    """

    address: PostgresAddress

    function = "postgres"
    driver = PostgresDriver()
    dialect = _Postgres(
        lambda name, type_: f"%({name})s::{'text' if type_.arrow == pa.string() else type_.sent}"
    )

    def __post_init__(self) -> None:
        parts_of(self.table, call=self.call)

    def upsert(self, rows: pa.Table, *, keys: Sequence[str], order: Sequence[str]) -> None:
        """Write rows over those with the same keys, unless these come later by `order`.

        A table that does not exist is created, with an index on `keys`. One that does must have a
        unique index on them in which nulls are equal (``NULLS NOT DISTINCT``).
        """
        if rows.num_rows:
            self._write(lambda to, table: upsert_rows(to, table, rows, keys, order))

    def delete(self, keys: pa.Table) -> None:
        """Remove the rows with these keys."""
        if keys.num_rows:
            self._write(lambda to, table: delete_rows(to, table, keys))

    def _write(self, work: Callable[[Connection, str], None]) -> None:
        table = ".".join(map(quoted, parts_of(self.table, call=self.call)))
        self.driver.write(self.address, self.table, lambda connection: work(connection, table))

    def _catalog(self, connection: Connection) -> Relation:
        return describe(connection, self.table)

    def _statement(
        self, relation: Relation, condition: Condition, columns: Columns, left: Left
    ) -> Statement:
        parts = split(condition)
        srid = 0 if parts.spatial is None else geometry_of(parts.spatial, relation).srid
        records = records_of(left, parts, relation, srid=srid)
        read = [NUMBER, *columns, *([_DISTANCE] if isinstance(parts.spatial, Nearest) else [])]
        if not len(records.rows):
            return Statement("", {}, read, records)
        return Statement(*statement(relation, parts, columns, records), read, records)

    def _execute(self, connection: Connection, statement: Statement) -> Batches:
        """All rows by COPY in its binary form; those of a lookup at once."""
        text, parameters, schema = statement.text, statement.parameters, statement.schema
        if statement.records is None:
            text = f"COPY ({text}) TO STDOUT (FORMAT binary)"
            copy = ClientCursor(connection).mogrify(text.encode(), parameters)
            for rows in copied(connection, copy):
                yield batch_of_rows(schema, rows)
        else:
            fetch = rows_of if pa.binary() in schema.types else arrays_of
            yield fetch(connection, text, parameters, schema)
