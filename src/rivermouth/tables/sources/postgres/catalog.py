"""What the server says of a table: its columns, the order of its rows, where its places are."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import psycopg
import pyarrow as pa
from psycopg import sql

from rivermouth.errors import TableInvalid, TableMissing, did_you_mean
from rivermouth.tables.source import geometry_field, gone
from rivermouth.tables.sources.crs import UNKNOWN, WGS84
from rivermouth.tables.sources.naming import parts_of
from rivermouth.tables.sources.postgres.access import WHERE
from rivermouth.tables.sources.postgres.kinds import Kind, kind_of

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
class Column:
    """A column: its Arrow field, how it is read and compared.

    `geometry` and `points` are of use for places only: the name of PostGIS's type, and whether all
    values are points.
    """

    field: pa.Field
    kind: Kind
    srid: int = 0
    geometry: str | None = None
    points: bool = False

    def at(self, alias: str) -> sql.Identifier:
        """The column, in the table called `alias`."""
        return named(alias, self.field.name)

    def read(self, alias: str) -> sql.Composed:
        """The expression that reads it."""
        return sql.SQL(self.kind.read).format(self.at(alias))

    def key(self, alias: str) -> sql.Composed:
        """The expression that is compared with an event's key."""
        return sql.SQL(self.kind.key).format(self.at(alias))


@dataclass(frozen=True)
class Description:
    """A table as the server describes it.

    Parameters
    ----------
    name
        Its name, as it was given.
    relation
        Its name or a selection from it, to be used in a statement.
    columns
        By name, in the table's order.
    order
        The names that say in which order rows come: the primary key, or the rows' places in the
        file; empty for a view, which has neither.
    few
        Whether it has at most `FEW` rows.
    parameters
        What is bound wherever `relation` stands.
    """

    name: str
    relation: sql.Composable
    columns: dict[str, Column]
    order: tuple[str, ...]
    few: bool
    parameters: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def schema(self) -> pa.Schema:
        """The columns' Arrow fields."""
        return pa.schema([column.field for column in self.columns.values()])

    def kind(self, name: str) -> Kind:
        """How a column is read and compared."""
        return self.columns[name].kind

    def chosen(self, columns: Sequence[str]) -> pa.Schema:
        """The fields of these columns, or a `TableInvalid` where one is no longer there."""
        for name in columns:
            if name not in self.columns:
                raise gone(name, self.columns, where=WHERE, table=f"table {self.name!r}")
        return pa.schema([self.columns[name].field for name in columns])

    def ordered(self, alias: str) -> list[sql.Identifier]:
        """What rows are sorted by, in the table called `alias`."""
        return [named(alias, name) for name in self.order]


def named(*names: str) -> sql.Identifier:
    """A quoted name, for a statement that is executed with parameters, be it none.

    In such a statement the driver reads a percent sign as a parameter wherever it stands.
    """
    return sql.Identifier(*(name.replace("%", "%%") for name in names))


def describe(connection: psycopg.Connection[Any], table: str) -> Description:
    """What the server says of `table`."""
    wanted = sql.Identifier(*parts_of(table, where=WHERE))
    found = connection.execute(_RELATION, [wanted.as_string(connection)]).fetchone()
    if found is None:
        raise _missing(connection, table)
    oid, schema, name, relkind, primary_key = found
    relation = named(schema, name)
    columns = {
        row[0]: _column(connection, table, relation, _Attribute(*row))
        for row in connection.execute(_COLUMNS, [oid])
    }
    places = ("tableoid", "ctid") if relkind in _HAS_ROW_PLACES else ()
    few = bool(places) and _count_up_to(connection, relation, FEW + 1) <= FEW
    return Description(table, relation, columns, tuple(primary_key) or places, few)


def _missing(connection: psycopg.Connection[Any], table: str) -> TableMissing:
    names = [name for (name,) in connection.execute(_TABLE_NAMES)]
    return TableMissing(
        WHERE,
        f"there is no table {table!r}",
        there=f"{connection.info.user} sees {names[:8]}" + (" and more" if len(names) > 8 else ""),
        todo=did_you_mean(table, names) or "Check the name, and which schema it is in.",
    )


class _Attribute(NamedTuple):
    """A column as the catalog has it; `by_bytes` unless its collation finds other bytes equal."""

    name: str
    type: str
    is_enum: bool
    modifier: int
    written: str
    by_bytes: bool


def _column(
    connection: psycopg.Connection[Any], table: str, relation: sql.Identifier, found: _Attribute
) -> Column:
    kind = kind_of(found.type, found.modifier, is_enum=found.is_enum)
    if kind is None:
        raise TableInvalid(
            WHERE,
            f"column {found.name!r} of {table} is of type {found.written}, which is not known here",
            todo=f"Make a view that leaves it out or casts it, as in {found.name}::text.",
        )
    if found.type in ("geometry", "geography"):
        srid, points = _reference_system(connection, table, relation, found)
        return Column(geometry_field(found.name, srid), kind, srid, found.type, points)
    if not found.by_bytes:
        kind = replace(kind, key=f'{kind.key} COLLATE "C"')
    return Column(pa.field(found.name, kind.arrow), kind)


def _reference_system(
    connection: psycopg.Connection[Any], table: str, relation: sql.Identifier, found: _Attribute
) -> tuple[int, bool]:
    """The SRID of a geometry column, and whether it holds points only.

    Both are stated by a type such as geometry(Point, 4326); where it is not, the rows are asked.
    """
    srid, shape = connection.execute(
        "SELECT postgis_typmod_srid(%s), lower(postgis_typmod_type(%s))", [found.modifier] * 2
    ).fetchone() or (0, "geometry")
    if found.type == "geography":
        srid = srid or WGS84
    if srid and shape != "geometry":
        return srid, shape.startswith("point")
    lowest, highest, points = connection.execute(
        sql.SQL(
            "SELECT min(ST_SRID({0}::geometry)), max(ST_SRID({0}::geometry)),"
            " bool_and(GeometryType({0}) = 'POINT') FROM {1}"
        ).format(named(found.name), relation),
        [],
    ).fetchone() or (None, None, None)
    if lowest != highest:
        raise TableInvalid(
            WHERE,
            f"column {found.name!r} of {table} holds several SRIDs, from {lowest} to {highest}",
            todo=f"Bring them into one, as in ST_Transform({found.name}, {highest}).",
        )
    return srid or highest or UNKNOWN, points is not False


def _count_up_to(connection: psycopg.Connection[Any], relation: sql.Identifier, limit: int) -> int:
    statement = sql.SQL("SELECT count(*) FROM (SELECT FROM {} LIMIT %s) AS rows").format(relation)
    (count,) = connection.execute(statement, [limit]).fetchone() or (0,)
    return int(count)
