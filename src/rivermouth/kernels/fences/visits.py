"""The events of objects and fences: one walk over the positions in order of object and time.

Of every object the walk keeps the fences that are open: those that the object is inside of
(confirmed) or seems to have entered (an unbroken run of positions inside that is not yet long
enough). A confirmed fence whose last positions were outside has a run of those instead. A run that
breaks off is forgotten, so that jitter at a border gives no event.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from rivermouth.kernels.arrays import Bools, Ints
from rivermouth.kernels.fences.query import (
    CROSS,
    DWELL,
    ENTER,
    ENTERED_IT,
    EXIT,
    FIRST_SEEN,
    LEFT,
    LOST,
    NO_REASON,
    REMOVED,
)

NONE = -(1 << 62)

#: the fields of an open fence
VISIT = (
    "fence",  # its code
    "inside",  # 1 once confirmed
    "since",  # the time of the first position inside
    "run",  # the time of the first position outside, NONE where the last one was inside
    "count",  # positions of the run that is not confirmed
    "dwelled",  # 1 once `dwell` was given
    "place",  # where in the pool the run's first position is
    "version",  # of the table at the last position inside
    "first",  # 1 where the object was first seen inside
)
FENCE, INSIDE, SINCE, RUN, COUNT, DWELLED, PLACE, VERSION, FIRST = range(len(VISIT))
_SEEN = len(VISIT)  # the last position that was inside, while the walk lasts

#: the fields of an event
FIELDS = ("object", "event", "time", "place", "fence", "since", "until", "reason")


class Moves(NamedTuple):
    """The positions of objects, each once.

    Parameters
    ----------
    starts
        Object i has the positions from ``starts[i]`` to ``starts[i + 1]``.
    times
        Their times.
    place
        Where in the pool of places each is.
    version
        The version of the table that each met.
    fence_starts, fence
        The codes of the fences around each position; one may be there twice.
    cross_starts, cross
        The codes of fences that the way from the position before to this one meets.
    """

    starts: Ints
    times: Ints
    place: Ints
    version: Ints
    fence_starts: Ints
    fence: Ints
    cross_starts: Ints
    cross: Ints


class Past(NamedTuple):
    """What is known of each object from earlier positions.

    Parameters
    ----------
    last, place
        The time of the last position, `NONE` for a new object, and where in the pool it is.
    starts, visits
        The open fences of object i are the rows from ``starts[i]`` to ``starts[i + 1]``.
    """

    last: Ints
    place: Ints
    starts: Ints
    visits: Ints


class Rules(NamedTuple):
    """The definition, as numbers; -1 for what is not asked for."""

    wanted: Bools
    in_count: int
    in_length: int
    out_count: int
    out_length: int
    dwell: int
    gap: int
    first_inside: bool
    watermark: int


class _Events(NamedTuple):
    """The events so far; there is room for all that can be."""

    rows: Ints
    used: Ints


@numba.njit(cache=True)
def _emit(
    events: _Events, obj: int, event: int, time: int, place: int, visit: Ints, until: int, why: int
) -> None:
    row = events.rows[events.used[0]]
    row[0], row[1], row[2], row[3] = obj, event, time, place
    row[4], row[5], row[6], row[7] = visit[FENCE], visit[SINCE], until, why
    events.used[0] += 1


@numba.njit(cache=True, inline="always")
def _find(visits: Ints, count: int, fence: int) -> int:
    for i in range(count):
        if visits[i, FENCE] == fence:
            return i
    return -1


@numba.njit(cache=True)
def _cross(
    events: _Events, visits: Ints, count: int, moves: Moves, obj: int, k: int, nothing: Ints
) -> None:
    """Fences that the way to position `k` meets, and neither of its ends is in."""
    for c in range(moves.cross_starts[k], moves.cross_starts[k + 1]):
        fence, is_end = moves.cross[c], False
        for f in range(moves.fence_starts[k], moves.fence_starts[k + 1]):
            is_end |= moves.fence[f] == fence
        if not is_end and _find(visits, count, fence) < 0:
            nothing[FENCE] = fence
            _emit(events, obj, CROSS, moves.times[k], moves.place[k], nothing, NONE, NO_REASON)


@numba.njit(cache=True)
def _inside(
    events: _Events, visits: Ints, count: int, moves: Moves, rules: Rules, obj: int, k: int,
    is_first: bool,
) -> int:  # fmt: skip
    """Fences that position `k` is in; how many are open then."""
    now, place = moves.times[k], moves.place[k]
    for f in range(moves.fence_starts[k], moves.fence_starts[k + 1]):
        i = _find(visits, count, moves.fence[f])
        visit = visits[count if i < 0 else i]
        if i < 0:
            visit[:] = 0
            visit[FENCE], visit[SINCE], visit[RUN] = moves.fence[f], now, NONE
            visit[PLACE], visit[FIRST], visit[_SEEN] = place, is_first, -1
            count += 1
        if visit[_SEEN] == k:  # two rows of the table that are one fence
            continue
        visit[_SEEN], visit[VERSION] = k, moves.version[k]
        if visit[INSIDE] == 1:
            visit[RUN], visit[COUNT] = NONE, 0
        else:
            visit[COUNT] += 1
            if visit[COUNT] >= rules.in_count and now - visit[SINCE] >= rules.in_length:
                visit[INSIDE], visit[COUNT] = 1, 0
                if rules.wanted[ENTER] and (rules.first_inside or visit[FIRST] == 0):
                    why = FIRST_SEEN if visit[FIRST] == 1 else ENTERED_IT
                    _emit(events, obj, ENTER, visit[SINCE], visit[PLACE], visit, visit[SINCE], why)
        is_long = rules.dwell >= 0 and now - visit[SINCE] >= rules.dwell
        if visit[INSIDE] == 1 and is_long and visit[DWELLED] == 0:
            visit[DWELLED] = 1
            if rules.wanted[DWELL]:
                _emit(events, obj, DWELL, now, place, visit, now, NO_REASON)
    return count


@numba.njit(cache=True)
def _outside(
    events: _Events, visits: Ints, count: int, moves: Moves, exists: Bools, rules: Rules,
    obj: int, k: int,
) -> int:  # fmt: skip
    """Open fences that position `k` is not in; how many stay open."""
    now, stay = moves.times[k], 0
    for i in range(count):
        visit, is_over = visits[i], False
        if visit[_SEEN] != k:
            is_removed = moves.version[k] > visit[VERSION] and not exists[visit[FENCE]]
            if visit[RUN] == NONE:
                visit[RUN], visit[PLACE], visit[COUNT] = now, moves.place[k], 0
            visit[COUNT] += 1
            is_long = visit[COUNT] >= rules.out_count and now - visit[RUN] >= rules.out_length
            is_over = visit[INSIDE] == 0 or is_removed or is_long
            if is_over and visit[INSIDE] == 1 and rules.wanted[EXIT]:
                why = REMOVED if is_removed else LEFT
                _emit(events, obj, EXIT, visit[RUN], visit[PLACE], visit, visit[RUN], why)
        if not is_over:
            if stay != i:
                visits[stay] = visit
            stay += 1
    return stay


@numba.njit(cache=True)
def _lost(
    events: _Events, visits: Ints, count: int, obj: int, last: int, place: int, rules: Rules
) -> None:
    """The end of all visits of an object that is not seen any more."""
    for i in range(count):
        visit = visits[i]
        if visit[INSIDE] == 0:
            continue
        if visit[RUN] != NONE:  # it was last seen outside
            if rules.wanted[EXIT]:
                _emit(events, obj, EXIT, visit[RUN], visit[PLACE], visit, visit[RUN], LEFT)
        elif rules.wanted[LOST]:
            _emit(events, obj, LOST, last + rules.gap, place, visit, last, NO_REASON)


@numba.njit(cache=True)
def walk(
    moves: Moves, past: Past, exists: Bools, rules: Rules
) -> tuple[Ints, Ints, Ints, Ints, Ints, Bools]:
    """The events, and what is known of each object after them.

    Parameters
    ----------
    moves, past
        The positions, and what is known from before.
    exists
        Whether each fence is in the newest version of the table.
    rules
        The definition.

    Returns
    -------
    tuple
        Events (rows of `FIELDS`), the open fences (rows of `VISIT`), where each object's start,
        the time and place of each object's last position, and which objects stay in the state.
    """
    objects, most = len(moves.starts) - 1, len(past.visits) + len(moves.fence)
    # a visit has three events at most: enter, dwell, and exit or lost
    events = _Events(
        np.empty((3 * most + len(moves.cross), len(FIELDS)), np.int64), np.zeros(1, np.int64)
    )
    kept, kept_starts = np.empty((most, len(VISIT)), np.int64), np.zeros(objects + 1, np.int64)
    lasts, places, stays = past.last.copy(), past.place.copy(), np.ones(objects, np.bool_)
    visits = np.empty((most + 1, len(VISIT) + 1), np.int64)
    nothing = np.full(len(VISIT), NONE, np.int64)
    for obj in range(objects):
        begin, count = past.starts[obj], past.starts[obj + 1] - past.starts[obj]
        visits[:count, : len(VISIT)] = past.visits[begin : begin + count]
        visits[:count, _SEEN] = -1
        last, place = lasts[obj], places[obj]
        for k in range(moves.starts[obj], moves.starts[obj + 1]):
            if last != NONE and rules.gap >= 0 and moves.times[k] - last > rules.gap:
                _lost(events, visits, count, obj, last, place, rules)
                count, last = 0, NONE
            if rules.wanted[CROSS] and last != NONE:
                _cross(events, visits, count, moves, obj, k, nothing)
            count = _inside(events, visits, count, moves, rules, obj, k, last == NONE)
            count = _outside(events, visits, count, moves, exists, rules, obj, k)
            last, place = moves.times[k], moves.place[k]
        if last != NONE and rules.gap >= 0 and last + rules.gap < rules.watermark:
            _lost(events, visits, count, obj, last, place, rules)
            count, stays[obj] = 0, False
        begin = kept_starts[obj]
        kept[begin : begin + count] = visits[:count, : len(VISIT)]
        kept_starts[obj + 1] = begin + count
        lasts[obj], places[obj] = last, place
    return (
        events.rows[: events.used[0]], kept[: kept_starts[-1]], kept_starts, lasts, places, stays
    )  # fmt: skip


def has_way(moves: Moves, past: Past, gap: int) -> tuple[Bools, Ints]:
    """Which positions were come to from another one, and the place of that in the pool."""
    moved = np.diff(moves.starts) > 0
    begins = moves.starts[:-1][moved]
    before, place = np.empty((2, len(moves.times)), np.int64)
    before[1:], place[1:] = moves.times[:-1], moves.place[:-1]
    before[begins], place[begins] = past.last[moved], past.place[moved]
    known = before != NONE
    if gap >= 0:
        known &= moves.times - before <= gap
    return known, place
