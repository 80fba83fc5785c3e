"""The kernels as Spark SQL: the same operations on the same doubles, in the same order.

`rivermouth.kernels` says why they are right: `cells` and `orientation` for points in polygons,
`kdtree` and `sphere` for distances. Only the sines of the JVM may differ from theirs, in the
last place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812  (as everybody writes it)

from rivermouth.kernels.cells import ANSWERS
from rivermouth.kernels.lists import MOST, PRIMES
from rivermouth.kernels.orientation import FILTER, SPLITTER
from rivermouth.kernels.sphere import RADIUS

_Spot = tuple[Column, Column]

_RADIANS = math.pi / 180
_ON_EDGE = 1 << 20  # more crossings than a polygon has in a cell, and an even number


def let(value: Column, body: Callable[[Column], Column]) -> Column:
    """`body` of a value that is computed once: SQL has no name for it but a lambda's."""
    return F.get(F.transform(F.array(value), body), F.lit(0))


# -- cells


def grid_cell(space: Column, x: Column, y: Column) -> Column:
    """The number of the cell of a grid that a point lies in; null outside, NaN and null too."""
    is_inside = (x >= space["x0"]) & (x <= space["x1"]) & (y >= space["y0"]) & (y <= space["y1"])
    across, along = space["across"].cast("long"), space["along"].cast("long")
    i = _clamped(F.floor((x - space["x0"]) / space["width"]), across)
    j = _clamped(F.floor((y - space["y0"]) / space["height"]), along)
    return F.when(is_inside, (j * across + i).cast("int"))


def _clamped(number: Column, count: Column) -> Column:
    return F.least(F.greatest(number, F.lit(0)), count - 1)


def hashed_cell(space: Column, cells: Column, position: Sequence[Column]) -> Column:
    """The number of the hashed cell that a place lies in; null where nothing can be near."""
    is_inside, number = F.lit(True), F.lit(0)
    for axis, (coordinate, prime) in enumerate(zip(position, PRIMES, strict=False)):
        low, high = space[f"low{axis}"], space[f"high{axis}"]
        is_inside &= (coordinate >= low) & (coordinate <= high)
        count = F.floor((coordinate - low) / space["side"])
        number += F.least(count, F.lit(MOST)) * F.lit(prime)
    return F.when(is_inside, (number % F.size(cells)).cast("int"))


def on_sphere(lon: Column, lat: Column) -> tuple[Column, Column, Column]:
    """A point in degrees as a vector of length one, null where the latitude is beyond a pole."""
    lam, phi = lon * _RADIANS, F.when(F.abs(lat) <= 90.0, lat) * _RADIANS
    return F.cos(phi) * F.cos(lam), F.cos(phi) * F.sin(lam), F.sin(phi)


# -- a point against a candidate


def in_polygon(candidate: Column, x: Column, y: Column, predicate: str) -> Column:
    """Whether `predicate` holds; a candidate without edges has the point inside."""
    inside, boundary = ANSWERS[predicate]
    edges = candidate["edges"]

    def verdict(count: Column) -> Column:
        return F.when(count >= _ON_EDGE, boundary).otherwise((count % 2 == 1) & F.lit(inside))

    crossed = F.aggregate(
        edges, F.lit(0), lambda count, edge: count + _crossing(edge, x, y), verdict
    )
    return F.when(edges.isNull(), True).otherwise(crossed)


def _crossing(edge: Column, x: Column, y: Column) -> Column:
    """1 where a ray to the right crosses the edge, the upper end not included; `_ON_EDGE` on it."""
    ax, ay, bx, by = (edge[end] for end in ("ax", "ay", "bx", "by"))
    misses = (y < ay) | (y > by) | ((x > ax) & (x > bx))
    crosses = (y < by).cast("int")
    return (
        F.when(misses, 0)
        .when((x < ax) & (x < bx), crosses)
        .otherwise(
            by_side((ax, ay), (bx, by), (x, y), left=crosses, right=F.lit(0), on=F.lit(_ON_EDGE))
        )
    )


def is_near(candidate: Column, x: Column, y: Column, limit: float, *, sphere: bool) -> Column:
    """Whether a candidate is at most `limit` away."""
    other_x, other_y = candidate["x"], candidate["y"]
    if sphere:
        return great_circle(x, y, other_x, other_y) <= limit
    dx, dy = x - other_x, y - other_y
    return F.sqrt(dx * dx + dy * dy) <= limit


def great_circle(lon: Column, lat: Column, other_lon: Column, other_lat: Column) -> Column:
    """Metres between two points in degrees (haversine)."""
    phi, other_phi = lat * _RADIANS, other_lat * _RADIANS
    s = F.sin((other_phi - phi) / 2)
    t = F.sin((other_lon - lon) * _RADIANS / 2)
    h = s * s + F.cos(phi) * F.cos(other_phi) * t * t
    rest = F.greatest(F.lit(0.0), 1.0 - h)
    return 2 * RADIUS * F.atan2(F.sqrt(h), F.sqrt(rest))


# -- on which side of a line


def by_side(a: _Spot, b: _Spot, p: _Spot, *, left: Column, right: Column, on: Column) -> Column:
    """What is given for where `p` lies: left of the line from `a` to `b`, right of it, or on it.

    `rivermouth.kernels.orientation`, with what is used often bound to a name: Spark writes an
    expression out wherever it is used, and the JVM does not compile methods of 8,000 bytes.
    """
    (ax, ay), (bx, by), (px, py) = a, b, p
    pairs = {"a": (ax, px), "b": (by, py), "c": (ay, py), "d": (bx, px)}

    def filtered(of: Column) -> Column:
        one, other = of["a"] * of["b"], of["c"] * of["d"]
        bound = FILTER * (F.abs(one) + F.abs(other))
        return (
            F.when(one - other > bound, left)
            .when(other - one > bound, right)
            .when((one == 0.0) & (other == 0.0), on)
            .otherwise(let(_in_double_double(of, pairs), by_sign))
        )

    def by_sign(difference: Column) -> Column:
        return F.when(difference > 0.0, left).when(difference < 0.0, right).otherwise(on)

    return let(_named(**{name: p - q for name, (p, q) in pairs.items()}), filtered)


def _in_double_double(of: Column, pairs: Mapping[str, tuple[Column, Column]]) -> Column:
    """A * b - c * d, where each factor is the difference of a pair."""
    lows = {f"{name}_low": _rest(of[name], *pair) for name, pair in pairs.items()}
    heads = {f"{name}_head": _head(of[name]) for name in pairs}

    def products(parts: Column) -> Column:
        left = _low_product(of, parts, "a", "b")
        right = _low_product(of, parts, "c", "d")
        return let(_named(left=left, right=right), difference)

    def difference(low: Column) -> Column:
        high, other = of["a"] * of["b"], of["c"] * of["d"]
        left, right = high + low["left"], other + low["right"]
        left_low = low["left"] - (left - high)
        right_low = low["right"] - (right - other)
        return (left - right) + (left_low - right_low)

    return let(_named(**lows, **heads), products)


def _named(**columns: Column) -> Column:
    return F.struct(*(column.alias(name) for name, column in columns.items()))


def _rest(high: Column, a: Column, b: Column) -> Column:
    """What `high`, the rounded difference of `a` and `b`, leaves of it."""
    rest = a - high
    return (a - (high + rest)) + (rest - b)


def _low_product(of: Column, parts: Column, one: str, other: str) -> Column:
    """What a * b leaves of the product of two double-doubles."""
    a, a_low, a_head = of[one], parts[f"{one}_low"], parts[f"{one}_head"]
    b, b_low, b_head = of[other], parts[f"{other}_low"], parts[f"{other}_head"]
    a_tail, b_tail = a - a_head, b - b_head
    low = a_tail * b_tail - (((a * b - a_head * b_head) - a_tail * b_head) - a_head * b_tail)
    return low + (a * b_low + a_low * b)


def _head(a: Column) -> Column:
    """The upper half of a double's bits (Dekker)."""
    c = SPLITTER * a
    return c - (c - a)
