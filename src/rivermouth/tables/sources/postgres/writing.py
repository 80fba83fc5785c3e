"""Rows written into PostgreSQL by key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from psycopg import sql

from rivermouth.errors import TableInvalid
from rivermouth.tables.sources.postgres.access import WHERE

_TYPES = {
    pa.bool_(): "boolean",
    pa.int8(): "smallint",
    pa.int16(): "smallint",
    pa.int32(): "integer",
    pa.int64(): "bigint",
    pa.float32(): "real",
    pa.float64(): "double precision",
    pa.string(): "text",
    pa.large_string(): "text",
    pa.binary(): "bytea",
    pa.large_binary(): "bytea",
    pa.date32(): "date",
    pa.duration("us"): "interval",
}


def upsert_rows(
    connection: Any,
    table: sql.Identifier,
    rows: pa.Table,
    keys: Sequence[str],
    order: Sequence[str],
) -> None:
    """Write `rows`; the table is made with an index on `keys` if it is not there."""
    _make(connection, table, rows.schema, keys)
    names = [sql.Identifier(name) for name in rows.column_names]
    others = [name for name in rows.column_names if name not in keys]
    statement = sql.SQL(
        "INSERT INTO {table} AS old ({names}) VALUES ({marks}) ON CONFLICT ({keys}) DO UPDATE "
        "SET {sets} WHERE ({new}) >= ({known})"
    ).format(
        table=table,
        names=_listed(names),
        marks=_listed([sql.Placeholder()] * len(names)),
        keys=_listed([sql.Identifier(key) for key in keys]),
        sets=_listed(
            [sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in others]
        ),
        new=_listed([sql.SQL("excluded.{}").format(sql.Identifier(name)) for name in order]),
        known=_listed([sql.SQL("old.{}").format(sql.Identifier(name)) for name in order]),
    )
    _for_each(connection, statement, rows)


def delete_rows(connection: Any, table: sql.Identifier, keys: pa.Table) -> None:
    """Remove the rows with these keys, of which any may be null."""
    same = [
        sql.SQL("{} IS NOT DISTINCT FROM %s").format(sql.Identifier(name))
        for name in keys.column_names
    ]
    statement = sql.SQL("DELETE FROM {} WHERE {}").format(table, sql.SQL(" AND ").join(same))
    _for_each(connection, statement, keys)


def _make(connection: Any, table: sql.Identifier, schema: pa.Schema, keys: Sequence[str]) -> None:
    columns = [
        sql.SQL("{} {}").format(sql.Identifier(field.name), sql.SQL(_type_of(field)))
        for field in schema
    ]
    unique = sql.SQL("UNIQUE NULLS NOT DISTINCT ({})").format(
        _listed([sql.Identifier(key) for key in keys])
    )
    connection.execute(
        sql.SQL("CREATE TABLE IF NOT EXISTS {} ({})").format(table, _listed([*columns, unique]))
    )


def _for_each(connection: Any, statement: sql.Composed, rows: pa.Table) -> None:
    columns = [column.to_pylist() for column in rows.columns]
    with connection.cursor() as cursor:
        cursor.executemany(statement, list(zip(*columns, strict=True)))


def _type_of(field: pa.Field) -> str:
    if field.type in _TYPES:
        return _TYPES[field.type]
    if pa.types.is_timestamp(field.type):
        return "timestamptz" if field.type.tz else "timestamp"
    if pa.types.is_decimal(field.type):
        return f"numeric({field.type.precision}, {field.type.scale})"
    raise TableInvalid(
        WHERE,
        f"column {field.name!r} is of type {field.type}, for which PostgreSQL has none",
        todo="Leave it out of the summary, or take the changes with a function of your own.",
    )


def _listed(parts: Sequence[sql.Composable]) -> sql.Composed:
    return sql.SQL(", ").join(parts)
