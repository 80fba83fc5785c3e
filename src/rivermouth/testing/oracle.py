"""The joins as slow, obvious code: what the fast ones must give.

One pair at a time, nested loops, no index, no Spark. Meant to be read and believed.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import shapely

from rivermouth.errors import ColumnError
from rivermouth.spec.conditions import (
    Between,
    Condition,
    DWithin,
    Geometry,
    Metric,
    Nearest,
    Point,
    Range,
    Topology,
    key_pairs,
    named,
    split,
)
from rivermouth.testing import sphere

Row = dict[str, Any]
Match = tuple[Row, float | None]


def join_table(
    events: Iterable[Row],
    table: Sequence[Row],
    *,
    on: Condition,
    how: Literal["inner", "left", "semi", "anti"] = "inner",
    columns: Sequence[str] | Mapping[str, str] | None = None,
) -> list[Row]:
    """The rows that ``rivermouth.join_table`` must give.

    Parameters
    ----------
    events, table
        Rows as `rivermouth.testing.rows` gives them. A geometry is WKB, or Spark's GEOMETRY as
        a dict of srid and wkb.
    on
        Any condition. A row matches nothing, not even ``disjoint``, when a coordinate is null,
        NaN or infinite, its geometry is empty, not valid or cannot be read; on the sphere also
        when a latitude is beyond 90 degrees, or the event's geometry is not a point.
    how
        ``left`` gives null for the table's columns where nothing matches; ``semi`` and ``anti``
        give the event's columns only.
    columns
        What to bring from the table: names, {new: old}, or None, all but those that `on` names.

    Returns
    -------
    list[dict]
        In the order of the events; for one event in the table's order, or nearest first.

    Examples
    --------
    >>> import shapely
    >>> from rivermouth import nearest, point, within
    >>> taxis = [{"taxi": "a", "x": 1.0, "y": 1.0}, {"taxi": "b", "x": 9.0, "y": 9.0}]
    >>> zones = [{"zone": "west", "shape": shapely.box(0, 0, 5, 5).wkb}]
    >>> join_table(taxis, zones, on=within(point("x", "y"), "shape"), how="left")
    [{'taxi': 'a', 'x': 1.0, 'y': 1.0, 'zone': 'west'},
     {'taxi': 'b', 'x': 9.0, 'y': 9.0, 'zone': None}]
    >>> join_table(taxis, zones, on=nearest(point("x", "y"), "shape", distance=1), columns=[])
    [{'taxi': 'a', 'x': 1.0, 'y': 1.0, 'distance': 0.0}]
    """
    projected = _projected(table, on, columns)
    joined: list[Row] = []
    for event in events:
        found = matches(event, table, on)
        if how in ("semi", "anti"):
            joined += [dict(event)] if bool(found) == (how == "semi") else []
            continue
        if how == "left" and not found:
            found = [({}, None)]
        joined += [_together(event, row, projected, on, distance) for row, distance in found]
    return joined


def matches(
    event: Row, table: Iterable[Row], on: Condition, *, only_points: bool = True
) -> list[Match]:
    """The rows of `table` that `event` matches, each with its distance where `on` is a nearest.

    With `only_points` an event that is no point matches nothing on the sphere.
    """
    keys, spatial, span = split(on)
    # None is tested for; NaN is unequal by itself
    rows = [
        row
        for row in table
        if all(event[a] is not None and event[a] == row[b] for a, b in key_pairs(keys))
    ]
    if span is not None:
        return [(row, None) for row in _in_range(event, rows, span)]
    if spatial is None:
        return [(row, None) for row in rows]
    if isinstance(spatial, Nearest):
        return _nearest(event, rows, spatial, only_points)
    return [(row, None) for row in rows if _holds(event, row, spatial, only_points)]


def _in_range(event: Row, rows: Sequence[Row], span: Range) -> list[Row]:
    """The rows in the event's range; null and NaN are in none."""
    value = _ordered(event[span.left])
    there = [row for row in rows if _ordered(row[span.right]) is not None]
    if value is None:
        return []
    if isinstance(span, Between):
        low, high = _ordered(span.lower), _ordered(span.upper)
        assert low is not None
        assert high is not None
        if isinstance(value, int):  # 3.0 is three: adding it to an integer rounds nothing
            low, high = Fraction(low), Fraction(high)
        return [row for row in there if value + low <= _ordered(row[span.right]) <= value + high]
    before = [row for row in there if _ordered(row[span.right]) <= value]
    newest = max((_ordered(row[span.right]) for row in before), default=None)
    return [row for row in before if _ordered(row[span.right]) == newest][-1:]


def _ordered(value: Any) -> Any:
    """Something to add and to compare: decimals exactly, floats as floats, times as integers."""
    match value:
        case float() if math.isnan(value):
            return None
        case Decimal():
            return Fraction(value)
        case dt.timedelta():
            return value // dt.timedelta(microseconds=1)
        case dt.datetime():
            return (value.replace(tzinfo=None) - dt.datetime.min) // dt.timedelta(microseconds=1)
        case dt.date():
            return _ordered(dt.datetime.combine(value, dt.time()))
    return value


def _holds(event: Row, row: Row, spatial: Topology | DWithin, only_points: bool) -> bool:
    metric: Metric = spatial.metric if isinstance(spatial, DWithin) else "planar"
    left = shape_of(event, spatial.left, metric, only_points)
    right = shape_of(row, spatial.right, metric, only_points=False)
    if left is None or right is None:
        return False
    if isinstance(spatial, Topology):
        if spatial.pattern is not None:
            return bool(shapely.relate_pattern(left, right, spatial.pattern))
        return bool(getattr(shapely, spatial.predicate)(left, right))
    if metric == "sphere":
        return _metres(left, right, only_points) <= spatial.limit
    with np.errstate(over="ignore"):  # far, however far
        # GEOS may round by the order of the two
        return bool(min(left.distance(right), right.distance(left)) <= spatial.limit)


def _nearest(event: Row, rows: Sequence[Row], spatial: Nearest, only_points: bool) -> list[Match]:
    here = shape_of(event, spatial.left, spatial.metric, only_points)
    if here is None:
        return []
    near = []
    for row in rows:
        there = shape_of(row, spatial.right, spatial.metric, only_points=False)
        if there is not None:
            is_plane = spatial.metric == "planar"
            distance = here.distance(there) if is_plane else _metres(here, there, only_points)
            if spatial.limit is None or distance <= spatial.limit:
                near.append((row, distance))
    return sorted(near, key=lambda match: match[1])[: spatial.k]  # stable: ties as in the table


def _metres(one: Any, other: Any, only_points: bool) -> float:
    """From a point to a shape, or between two shapes, where less than 10 nanometres is 0."""
    return sphere.distance(one, other) if only_points else sphere.shape_distance(one, other)


def shape_of(row: Row, geometry: Geometry, metric: Metric, only_points: bool = True) -> Any:
    """The shape that `row` has in `geometry`, or None where it has none that can match.

    With `only_points` that is a point, on the sphere.
    """
    if isinstance(geometry, Point):
        x, y = row[geometry.x], row[geometry.y]
        shape: Any = None if x is None or y is None else shapely.Point(float(x), float(y))
    else:
        shape = _shape(row[geometry])
    if shape is None or shape.is_empty or not _is_finite(shape) or not shape.is_valid:
        return None
    if metric == "planar":
        return shape
    if shape.geom_type != "Point":
        is_on_sphere = abs(shapely.get_coordinates(shape)[:, 1]).max() <= 90
        return shape if is_on_sphere and not only_points else None
    if abs(shape.y) > 90:
        return None
    # every point of the sphere by one pair of coordinates; `fmod` is exact
    turned = math.fmod(shape.x, 360)
    lon = turned - 360 * ((turned >= 180) - (turned < -180))
    return shapely.Point(0 if abs(shape.y) == 90 else lon, shape.y)


def _shape(value: bytes | Mapping[str, Any] | None) -> Any:
    wkb = value["wkb"] if isinstance(value, Mapping) else value
    with np.errstate(invalid="ignore"):  # a NaN in it is no news
        return shapely.from_wkb(wkb, on_invalid="ignore")


def _is_finite(shape: shapely.Geometry) -> bool:
    return all(math.isfinite(number) for pair in shapely.get_coordinates(shape) for number in pair)


def _together(
    event: Row, row: Row, projected: Mapping[str, str], on: Condition, distance: float | None
) -> Row:
    new = {name: row.get(old) for name, old in projected.items()}
    if isinstance(spatial := split(on).spatial, Nearest):
        new[spatial.name] = distance
    if clash := sorted(event.keys() & new.keys()):
        raise ColumnError(
            "oracle.join_table",
            f"both sides have {clash}",
            todo="Rename with columns={new: old}.",
        )
    return {**event, **new}


def _projected(
    table: Sequence[Row], on: Condition, columns: Sequence[str] | Mapping[str, str] | None
) -> dict[str, str]:
    """The table's columns that are projected, new name to old."""
    if isinstance(columns, Mapping):
        return dict(columns)
    if columns is not None:
        return {name: name for name in columns}
    keys, spatial, _ = split(on)
    of_condition = {right for _, right in key_pairs(keys)}
    of_condition.update(named(spatial.right) if spatial is not None else ())
    return {name: name for row in table[:1] for name in row if name not in of_condition}
