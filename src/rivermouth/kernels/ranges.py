"""Ranges and newest rows by an ordered index: runs of values, one a key, searched by halving."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numba
import numpy as np
import numpy.typing as npt

from rivermouth.kernels.axis import Places
from rivermouth.kernels.geometry import Bools
from rivermouth.kernels.sorting import stable_order

Codes = npt.NDArray[np.int32]
Ints = npt.NDArray[np.int64]


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
    """

    start: Ints
    place: Places
    row: Codes

    def arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        """The index as named arrays, for keeping."""
        return {part.name: getattr(self, part.name) for part in fields(self)}

    def between(self, group: Codes, low: Places, high: Places) -> tuple[Ints, Ints]:
        """Pairs (position, table row) of the group's rows in [low, high], by position then place.

        A negative group has no rows.
        """
        first, last = _spans(group, low, high, self.start, self.place)
        return expand_spans(first, last, self.row)

    def asof(self, group: Codes, place: Places) -> tuple[Ints, Ints]:
        """Pairs (position, table row) of the group's last row at or before `place`."""
        return pairs_of(_last(group, place, self.start, self.place), self.row)


def build(group: Codes, count: int, place: Places, usable: Bools) -> Sorted:
    """The index of the table's usable rows, by their group of `count` and their place."""
    row, start = ordered(group, count, place, usable)
    return Sorted(start, place[row], row.astype(np.int32))


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
    at = 0
    for k in range(len(first)):
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


@numba.njit(cache=True)
def _spans(
    group: Codes, low: Places, high: Places, start: Ints, place: Places
) -> tuple[Ints, Ints]:
    """Where each range starts and ends among the places."""
    first, last = np.zeros(len(group), np.int64), np.zeros(len(group), np.int64)
    for k in range(len(group)):
        key = group[k]
        if key < 0 or not low[k] <= high[k]:
            continue
        at, end = start[key], start[key + 1]
        at += count_below(place, at, end - at, low[k], False)
        first[k] = at
        # ranges are short beside runs: double the step until it is too far, then halve
        step = 1
        while at + step <= end and place[at + step - 1] <= high[k]:
            at += step
            step *= 2
        last[k] = at + count_below(place, at, min(step, end - at), high[k], True)
    return first, last


@numba.njit(cache=True)
def _last(group: Codes, asked: Places, start: Ints, place: Places) -> Ints:
    """The last place at or before each one asked for, -1 where there is none."""
    found = np.full(len(group), -1, np.int64)
    for k in range(len(group)):
        key = group[k]
        if key < 0:
            continue
        at, end = start[key], start[key + 1]
        before = count_below(place, at, end - at, asked[k], True)
        if before:
            found[k] = at + before - 1
    return found
