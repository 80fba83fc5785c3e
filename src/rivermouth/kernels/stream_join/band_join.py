"""Band join of points: near points within a range of time, both sides sorted.

Points are partitioned by their code (a hash of what `rm.keys` compares), by slots of time about as
long as the range, and by horizontal bands about as high as the distance; in each band they are
sorted by x. The partners of a point lie in a few bands of two or three slots, in one contiguous
range of each, so that both sides are read nearly in the order in which they lie in memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numba
import numpy as np

from rivermouth.kernels.arrays import Floats, Ints
from rivermouth.kernels.spatial.distance import (
    SLACK,
    TINY,
    distance,
    inner_bound,
    outer_bound,
    squared_distance,
)
from rivermouth.kernels.spatial.sphere import RADIUS, unit_vectors
from rivermouth.kernels.stream_join.times import TimeBounds

_LOWEST = 1e-9  # the least height of a band, in the coordinates' unit
_FARTHEST = float(1 << 52)  # the largest band number; everything beyond is in that band
_ROUNDING = 1e-15  # share of a coordinate that a sum may be off by
_AROUND = 360.0  # degrees


@dataclass(frozen=True)
class Bands:
    """Points in bands; all arrays but those of bands are in the order of the bands.

    Parameters
    ----------
    row
        The number of each point's row.
    x
        Its x, or its longitude normalised to [-180, 180).
    time, xy, position
        Its time, its coordinates as they came, and its position in chord space (see `distance`).
    code, slot, band, start
        Of each band that contains points: its code, its slot of time, its number, and where its
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
    band: Ints
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
) -> Bands:
    """Finite points in bands for distances of up to `limit`, in slots of `width`."""
    along = np.mod(x + 180.0, _AROUND) - 180.0 if sphere else x
    band, slot = _band_of(y, _height(limit, sphere)), time // width
    order = np.lexsort((along, band, slot, code))
    code, slot, band = code[order], slot[order], band[order]
    begins = np.ones(len(order), dtype=bool)
    begins[1:] = (np.diff(code) != 0) | (np.diff(slot) != 0) | (np.diff(band) != 0)
    first = np.flatnonzero(begins)
    xy = np.column_stack([x[order], y[order]])
    position = unit_vectors(xy[:, 0], xy[:, 1]) if sphere else xy
    return Bands(
        order, along[order], time[order], xy, np.ascontiguousarray(position),
        code[first], slot[first], band[first], np.append(first, len(order)), width,
    )  # fmt: skip


def join(
    probe: Bands, build: Bands, limit: float, bounds: TimeBounds, *, most: int = 1 << 18
) -> Iterator[tuple[Ints, Ints, int]]:
    """Pairs (probe row, build row), about `most` at a time, and how many were tested.

    Both must have been built for this `limit`, and their codes by the same hash.
    """
    sphere, at = probe.is_sphere, 0
    height, y = _height(limit, sphere), probe.xy[:, 1]
    up = height * (1.0 + SLACK) + np.abs(y) * _ROUNDING + TINY
    low, high = _band_of(y - up, height), _band_of(y + up, height)
    code = np.repeat(probe.code, np.diff(probe.start))
    wide = _half_width(probe, limit)
    buffers = np.empty((2, most + len(build.row)), np.int64)
    while at < len(probe.row):
        at, count, tested = _join(
            at, most, buffers, code, probe.x, wide, low, high, probe.time, probe.xy,
            probe.position, build.code, build.slot, build.band, build.start, build.x, build.time,
            build.xy, build.position, build.width, limit, *bounds, sphere,
        )  # fmt: skip
        yield probe.row[buffers[0, :count]], build.row[buffers[1, :count]], tested


def _height(limit: float, sphere: bool) -> float:
    """The height of a band: the limit itself, on the sphere in degrees."""
    return max(min(math.degrees(limit / RADIUS), 180.0) if sphere else limit, _LOWEST)


def _band_of(y: Floats, height: float) -> Ints:
    with np.errstate(over="ignore"):
        return np.clip(np.floor(y / height), -_FARTHEST, _FARTHEST).astype(np.int64)


def _half_width(probe: Bands, limit: float) -> Floats:
    """How far to the left and right of each point others can lie within `limit`."""
    if not probe.is_sphere:
        return limit * (1.0 + SLACK) + np.abs(probe.x) * _ROUNDING + TINY
    angle = limit / RADIUS * (1.0 + SLACK) + SLACK
    latitude = np.radians(np.abs(probe.xy[:, 1]))
    by_pole = latitude + angle >= math.pi / 2
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.where(by_pole, 1.0, math.sin(min(angle, math.pi / 2)) / np.cos(latitude))
    wide = np.degrees(np.arcsin(np.clip(share, -1.0, 1.0))) * (1.0 + SLACK)
    return np.where(by_pole, _AROUND, wide + 1e-12)


@numba.njit(cache=True)
def _find(code: Ints, slot: Ints, band: Ints, wanted: int, at: int, low: int) -> int:
    """The first band that is not before band `low` of slot `at` of code `wanted`."""
    first, last = 0, len(code)
    while first < last:
        middle = (first + last) // 2
        if code[middle] != wanted:
            before = code[middle] < wanted
        elif slot[middle] != at:
            before = slot[middle] < at
        else:
            before = band[middle] < low
        if before:
            first = middle + 1
        else:
            last = middle
    return first


@numba.njit(cache=True)
def _from(x: Floats, low: int, high: int, value: float) -> int:
    """The first position in [low, high) whose x is not less than `value`."""
    while low < high:
        middle = (low + high) // 2
        if x[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


@numba.njit(cache=True)
def _ranges(x: float, wide: float, sphere: bool) -> tuple[tuple[float, float], ...]:
    """The ranges of x to search in a band; empty ones have their end before their begin.

    On the sphere a range that crosses the antimeridian continues at the other edge.
    """
    left, right = x - wide, x + wide
    nothing = (np.inf, -np.inf)
    if not sphere or wide >= 180.0:
        return (left, right), nothing, nothing
    over = (left + 360.0, np.inf) if left < -180.0 else nothing
    under = (-np.inf, right - 360.0) if right >= 180.0 else nothing
    return (left, right), over, under


@numba.njit(cache=True)
def _join(
    q: int, most: int, buffers: Ints,
    code: Ints, x: Floats, wide: Floats, low: Ints, high: Ints, time: Ints, xy: Floats,
    position: Floats, band_code: Ints, slot: Ints, band: Ints, start: Ints, other_x: Floats,
    other_time: Ints, other_xy: Floats, other: Floats, width: int,
    limit: float, lower: int, upper: int, first: int, last: int, sphere: bool,
) -> tuple[int, int, int]:  # fmt: skip
    """Fill the buffers from query `q` on: where it stopped, how many pairs, how many tested."""
    dims = position.shape[1]
    far, near = outer_bound(limit, dims), inner_bound(limit, dims)
    count, tested = 0, 0
    while q < len(x) and count < most:
        earliest, latest = max(time[q] + lower, first), min(time[q] + upper, last)
        for at in range(earliest // width, latest // width + 1):
            s = _find(band_code, slot, band, code[q], at, low[q])
            while (
                s < len(band) and band_code[s] == code[q] and slot[s] == at and band[s] <= high[q]
            ):
                for begin, end in _ranges(x[q], wide[q], sphere):
                    if begin > end:
                        continue
                    p = _from(other_x, start[s], start[s + 1], begin)
                    while p < start[s + 1] and other_x[p] <= end:
                        tested += 1
                        if earliest <= other_time[p] <= latest:
                            gap = squared_distance(position, q, other, p)
                            if gap <= far and (
                                gap <= near or distance(xy, q, other_xy, p, dims) <= limit
                            ):
                                buffers[0, count], buffers[1, count] = q, p
                                count += 1
                        p += 1
                s += 1
        q += 1
    return q, count, tested
