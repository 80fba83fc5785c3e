"""The kernels as Spark SQL: the same operations on the same doubles, in the same order.

`rivermouth.kernels.spatial` explains them: `cells` and `orientation` for points in polygons,
`distance` and `sphere` for distances. Only the sines of the JVM may differ from theirs, in the
last bit.

Functions take SQL and give SQL: a tree of Column objects costs a call into the JVM per node.
Spark writes an expression out wherever it is used, and the JVM does not compile methods of more
than 8,000 bytes, so what is used often is bound to a name by `let`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from rivermouth.kernels.spatial.cells import PREDICATES
from rivermouth.kernels.spatial.orientation import FILTER, SPLITTER
from rivermouth.kernels.spatial.sphere import RADIUS
from rivermouth.kernels.spatial.sql_grid import MOST_CELLS, PRIMES

Sql = str

_ON_EDGE = 1 << 20  # more crossings than a polygon has in a cell


def number(value: float) -> Sql:
    """A double, to the last bit."""
    return f"{value!r}D" if math.isfinite(value) else f"double('{value!r}')"


def let(name: str, value: Sql, body: Sql) -> Sql:
    """`body` with a value computed once under a name; SQL names a value in lambdas only."""
    return f"get(transform(array({value}), {name} -> {body}), 0)"


def struct(fields: Mapping[str, Sql]) -> Sql:
    """A struct of these fields."""
    return f"struct({', '.join(f'{value} AS {name}' for name, value in fields.items())})"


# -- cells


def grid_cell(space: Sql, x: Sql, y: Sql) -> Sql:
    """The number of the grid's cell that a point lies in; 0 outside, and for NaN."""
    i = _clamped(f"floor(({x} - {space}.x0) / {space}.width)", f"{space}.across")
    j = _clamped(f"floor(({y} - {space}.y0) / {space}.height)", f"{space}.along")
    return (
        f"CASE WHEN {_between(x, f'{space}.x0', f'{space}.x1')}"
        f" AND {_between(y, f'{space}.y0', f'{space}.y1')}"
        f" THEN int({j} * bigint({space}.across) + {i} + 1) ELSE 0 END"
    )


def _clamped(cell: Sql, count: Sql) -> Sql:
    return f"least(greatest({cell}, 0), bigint({count}) - 1)"


def _between(value: Sql, low: Sql, high: Sql) -> Sql:
    """False for NaN, which Spark holds to be larger than every number."""
    return f"({value} >= {low} AND {value} <= {high})"


def hashed_cell(space: Sql, position: tuple[Sql, ...]) -> Sql:
    """The number of the hashed cell that a position lies in; 0 where nothing can be near."""
    inside, terms = [], []
    for axis, coordinate in enumerate(position):
        low = f"{space}.low{axis}"
        inside.append(_between(coordinate, low, f"{space}.high{axis}"))
        count = f"least(floor(({coordinate} - {low}) / {space}.side), {MOST_CELLS}L)"
        terms.append(f"{count} * {PRIMES[axis]}L")
    cell = f"({' + '.join(terms)}) % bigint({space}.count) + 1"
    return f"CASE WHEN {' AND '.join(inside)} THEN int({cell}) ELSE 0 END"


def unit_vector(lon: Sql, lat: Sql) -> tuple[Sql, Sql, Sql]:
    """A point in degrees as a vector of length one, null where the latitude is beyond a pole."""
    lam, phi = _radians(lon), f"CASE WHEN abs({lat}) <= 90D THEN {_radians(lat)} END"
    return f"cos({phi}) * cos({lam})", f"cos({phi}) * sin({lam})", f"sin({phi})"


def _radians(degrees: Sql) -> Sql:
    return f"({degrees} * {number(math.pi / 180)})"


# -- a point against a candidate


def in_polygon(candidate: Sql, x: Sql, y: Sql, predicate: str) -> Sql:
    """Whether `predicate` holds; a candidate without edges has the point inside."""
    inside, boundary = PREDICATES[predicate]
    verdict = f"CASE WHEN n >= {_ON_EDGE} THEN {boundary} ELSE n % 2 = 1 AND {inside} END"
    crossed = (
        f"aggregate({candidate}.edges, 0, (n, e) -> n + {_crossing('e', x, y)}, n -> {verdict})"
    )
    return f"({candidate}.edges IS NULL OR {crossed})"


def _crossing(edge: Sql, x: Sql, y: Sql) -> Sql:
    """1 where a ray to the right crosses the edge, upper end excluded; `_ON_EDGE` on the edge."""
    ax, ay, bx, by = (f"{edge}.{end}" for end in ("ax", "ay", "bx", "by"))
    crosses = f"int({y} < {by})"
    return (
        f"CASE WHEN {y} < {ay} OR {y} > {by} OR ({x} > {ax} AND {x} > {bx}) THEN 0"
        f" WHEN {x} < {ax} AND {x} < {bx} THEN {crosses}"
        f" ELSE {by_side((ax, ay), (bx, by), (x, y), left=crosses, right='0', on=str(_ON_EDGE))}"
        f" END"
    )


def is_near(candidate: Sql, x: Sql, y: Sql, limit: float, *, sphere: bool) -> Sql:
    """Whether a candidate is at most `limit` away."""
    if sphere:
        distance = great_circle(x, y, f"{candidate}.x", f"{candidate}.y")
    else:
        dx, dy = f"({x} - {candidate}.x)", f"({y} - {candidate}.y)"
        distance = f"sqrt({dx} * {dx} + {dy} * {dy})"
    return f"({distance} <= {number(limit)})"


def great_circle(lon: Sql, lat: Sql, other_lon: Sql, other_lat: Sql) -> Sql:
    """Metres between two points in degrees (haversine)."""
    phi, other_phi = _radians(lat), _radians(other_lat)
    s = f"sin(({other_phi} - {phi}) / 2D)"
    t = f"sin({_radians(f'({other_lon} - {lon})')} / 2D)"
    h = f"({s} * {s} + cos({phi}) * cos({other_phi}) * {t} * {t})"
    return f"({number(2 * RADIUS)} * atan2(sqrt({h}), sqrt(greatest(0D, 1D - {h}))))"


# -- on which side of a line a point lies, as in `rivermouth.kernels.spatial.orientation`

Xy = tuple[Sql, Sql]


def by_side(a: Xy, b: Xy, p: Xy, *, left: Sql, right: Sql, on: Sql) -> Sql:
    """One of three: `p` lies left of the line from `a` to `b`, right of it, or on it."""
    (ax, ay), (bx, by), (px, py) = a, b, p
    pairs = {"a": (ax, px), "b": (by, py), "c": (ay, py), "d": (bx, px)}
    factors = {name: f"({one} - {other})" for name, (one, other) in pairs.items()}
    products = {pq: f"{factors[pq[0]]} * {factors[pq[1]]}" for pq in ("ab", "cd")}
    by_sign = f"CASE WHEN sign > 0D THEN {left} WHEN sign < 0D THEN {right} ELSE {on} END"
    return let(
        "f",
        struct(factors | products),
        f"CASE WHEN abs(f.ab - f.cd) > {number(FILTER)} * (abs(f.ab) + abs(f.cd))"
        f" THEN CASE WHEN f.ab > f.cd THEN {left} ELSE {right} END"
        f" WHEN f.ab = 0D AND f.cd = 0D THEN {on}"
        f" ELSE {let('sign', _in_double_double(pairs), by_sign)} END",
    )


def _in_double_double(pairs: Mapping[str, Xy]) -> Sql:
    """The difference a * b - c * d, of `f` and what rounding left of it (about 106 bits)."""
    lows = {f"{name}_low": _rest(f"f.{name}", *pair) for name, pair in pairs.items()}
    heads = {f"{name}_head": _head(f"f.{name}") for name in pairs}
    rests = {"ab": _product_rest("a", "b"), "cd": _product_rest("c", "d")}
    ab, cd = "(f.ab + rest.ab)", "(f.cd + rest.cd)"
    low = f"((rest.ab - ({ab} - f.ab)) - (rest.cd - ({cd} - f.cd)))"
    return let("g", struct(lows | heads), let("rest", struct(rests), f"({ab} - {cd}) + {low}"))


def _rest(high: Sql, a: Sql, b: Sql) -> Sql:
    """What `high`, the rounded difference of `a` and `b`, leaves of it."""
    rest = f"({a} - {high})"
    return f"({a} - ({high} + {rest})) + ({rest} - {b})"


def _head(a: Sql) -> Sql:
    """The upper half of a double's bits (Dekker)."""
    c = f"{number(SPLITTER)} * {a}"
    return f"({c} - ({c} - {a}))"


def _product_rest(p: str, q: str) -> Sql:
    """What the rounded product of two factors leaves of the product of their double-doubles."""
    a, a_head, a_low = f"f.{p}", f"g.{p}_head", f"g.{p}_low"
    b, b_head, b_low = f"f.{q}", f"g.{q}_head", f"g.{q}_low"
    a_tail, b_tail = f"({a} - {a_head})", f"({b} - {b_head})"
    rest = (
        f"({a_tail} * {b_tail}"
        f" - (((f.{p}{q} - {a_head} * {b_head}) - {a_tail} * {b_head}) - {a_head} * {b_tail}))"
    )
    return f"{rest} + ({a} * {b_low} + {a_low} * {b})"
