"""Moves and stays as slow, obvious code: what `rivermouth.trips` must give.

All rows are taken to be on time. Meant to be read and believed.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import shapely

from rivermouth.spec.conditions import Geometry, Metric
from rivermouth.spec.durations import Duration, microseconds
from rivermouth.testing.oracle import Row, shape_of
from rivermouth.testing.sphere import great_circle

Position = tuple[dt.datetime, shapely.Point]


def trips(
    rows: Iterable[Row],
    *,
    by: str | Sequence[str],
    time: str,
    point: Geometry,
    gap: Duration,
    stop: tuple[float, Duration] | None = None,
    min_length: float = 0.0,
    metric: Metric = "planar",
) -> list[dict[str, Any]]:
    """The rows that ``rivermouth.trips`` must give, object by object in the order of time.

    Paths are shapely geometries here.

    Examples
    --------
    >>> from rivermouth import point
    >>> noon = dt.datetime(2026, 1, 1, 12)
    >>> walk = [{"who": "ann", "at": noon + dt.timedelta(minutes=minute), "x": float(x), "y": 0.0}
    ...         for minute, x in ((0, 0), (1, 90), (2, 95), (9, 92), (10, 200), (50, 0))]
    >>> found = trips(walk, by="who", time="at", point=point("x", "y"), gap="15 minutes",
    ...               stop=(10, "5 minutes"))
    >>> [(row["kind"], row["begin"].minute, row["end"].minute, row["length"]) for row in found]
    [('move', 0, 1, 90.0), ('stay', 1, 9, 8.0), ('move', 9, 10, 108.0), ('point', 50, 50, 0.0)]
    """
    names = [by] if isinstance(by, str) else list(by)
    found: list[dict[str, Any]] = []
    for key, track in _tracks(rows, names, time, point, metric).items():
        for part in _without_gaps(track, _timedelta(gap)):
            for kind, positions in _split(part, stop, metric):
                row = _row(kind, positions, metric)
                if kind == "stay" or row["length"] >= min_length:
                    found.append(dict(zip(names, key, strict=True)) | row)
    return found


def _tracks(
    rows: Iterable[Row], names: Sequence[str], time: str, point: Geometry, metric: Metric
) -> dict[tuple[Any, ...], list[Position]]:
    """Each object's positions in the order of time; of one time the one with the least x, y."""
    tracks: dict[tuple[Any, ...], dict[dt.datetime, shapely.Point]] = {}
    for row in rows:
        key, at = tuple(row[name] for name in names), row[time]
        place = shape_of(row, point, metric)
        if None not in (*key, at, place) and place.geom_type == "Point":
            track = tracks.setdefault(key, {})
            track[at] = min(track.get(at, place), place, key=lambda each: (each.x, each.y))
    return {key: sorted(track.items()) for key, track in tracks.items()}


def _without_gaps(track: Sequence[Position], gap: dt.timedelta) -> list[list[Position]]:
    parts = [[track[0]]]
    for before, position in pairwise(track):
        if position[0] - before[0] > gap:
            parts.append([])
        parts[-1].append(position)
    return parts


def _split(
    part: list[Position], stop: tuple[float, Duration] | None, metric: Metric
) -> list[tuple[str, list[Position]]]:
    """The moves and stays of positions without a gap between them."""
    rows: list[tuple[str, list[Position]]] = []
    begin = anchor = 0  # of the open move, and the position that may begin a stay
    while stop is not None and anchor < len(part):
        radius, duration = stop[0], _timedelta(stop[1])
        end = anchor
        while end + 1 < len(part) and _distance(part[anchor], part[end + 1], metric) <= radius:
            end += 1
        if part[end][0] - part[anchor][0] >= duration:
            if begin < anchor:
                rows.append(("move", part[begin : anchor + 1]))
            rows.append(("stay", part[anchor : end + 1]))
            begin, anchor = end, end + 1
        else:
            anchor += 1
    if begin < len(part) - 1:
        rows.append(("move", part[begin:]))
    return rows or [("point", part)]


def _row(kind: str, positions: Sequence[Position], metric: Metric) -> dict[str, Any]:
    begin, end = positions[0][0], positions[-1][0]
    places = [place for _, place in positions]
    is_line = any(place != places[0] for place in places)
    return {
        "kind": kind,
        "begin": begin,
        "end": end,
        "path": shapely.LineString(places) if is_line else places[0],
        "length": sum((_distance(a, b, metric) for a, b in pairwise(positions)), 0.0),
        "duration": (end - begin).total_seconds(),
        "positions": len(positions),
    }


def _distance(one: Position, other: Position, metric: Metric) -> float:
    if metric == "sphere":
        return great_circle(one[1], other[1])
    return one[1].distance(other[1])


def _timedelta(duration: Duration) -> dt.timedelta:
    return dt.timedelta(microseconds=microseconds(duration, where="testing.trips"))
