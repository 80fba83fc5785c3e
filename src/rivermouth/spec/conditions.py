"""What a joined pair must satisfy: conditions as values.

A condition reads left to right: the first argument names the event's side, the second the
table's. ``within("spot", "shape")`` keeps the pairs whose event's spot lies within the table
row's shape. A geometry is a column of WKB or of Spark's GEOMETRY type, or two number columns with
`point`.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal, NamedTuple

from rivermouth.errors import ConditionError
from rivermouth.spec.durations import microseconds
from rivermouth.spec.showing import html_table

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


#: what follows a distance, and the argument that gives it
_UNIT: dict[Metric, str] = {"planar": "", "sphere": " m"}
_BOUND: dict[Metric, str] = {"planar": "distance", "sphere": "meters"}


@dataclass(frozen=True)
class Point:
    """A point given by two number columns, x (longitude) first."""

    x: str
    y: str

    def __str__(self) -> str:
        return f"rm.point({_quoted(self.x)}, {_quoted(self.y)})"


def point(x: str, y: str) -> Point:
    """A point made of two number columns: x (longitude) first, then y (latitude).

    A row in which either is null, NaN or infinite matches nothing.
    """
    if not (isinstance(x, str) and isinstance(y, str)):
        raise ConditionError(
            "point",
            f"{x!r} and {y!r} are not names of columns",
            todo='Write names, as in rm.point("lon", "lat").',
        )
    return Point(x, y)


Geometry = str | Point


def named(geometry: Geometry) -> tuple[str, ...]:
    """The columns that a geometry is made of."""
    return (geometry.x, geometry.y) if isinstance(geometry, Point) else (geometry,)


class Condition:
    """What a pair must satisfy; two conditions are combined with ``&``.

    Its ``str`` is what a user would write for it.
    """

    def __bool__(self) -> bool:
        raise ConditionError(
            "on",
            "a condition is neither true nor false by itself",
            there="`and`, `or`, `not` and `if` ask for that",
            todo='Combine with &, as in rm.keys("city") & rm.within(...).',
        )

    def __or__(self, other: object) -> Condition:
        raise ConditionError(
            "|",
            "conditions are combined with & only",
            todo="Join twice and put the results together with union.",
        )

    def __and__(self, other: Condition) -> Condition:
        one, two = split(self), split(other)
        searches = [part for part in (*one[1:], *two[1:]) if part is not None]
        if len(searches) > 1:
            raise ConditionError(
                "&",
                "two spatial conditions or ranges",
                there=f"{searches[0]} and {searches[1]}",
                todo="Join twice, or keep one of them and filter the result.",
            )
        pairs = tuple(dict.fromkeys((*key_pairs(one.keys), *key_pairs(two.keys))))
        return combine(Keys(pairs) if pairs else None, searches[0] if searches else None)

    def _repr_html_(self) -> str:
        """For notebooks: the parts, the event's side first."""
        keys, *searches = split(self)
        rows = [(left, f"= {right}") for left, right in key_pairs(keys)]
        return html_table(
            "condition", [*rows, *(_shown(part) for part in searches if part is not None)]
        )


@dataclass(frozen=True)
class Keys(Condition):
    """Each left column equals its table column; null and NaN equal nothing."""

    pairs: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        """One name, a list of names, or a mapping where names differ."""
        if any(left != right for left, right in self.pairs):
            inside = ", ".join(f"{_quoted(left)}: {_quoted(right)}" for left, right in self.pairs)
            return f"rm.keys({{{inside}}})"
        names = ", ".join(_quoted(left) for left, _ in self.pairs)
        return f"rm.keys([{names}])" if len(self.pairs) > 1 else f"rm.keys({names})"


@dataclass(frozen=True)
class Topology(Condition):
    """A relation of the nine-intersection model, by shapely's name, or a pattern for `relate`."""

    predicate: str
    left: Geometry
    right: Geometry
    pattern: str | None = None

    def __post_init__(self) -> None:
        _check_geometries(self.predicate, self.left, self.right)

    def __str__(self) -> str:
        more = () if self.pattern is None else (_quoted(self.pattern),)
        return _call(self.predicate, self.left, self.right, *more)


@dataclass(frozen=True)
class DWithin(Condition):
    """A distance of at most `limit`."""

    left: Geometry
    right: Geometry
    limit: float
    metric: Metric

    def __post_init__(self) -> None:
        _check_geometries("dwithin", self.left, self.right)

    def __str__(self) -> str:
        return _call("dwithin", self.left, self.right, f"{_BOUND[self.metric]}={self.limit:g}")


@dataclass(frozen=True)
class Nearest(Condition):
    """The `k` nearest rows, no farther than `limit` if given; `name` is the distances' column."""

    left: Geometry
    right: Geometry
    k: int
    metric: Metric
    limit: float | None
    name: str = "distance"

    def __post_init__(self) -> None:
        _check_geometries("nearest", self.left, self.right)

    def __str__(self) -> str:
        more = [f"k={self.k}"] if self.k != 1 else []
        if self.limit is not None:
            more.append(f"{_BOUND[self.metric]}={self.limit:g}")
        elif self.metric == "sphere":
            more.append('metric="sphere"')
        return _call("nearest", self.left, self.right, *more)


def _check_geometries(where: str, *geometries: object) -> None:
    for geometry in geometries:
        if not isinstance(geometry, (str, Point)):
            raise ConditionError(
                where,
                f"{geometry!r} does not name a geometry",
                todo='Name a geometry column, or two of numbers as in rm.point("lon", "lat").',
            )


Spatial = Topology | DWithin | Nearest


def is_on_sphere(spatial: Spatial | None) -> bool:
    """Whether distances are great circles."""
    return isinstance(spatial, (DWithin, Nearest)) and spatial.metric == "sphere"


#: what is added to an event's value: a number to numbers, a length of time to dates and times
Offset = int | float | Decimal | dt.timedelta


@dataclass(frozen=True)
class Between(Condition):
    """The table's value lies in [v + lower, v + upper], v being the event's; both included."""

    left: str
    right: str
    lower: Offset
    upper: Offset

    def __str__(self) -> str:
        offsets = {"lower": self.lower, "upper": self.upper}
        more = (f"{name}={_written(offset)}" for name, offset in offsets.items())
        return _call("between", self.left, self.right, *more)


@dataclass(frozen=True)
class AsOf(Condition):
    """The table's row with the largest value that is not above the event's."""

    left: str
    right: str

    def __str__(self) -> str:
        return _call("asof", self.left, self.right)


Range = Between | AsOf


@dataclass(frozen=True)
class All(Condition):
    """Key equality, and a spatial condition or a range."""

    keys: Keys
    search: Spatial | Range

    def __str__(self) -> str:
        return f"{self.keys} & {self.search}"


def _call(name: str, left: Geometry, right: Geometry, *more: str) -> str:
    sides = (side if isinstance(side, Point) else _quoted(side) for side in (left, right))
    return f"rm.{name}({', '.join((*map(str, sides), *more))})"


def _quoted(text: str) -> str:
    """A text as Python code, in the quotes that the documentation uses."""
    return json.dumps(text, ensure_ascii=False)


def _written(offset: Offset) -> str:
    if not isinstance(offset, dt.timedelta):
        return str(offset)
    return _quoted(f"{offset.total_seconds():g} seconds")


def _shown(search: Spatial | Range) -> tuple[str, str]:
    """The event's side, and what the table's side is to it."""
    match search:
        case Topology(predicate, left, right, pattern):
            return _plain(left), f"{predicate} {_plain(right)}" + (
                f" ({pattern})" if pattern else ""
            )
        case DWithin(left, right, limit, metric):
            return _plain(left), f"at most {limit:g}{_UNIT[metric]} from {_plain(right)}"
        case Nearest(left, right, k, metric, limit=None):
            return _plain(left), f"{k} nearest {_plain(right)}, {metric}"
        case Nearest(left, right, k, metric, limit):
            return _plain(left), f"{k} nearest {_plain(right)}, at most {limit:g}{_UNIT[metric]}"
        case Between(left, right, lower, upper):
            return left, f"{right} from {_signed(lower)} to {_signed(upper)}, both included"
        case AsOf(left, right):
            return left, f"newest {right} at or before"


def _plain(geometry: Geometry) -> str:
    return f"point({', '.join(named(geometry))})" if isinstance(geometry, Point) else geometry


def _signed(offset: Offset) -> str:
    return f"{'-' if offset < type(offset)() else '+'}{abs(offset)}"  # type: ignore[operator]


class Parts(NamedTuple):
    """What a condition is made of."""

    keys: Keys | None
    spatial: Spatial | None
    range: Range | None


def split(condition: Condition) -> Parts:
    """The parts of `condition`."""
    match condition:
        case All(keys, search):
            return split(search)._replace(keys=keys)
        case Keys():
            return Parts(condition, None, None)
        case Topology() | DWithin() | Nearest():
            return Parts(None, condition, None)
        case Between() | AsOf():
            return Parts(None, None, condition)
    raise ConditionError(
        "on",
        f"{condition!r} is not a condition",
        todo="Write one with rm.keys, rm.between, rm.within, rm.nearest and the like.",
    )


def right_columns(condition: Condition) -> tuple[str, ...]:
    """The table's columns that `condition` names, each once.

    Examples
    --------
    >>> right_columns(keys("city") & within("spot", point("x", "y")))
    ('city', 'x', 'y')
    """
    of_keys, spatial, span = split(condition)
    names = [right for _, right in of_keys.pairs] if of_keys is not None else []
    names += named(spatial.right) if spatial is not None else ()
    names += (span.right,) if span is not None else ()
    return tuple(dict.fromkeys(names))


def combine(keys: Keys | None, search: Spatial | Range | None) -> Condition:
    """The condition made of `keys` and `search`, at least one of them given."""
    if keys is not None and search is not None:
        return All(keys, search)
    condition = keys if keys is not None else search
    assert condition is not None
    return condition


def key_pairs(keys: Keys | None) -> tuple[tuple[str, str], ...]:
    """The (left name, right name) pairs of `keys`, none without them."""
    return keys.pairs if keys is not None else ()


By = str | Sequence[str] | Mapping[str, str]


def keys(columns: By) -> Keys:
    """Rows whose columns are equal: one name, several, or {left name: table name}.

    Null and NaN equal nothing. Strings compare by their bytes. 0.0 equals -0.0.

    Examples
    --------
    >>> keys("city")
    Keys(pairs=(('city', 'city'),))
    >>> keys({"uid": "user_id"})
    Keys(pairs=(('uid', 'user_id'),))
    """
    if isinstance(columns, str):
        pairs: tuple[tuple[str, str], ...] = ((columns, columns),)
    elif isinstance(columns, Mapping):
        pairs = tuple(columns.items())
    else:
        pairs = tuple((name, name) for name in columns)
    if not pairs:
        raise ConditionError("keys", "no column is named", todo="Name at least one.")
    return Keys(pairs)


def between(
    value: str,
    column: str,
    *,
    lower: Offset | str,
    upper: Offset | str,
    by: By | None = None,
) -> Condition:
    """Rows whose `column` lies in [v + lower, v + upper], v being the event's `value`.

    Both ends are included. Null and NaN are between nothing.

    Parameters
    ----------
    value, column
        The event's column and the table's: numbers, dates or times on both sides.
    lower, upper
        Signed offsets, as those of `join_interval`: numbers for numbers, lengths of time such as
        ``"-5 minutes"`` (five minutes before v) for dates and times.
    by
        What must be equal besides: a name, names, or {left name: table name}.

    Examples
    --------
    >>> between("ts", "slot", lower="-5 minutes", upper="1 hour", by="road")
    All(keys=Keys(pairs=(('road', 'road'),)), search=Between(left='ts', right='slot', \
lower=datetime.timedelta(days=-1, seconds=86100), upper=datetime.timedelta(seconds=3600)))
    """
    low, high = _offset("between(lower=)", lower), _offset("between(upper=)", upper)
    is_time = isinstance(low, dt.timedelta)
    if is_time != isinstance(high, dt.timedelta):
        raise ConditionError(
            "between",
            f"lower={lower!r} and upper={upper!r} are not of one kind",
            todo="Give two numbers, or two lengths of time.",
        )
    if low > high:  # type: ignore[operator]
        raise ConditionError(
            "between",
            f"lower={lower!r} is above upper={upper!r}",
            there="offsets are signed: the table's value lies in [v + lower, v + upper]",
            todo='Write what lies below v with a minus, as in lower="-5 minutes".',
        )
    return combine(None if by is None else keys(by), Between(value, column, low, high))


def asof(value: str, column: str, *, by: By | None = None) -> Condition:
    """The newest row of the table at or before the event, per key: versioned dimensions.

    Of rows with the same `column`, the last in the table's order counts. Null and NaN are
    neither before nor after anything.

    Parameters
    ----------
    value, column
        The event's column and the table's: numbers, dates or times on both sides.
    by
        What must be equal besides: a name, names, or {left name: table name}.

    Examples
    --------
    >>> asof("ts", "valid_from")
    AsOf(left='ts', right='valid_from')
    """
    return combine(None if by is None else keys(by), AsOf(value, column))


def _offset(where: str, value: Offset | str) -> Offset:
    if isinstance(value, (str, dt.timedelta)):
        return dt.timedelta(microseconds=microseconds(value, where=where))
    if isinstance(value, bool) or not math.isfinite(value):
        raise ConditionError(
            where, f"{value!r} is not an offset", todo="Give a finite number or a length of time."
        )
    return value


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
) -> DWithin:
    """`a` and `b` are at most so far apart, the bound included.

    Parameters
    ----------
    distance
        Planar, in the coordinates' unit, between any geometries.
    meters
        Great circle, in degrees of longitude and latitude, on a sphere of 6,371,008.7714 m: from
        the event's point to the table's point, line or polygon, whose edges are the shorter arcs
        of great circles; 0 inside. Between two streams: any geometries on both sides.
    """
    limit, metric = _bound("dwithin", distance, meters)
    if limit is None:
        raise ConditionError(
            "dwithin",
            "no bound is given",
            todo="Give distance= (planar) or meters= (great circle).",
        )
    return DWithin(a, b, limit, metric)


def nearest(
    a: Geometry,
    b: Geometry,
    *,
    k: int = 1,
    metric: Metric = "planar",
    distance: float | None = None,
    meters: float | None = None,
    name: str = "distance",
) -> Nearest:
    """The `k` rows of the table nearest to each event; adds a column of distances.

    Rows at the same distance are taken in the table's row order.

    Parameters
    ----------
    k
        How many rows, at most.
    metric
        "planar", in the coordinates' unit, or "sphere": great circles in metres, as `dwithin`
        measures them.
    distance, meters
        An optional cut-off, included; ``meters=`` implies ``metric="sphere"``.
    name
        The column of distances in the result.
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
    if not (isinstance(name, str) and name):
        raise ConditionError(
            "nearest", f"name is {name!r}", todo="Give the distance column's name, or leave it out."
        )
    return Nearest(a, b, int(k), "sphere" if meters is not None else metric, limit, name)


def _bound(where: str, distance: float | None, meters: float | None) -> tuple[float | None, Metric]:
    if distance is not None and meters is not None:
        raise ConditionError(where, "both distance= and meters= are given", todo="Give one.")
    bound, metric = (distance, "planar") if meters is None else (meters, "sphere")
    is_number = isinstance(bound, (int, float)) and not isinstance(bound, bool)
    if bound is not None and not (is_number and math.isfinite(bound) and bound >= 0):
        raise ConditionError(
            where, f"the bound is {bound!r}", todo="Give a finite number that is not negative."
        )
    return (None if bound is None else float(bound)), metric  # type: ignore[return-value]
