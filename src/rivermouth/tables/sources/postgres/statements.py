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

from rivermouth.errors import ColumnError, TableInvalid
from rivermouth.kernels.spatial.sphere import RADIUS
from rivermouth.kernels.spatial.strtree import may_be_disjoint
from rivermouth.spec.conditions import (
    DWithin,
    Nearest,
    Parts,
    Point,
    Spatial,
    Topology,
    is_on_sphere,
)
from rivermouth.tables.source import srid_of
from rivermouth.tables.sources.postgres.address import CALL
from rivermouth.tables.sources.postgres.catalog import GeometryColumn
from rivermouth.tables.sources.postgres.records import Records
from rivermouth.tables.sources.sql.relation import Column, Columns, Relation
from rivermouth.tables.sources.sql.statements import join, key_tests, lookup

_PREDICATES = {
    "within": "ST_Within",
    "contains": "ST_Contains",
    "intersects": "ST_Intersects",
    "covers": "ST_Covers",
    "covered_by": "ST_CoveredBy",
    "touches": "ST_Touches",
    "crosses": "ST_Crosses",
    "overlaps": "ST_Overlaps",
    "equals": "l.g && {plane} AND ST_Equals",  # which does not use the index itself
    "disjoint": "ST_Disjoint",
}

# True of rows with a place: null makes no comparison true, and NaN is above infinity. A bounding
# box leaves out a NaN between two vertices; lengths do not.
_HAS_GEOMETRY = (
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
class Geometry:
    """The table's geometries in a statement.

    Parameters
    ----------
    plane, sphere
        The expressions for PostGIS's geometry and geography.
    exists
        True of the rows that have a place.
    srid
        Their reference system, which the records' places are given.
    """

    plane: str
    sphere: str
    exists: str
    srid: int

    def write(self, text: str) -> str:
        """`text` with the table's geometry where it says ``{plane}`` or ``{sphere}``."""
        return text.format(plane=self.plane, sphere=self.sphere)


def geometry_of(spatial: Spatial, relation: Relation) -> Geometry:
    """The geometries that the condition names in the table."""
    plane, sphere, srid = _expressions(spatial, relation)
    test = _IS_ON_SPHERE if is_on_sphere(spatial) else _HAS_GEOMETRY
    return Geometry(plane, sphere, test.format(plane), srid)


def _expressions(spatial: Spatial, relation: Relation) -> tuple[str, str, int]:
    """The table's geometries for the plane and for the sphere, and their SRID."""
    if isinstance(spatial.right, Point):
        x, y = (relation.columns[name].at for name in (spatial.right.x, spatial.right.y))
        made = f"ST_MakePoint({x}::float8, {y}::float8)"
        return made, f"geography({made})", 0
    column = relation.columns[spatial.right]
    if not isinstance(column, GeometryColumn):
        raise ColumnError(
            CALL,
            f"column {spatial.right!r} is {column.field.type}, which PostGIS has no index for",
            todo=f"Make it a geometry, as in ST_GeomFromWKB({spatial.right}), or keep the table "
            "near with cache=rm.full().",
        )
    if is_on_sphere(spatial) and not column.points:
        raise TableInvalid(
            CALL,
            f"column {spatial.right!r} holds shapes that are not points, and PostGIS is asked for "
            "great circles between points only",
            todo="Use cache=rm.full(), which measures to every shape, or a column of points.",
        )
    srid = srid_of(column.field) or 0
    if column.is_geography:
        return f"{column.at}::geometry", column.at, srid
    return column.at, f"geography({column.at})", srid


def statement(
    relation: Relation, parts: Parts, columns: Columns, records: Records
) -> tuple[str, dict[str, Any]]:
    """The statement and its parameters; gives the record's position in `records`, then `columns`.

    Rows come by record, then in the table's order; for `nearest` by distance, which comes last.
    """
    keys, spatial, span = parts
    parameters = {name: values for name, (values, _) in records.arrays.items()}
    parameters |= relation.parameters
    if spatial is None:
        body = lookup(relation, columns, keys, span, "l", newest=_newest)
        return _records(records, srid=0) + body, parameters
    geometry = geometry_of(spatial, relation)
    test, values = _test(spatial, geometry)
    on = [*key_tests(relation, keys), *test]
    match spatial:
        case Nearest():
            body = _nearest(relation, spatial, geometry, columns, on)
        case Topology() if relation.few:
            body = _walk(relation, geometry, columns, on)
        case _:
            body = join(relation, columns, [*on, geometry.exists], "l")
    return _records(records, srid=geometry.srid) + body, {**parameters, **values}


def _records(records: Records, *, srid: int) -> str:
    """The records as ``l``: their position, their place if they have one, their keys."""
    names = list(records.arrays)
    shown = ["u.n - 1 AS n", *(f"u.{name}" for name in names if name not in ("x", "y", "wkb"))]
    made = {"x": "ST_MakePoint(u.x, u.y)", "wkb": "ST_GeomFromWKB(u.wkb)"}.get(names[0])
    if made is not None:
        shown.append(f"ST_SetSRID({made}, {srid}) AS g")
    arrays = [f"%({name})b::{sent}[]" for name, (_, sent) in records.arrays.items()]
    return (
        f"WITH l AS {'NOT ' if made is None else ''}MATERIALIZED (SELECT {', '.join(shown)}"
        f" FROM unnest({', '.join(arrays)}) WITH ORDINALITY AS u({', '.join(names)}, n)) "
    )


def _test(spatial: Spatial, geometry: Geometry) -> tuple[list[str], dict[str, Any]]:
    """What must hold of a pair, and the values that are bound."""
    match spatial:
        case Topology("relate", _, _, pattern):
            assert pattern is not None
            near = "" if may_be_disjoint(pattern) else "l.g && {plane} AND "
            test = geometry.write(near + "ST_Relate(l.g, {plane}, %(pattern)s)")
            return [test], {"pattern": pattern}
        case Topology(predicate):
            return [geometry.write(_PREDICATES[predicate] + "(l.g, {plane})")], {}
        case DWithin(limit=limit, metric="planar"):
            return [geometry.write("ST_DWithin(l.g, {plane}, %(limit)s)")], {"limit": limit}
        case DWithin(limit=limit):
            wide = 1.01 * limit + 1  # metres for the index, which measures a little differently
            return [geometry.write(_SPHERE_NEAR)], {"limit": limit, "wide": wide}
        case Nearest(k=k, limit=cut_off):
            return [], {"k": k, "limit": math.inf if cut_off is None else cut_off}
    raise AssertionError(spatial)


def _newest(
    relation: Relation, columns: Columns, on: Sequence[str], value: Column, records: str
) -> str:
    """Each record takes the row with the largest value, the last of several in the table's order.

    An index on the keys and the value gives it at once.
    """
    names = [f"c{number}" for number in range(len(columns))]
    read = [f"{column.reads} AS {name}" for column, name in zip(columns, names, strict=True)]
    last_first = [f"{one} DESC" for one in (value.ordered, *relation.ordered)]
    return (
        f"SELECT {', '.join(['l.n', *names])} FROM {records} AS l CROSS JOIN LATERAL ("
        f"SELECT {', '.join(read)} FROM {relation.name} AS t"
        f" WHERE {' AND '.join([*on, value.compares('<=', 'l.until'), *relation.tests])}"
        f" ORDER BY {', '.join(last_first)} LIMIT 1) AS r ORDER BY l.n"
    )


def _walk(relation: Relation, geometry: Geometry, columns: Columns, on: Sequence[str]) -> str:
    """Each table row probes the records: PostGIS prepares its shape once, not once a record.

    10,000 points in 16 districts of 3,000 vertices each took 0.4 s so, 14 s through the index; in
    263 taxi zones both took the same.
    """
    return (
        f"SELECT {', '.join(['l.n', *(column.reads for column in columns)])}"
        f" FROM {relation.name} AS t CROSS JOIN LATERAL ("
        f"SELECT l.n FROM l WHERE {' AND '.join(on)} OFFSET 0) AS l"
        f" WHERE {' AND '.join([geometry.exists, *relation.tests])}"
        f" ORDER BY {', '.join(['l.n', *relation.ordered])}"
    )


def _nearest(
    relation: Relation, spatial: Nearest, geometry: Geometry, columns: Columns, on: Sequence[str]
) -> str:
    """Each record takes the first `k` rows by distance, equally far ones in the table's order.

    The index knows distances only, and gives up (before PostgreSQL 17) where rows are to be sorted
    by something else besides. So it is queried twice: how far the `k`-th row is, and which rows
    are no farther.
    """
    by, reached, far = map(
        geometry.write, _SPHERE_NEAREST if is_on_sphere(spatial) else _PLANE_NEAREST
    )
    read, order = [column.reads for column in columns], relation.ordered
    shown, ranks = ([f"{c}{n}" for n in range(len(of))] for c, of in (("c", read), ("o", order)))
    inner = [f"{a} AS {b}" for a, b in zip([*read, *order], [*shown, *ranks], strict=True)]
    usable = " AND ".join([*on, geometry.exists, *relation.tests])
    return (
        f"SELECT {', '.join(['l.n', *shown, 'far'])} FROM l"
        " CROSS JOIN LATERAL (SELECT max(far) AS reach FROM ("
        f"SELECT {by} AS far FROM {relation.name} AS t WHERE {usable}"
        f" ORDER BY {by} LIMIT %(k)s) AS s) AS b"
        f" CROSS JOIN LATERAL (SELECT {', '.join([*inner, f'{far} AS far'])}"
        f" FROM {relation.name} AS t WHERE {usable} AND {reached}"
        f" ORDER BY {', '.join(['far', *order])} LIMIT %(k)s) AS r"
        f" WHERE far <= %(limit)s ORDER BY {', '.join(['l.n', 'far', *ranks])}"
    )
