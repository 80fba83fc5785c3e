"""Ranges and newest rows by an ordered index: runs of values, one a key, searched by halving."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numba
import numpy as np
import numpy.typing as npt

from rivermouth.kernels.arrays import stable_order
from rivermouth.kernels.ranges.range_keys import Places
from rivermouth.kernels.spatial.geometry import Bools

Codes = npt.NDArray[np.int32]
Ints = npt.NDArray[np.int64]

_BLOCK = 256  # searches that go side by side
_STRIDE = 64  # places to a sample: the samples of 2^23 places stay in a processor's cache


@dataclass(frozen=True)
class Sorted:
    """The table's rows by key, then by place on the line, then by row; all arrays can be mapped.

    Parameters
    ----------
    start
        Where the run of each key starts.
    place
        The places, in order within each run.
    row
        The table row of each.
    top
        Every so-many-th place: where a search of a long run begins.
    """

    start: Ints
    place: Places
    row: Codes
    top: Places

    def arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        """The index as named arrays, for keeping."""
        return {part.name: getattr(self, part.name) for part in fields(self)}

    def between(self, group: Codes, low: Places, high: Places) -> tuple[Ints, Ints]:
        """Pairs (position, table row) of the group's rows in [low, high], by position then place.

        A negative group has no rows.
        """
        first, last = _spans(group, low, high, self._searched)
        return expand_spans(first, last, self.row)

    def asof(self, group: Codes, place: Places) -> tuple[Ints, Ints]:
        """Pairs (position, table row) of the group's last row at or before `place`."""
        return pairs_of(_last(group, place, self._searched), self.row)

    @property
    def _searched(self) -> tuple[Ints, Places, Places]:
        return self.start, self.place, self.top


def build(group: Codes, count: int, place: Places, usable: Bools) -> Sorted:
    """The index of the table's usable rows, by their group of `count` and their place."""
    row, start = ordered(group, count, place, usable)
    place = place[row]
    return Sorted(start, place, row.astype(np.int32), place[::_STRIDE].copy())


def ordered(group: Codes, count: int, place: Places, usable: Bools) -> tuple[Ints, Ints]:
    """The usable rows by group, place and row, and where each group starts among them."""
    rows = np.flatnonzero(usable & (group >= 0))
    rows = rows[np.argsort(place[rows], kind="stable")]
    order, start = stable_order(group[rows], count)
    return rows[order], start


@numba.njit(cache=True)
def expand_spans(first: Ints, last: Ints, row: Codes) -> tuple[Ints, Ints]:
    """Pairs (position, table row) of all places from `first` up to `last`, that excluded."""
    total = 0
    for k in range(len(first)):
        total += last[k] - first[k]
    left, right = np.empty(total, np.int64), np.empty(total, np.int64)
    near = np.empty(_BLOCK, np.int32)
    at = 0
    for block in range(0, len(first), _BLOCK):
        stop = min(block + _BLOCK, len(first))
        for k in range(block, stop):
            if first[k] < last[k]:
                near[k - block] = row[first[k]]  # brings it into the cache
        for k in range(block, stop):
            for place in range(first[k], last[k]):
                left[at], right[at] = k, row[place]
                at += 1
    return left, right


def pairs_of(found: Ints, row: Codes) -> tuple[Ints, Ints]:
    """Pairs (position, table row) where something was found; where not, it is negative."""
    left = np.flatnonzero(found >= 0)
    return left, row[found[left]].astype(np.int64)


@numba.njit(cache=True, inline="always")
def count_below(place: Places, low: int, size: int, bound: float, also_equal: bool) -> int:
    """How many of the `size` sorted places from `low` on are below `bound`, or equal to it."""
    start = low
    while size > 0:
        half = size >> 1
        value = place[low + half]
        if value < bound or (also_equal and value == bound):
            low += half + 1
            size -= half + 1
        else:
            size = half
    return low - start


@numba.njit(cache=True, inline="always")
def _below(value: float, bound: float, also_equal: bool) -> bool:
    return (value < bound) | (also_equal & (value == bound))


@numba.njit(cache=True)
def _seek(
    group: Codes, bound: Places, also_equal: bool, index: tuple[Ints, Places, Places],
    begin: Ints, end: Ints, at: Ints, size: Ints,
) -> None:  # fmt: skip
    """Where each bound belongs `at` in the run of its group, which goes from `begin` to `end`.

    All searches take one step before any takes the next: their loads do not depend on each
    other, so the processor waits for many of them at once. A step has no branch, since a guess
    would be wrong half the time.
    """
    start, place, top = index
    for k in range(len(group)):
        key = max(group[k], 0)
        begin[k], end[k] = start[key], start[key + 1]
    for k in range(len(group)):
        if group[k] < 0:
            end[k] = begin[k]
        # the samples within the run; those of a short run would not save a step
        at[k] = (begin[k] + _STRIDE - 1) // _STRIDE
        size[k] = (end[k] + _STRIDE - 1) // _STRIDE - at[k]
        if end[k] - begin[k] <= 2 * _STRIDE:
            size[k] = 0
    _halve(at, size, bound, also_equal, top)
    for k in range(len(group)):
        low, high = begin[k], end[k]
        if high - low > 2 * _STRIDE:
            low, high = max(low, (at[k] - 1) * _STRIDE), min(high, at[k] * _STRIDE)
        at[k], size[k] = low, high - low
    _halve(at, size, bound, also_equal, place)


@numba.njit(cache=True)
def _halve(at: Ints, size: Ints, bound: Places, also_equal: bool, place: Places) -> None:
    """Move each `at` to where its bound belongs among the `size` places from there on."""
    steps = 0
    for k in range(len(at)):
        steps = max(steps, size[k])
    while steps > 1:
        for k in range(len(at)):
            half = size[k] >> 1
            if half:
                at[k] += half * _below(place[at[k] + half - 1], bound[k], also_equal)
            size[k] -= half
        steps -= steps >> 1
    for k in range(len(at)):
        if size[k]:
            at[k] += _below(place[at[k]], bound[k], also_equal)


@numba.njit(cache=True)
def _spans(
    group: Codes, low: Places, high: Places, index: tuple[Ints, Places, Places]
) -> tuple[Ints, Ints]:
    """Where each range starts and ends among the places."""
    first, last = np.empty(len(group), np.int64), np.empty(len(group), np.int64)
    begin, end = np.empty(_BLOCK, np.int64), np.empty(_BLOCK, np.int64)
    size = np.empty(_BLOCK, np.int64)
    for block in range(0, len(group), _BLOCK):
        part = slice(block, min(block + _BLOCK, len(group)))
        count = part.stop - block
        _seek(
            group[part], low[part], False, index,
            begin[:count], end[:count], first[part], size[:count],
        )  # fmt: skip
        for k in range(count):
            last[block + k] = _end_of(index[1], first[block + k], end[k], high[block + k])
    return first, last


@numba.njit(cache=True, inline="always")
def _end_of(place: Places, at: int, end: int, high: float) -> int:
    """Where the places up to `high` end: ranges are short, so the step is doubled, then halved."""
    step = 1
    while at + step <= end and place[at + step - 1] <= high:
        at += step
        step *= 2
    return at + count_below(place, at, min(step, end - at), high, True)


@numba.njit(cache=True)
def _last(group: Codes, asked: Places, index: tuple[Ints, Places, Places]) -> Ints:
    """The last place at or before each one asked for, -1 where there is none."""
    found = np.empty(len(group), np.int64)
    begin, end = np.empty(_BLOCK, np.int64), np.empty(_BLOCK, np.int64)
    size = np.empty(_BLOCK, np.int64)
    for block in range(0, len(group), _BLOCK):
        part = slice(block, min(block + _BLOCK, len(group)))
        count = part.stop - block
        _seek(
            group[part], asked[part], True, index,
            begin[:count], end[:count], found[part], size[:count],
        )  # fmt: skip
        for k in range(count):
            found[block + k] = found[block + k] - 1 if found[block + k] > begin[k] else -1
    return found
