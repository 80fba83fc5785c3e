"""What a joined pair must satisfy: conditions as values.

A condition reads left to right: the first argument names the event's side, the second the
table's. ``within("spot", "shape")`` keeps the pairs whose event's spot lies within the table
row's shape. Places are named by a column of WKB or of Spark's GEOMETRY type, or by two number
columns with `point`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rivermouth.errors import ConditionError

Metric = Literal["planar", "sphere"]

#: predicate -> the predicate that says the same of the swapped pair
INVERSE = {
    "within": "contains",
    "contains": "within",
    "covers": "covered_by",
    "covered_by": "covers",
    "intersects": "intersects",
    "touches": "touches",
    "crosses": "crosses",
    "overlaps": "overlaps",
    "equals": "equals",
    "disjoint": "disjoint",
}


@dataclass(frozen=True)
class Point:
    """A point given by two number columns, x (longitude) first."""

    x: str
    y: str


def point(x: str, y: str) -> Point:
    """A point made of two number columns: x (longitude) first, then y (latitude).

    A row in which either is null, NaN or infinite has no place and matches nothing.
    """
    return Point(x, y)


Geometry = str | Point


class Condition:
    """What a pair must satisfy; two conditions are combined with ``&``."""

    def __and__(self, other: Condition) -> Condition:
        equal, place = split(self)
        other_equal, other_place = split(other)
        if place is not None and other_place is not None:
            raise ConditionError(
                "&",
                "two places in one condition",
                there=f"{place} and {other_place}",
                todo="Join twice, or keep one place and filter the result.",
            )
        pairs = (*(equal.pairs if equal else ()), *(other_equal.pairs if other_equal else ()))
        both = Equal(tuple(dict.fromkeys(pairs))) if pairs else None
        return combine(both, place or other_place)


@dataclass(frozen=True)
class Equal(Condition):
    """Each left column equals its table column; null and NaN equal nothing."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Topology(Condition):
    """A relation of the nine-intersection model, by shapely's name, or a pattern for `relate`."""

    predicate: str
    left: Geometry
    right: Geometry
    pattern: str | None = None


@dataclass(frozen=True)
class Near(Condition):
    """A distance of at most `limit`."""

    left: Geometry
    right: Geometry
    limit: float
    metric: Metric


@dataclass(frozen=True)
class Nearest(Condition):
    """The `k` nearest rows, no farther than `limit` where there is one."""

    left: Geometry
    right: Geometry
    k: int
    metric: Metric
    limit: float | None


Place = Topology | Near | Nearest


@dataclass(frozen=True)
class All(Condition):
    """Equality and a place."""

    equal: Equal
    place: Place


def split(condition: Condition) -> tuple[Equal | None, Place | None]:
    """The equality and the place that `condition` is made of."""
    match condition:
        case All(equal, place):
            return equal, place
        case Equal():
            return condition, None
        case Topology() | Near() | Nearest():
            return None, condition
    raise ConditionError(
        "on",
        f"{condition!r} is not a condition",
        todo="Write one with rm.equal, rm.within, rm.dwithin, rm.nearest and the like.",
    )


def combine(equal: Equal | None, place: Place | None) -> Condition:
    """The condition made of `equal` and `place`, at least one of them given."""
    if equal is not None and place is not None:
        return All(equal, place)
    condition = equal if equal is not None else place
    assert condition is not None
    return condition


def equal(columns: str | Sequence[str] | Mapping[str, str]) -> Equal:
    """Rows whose columns are equal: one name, several, or {left name: table name}.

    Null and NaN equal nothing. Strings compare by their bytes. 0.0 equals -0.0.

    Examples
    --------
    >>> equal("city")
    Equal(pairs=(('city', 'city'),))
    >>> equal({"uid": "user_id"})
    Equal(pairs=(('uid', 'user_id'),))
    """
    if isinstance(columns, str):
        pairs: tuple[tuple[str, str], ...] = ((columns, columns),)
    elif isinstance(columns, Mapping):
        pairs = tuple(columns.items())
    else:
        pairs = tuple((name, name) for name in columns)
    if not pairs:
        raise ConditionError("equal", "no column is named", todo="Name at least one.")
    return Equal(pairs)


def within(a: Geometry, b: Geometry) -> Topology:
    """`a` lies in `b` and not only on its boundary (shapely's ``within``)."""
    return Topology("within", a, b)


def contains(a: Geometry, b: Geometry) -> Topology:
    """`b` lies in `a` and not only on its boundary (shapely's ``contains``)."""
    return Topology("contains", a, b)


def intersects(a: Geometry, b: Geometry) -> Topology:
    """`a` and `b` share at least one point, boundaries included."""
    return Topology("intersects", a, b)


def covers(a: Geometry, b: Geometry) -> Topology:
    """No point of `b` lies outside `a`."""
    return Topology("covers", a, b)


def covered_by(a: Geometry, b: Geometry) -> Topology:
    """No point of `a` lies outside `b`; unlike `within`, the boundary alone is enough."""
    return Topology("covered_by", a, b)


def touches(a: Geometry, b: Geometry) -> Topology:
    """`a` and `b` share boundary points only."""
    return Topology("touches", a, b)


def crosses(a: Geometry, b: Geometry) -> Topology:
    """The interiors meet in a part of lower dimension than the larger of the two."""
    return Topology("crosses", a, b)


def overlaps(a: Geometry, b: Geometry) -> Topology:
    """Same dimension, interiors meet, neither covers the other."""
    return Topology("overlaps", a, b)


def equals(a: Geometry, b: Geometry) -> Topology:
    """The same set of points, however it is written down."""
    return Topology("equals", a, b)


def disjoint(a: Geometry, b: Geometry) -> Topology:
    """No point in common. An empty or missing geometry is disjoint from nothing here."""
    return Topology("disjoint", a, b)


def relate(a: Geometry, b: Geometry, pattern: str) -> Topology:
    """The nine-intersection matrix of `a` and `b` matches `pattern`, as in ``"T*F**F***"``."""
    if not re.fullmatch(r"[TF012*]{9}", pattern, re.IGNORECASE):
        raise ConditionError(
            "relate",
            f"{pattern!r} is not a nine-intersection pattern",
            todo="Write nine of T, F, 0, 1, 2 and *, as in 'T*F**F***'.",
        )
    return Topology("relate", a, b, pattern.upper())


def dwithin(
    a: Geometry, b: Geometry, *, distance: float | None = None, meters: float | None = None
) -> Near:
    """`a` and `b` are at most so far apart, the bound included.

    Parameters
    ----------
    distance
        Planar, in the coordinates' unit, between any geometries.
    meters
        Great circle, between points of longitude and latitude in degrees, on a sphere of
        6,371,008.7714 m.
    """
    limit, metric = _bound("dwithin", distance, meters)
    if limit is None:
        raise ConditionError(
            "dwithin",
            "no bound is given",
            todo="Give distance= (planar) or meters= (great circle).",
        )
    return Near(a, b, limit, metric)


def nearest(
    a: Geometry,
    b: Geometry,
    *,
    k: int = 1,
    metric: Metric = "planar",
    distance: float | None = None,
    meters: float | None = None,
) -> Nearest:
    """The `k` rows of the table nearest to each event; adds a column ``distance``.

    Rows equally far are taken in the table's row order. `distance` or `meters` is an optional
    cut-off, included; ``meters=`` implies ``metric="sphere"``, whose distances are in metres.
    """
    limit, _ = _bound("nearest", distance, meters)
    if k < 1:
        raise ConditionError("nearest", f"k is {k}", todo="Ask for at least one row.")
    if metric not in ("planar", "sphere"):
        raise ConditionError(
            "nearest", f"{metric!r} is not a metric", todo="Use 'planar' or 'sphere'."
        )
    if distance is not None and metric == "sphere":
        raise ConditionError(
            "nearest", "distance= is planar, the metric is 'sphere'", todo="Use meters=."
        )
    return Nearest(a, b, int(k), "sphere" if meters is not None else metric, limit)


def _bound(where: str, distance: float | None, meters: float | None) -> tuple[float | None, Metric]:
    if distance is not None and meters is not None:
        raise ConditionError(where, "both distance= and meters= are given", todo="Give one.")
    bound, metric = (distance, "planar") if meters is None else (meters, "sphere")
    if bound is not None and not (math.isfinite(bound) and bound >= 0):
        raise ConditionError(
            where, f"the bound is {bound}", todo="Give a finite number that is not negative."
        )
    return (None if bound is None else float(bound)), metric  # type: ignore[return-value]
