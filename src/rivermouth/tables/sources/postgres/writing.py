"""Rows written to PostgreSQL by key."""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from rivermouth.errors import TableInvalid
from rivermouth.tables.sources.postgres.address import CALL
from rivermouth.tables.sources.postgres.catalog import quoted

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
    connection: Any, table: str, rows: pa.Table, keys: Sequence[str], order: Sequence[str]
) -> None:
    """Write `rows`; the table is created with an index on `keys` if it does not exist."""
    declared = [f"{quoted(field.name)} {_type_of(field)}" for field in rows.schema]
    key, names = _listed("{}", keys), rows.column_names
    connection.execute(
        f"CREATE TABLE IF NOT EXISTS {table}"
        f" ({', '.join(declared)}, UNIQUE NULLS NOT DISTINCT ({key}))",
        [],
    )
    others = [name for name in names if name not in keys]
    _for_each(
        connection,
        f"INSERT INTO {table} AS old ({_listed('{}', names)})"
        f" VALUES ({', '.join(['%s'] * len(names))})"
        f" ON CONFLICT ({key}) DO UPDATE SET {_listed('{0} = excluded.{0}', others)}"
        f" WHERE ({_listed('excluded.{}', order)}) >= ({_listed('old.{}', order)})",
        rows,
    )


def delete_rows(connection: Any, table: str, keys: pa.Table) -> None:
    """Remove the rows with these keys, of which any may be null."""
    same = " AND ".join(f"{quoted(name)} IS NOT DISTINCT FROM %s" for name in keys.column_names)
    _for_each(connection, f"DELETE FROM {table} WHERE {same}", keys)


def _for_each(connection: Any, statement: str, rows: pa.Table) -> None:
    columns = [
        list(map(_json, column.to_pylist())) if _is_json(column.type) else column.to_pylist()
        for column in rows.columns
    ]
    with connection.cursor() as cursor:
        cursor.executemany(statement, list(zip(*columns, strict=True)))


def _listed(form: str, names: Sequence[str]) -> str:
    return ", ".join(form.format(quoted(name)) for name in names)


def _is_json(dtype: pa.DataType) -> bool:
    """Whether a value is a list of records, as `rm.top` and `rm.skyline` give."""
    return bool(pa.types.is_list(dtype) and pa.types.is_struct(dtype.value_type))


def _json(records: list[dict[str, Any]] | None) -> str | None:
    """The records as JSON; what JSON has no numbers for is text, as in Spark's to_json."""
    if records is None:
        return None
    shown = [{name: _json_value(value) for name, value in each.items()} for each in records]
    return json.dumps(shown, default=str, allow_nan=False)


def _json_value(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, (dt.datetime, dt.date)):
        return value.isoformat()
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def _type_of(field: pa.Field) -> str:
    if field.type in _TYPES:
        return _TYPES[field.type]
    if _is_json(field.type):
        return "jsonb"
    if pa.types.is_timestamp(field.type):
        return "timestamptz" if field.type.tz else "timestamp"
    if pa.types.is_decimal(field.type):
        return f"numeric({field.type.precision}, {field.type.scale})"
    raise TableInvalid(
        CALL,
        f"column {field.name!r} is of type {field.type}, for which PostgreSQL has none",
        todo="Leave it out of the summary, or take the changes with a function of your own.",
    )
