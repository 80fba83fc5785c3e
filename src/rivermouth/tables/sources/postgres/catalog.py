"""What a PostgreSQL server says of a table: its columns, the order of its rows, its geometries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import psycopg
import pyarrow as pa

from rivermouth.tables.source import geometry_field
from rivermouth.tables.sources import crs
from rivermouth.tables.sources.postgres.address import CALL
from rivermouth.tables.sources.postgres.types import type_of
from rivermouth.tables.sources.sql import relation as sql
from rivermouth.tables.sources.sql.relation import Column, Relation

Connection = psycopg.Connection[Any]

#: rows up to which a table is walked row by row for each batch of events
FEW = 64

_HAS_ROW_PLACES = "rmp"  # tables, materialised views, partitioned tables: their rows have a ctid

_RELATION = """
SELECT c.oid, n.nspname, c.relname, c.relkind, ARRAY(
    SELECT a.attname::text FROM pg_index i
    CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k(attnum, place)
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
    WHERE i.indrelid = c.oid AND i.indisprimary ORDER BY k.place)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = to_regclass(%s) AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
"""
# A domain is what it is made of.
_COLUMNS = """
WITH RECURSIVE typed AS (
    SELECT attnum, attname, atttypid AS type, atttypmod AS modifier, attcollation
    FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped
    UNION ALL
    SELECT attnum, attname, typbasetype, typtypmod, attcollation
    FROM typed JOIN pg_type t ON t.oid = type WHERE typtype = 'd')
SELECT attname, typname, typtype = 'e', modifier, format_type(type, modifier),
       coalesce(collisdeterministic, true)
FROM typed JOIN pg_type t ON t.oid = type LEFT JOIN pg_collation c ON c.oid = attcollation
WHERE t.typtype <> 'd' ORDER BY attnum
"""
_TABLE_NAMES = """
SELECT CASE WHEN pg_table_is_visible(c.oid) THEN relname ELSE nspname || '.' || relname END
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE relkind IN ('r', 'p', 'v', 'm', 'f')
  AND nspname NOT IN ('pg_catalog', 'information_schema') ORDER BY 1
"""


@dataclass(frozen=True)
class GeometryColumn(Column):
    """A geometry column: whether it is PostGIS's geography, and whether all values are points."""

    is_geography: bool = False
    points: bool = False


def quoted(name: str) -> str:
    """A quoted name; the driver reads a percent sign as a parameter wherever it stands."""
    return sql.quoted(name).replace("%", "%%")


def describe(connection: Connection, table: str) -> Relation:
    """What the server says of `table`."""
    wanted = ".".join(map(sql.quoted, sql.parts_of(table, call=CALL)))
    found = connection.execute(_RELATION, [wanted]).fetchone()
    if found is None:
        names = [name for (name,) in connection.execute(_TABLE_NAMES)]
        raise sql.missing_table(CALL, table, names, place=f"what {connection.info.user} sees")
    oid, schema, name, relkind, primary_key = found
    relation = f"{quoted(schema)}.{quoted(name)}"
    columns = {
        row[0]: _column(connection, table, relation, row)
        for row in connection.execute(_COLUMNS, [oid])
    }
    places = ("tableoid", "ctid") if relkind in _HAS_ROW_PLACES else ()
    few = bool(places) and _count_up_to(connection, relation, FEW + 1) <= FEW
    return Relation(relation, columns, tuple(map(quoted, primary_key or places)), few=few)


def _column(connection: Connection, table: str, relation: str, row: Sequence[Any]) -> Column:
    name, typname, is_enum, modifier, written, by_bytes = row
    type_ = type_of(typname, modifier, is_enum=is_enum)
    if type_ is None:
        raise sql.unknown_type(CALL, table, name, written, cast=f"{name}::text")
    if typname in ("geometry", "geography"):
        is_geography = typname == "geography"
        srid, points = _srid(connection, table, relation, name, modifier, is_geography)
        field = geometry_field(name, srid)
        return GeometryColumn(field, quoted(name), type_, is_geography, points)
    if not by_bytes:  # its collation takes other bytes for equal
        type_ = replace(type_, same=type_.order or type_.same)
    return Column(pa.field(name, type_.arrow), quoted(name), type_)


def _srid(
    connection: Connection, table: str, relation: str, name: str, modifier: int, is_geography: bool
) -> tuple[int, bool]:
    """The SRID of a geometry column, and whether it holds points only.

    A type such as geometry(Point, 4326) states both; otherwise the rows are queried.
    """
    srid, shape = connection.execute(
        "SELECT postgis_typmod_srid(%s), lower(postgis_typmod_type(%s))", [modifier] * 2
    ).fetchone() or (0, "geometry")
    srid = srid or (crs.WGS84 if is_geography else 0)
    if srid and shape != "geometry":
        return srid, shape.startswith("point")
    at = quoted(name)
    found = f"""
        SELECT min(ST_SRID({at}::geometry)), max(ST_SRID({at}::geometry)),
               bool_and(GeometryType({at}) = 'POINT') FROM {relation}
    """  # noqa: S608 - names are quoted
    lowest, highest, points = connection.execute(found.encode(), []).fetchone() or (None,) * 3
    if lowest != highest:
        raise sql.several_srids(CALL, table, name, lowest, highest)
    return srid or highest or crs.UNKNOWN, points is not False


def _count_up_to(connection: Connection, relation: str, limit: int) -> int:
    counted = f"SELECT count(*) FROM (SELECT FROM {relation} LIMIT %s) AS rows"  # noqa: S608
    (count,) = connection.execute(counted.encode(), [limit]).fetchone() or (0,)
    return int(count)
