"""What a MySQL server says of a table: its columns, and the order of its rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from rivermouth.tables.source import geometry_field
from rivermouth.tables.sources import crs
from rivermouth.tables.sources.mysql.address import CALL
from rivermouth.tables.sources.mysql.types import GEOMETRIES, type_of
from rivermouth.tables.sources.sql import relation as sql
from rivermouth.tables.sources.sql.relation import Column, Relation

_COLUMNS = """
SELECT column_name, data_type, column_type, coalesce(numeric_precision, 0),
       coalesce(numeric_scale, 0), coalesce(character_set_name, ''), coalesce(collation_name, '')
FROM information_schema.columns WHERE table_schema = %s AND table_name = %s
ORDER BY ordinal_position
"""
_KEY = """
SELECT column_name FROM information_schema.statistics
WHERE table_schema = %s AND table_name = %s AND index_name = 'PRIMARY' ORDER BY seq_in_index
"""
_TABLES = """
SELECT table_name FROM information_schema.tables WHERE table_schema = %s ORDER BY table_name
"""


def describe(connection: Any, table: str, database: str) -> Relation:
    """What the server says of `table`."""
    *outer, name = sql.parts_of(table, call=CALL, outer="database")
    qualified = (outer[0] if outer else database, name)
    with connection.cursor() as cursor:
        cursor.execute(_COLUMNS, qualified)
        found = cursor.fetchall()
        if not found:
            cursor.execute(_TABLES, qualified[:1])
            names = [name for (name,) in cursor.fetchall()]
            raise sql.missing_table(CALL, table, names, place=f"database {qualified[0]!r}")
        relation = ".".join(map(quoted, qualified))
        columns = {row[0]: _column(cursor, table, relation, row) for row in found}
        cursor.execute(_KEY, qualified)
        return Relation(relation, columns, tuple(quoted(name) for (name,) in cursor.fetchall()))


def quoted(name: str) -> str:
    """A quoted name; the driver reads a percent sign as a parameter wherever it stands."""
    return sql.quoted(name, "`").replace("%", "%%")


def _column(cursor: Any, table: str, relation: str, row: Sequence[Any]) -> Column:
    name, data_type, written, precision, scale, *text = row
    type_ = type_of(data_type, written, int(precision), int(scale), *text)
    if type_ is None:
        raise sql.unknown_type(CALL, table, name, written, cast=f"CAST({name} AS CHAR)")
    field = pa.field(name, type_.arrow)
    if data_type in GEOMETRIES:
        field = geometry_field(name, _srid(cursor, table, relation, name))
    return Column(field, quoted(name), type_)


def _srid(cursor: Any, table: str, relation: str, name: str) -> int:
    """The SRID that all values of a geometry column share."""
    ends = f"MIN(ST_SRID({quoted(name)})), MAX(ST_SRID({quoted(name)}))"
    cursor.execute(f"SELECT {ends} FROM {relation}", ())  # noqa: S608 - names are quoted
    lowest, highest = cursor.fetchone()
    if lowest != highest:
        raise sql.several_srids(CALL, table, name, lowest, highest)
    return int(highest or crs.UNKNOWN)
