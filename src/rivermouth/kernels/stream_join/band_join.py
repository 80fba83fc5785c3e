"""Points near points in a range of time, both sides sorted: the join of many with many.

Points are cut by their code (what `rm.keys` compares), by slots of time about as long as the
range asked for, and by horizontal strips about as high as the distance asked for; in each strip
they lie from left to right. What is near a point lies in a few strips of two or three slots, in
one piece of each, so that both sides are read nearly in the order in which they lie in memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt

from rivermouth.kernels.spatial.distance import SLACK, TINY, apart, core, exact, reach
from rivermouth.kernels.spatial.geometry import Floats
from rivermouth.kernels.spatial.sphere import RADIUS, unit_vectors
from rivermouth.kernels.stream_join.times import Span

Ints = npt.NDArray[np.int64]

_LOWEST = 1e-9  # of a strip's height, in the coordinates' unit
_FARTHEST = float(1 << 52)  # strips are numbered up to here, beyond it is one strip
_ROUNDING = 1e-15  # share of a coordinate that a sum may be off by
_AROUND = 360.0  # degrees


@dataclass(frozen=True)
class Strips:
    """Points in strips; all arrays but the last three are in the order of the strips.

    Parameters
    ----------
    row
        The number of each point's row.
    x
        How far to the right it lies: x, or the longitude brought to [-180, 180).
    time, xy, position
        Its time, its place as it came, and its place in the space of chords (see `closeness`).
    code, slot, strip, start
        Of each strip that holds points: its code, its slot of time, its number, and where its
        points start.
    width
        The length of a slot.
    """

    row: Ints
    x: Floats
    time: Ints
    xy: Floats
    position: Floats
    code: Ints
    slot: Ints
    strip: Ints
    start: Ints
    width: int

    @property
    def is_sphere(self) -> bool:
        """Whether distances are great circles in metres."""
        return bool(self.position.shape[1] == 3)


def build(
    x: Floats,
    y: Floats,
    time: Ints,
    code: Ints,
    *,
    limit: float,
    sphere: bool,
    width: int,
) -> Strips:
    """Finite points in strips for distances of up to `limit`, in slots of `width`."""
    along = np.mod(x + 180.0, _AROUND) - 180.0 if sphere else x
    strip, slot = _strip_of(y, _height(limit, sphere)), time // width
    order = np.lexsort((along, strip, slot, code))
    code, slot, strip = code[order], slot[order], strip[order]
    begins = np.ones(len(order), dtype=bool)
    begins[1:] = (np.diff(code) != 0) | (np.diff(slot) != 0) | (np.diff(strip) != 0)
    first = np.flatnonzero(begins)
    xy = np.column_stack([x[order], y[order]])
    position = unit_vectors(xy[:, 0], xy[:, 1]) if sphere else xy
    return Strips(
        order, along[order], time[order], xy, np.ascontiguousarray(position),
        code[first], slot[first], strip[first], np.append(first, len(order)), width,
    )  # fmt: skip


def meet(
    asking: Strips, held: Strips, limit: float, span: Span, *, most: int = 1 << 18
) -> Iterator[tuple[Ints, Ints, int]]:
    """Pairs (row that asks, row that is held), and how many were looked at; about `most` a time.

    Both must have been built for this `limit` and have their codes from one place.
    """
    sphere, at = asking.is_sphere, 0
    height, y = _height(limit, sphere), asking.xy[:, 1]
    up = height * (1.0 + SLACK) + np.abs(y) * _ROUNDING + TINY
    low, high = _strip_of(y - up, height), _strip_of(y + up, height)
    code = np.repeat(asking.code, np.diff(asking.start))
    wide = _wide(asking, limit)
    buffers = np.empty((2, most + len(held.row)), np.int64)
    while at < len(asking.row):
        at, count, seen = _meet(
            at, most, buffers, code, asking.x, wide, low, high, asking.time, asking.xy,
            asking.position, held.code, held.slot, held.strip, held.start, held.x, held.time,
            held.xy, held.position, held.width, limit, *span, sphere,
        )  # fmt: skip
        yield asking.row[buffers[0, :count]], held.row[buffers[1, :count]], seen


def _height(limit: float, sphere: bool) -> float:
    """The height of a strip: the limit itself, on the sphere in degrees."""
    return max(min(math.degrees(limit / RADIUS), 180.0) if sphere else limit, _LOWEST)


def _strip_of(y: Floats, height: float) -> Ints:
    with np.errstate(over="ignore"):
        return np.clip(np.floor(y / height), -_FARTHEST, _FARTHEST).astype(np.int64)


def _wide(asking: Strips, limit: float) -> Floats:
    """How far to the left and right of each point others can lie within `limit`."""
    if not asking.is_sphere:
        return limit * (1.0 + SLACK) + np.abs(asking.x) * _ROUNDING + TINY
    angle = limit / RADIUS * (1.0 + SLACK) + SLACK
    latitude = np.radians(np.abs(asking.xy[:, 1]))
    by_pole = latitude + angle >= math.pi / 2
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(by_pole, 1.0, math.sin(min(angle, math.pi / 2)) / np.cos(latitude))
    wide = np.degrees(np.arcsin(np.clip(share, -1.0, 1.0))) * (1.0 + SLACK)
    return np.where(by_pole, _AROUND, wide + 1e-12)


@numba.njit(cache=True)
def _find(code: Ints, slot: Ints, strip: Ints, wanted: int, at: int, low: int) -> int:
    """The first strip that is not before strip `low` of slot `at` of code `wanted`."""
    first, last = 0, len(code)
    while first < last:
        middle = (first + last) // 2
        if code[middle] != wanted:
            before = code[middle] < wanted
        elif slot[middle] != at:
            before = slot[middle] < at
        else:
            before = strip[middle] < low
        if before:
            first = middle + 1
        else:
            last = middle
    return first


@numba.njit(cache=True)
def _from(x: Floats, low: int, high: int, value: float) -> int:
    """The first place in [low, high) whose x is not less than `value`."""
    while low < high:
        middle = (low + high) // 2
        if x[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


@numba.njit(cache=True)
def _ranges(x: float, wide: float, sphere: bool) -> tuple[tuple[float, float], ...]:
    """Where to look in a strip; on the sphere also beyond the antimeridian. Empty ones end first.

    A range of three: what reaches over one edge comes in at the other.
    """
    left, right = x - wide, x + wide
    nothing = (np.inf, -np.inf)
    if not sphere or wide >= 180.0:
        return (left, right), nothing, nothing
    over = (left + 360.0, np.inf) if left < -180.0 else nothing
    under = (-np.inf, right - 360.0) if right >= 180.0 else nothing
    return (left, right), over, under


@numba.njit(cache=True)
def _meet(
    q: int, most: int, buffers: Ints,
    code: Ints, x: Floats, wide: Floats, low: Ints, high: Ints, time: Ints, xy: Floats,
    position: Floats, strip_code: Ints, slot: Ints, strip: Ints, start: Ints, other_x: Floats,
    other_time: Ints, other_xy: Floats, other: Floats, width: int,
    limit: float, lower: int, upper: int, first: int, last: int, sphere: bool,
) -> tuple[int, int, int]:  # fmt: skip
    """Fill the buffers from query `q` on: where it stopped, how many pairs, how many seen."""
    dims = position.shape[1]
    far, near = reach(limit, dims), core(limit, dims)
    count, seen = 0, 0
    while q < len(x) and count < most:
        earliest, latest = max(time[q] + lower, first), min(time[q] + upper, last)
        for at in range(earliest // width, latest // width + 1):
            s = _find(strip_code, slot, strip, code[q], at, low[q])
            while (
                s < len(strip)
                and strip_code[s] == code[q]
                and slot[s] == at
                and strip[s] <= high[q]
            ):
                for begin, end in _ranges(x[q], wide[q], sphere):
                    if begin > end:
                        continue
                    p = _from(other_x, start[s], start[s + 1], begin)
                    while p < start[s + 1] and other_x[p] <= end:
                        seen += 1
                        if earliest <= other_time[p] <= latest:
                            gap = apart(position, q, other, p)
                            if gap <= far and (
                                gap <= near or exact(xy, q, other_xy, p, dims) <= limit
                            ):
                                buffers[0, count], buffers[1, count] = q, p
                                count += 1
                        p += 1
                s += 1
        q += 1
    return q, count, seen
