"""What a MySQL server says of a table: its columns, and the order of its rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from rivermouth.errors import TableInvalid, TableMissing, did_you_mean
from rivermouth.tables.source import geometry_field
from rivermouth.tables.sources.crs import UNKNOWN
from rivermouth.tables.sources.mysql.access import WHERE
from rivermouth.tables.sources.mysql.kinds import GEOMETRIES, Kind, kind_of
from rivermouth.tables.sources.naming import parts_of
from rivermouth.tables.sources.sql import Column, Relation

_COLUMNS = """
SELECT column_name, data_type, column_type, numeric_precision, numeric_scale,
       coalesce(character_set_name, ''), coalesce(collation_name, '')
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


def describe(connection: Any, table: str, database: str) -> tuple[Relation, dict[str, Kind]]:
    """What the server says of `table`, and the kinds of its columns by name."""
    *outer, name = parts_of(table, where=WHERE, outer="database")
    place = (outer[0] if outer else database, name)
    with connection.cursor() as cursor:
        cursor.execute(_COLUMNS, place)
        found = cursor.fetchall()
        if not found:
            raise _missing(cursor, table, place[0])
        relation = ".".join(map(quoted, place))
        kinds = {row[0]: _kind(table, *row) for row in found}
        columns = {
            name: _column(cursor, table, relation, name, kinds[name], data_type)
            for name, data_type, *_ in found
        }
        cursor.execute(_KEY, place)
        order = tuple(quoted(name) for (name,) in cursor.fetchall())
    return Relation(relation, columns, order), kinds


def quoted(name: str) -> str:
    """A quoted name; the driver reads a percent sign as a parameter wherever it stands."""
    return "`" + name.replace("`", "``").replace("%", "%%") + "`"


def _kind(
    table: str,
    name: str,
    data_type: str,
    written: str,
    precision: str | None,
    scale: str | None,
    charset: str,
    collation: str,
) -> Kind:
    digits, decimals = (0 if number is None else int(number) for number in (precision, scale))
    kind = kind_of(data_type, written, digits, decimals, charset, collation)
    if kind is None:
        raise TableInvalid(
            WHERE,
            f"column {name!r} of {table} is of type {written}, which is not known here",
            todo=f"Make a view that leaves it out or casts it, as in CAST({name} AS CHAR).",
        )
    return kind


def _column(
    cursor: Any, table: str, relation: str, name: str, kind: Kind, data_type: str
) -> Column:
    field = pa.field(name, kind.arrow)
    if data_type in GEOMETRIES:
        field = geometry_field(name, _srid(cursor, table, relation, name))
    return Column(field, quoted(name), kind.read, kind.value, kind.around, kind.near)


def _srid(cursor: Any, table: str, relation: str, name: str) -> int:
    """The SRID that all values of a geometry column share."""
    column = quoted(name)
    ends = f"MIN(ST_SRID({column})), MAX(ST_SRID({column}))"
    cursor.execute(f"SELECT {ends} FROM {relation}", ())  # noqa: S608 - names are quoted
    lowest, highest = cursor.fetchone()
    if lowest != highest:
        raise TableInvalid(
            WHERE,
            f"column {name!r} of {table} holds several SRIDs, from {lowest} to {highest}",
            todo="Bring them into one.",
        )
    return int(highest or UNKNOWN)


def _missing(cursor: Any, table: str, database: str) -> TableMissing:
    cursor.execute(_TABLES, (database,))
    names = [name for (name,) in cursor.fetchall()]
    return TableMissing(
        WHERE,
        f"there is no table {table!r}",
        there=f"database {database!r} shows {names[:8]}" + (" and more" if len(names) > 8 else ""),
        todo=did_you_mean(table, names) or "Check the name, and which database it is in.",
    )
