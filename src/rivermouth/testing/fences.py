"""Fence events, slow and obvious, and objects that follow borders so closely that they jitter."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import shapely

_START = 1_767_225_600_000_000  # the beginning of 2026, in microseconds since 1970

#: whether a place is inside a fence, and whether the way between two places meets it
Inside = Callable[[Any, Any], bool]
Meets = Callable[[Any, Any, Any], bool]


class Event(NamedTuple):
    """An event; times are numbers, `inside` is how long the object was, None where it was not."""

    who: Hashable
    fence: Hashable
    event: str
    time: float
    place: Any
    entered: float | None
    inside: float | None
    reason: str | None


class _Seen(NamedTuple):
    time: float
    place: Any
    is_inside: bool


def fence_events(
    positions: Iterable[tuple[Hashable, float, Any]],
    fences: dict[Hashable, Any],
    inside: Inside,
    *,
    meets: Meets | None = None,
    dwell: float | None = None,
    min_inside: tuple[int, float] = (1, 0),
    min_outside: tuple[int, float] = (1, 0),
    gap: float | None = None,
    first_inside: bool = True,
) -> list[Event]:
    """All events of some positions, in no order.

    Parameters
    ----------
    positions
        Rows of (who, time, place), in any order. Those of one object and time are taken in the
        order of their places; one that is there twice counts once.
    fences
        The fences by what tells them apart.
    inside, meets
        Whether a place is inside a fence, and whether a way meets it; without the latter there
        are no crossings.
    dwell, min_inside, min_outside, gap, first_inside
        As in `rm.fence_events`, in the unit of the times; ``(count, length)`` for the hysteresis.
    """
    tracks: dict[Hashable, set[tuple[float, Any]]] = {}
    for who, time, place in positions:
        tracks.setdefault(who, set()).add((time, place))
    newest = max((time for track in tracks.values() for time, _ in track), default=0.0)
    events: list[Event] = []
    for who, track in tracks.items():
        for leg, until in _legs(sorted(track), gap, newest):
            for name, fence in fences.items():
                seen = [_Seen(time, place, inside(place, fence)) for time, place in leg]
                found, ongoing = _visits(seen, dwell, min_inside, min_outside, until)
                if not first_inside:
                    found = [one for one in found if one[-1] != "first_seen"]
                events += [Event(who, name, *one) for one in found]
                if meets is not None:
                    events += [
                        Event(who, name, "cross", end.time, end.place, None, None, None)
                        for k, (begin, end) in enumerate(pairwise(seen))
                        if not (begin.is_inside or end.is_inside or k in ongoing)
                        and meets(begin.place, end.place, fence)
                    ]
    return events


def _legs(
    track: Sequence[tuple[float, Any]], gap: float | None, newest: float
) -> list[tuple[list[tuple[float, Any]], float | None]]:
    """The track cut where the object was lost, each leg with the time at which that was known."""
    legs: list[list[tuple[float, Any]]] = [[]]
    for time, place in track:
        if gap is not None and legs[-1] and time - legs[-1][-1][0] > gap:
            legs.append([])
        legs[-1].append((time, place))
    ended = []
    for number, leg in enumerate(legs):
        is_lost = gap is not None and (number < len(legs) - 1 or leg[-1][0] + gap <= newest)
        ended.append((leg, leg[-1][0] + gap if gap is not None and is_lost else None))
    return ended


def _runs(seen: Sequence[_Seen]) -> list[list[_Seen]]:
    """Positions in a row that are all inside or all outside."""
    runs: list[list[_Seen]] = []
    for one in seen:
        if not runs or runs[-1][-1].is_inside != one.is_inside:
            runs.append([])
        runs[-1].append(one)
    return runs


def _confirmed(run: Sequence[_Seen], need: tuple[int, float]) -> int | None:
    """The number of the position, within the run, at which it has lasted long enough."""
    count, length = need
    for k, one in enumerate(run):
        if k + 1 >= count and one.time - run[0].time >= length:
            return k
    return None


def _visits(
    seen: Sequence[_Seen],
    dwell: float | None,
    min_inside: tuple[int, float],
    min_outside: tuple[int, float],
    lost: float | None,
) -> tuple[list[Any], set[int]]:
    """Enter, dwell, exit and lost of one leg at one fence, and the positions within visits."""
    events: list[Any] = []
    ongoing: set[int] = set()
    entered: float | None = None
    has_dwelled = False
    begin = 0
    for run in _runs(seen):
        first, end = run[0], begin + len(run)
        if first.is_inside:
            known: int | None = 0
            if entered is None:
                known = _confirmed(run, min_inside)
                if known is not None:
                    entered, has_dwelled = first.time, False
                    why = "entered" if begin else "first_seen"
                    events.append(("enter", first.time, first.place, entered, None, why))
            if entered is not None and known is not None:
                ongoing |= set(range(begin, end))
                for one in run[known:]:
                    length = one.time - entered
                    if dwell is not None and not has_dwelled and length >= dwell:
                        has_dwelled = True
                        events.append(("dwell", one.time, one.place, entered, length, None))
        elif entered is not None:
            known = _confirmed(run, min_outside)
            if known is None and lost is not None and end == len(seen):
                known = len(run)  # it is last seen outside
            ongoing |= set(range(begin, end if known is None else begin + known))
            if known is not None:
                length = first.time - entered
                events.append(("exit", first.time, first.place, entered, length, "left"))
                entered = None
        begin = end
    if entered is not None and lost is not None:
        last = seen[-1]
        events.append(("lost", lost, last.place, entered, last.time - entered, None))
    return events, ongoing


def border_walks(
    shapes: Sequence[Any],
    *,
    objects: int = 10,
    steps: int = 200,
    every: float = 10.0,
    speed: float,
    jitter: float,
    seed: int = 1,
) -> pa.Table:
    """Objects that go along the outlines of shapes, each a little off: the worst for fences.

    Without hysteresis nearly every second position is an event.

    Parameters
    ----------
    shapes
        Polygons; each object follows one of them, from somewhere on its outline.
    objects, steps, every
        How many objects, how many positions of each, and how many seconds apart.
    speed, jitter
        How far one goes in a second, and the standard deviation of its distance from the outline
        in either direction, in the coordinates' unit.
    seed
        The same seed gives the same table.

    Returns
    -------
    pa.Table
        ``who``, ``at`` (seconds after the beginning of 2026), ``x`` and ``y``, in the order of
        time.

    Examples
    --------
    >>> walks = border_walks([shapely.box(0, 0, 9, 9)], objects=1, steps=100, speed=0.1, jitter=0.2)
    >>> inside = shapely.contains_xy(shapely.box(0, 0, 9, 9), walks["x"], walks["y"])
    >>> bool(30 < inside.sum() < 70)
    True
    """
    random = np.random.default_rng(seed)
    outlines = [shape.exterior for shape in shapes]
    tables = []
    for who in range(objects):
        outline = outlines[random.integers(len(outlines))]
        far = random.uniform(0, outline.length) + np.arange(steps) * every * speed
        places = shapely.line_interpolate_point(outline, far % outline.length)
        off = random.normal(0, jitter, (2, steps))
        seconds = np.arange(steps) * every + random.uniform(0, every)
        tables.append(
            pa.table(
                {
                    "who": np.full(steps, who),
                    "at": pa.array((_START + seconds * 1e6).astype(np.int64)).cast(
                        pa.timestamp("us", "UTC")
                    ),
                    "x": shapely.get_x(places) + off[0],
                    "y": shapely.get_y(places) + off[1],
                }
            )
        )
    return pa.concat_tables(tables).sort_by("at")
