"""Positions of objects cut into moves and stays, a piece of the stream at a time.

An object's positions are taken in the order of time, one per time.

- A *gap* is more than `gap` between two positions. What was open ends at the first of them, and
  the second begins anew. Nothing is interpolated.
- A *stay* is the longest run of positions, without a gap, that all lie within `radius` of the run's
  first position (its anchor; exactly `radius` is within), and whose last is at least `duration`
  younger than its first. Anchors are tried in the order of time: the first position that begins a
  stay does, the position after a stay's last is the next to be tried. This is the stay point
  detection of Li et al., *Mining User Similarity Based on Location History*, 2008.
- A *move* is what lies between: from the last position of a stay, or the first after a gap, to the
  first position of the next stay, or the last before a gap. Rows that follow one another share the
  position at which they meet, so that their times and lengths add up to the whole.
- A *point* is a position between two gaps.

What is known of an object after any number of positions does not depend on how they were divided
among calls of `segment`: the open row's beginning, the anchor that is being tried, and the
positions since. Of a stay that is long enough only the anchor and the last position are needed;
what is before the anchor is never looked at again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from rivermouth.kernels.arrays import Bools, Floats, Ints, ranges
from rivermouth.kernels.spatial.distance import (
    distance,
    inner_bound,
    outer_bound,
    squared_distance,
)
from rivermouth.kernels.spatial.sphere import unit_vectors

MOVE, STAY, POINT = 0, 1, 2
#: the names of a row's kinds
KINDS = ("move", "stay", "point")


@dataclass(frozen=True)
class Segmentation:
    """How positions are cut.

    Parameters
    ----------
    gap
        The longest time between two positions of one row, in microseconds.
    radius, duration
        How far from its first position a stay reaches, and how long it lasts at least, in
        microseconds; a radius of None: there are no stays.
    on_sphere
        Whether x and y are degrees and distances metres, along great circles.
    """

    gap: int
    radius: float | None = None
    duration: int = 1
    on_sphere: bool = False


class Tracks(NamedTuple):
    """Positions of several objects, each object's in the order of time.

    Parameters
    ----------
    start
        Where each object's positions begin, and the last one's end.
    time, x, y
        Microseconds since 1970, and coordinates.
    """

    start: Ints
    time: Ints
    x: Floats
    y: Floats

    @classmethod
    def none(cls, objects: int) -> Tracks:
        """No positions of so many objects."""
        empty = np.empty(0)
        return cls(np.zeros(objects + 1, np.int64), np.empty(0, np.int64), empty, empty)

    def take(self, start: Ints, rows: Ints) -> Tracks:
        """These positions, of which each object's begin at its `start`."""
        return Tracks(start, self.time[rows], self.x[rows], self.y[rows])


class Carry(NamedTuple):
    """What is known of objects between two calls; arrays with an entry per object.

    Parameters
    ----------
    begin
        When the open row begins.
    after_stay
        Whether the open row's first position is the last one of a stay.
    is_stay
        Whether the open row is a stay, long enough already.
    window
        The anchor that is being tried and the positions since; of a stay the anchor and the last
        position; where there are no stays the last position; nothing before the first position.
    """

    begin: Ints
    after_stay: Bools
    is_stay: Bools
    window: Tracks

    @classmethod
    def new(cls, objects: int) -> Carry:
        """What is known of objects before their first position."""
        flags = np.zeros((2, objects), dtype=bool)
        return cls(np.zeros(objects, np.int64), flags[0], flags[1], Tracks.none(objects))

    @property
    def last(self) -> Ints:
        """The time of each object's last position; every object has one."""
        return self.window.time[self.window.start[1:] - 1]

    def take(self, objects: Ints) -> Carry:
        """What is known of these objects."""
        rows, start = ranges(self.window.start[objects], self.window.start[objects + 1])
        window = self.window.take(start, rows)
        return Carry(self.begin[objects], self.after_stay[objects], self.is_stay[objects], window)


class Rows(NamedTuple):
    """Finished rows: whose, of what kind, and the times of the first and the last position."""

    object: Ints
    kind: npt.NDArray[np.int8]
    begin: Ints
    end: Ints

    def take(self, rows: Ints) -> Rows:
        """These rows."""
        return Rows(self.object[rows], self.kind[rows], self.begin[rows], self.end[rows])


def segment(how: Segmentation, carry: Carry, new: Tracks) -> tuple[Rows, Carry]:
    """The rows that the new positions finish, and what is known of the objects then.

    Parameters
    ----------
    how
        How positions are cut.
    carry
        What is known of the objects.
    new
        Their next positions: each object's are later than those before, and no two of a time.

    Returns
    -------
    tuple of Rows, Carry
        The rows of an object are in the order of time; objects are in order.

    Examples
    --------
    Somebody walks, waits from 3 to 9, and walks on:

    >>> time = np.array([0, 1, 2, 3, 5, 9, 10, 11])
    >>> x = np.array([0.0, 9, 18, 27, 28, 26, 40, 50])
    >>> how = Segmentation(gap=5, radius=2.0, duration=4)
    >>> track = Tracks(np.array([0, 8]), time, x, np.zeros(8))
    >>> rows, carry = segment(how, Carry.new(1), track)
    >>> [(KINDS[kind], int(begin), int(end)) for _, kind, begin, end in zip(*rows)]
    [('move', 0, 3), ('stay', 3, 9)]
    >>> [(KINDS[kind], int(begin), int(end)) for _, kind, begin, end in zip(*finish(carry))]
    [('move', 9, 11)]
    """
    whole, seen = appended(carry.window, new)
    xy = np.column_stack([whole.x, whole.y])
    place = unit_vectors(whole.x, whole.y) if how.on_sphere and how.radius is not None else xy
    begin, after_stay, is_stay = carry.begin.copy(), carry.after_stay.copy(), carry.is_stay.copy()
    radius = -1.0 if how.radius is None else how.radius
    whose, kind, since, until, anchor = _segment(
        whole.start, seen, whole.time, xy, place, begin, after_stay, is_stay, how.gap, radius,
        how.duration,
    )  # fmt: skip
    rows = Rows(whose, kind, since, until)
    return rows, Carry(begin, after_stay, is_stay, _window(whole, anchor, is_stay))


def finish(carry: Carry) -> Rows:
    """The open rows of objects of which no position follows, or none before a gap."""
    last = carry.last
    is_one = carry.begin == last
    kind = np.where(carry.is_stay, STAY, np.where(is_one, POINT, MOVE)).astype(np.int8)
    rows = np.flatnonzero(~(is_one & carry.after_stay))  # the position is part of the stay
    return Rows(rows, kind[rows], carry.begin[rows], last[rows])


def appended(old: Tracks, new: Tracks) -> tuple[Tracks, Ints]:
    """Each object's positions of both, the old ones first, and where the new ones begin."""
    before = np.diff(old.start)
    start = old.start + new.start
    seen = start[:-1] + before
    at_old, _ = ranges(start[:-1], seen)
    at_new, _ = ranges(seen, start[1:])

    def both(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> npt.NDArray[Any]:
        whole = np.empty(start[-1], one.dtype)
        whole[at_old], whole[at_new] = one, other
        return whole

    return Tracks(start, both(old.time, new.time), both(old.x, new.x), both(old.y, new.y)), seen


def _window(whole: Tracks, anchor: Ints, is_stay: Bools) -> Tracks:
    """What must be kept of the positions: from the anchor on; of a stay the anchor and the last."""
    end = whole.start[1:]
    rows, start = ranges(anchor, end)
    if is_stay.any():
        inner = np.repeat(is_stay, np.diff(start))
        inner[start[:-1][is_stay]] = inner[start[1:][is_stay] - 1] = False
        rows = rows[~inner]
        kept = np.where(is_stay, 2, end - anchor)
        start = np.concatenate([[0], np.cumsum(kept)])
    return whole.take(start, rows)


@numba.njit(cache=True, inline="always")
def _is_within(
    xy: Floats, place: Floats, a: int, b: int, radius: float, near: float, far: float
) -> bool:
    """Whether two positions are at most `radius` apart; cheap bounds decide nearly all pairs."""
    squared = squared_distance(place, a, place, b)
    if squared <= near:
        return True
    return squared <= far and distance(xy, a, xy, b, place.shape[1]) <= radius


@numba.njit(cache=True)
def _next_anchor(
    xy: Floats, place: Floats, anchor: int, k: int, radius: float, near: float, far: float
) -> int:
    """The first position after `anchor`, which k is outside of, that all up to k are within.

    Those between cannot begin a stay: one of the positions up to k is outside, and a stay that
    ends before is too short, as the anchor's was.
    """
    for other in range(anchor + 1, k):
        # the newest is the most likely to be outside
        j = k
        while j > other and _is_within(xy, place, other, j, radius, near, far):
            j -= 1
        if j == other:
            return other
    return k


@numba.njit(cache=True)
def _segment(
    start: Ints,
    seen: Ints,
    time: Ints,
    xy: Floats,
    place: Floats,
    begin: Ints,
    after_stay: Bools,
    is_stay: Bools,
    gap: int,
    radius: float,
    duration: int,
) -> tuple[Ints, npt.NDArray[np.int8], Ints, Ints, Ints]:
    """The finished rows and each object's anchor; `begin` and the flags are brought up to date.

    A radius below zero means that there are no stays; the anchor then is the last position.
    """
    near, far = inner_bound(radius, place.shape[1]), outer_bound(radius, place.shape[1])
    objects = len(seen)
    most = len(time) - (seen - start[:-1]).sum()  # a position finishes one row at most
    whose, kinds = np.empty(most, np.int64), np.empty(most, np.int8)
    begins, ends = np.empty(most, np.int64), np.empty(most, np.int64)
    anchors, count = np.empty(objects, np.int64), 0
    for o in range(objects):
        first, anchor = start[o], start[o]
        opened, shared, staying = begin[o], after_stay[o], is_stay[o]
        for k in range(seen[o], start[o + 1]):
            kind, stop = -1, time[k]  # of the row that this position finishes
            since, was_shared = opened, shared
            if k == first:
                opened, shared, anchor = time[k], False, k
            elif time[k] - time[k - 1] > gap:
                stop = time[k - 1]
                is_one = since == stop
                if staying or not (is_one and was_shared):
                    kind = STAY if staying else POINT if is_one else MOVE
                opened, shared, staying, anchor = time[k], False, False, k
            elif radius < 0:
                anchor = k
            elif staying:
                if not _is_within(xy, place, anchor, k, radius, near, far):
                    kind, stop = STAY, time[k - 1]
                    opened, shared, staying, anchor = time[k - 1], True, False, k
            else:
                if not _is_within(xy, place, anchor, k, radius, near, far):
                    anchor = _next_anchor(xy, place, anchor, k, radius, near, far)
                if time[k] - time[anchor] >= duration:
                    if since < time[anchor]:
                        kind, stop = MOVE, time[anchor]
                    opened, shared, staying = time[anchor], False, True
            if kind >= 0:
                whose[count], kinds[count], begins[count], ends[count] = o, kind, since, stop
                count += 1
        begin[o], after_stay[o], is_stay[o], anchors[o] = opened, shared, staying, anchor
    return whose[:count], kinds[:count], begins[:count], ends[:count], anchors
