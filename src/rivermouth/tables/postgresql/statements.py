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

from rivermouth.errors import TableInvalid
from rivermouth.kernels.sphere import RADIUS
from rivermouth.kernels.tree import may_be_disjoint
from rivermouth.spec.conditions import Equal, Near, Nearest, Place, Point, Topology
from rivermouth.tables.postgresql.access import WHERE
from rivermouth.tables.postgresql.catalog import Description
from rivermouth.tables.postgresql.records import Records

_PREDICATES = {
    "within": "ST_Within",
    "contains": "ST_Contains",
    "intersects": "ST_Intersects",
    "covers": "ST_Covers",
    "covered_by": "ST_CoveredBy",
    "touches": "ST_Touches",
    "crosses": "ST_Crosses",
    "overlaps": "ST_Overlaps",
    "equals": "ST_Equals",
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

_FAR = sql.Identifier("far")


@dataclass(frozen=True)
class Spot:
    """The table's places in a statement.

    Parameters
    ----------
    geometry, geography
        The expressions for the plane and for the sphere.
    is_there
        True of the rows that have a place.
    srid
        Their reference system, which the records' places are given.
    """

    geometry: sql.Composable
    geography: sql.Composable
    is_there: sql.Composable
    srid: int


def is_on_sphere(place: Place | None) -> bool:
    """Whether `place` is measured along great circles."""
    return isinstance(place, (Near, Nearest)) and place.metric == "sphere"


def spot_of(place: Place, table: Description) -> Spot:
    """The places that `place` names in the table."""
    geometry, geography, srid = _expressions(place, table)
    test = sql.SQL(_IS_ON_SPHERE if is_on_sphere(place) else _HAS_PLACE)
    return Spot(geometry, geography, test.format(geometry), srid)


def _expressions(place: Place, table: Description) -> tuple[sql.Composable, sql.Composable, int]:
    """The table's places for the plane and for the sphere, and their SRID."""
    if isinstance(place.right, Point):
        x, y = (table.columns[name].at("t") for name in (place.right.x, place.right.y))
        made = sql.SQL("ST_MakePoint({}::float8, {}::float8)").format(x, y)
        return made, sql.SQL("geography({})").format(made), 0
    column = table.columns[place.right]
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
    equal: Equal | None,
    place: Place | None,
    columns: Sequence[str],
    records: Records,
) -> tuple[sql.Composed, dict[str, Any]]:
    """The statement and its parameters; gives the record's place in `records`, then `columns`.

    Rows come by record, then in the table's order; for `nearest` by distance, which comes last.
    """
    spot = None if place is None else spot_of(place, table)
    parameters = {name: values for name, (values, _) in records.arrays.items()}
    on: list[sql.Composable] = [
        sql.SQL("{} = {}").format(table.columns[name].key("t"), sql.Identifier("l", f"key{number}"))
        for number, (_, name) in enumerate(equal.pairs if equal else ())
    ]
    if place is not None and spot is not None:
        test, values = _test(place, spot)
        on += test
        parameters |= values
    if isinstance(place, Nearest) and spot is not None:
        body = _nearest(table, place, spot, columns, on)
    elif isinstance(place, Topology) and spot is not None and table.few:
        body = _walk(table, spot, columns, on)
    else:
        there = [] if spot is None else [spot.is_there]
        body = _probe(table, columns, on + there)
    return _records(records, spot) + body, parameters


def _records(records: Records, spot: Spot | None) -> sql.Composed:
    """The records as ``l``: their number, their place for the plane and the sphere, their keys."""
    names = list(records.arrays)
    shown: list[sql.Composable] = [sql.SQL("u.n")]
    if spot is not None:
        made = "ST_MakePoint(u.x, u.y)" if records.are_points else "ST_GeomFromWKB(u.wkb)"
        geometry = sql.SQL("ST_SetSRID({}, {})").format(sql.SQL(made), sql.Literal(spot.srid))
        shown.append(sql.SQL("{} AS g").format(geometry))
    keys = [sql.Identifier("u", name) for name in names if name.startswith("key")]
    arrays = [
        sql.SQL("{}::{}[]").format(sql.Placeholder(name), sql.SQL(kind))
        for name, (_, kind) in records.arrays.items()
    ]
    return sql.SQL(
        "WITH l AS MATERIALIZED (SELECT {} FROM unnest({}) WITH ORDINALITY AS u({}, n)) "
    ).format(
        sql.SQL(", ").join([*shown, *keys]),
        sql.SQL(", ").join(arrays),
        sql.SQL(", ").join(map(sql.Identifier, names)),
    )


def _test(place: Place, spot: Spot) -> tuple[list[sql.Composable], dict[str, Any]]:
    """What must hold of a pair, cheapest first, and the values that are bound."""
    match place:
        case Topology("relate", _, _, pattern):
            assert pattern is not None
            near = [] if may_be_disjoint(pattern) else [_pair("l.g && {}", spot.geometry)]
            return [*near, _pair("ST_Relate(l.g, {}, %(pattern)s)", spot.geometry)], {
                "pattern": pattern
            }
        case Topology(predicate):
            return [_pair(_PREDICATES[predicate] + "(l.g, {})", spot.geometry)], {}
        case Near(limit=limit, metric="planar"):
            return [_pair("ST_DWithin(l.g, {}, %(limit)s)", spot.geometry)], {"limit": limit}
        case Near(limit=limit):
            # the index is asked for a little more, the exact distance decides
            return [
                _pair("ST_DWithin({}, geography(l.g), %(wide)s, false)", spot.geography),
                sql.SQL("{} <= %(limit)s").format(_great_circle(spot)),
            ], {"limit": limit, "wide": 1.01 * limit + 1}
        case Nearest(k=k, limit=cut_off):
            return [], {"k": k, "limit": math.inf if cut_off is None else cut_off}
    raise AssertionError(place)


def _pair(text: str, geometry: sql.Composable) -> sql.Composable:
    return sql.SQL(text).format(geometry)


def _great_circle(spot: Spot) -> sql.Composable:
    return sql.SQL("ST_DistanceSphere(l.g, {}, {})").format(spot.geometry, sql.Literal(RADIUS))


def _probe(table: Description, columns: Sequence[str], on: list[sql.Composable]) -> sql.Composed:
    """Each record asks the table, through its index."""
    return sql.SQL("SELECT {} FROM l JOIN {} AS t ON {} ORDER BY {}").format(
        _selected(table, columns), table.relation, _all(on), _in_order(table)
    )


def _walk(
    table: Description, spot: Spot, columns: Sequence[str], on: list[sql.Composable]
) -> sql.Composed:
    """Each table row asks the records: PostGIS prepares its shape once, not once a record.

    Of 16 districts of 3,000 vertices each, 20,000 points asked 15 times as fast.
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
    on: list[sql.Composable],
) -> sql.Composed:
    """Each record takes the first `k` rows by distance, through the index if there is one."""
    on_sphere = is_on_sphere(place)
    far = _great_circle(spot) if on_sphere else _pair("ST_Distance(l.g, {})", spot.geometry)
    by = (
        _pair("{} <-> geography(l.g)", spot.geography)
        if on_sphere
        else _pair("{} <-> l.g", spot.geometry)
    )
    read = [table.columns[name].read("t") for name in columns]
    shown = [sql.Identifier(f"c{number}") for number in range(len(read))]
    ordered = table.ordered("t")
    ranks = [sql.Identifier(f"o{number}") for number in range(len(ordered))]
    inner = [
        sql.SQL("{} AS {}").format(expression, name)
        for expression, name in zip([*read, *ordered, far], [*shown, *ranks, _FAR], strict=True)
    ]
    return sql.SQL(
        "SELECT {} FROM l CROSS JOIN LATERAL (SELECT {} FROM {} AS t WHERE {} ORDER BY {}"
        " LIMIT %(k)s) AS r WHERE far <= %(limit)s ORDER BY {}"
    ).format(
        _listed([sql.SQL("l.n"), *shown, _FAR]),
        _listed(inner),
        table.relation,
        _all([*on, spot.is_there]),
        _listed([by, *ordered]),
        _listed([sql.SQL("l.n"), _FAR, *ranks]),
    )


def _selected(table: Description, columns: Sequence[str]) -> sql.Composed:
    return _listed([sql.SQL("l.n"), *(table.columns[name].read("t") for name in columns)])


def _in_order(table: Description) -> sql.Composed:
    return _listed([sql.SQL("l.n"), *table.ordered("t")])


def _listed(parts: Sequence[sql.Composable]) -> sql.Composed:
    return sql.SQL(", ").join(parts)


def _all(conditions: Sequence[sql.Composable]) -> sql.Composed:
    return sql.SQL(" AND ").join(conditions)
