"""How far shapes are apart on the sphere, as slow, obvious code.

An edge is the shorter arc of a great circle. Its distance is sought along it by halving; whether a
point lies in a polygon is seen in a drawing: every arc as many short lines over longitude and
latitude, and shapely's word on the polygon that they draw. Two shapes are as far apart as the
nearest vertex of one from the other, or cross where the great circles of two edges meet.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import shapely
from shapely import affinity

EARTH_RADIUS = 6_371_008.7714
_PIECES = 400  # lines that an arc is drawn by
_TOUCH = 1e-8  # metres: what rounding cannot tell from a common point

Vector = tuple[float, float, float]
Place = tuple[float, float]


def great_circle(a: shapely.Point, b: shapely.Point) -> float:
    """The distance of two points of longitude and latitude, in metres, by the haversine.

    Examples
    --------
    A degree of latitude, and a step across the antimeridian:

    >>> round(great_circle(shapely.Point(0, 0), shapely.Point(0, 1)), 3)
    111195.08
    >>> round(great_circle(shapely.Point(179.5, 0), shapely.Point(-179.5, 0)), 3)
    111195.08
    """
    lon_a, lat_a, lon_b, lat_b = map(math.radians, (a.x, a.y, b.x, b.y))
    h = (
        math.sin((lat_b - lat_a) / 2) ** 2
        + math.cos(lat_a) * math.cos(lat_b) * math.sin((lon_b - lon_a) / 2) ** 2
    )
    return 2 * EARTH_RADIUS * math.asin(min(1.0, math.sqrt(h)))


@lru_cache(4096)
def shape_distance(one: Any, other: Any) -> float:
    """Metres between two shapes of any kind: 0 where they have a point in common.

    Of two points that is the haversine; else less than 10 nanometres is 0.

    Examples
    --------
    Two streets that cross, and one a degree to the north of the other's end:

    >>> west_east = shapely.LineString([(-1, 0), (1, 0)])
    >>> shape_distance(west_east, shapely.LineString([(0, -1), (0, 1)]))
    0.0
    >>> round(shape_distance(west_east, shapely.LineString([(1, 1), (1, 2)])), 3)
    111195.08
    """
    if one.geom_type == other.geom_type == "Point":
        return great_circle(one, other)
    arcs, others = list(_arcs(one)), list(_arcs(other))
    if any(_meet(*arc, *another) for arc in arcs for another in others):
        return 0.0
    to = [distance(shapely.Point(xy), other) for xy in shapely.get_coordinates(one)]
    back = [distance(shapely.Point(xy), one) for xy in shapely.get_coordinates(other)]
    found = min([*to, *back])
    return 0.0 if found < _TOUCH else found


def _arcs(shape: Any) -> Iterator[tuple[Place, Place]]:
    """The edges of all lines and rings."""
    for part in _parts(shape):
        for ring in _rings(part):
            yield from itertools.pairwise(_cut(ring.coords))


def _rings(part: Any) -> list[Any]:
    """The rings of a polygon, or the line itself."""
    return [part.exterior, *part.interiors] if part.geom_type == "Polygon" else [part]


def _meet(a: Place, b: Place, c: Place, d: Place) -> bool:
    """Whether one of the two points at which the arcs' great circles meet lies on both arcs."""
    p, q, r, s = map(_vector, (a, b, c, d))
    x, y, z = _cross(_cross(p, q), _cross(r, s))
    length = math.hypot(x, y, z)
    if length < 1e-12:  # one great circle, or no arc: vertices tell
        return False
    ends = ((p, q), (r, s))
    spots = ((sign * x / length, sign * y / length, sign * z / length) for sign in (1, -1))
    return any(
        all(_angle(f, v) + _angle(v, g) < _angle(f, g) + 1e-12 for f, g in ends) for v in spots
    )


def _cross(a: Vector, b: Vector) -> Vector:
    return a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]


def _angle(a: Vector, b: Vector) -> float:
    return 2 * math.asin(min(1.0, math.dist(a, b) / 2))


@lru_cache(4096)
def distance(point: shapely.Point, shape: Any) -> float:
    """Metres from a point to a shape: 0 in a polygon, else to the nearest point of an edge.

    Examples
    --------
    A street along the equator, a degree to the north of it and at its middle:

    >>> street = shapely.LineString([(-1, 0), (1, 0)])
    >>> round(distance(shapely.Point(0, 1), street), 3)
    111195.08
    """
    found = []
    for part in _parts(shape):
        if part.geom_type == "Point":
            found.append(great_circle(point, part))
            continue
        lines = [_cut(ring.coords) for ring in _rings(part)]
        if part.geom_type == "Polygon" and sum(_encloses(line, point) for line in lines) % 2:
            return 0.0
        arcs = (arc for line in lines for arc in itertools.pairwise(line))
        found += [_to_arc(point, a, b) for a, b in arcs]
    return min(found)


def _parts(shape: Any) -> Iterator[Any]:
    if hasattr(shape, "geoms"):
        for part in shape.geoms:
            yield from _parts(part)
    elif not shape.is_empty:
        yield shape


def _cut(line: Sequence[Any]) -> tuple[Place, ...]:
    """A line with a point more where an edge runs over a pole, or from one to the other."""
    cut: list[Place] = [(line[0][0], line[0][1])]
    for (lon, lat, *_), (to, up, *_) in itertools.pairwise(line):
        if abs(lat) == 90 and up == -lat:
            cut.append((lon, 0.0))
        elif abs(math.remainder(to - lon, 360)) == 180 and abs(lat) != 90 != abs(up):
            pole = math.copysign(90.0, lat + up)
            cut += [(lon, pole), (to, pole)]
        cut.append((to, up))
    return tuple(cut)


def _vector(place: Sequence[float]) -> Vector:
    lon, lat = math.radians(place[0]), math.radians(place[1])
    return math.cos(lat) * math.cos(lon), math.cos(lat) * math.sin(lon), math.sin(lat)


def _place(v: Vector) -> Place:
    lat = math.atan2(v[2], math.hypot(v[0], v[1]))
    return math.degrees(math.atan2(v[1], v[0])), math.degrees(lat)


def _between(a: Vector, b: Vector, share: float) -> Vector:
    """The point of the shorter arc that lies at this share of its length."""
    angle = 2 * math.asin(min(1.0, math.dist(a, b) / 2))
    if angle < 1e-12:
        return a
    s, t = math.sin((1 - share) * angle), math.sin(share * angle)
    x, y, z = (s * one + t * other for one, other in zip(a, b, strict=True))
    length = math.hypot(x, y, z)
    return x / length, y / length, z / length


def _to_arc(point: shapely.Point, begin: Sequence[float], end: Sequence[float]) -> float:
    """By the nearest of some points of the arc, then between its neighbours by thirds."""
    p, a, b = _vector((point.x, point.y)), _vector(begin), _vector(end)
    many = 16
    near = min(range(many + 1), key=lambda k: math.dist(p, _between(a, b, k / many)))
    low, high = max(near - 1, 0) / many, min(near + 1, many) / many
    for _ in range(90):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        if math.dist(p, _between(a, b, left)) < math.dist(p, _between(a, b, right)):
            high = right
        else:
            low = left
    chord = math.dist(p, _between(a, b, (low + high) / 2))
    inner = 2 * EARTH_RADIUS * math.asin(min(1.0, chord / 2))
    ends = (great_circle(point, shapely.Point(end[:2])) for end in (begin, end))
    return min(inner, *ends)


def _encloses(line: tuple[Place, ...], point: shapely.Point) -> bool:
    """Whether a closed ring encloses a point: seen in its drawing, and in those a turn away."""
    drawing = _drawing(line)
    return any(
        affinity.translate(drawing, turn).intersects(point) for turn in (-720, -360, 0, 360, 720)
    )


@lru_cache(256)
def _drawing(line: tuple[Place, ...]) -> Any:
    """What a ring encloses, over longitude and latitude without a jump at the antimeridian.

    A ring around the poles encloses the smaller side: its drawing goes on to that pole.
    """
    drawn = [(float(line[0][0]), float(line[0][1]))]
    for begin, end in itertools.pairwise(line):
        drawn += _arc(drawn[-1], begin, end)
    turns = round((drawn[-1][0] - drawn[0][0]) / 360)
    if turns % 2 == 0:
        return shapely.Polygon(drawn).buffer(0)
    to_north, to_south = (
        shapely.Polygon([*drawn, (drawn[-1][0], pole), (drawn[0][0], pole)]).buffer(0)
        for pole in (90, -90)
    )
    return to_north if _area(to_north) <= _area(to_south) else to_south


def _arc(last: Place, begin: Sequence[float], end: Sequence[float]) -> Iterator[Place]:
    """The points of an arc after its first, with longitudes that go on from `last`."""
    if abs(begin[1]) == 90 and begin[1] == end[1]:  # a turn at a pole, as far as it is written
        yield last[0] + end[0] - begin[0], end[1]
        return
    a, b = _vector(begin), _vector(end)
    lon = last[0]
    if abs(begin[1]) == 90:  # the meridian of the other end
        lon += end[0] - begin[0]
        yield lon, begin[1]
    for piece in range(1, _PIECES + 1):
        at, lat = _place(_between(a, b, piece / _PIECES)) if piece < _PIECES else (end[0], end[1])
        if abs(lat) < 90:
            lon += math.remainder(at - lon, 360)
        yield lon, lat
    if abs(end[1]) == 90 and abs(begin[1]) < 90:
        yield lon + end[0] - begin[0], end[1]


def _area(drawing: Any) -> float:
    """The area of a drawing on the unit sphere: strips of longitude and the sine of latitude."""
    total = 0.0
    for part in shapely.get_parts(drawing):
        for sign, ring in ((1, part.exterior), *((-1, hole) for hole in part.interiors)):
            xy = [(math.radians(x), math.sin(math.radians(y))) for x, y in ring.coords]
            steps = itertools.pairwise(xy)
            strips = ((x2 - x1) * (y1 + y2) / 2 for (x1, y1), (x2, y2) in steps)
            total += sign * abs(sum(strips))
    return total
