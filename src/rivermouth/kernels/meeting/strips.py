"""Points near points in a range of time, both sides sorted: the join of many with many.

Points are cut into horizontal strips about as high as the distance asked for, and lie in each
strip from left to right. What is near a point lies in three strips at most, in one run of each,
so that both sides are read nearly in the order in which they lie in memory. Rows must also have
the same code (what `rm.equal` compares); the code is the first thing they are sorted by.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt

from rivermouth.kernels.closeness import SLACK, apart, core, exact, reach
from rivermouth.kernels.geometry import Floats
from rivermouth.kernels.meeting.times import Span
from rivermouth.kernels.sphere import RADIUS, unit_vectors

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
    code, strip, start
        Of each strip that holds points: its code, its number and where its points start.
    """

    row: Ints
    x: Floats
    time: Ints
    xy: Floats
    position: Floats
    code: Ints
    strip: Ints
    start: Ints

    @property
    def is_sphere(self) -> bool:
        """Whether distances are great circles in metres."""
        return bool(self.position.shape[1] == 3)


def build(
    x: Floats, y: Floats, time: Ints, code: Ints, row: Ints, *, limit: float, sphere: bool
) -> Strips:
    """Finite points, each with its row, in strips for distances of up to `limit`."""
    along = np.mod(x + 180.0, _AROUND) - 180.0 if sphere else x
    strip = _strip_of(y, _height(limit, sphere))
    order = np.lexsort((along, strip, code))
    code, strip = code[order], strip[order]
    begins = np.ones(len(order), dtype=bool)
    begins[1:] = (np.diff(code) != 0) | (np.diff(strip) != 0)
    first = np.flatnonzero(begins)
    xy = np.column_stack([x[order], y[order]])
    position = unit_vectors(xy[:, 0], xy[:, 1]) if sphere else xy
    return Strips(
        row[order], along[order], time[order], xy, np.ascontiguousarray(position),
        code[first], strip[first], np.append(first, len(order)),
    )  # fmt: skip


def meet(
    asking: Strips, held: Strips, limit: float, span: Span, *, most: int = 1 << 18
) -> Iterator[tuple[Ints, Ints, int]]:
    """Pairs (row that asks, row that is held), and how many were looked at; about `most` a time.

    Both must have been built for this `limit` and have their codes from one place.
    """
    sphere, at = asking.is_sphere, 0
    up = _height(limit, sphere) * (1.0 + SLACK)
    y = asking.xy[:, 1]
    slack = np.abs(y) * _ROUNDING
    height = _height(limit, sphere)
    low, high = _strip_of(y - up - slack, height), _strip_of(y + up + slack, height)
    code = np.repeat(asking.code, np.diff(asking.start))
    wide = _wide(asking, limit)
    buffers = np.empty((2, most + len(held.row)), np.int64)
    while at < len(asking.row):
        at, count, seen = _meet(
            at, most, buffers, code, asking.x, wide, low, high, asking.time, asking.xy,
            asking.position, held.code, held.strip, held.start, held.x, held.time, held.xy,
            held.position, limit, *span, sphere,
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
        return limit * (1.0 + SLACK) + np.abs(asking.x) * _ROUNDING
    angle = limit / RADIUS * (1.0 + SLACK) + SLACK
    latitude = np.radians(np.abs(asking.xy[:, 1]))
    by_pole = latitude + angle >= math.pi / 2
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(by_pole, 1.0, math.sin(min(angle, math.pi / 2)) / np.cos(latitude))
    wide = np.degrees(np.arcsin(np.clip(share, -1.0, 1.0))) * (1.0 + SLACK)
    return np.where(by_pole, _AROUND, wide + 1e-12)


@numba.njit(cache=True)
def _find(code: Ints, strip: Ints, wanted_code: int, wanted: int) -> int:
    """The first strip that is not before this one."""
    low, high = 0, len(code)
    while low < high:
        middle = (low + high) // 2
        before = code[middle] < wanted_code or (
            code[middle] == wanted_code and strip[middle] < wanted
        )
        if before:
            low = middle + 1
        else:
            high = middle
    return low


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
def _meet(
    q: int, most: int, buffers: Ints,
    code: Ints, x: Floats, wide: Floats, low: Ints, high: Ints, time: Ints, xy: Floats,
    position: Floats, strip_code: Ints, strip: Ints, start: Ints, other_x: Floats,
    other_time: Ints, other_xy: Floats, other: Floats,
    limit: float, lower: int, upper: int, first: int, last: int, sphere: bool,
) -> tuple[int, int, int]:  # fmt: skip
    """Fill the buffers from query `q` on: where it stopped, how many pairs, how many seen."""
    dims = position.shape[1]
    far, near = reach(limit, dims), core(limit, dims)
    count, seen, known, at = 0, 0, -1, 0
    while q < len(x) and count < most:
        if known < 0 or code[known] != code[q] or low[known] != low[q]:
            at = _find(strip_code, strip, code[q], low[q])
        known = q
        s = at
        while s < len(strip) and strip_code[s] == code[q] and strip[s] <= high[q]:
            left, right = x[q] - wide[q], x[q] + wide[q]
            for turn in range(3 if sphere else 1):
                # the same range once around the sphere, where it reaches over the antimeridian
                if turn == 1:
                    if left >= -180.0 or wide[q] >= 180.0:
                        continue
                    begin, end = left + 360.0, np.inf
                elif turn == 2:
                    if right < 180.0 or wide[q] >= 180.0:
                        continue
                    begin, end = -np.inf, right - 360.0
                else:
                    begin, end = left, right
                p = _from(other_x, start[s], start[s + 1], begin)
                while p < start[s + 1] and other_x[p] <= end:
                    seen += 1
                    later = other_time[p] - time[q]
                    if lower <= later <= upper and first <= other_time[p] <= last:
                        gap = apart(position, q, other, p)
                        if gap <= far and (gap <= near or exact(xy, q, other_xy, p, dims) <= limit):
                            buffers[0, count], buffers[1, count] = q, p
                            count += 1
                    p += 1
            s += 1
        q += 1
    return q, count, seen
