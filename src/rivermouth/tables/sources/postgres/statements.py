"""A condition as one statement, so that index and test are left to PostGIS.

This is the second physical form of paper C's stream-table join, in which an external spatial
engine answers the queries. The records come as arrays and are unnested once into ``l``; the table
is ``t``. PostGIS's predicates bring their own test of bounding boxes, so that a GiST index on the
column serves them; great circles are served by one on ``geography(column)``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from psycopg import sql
from psycopg.adapt import PyFormat

from rivermouth.errors import ColumnError, TableInvalid
from rivermouth.kernels.spatial.sphere import RADIUS
from rivermouth.kernels.spatial.strtree import may_be_disjoint
from rivermouth.spec.conditions import (
    Between,
    DWithin,
    Nearest,
    Parts,
    Point,
    Range,
    Spatial,
    Topology,
)
from rivermouth.tables.sources.postgres.access import WHERE
from rivermouth.tables.sources.postgres.catalog import Description
from rivermouth.tables.sources.postgres.records import Records

_PREDICATES = {
    "within": "ST_Within",
    "contains": "ST_Contains",
    "intersects": "ST_Intersects",
    "covers": "ST_Covers",
    "covered_by": "ST_CoveredBy",
    "touches": "ST_Touches",
    "crosses": "ST_Crosses",
    "overlaps": "ST_Overlaps",
    "equals": "l.g && {plane} AND ST_Equals",  # which does not ask the index itself
    "disjoint": "ST_Disjoint",
}

# True of rows with a place: null makes no comparison true, and NaN is above infinity. A bounding
# box leaves out a NaN between two vertices; lengths do not.
_HAS_PLACE = (
    "ST_XMax({0}::box2d) - ST_XMin({0}::box2d) + ST_YMax({0}::box2d) - ST_YMin({0}::box2d)"
    " < 'Infinity' AND ST_Perimeter({0}) + ST_Length({0}) < 'Infinity'"
)
_IS_ON_SPHERE = (
    "GeometryType({0}) = 'POINT' AND abs(ST_XMax({0})) < 'Infinity' AND abs(ST_YMax({0})) <= 90"
)

_GREAT_CIRCLE = f"ST_DistanceSphere(l.g, {{plane}}, {RADIUS})"
_SPHERE_NEAR = (
    f"ST_DWithin({{sphere}}, geography(l.g), %(wide)s, false) AND {_GREAT_CIRCLE} <= %(limit)s"
)

#: what the index sorts by, what finds all rows within ``b.reach`` of it, the distance itself
_PLANE_NEAREST = (
    "{plane} <-> l.g",
    "ST_DWithin({plane}, l.g, b.reach * 1.000001)",
    "ST_Distance(l.g, {plane})",
)
_SPHERE_NEAREST = (
    "{sphere} <-> geography(l.g)",
    "ST_DWithin({sphere}, geography(l.g), b.reach * 1.01 + 1, false)",
    _GREAT_CIRCLE,
)


@dataclass(frozen=True)
class Spot:
    """The table's places in a statement.

    Parameters
    ----------
    plane, sphere
        The expressions for the geometry and for the geography.
    is_there
        True of the rows that have a place.
    srid
        Their reference system, which the records' places are given.
    """

    plane: sql.Composable
    sphere: sql.Composable
    is_there: sql.Composable
    srid: int

    def write(self, text: str) -> sql.Composed:
        """`text` with the table's place where it says ``{plane}`` or ``{sphere}``."""
        return sql.SQL(text).format(plane=self.plane, sphere=self.sphere)


def is_on_sphere(place: Spatial | None) -> bool:
    """Whether `place` is measured along great circles."""
    return isinstance(place, (DWithin, Nearest)) and place.metric == "sphere"


def spot_of(place: Spatial, table: Description) -> Spot:
    """The places that `place` names in the table."""
    plane, sphere, srid = _expressions(place, table)
    test = sql.SQL(_IS_ON_SPHERE if is_on_sphere(place) else _HAS_PLACE)
    return Spot(plane, sphere, test.format(plane), srid)


def _expressions(place: Spatial, table: Description) -> tuple[sql.Composable, sql.Composable, int]:
    """The table's places for the plane and for the sphere, and their SRID."""
    if isinstance(place.right, Point):
        x, y = (table.columns[name].at("t") for name in (place.right.x, place.right.y))
        made = sql.SQL("ST_MakePoint({}::float8, {}::float8)").format(x, y)
        return made, sql.SQL("geography({})").format(made), 0
    column = table.columns[place.right]
    if column.geometry is None:
        raise ColumnError(
            WHERE,
            f"column {place.right!r} is {column.field.type}, which PostGIS has no index for",
            todo=f"Make it a geometry, as in ST_GeomFromWKB({place.right}), or keep the table near "
            "with cache=rm.full().",
        )
    if is_on_sphere(place) and not column.points:
        raise TableInvalid(
            WHERE,
            f"column {place.right!r} holds shapes that are not points, but great circles are "
            "measured between points",
            todo="Use a column of points, or distance= in a projected plane.",
        )
    at = column.at("t")
    if column.geometry == "geography":
        return sql.SQL("{}::geometry").format(at), at, column.srid
    return at, sql.SQL("geography({})").format(at), column.srid


def statement(
    table: Description,
    parts: Parts,
    columns: Sequence[str],
    records: Records,
) -> tuple[sql.Composed, dict[str, Any]]:
    """The statement and its parameters; gives the record's place in `records`, then `columns`.

    Rows come by record, then in the table's order; for `nearest` by distance, which comes last.
    """
    equal, place, span = parts
    parameters = {name: values for name, (values, _) in records.arrays.items()}
    parameters |= table.parameters
    on = [
        sql.SQL("{} = {}").format(table.columns[name].key("t"), sql.Identifier("l", f"key{number}"))
        for number, (_, name) in enumerate(equal.pairs if equal is not None else ())
    ]
    if place is None:
        body = _by_value(table, span, columns, on)
        return _records(records, srid=0) + body, parameters
    spot = spot_of(place, table)
    test, values = _test(place, spot)
    body = _body(table, place, spot, columns, [*on, *test])
    return _records(records, srid=spot.srid) + body, {**parameters, **values}


def _records(records: Records, *, srid: int) -> sql.Composed:
    """The records as ``l``: their number, their place if they have one, their keys."""
    names = list(records.arrays)
    plain = [name for name in names if name not in ("x", "y", "wkb")]
    shown = [sql.SQL("u.n"), *(sql.Identifier("u", name) for name in plain)]
    if records.have_places:
        made = "ST_MakePoint(u.x, u.y)" if records.are_points else "ST_GeomFromWKB(u.wkb)"
        shown.append(sql.SQL(f"ST_SetSRID({made}, {srid}) AS g"))
    arrays = [
        sql.SQL("{}::{}[]").format(sql.Placeholder(name, PyFormat.BINARY), sql.SQL(kind))
        for name, (_, kind) in records.arrays.items()
    ]
    once = sql.SQL("MATERIALIZED" if records.have_places else "NOT MATERIALIZED")
    return sql.SQL("WITH l AS {} (SELECT {} FROM unnest({}) WITH ORDINALITY AS u({}, n)) ").format(
        once, _listed(shown), _listed(arrays), _listed([sql.Identifier(name) for name in names])
    )


def _test(place: Spatial, spot: Spot) -> tuple[list[sql.Composable], dict[str, Any]]:
    """What must hold of a pair, and the values that are bound."""
    match place:
        case Topology("relate", _, _, pattern):
            assert pattern is not None
            near = "" if may_be_disjoint(pattern) else "l.g && {plane} AND "
            return [spot.write(near + "ST_Relate(l.g, {plane}, %(pattern)s)")], {"pattern": pattern}
        case Topology(predicate):
            return [spot.write(_PREDICATES[predicate] + "(l.g, {plane})")], {}
        case DWithin(limit=limit, metric="planar"):
            return [spot.write("ST_DWithin(l.g, {plane}, %(limit)s)")], {"limit": limit}
        case DWithin(limit=limit):
            wide = 1.01 * limit + 1  # metres for the index, which measures a little differently
            return [spot.write(_SPHERE_NEAR)], {"limit": limit, "wide": wide}
        case Nearest(k=k, limit=cut_off):
            return [], {"k": k, "limit": math.inf if cut_off is None else cut_off}
    raise AssertionError(place)


def _by_value(
    table: Description,
    span: Range | None,
    columns: Sequence[str],
    on: Sequence[sql.Composable],
) -> sql.Composed:
    """Keys and a range; NaN is in none, being above infinity in PostgreSQL."""
    if span is None:
        return _probe(table, columns, on)
    value = table.columns[span.right].key("t")
    if isinstance(span, Between):
        ranged = sql.SQL("{} BETWEEN l.low AND l.high").format(value)
        return _probe(table, columns, [*on, ranged])
    return _newest(table, value, columns, on)


def _newest(
    table: Description,
    value: sql.Composable,
    columns: Sequence[str],
    on: Sequence[sql.Composable],
) -> sql.Composed:
    """Each record takes the row with the largest value, the last of several in the table's order.

    An index on the keys and the value gives it at once.
    """
    read = [table.columns[name].read("t") for name in columns]
    names = [sql.Identifier(f"c{number}") for number in range(len(read))]
    shown = [
        sql.SQL("{} AS {}").format(expression, name)
        for expression, name in zip(read, names, strict=True)
    ]
    return sql.SQL(
        "SELECT {} FROM l CROSS JOIN LATERAL (SELECT {} FROM {} AS t WHERE {} ORDER BY {} LIMIT 1)"
        " AS r ORDER BY l.n"
    ).format(
        _listed([sql.SQL("l.n"), *names]),
        _listed(shown),
        table.relation,
        _all([*on, sql.SQL("{} <= l.until").format(value)]),
        _listed([sql.SQL("{} DESC").format(one) for one in (value, *table.ordered("t"))]),
    )


def _body(
    table: Description,
    place: Spatial,
    spot: Spot,
    columns: Sequence[str],
    on: Sequence[sql.Composable],
) -> sql.Composed:
    match place:
        case Nearest():
            return _nearest(table, place, spot, columns, on)
        case Topology() if table.few:
            return _walk(table, spot, columns, on)
    return _probe(table, columns, [*on, spot.is_there])


def _probe(
    table: Description, columns: Sequence[str], on: Sequence[sql.Composable]
) -> sql.Composed:
    """Each record asks the table, through its index."""
    return sql.SQL("SELECT {} FROM l JOIN {} AS t ON {} ORDER BY {}").format(
        _selected(table, columns), table.relation, _all(on), _in_order(table)
    )


def _walk(
    table: Description, spot: Spot, columns: Sequence[str], on: Sequence[sql.Composable]
) -> sql.Composed:
    """Each table row asks the records: PostGIS prepares its shape once, not once a record.

    10,000 points in 16 districts of 3,000 vertices each took 0.4 s so, 14 s through the index; in
    263 taxi zones both took the same.
    """
    return sql.SQL(
        "SELECT {} FROM {} AS t CROSS JOIN LATERAL (SELECT l.n FROM l WHERE {} OFFSET 0) AS l"
        " WHERE {} ORDER BY {}"
    ).format(_selected(table, columns), table.relation, _all(on), spot.is_there, _in_order(table))


def _nearest(
    table: Description,
    place: Nearest,
    spot: Spot,
    columns: Sequence[str],
    on: Sequence[sql.Composable],
) -> sql.Composed:
    """Each record takes the first `k` rows by distance, equally far ones in the table's order.

    The index knows distances only, and gives up (before PostgreSQL 17) where rows are to be sorted
    by something else besides. So it is asked twice: how far the `k`-th row is, and which rows are
    no farther.
    """
    by, reached, far = _SPHERE_NEAREST if is_on_sphere(place) else _PLANE_NEAREST
    read = [table.columns[name].read("t") for name in columns]
    shown = [sql.Identifier(f"c{number}") for number in range(len(read))]
    ordered = table.ordered("t")
    ranks = [sql.Identifier(f"o{number}") for number in range(len(ordered))]
    inner = [
        sql.SQL("{} AS {}").format(expression, name)
        for expression, name in zip([*read, *ordered], [*shown, *ranks], strict=True)
    ]
    parts = {
        "shown": _listed([sql.SQL("l.n"), *shown, sql.SQL("far")]),
        "table": table.relation,
        "usable": _all([*on, spot.is_there]),
        "by": spot.write(by),
        "inner": _listed([*inner, sql.SQL("{} AS far").format(spot.write(far))]),
        "reached": spot.write(reached),
        "first": _listed([sql.SQL("far"), *ordered]),
        "order": _listed([sql.SQL("l.n"), sql.SQL("far"), *ranks]),
    }
    return sql.SQL(
        "SELECT {shown} FROM l"
        " CROSS JOIN LATERAL (SELECT max(far) AS reach FROM ("
        "SELECT {by} AS far FROM {table} AS t WHERE {usable} ORDER BY {by} LIMIT %(k)s) AS s) AS b"
        " CROSS JOIN LATERAL (SELECT {inner} FROM {table} AS t WHERE {usable} AND {reached}"
        " ORDER BY {first} LIMIT %(k)s) AS r"
        " WHERE far <= %(limit)s ORDER BY {order}"
    ).format(**parts)


def _selected(table: Description, columns: Sequence[str]) -> sql.Composed:
    return _listed([sql.SQL("l.n"), *(table.columns[name].read("t") for name in columns)])


def _in_order(table: Description) -> sql.Composed:
    return _listed([sql.SQL("l.n"), *table.ordered("t")])


def _listed(parts: Sequence[sql.Composable]) -> sql.Composed:
    return sql.SQL(", ").join(parts)


def _all(conditions: Sequence[sql.Composable]) -> sql.Composed:
    return sql.SQL(" AND ").join(conditions)
