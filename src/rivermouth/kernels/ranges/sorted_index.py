"""Ranges and newest rows by a sorted index: runs of range keys, one a group, and bisection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from rivermouth.kernels.arrays import Bools, Bytes, Codes, Ints, stable_order
from rivermouth.kernels.ranges.range_keys import RangeKeys

_BLOCK = 256  # searches that go side by side
_STRIDE = 64  # keys to a sample: the samples of 2^23 keys stay in a processor's cache


@dataclass(frozen=True)
class SortedIndex:
    """The table's rows by group, then by range key, then by row; all arrays can be mapped.

    Parameters
    ----------
    start
        Where the run of each group starts.
    keys
        The range keys, in order within each run.
    row
        The table row of each.
    top
        Every so-many-th key: where a search of a long run begins.
    """

    start: Ints
    keys: RangeKeys
    row: Codes
    top: RangeKeys

    def arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        """The index as the arrays that are kept, by name."""
        return {"start": self.start, "place": self.keys, "row": self.row, "top": self.top}

    @classmethod
    def of(cls, arrays: Mapping[str, Any]) -> SortedIndex:
        """The index that `arrays` was taken from."""
        return cls(arrays["start"], arrays["place"], arrays["row"], arrays["top"])

    def between(self, group: Codes, low: RangeKeys, high: RangeKeys) -> tuple[Ints, Ints]:
        """Pairs (position, table row) of the group's rows in [low, high], by position then key.

        A negative group has no rows.
        """
        first, last = _spans(group, low, high, self._searched)
        return expand_spans(first, last, self.row)

    def asof(self, group: Codes, high: RangeKeys, gone: Bytes | None = None) -> tuple[Ints, Ints]:
        """Pairs (position, table row) of the group's last row at or before `high`.

        Rows in the set `gone` are passed over.
        """
        found = _last(group, high, self._searched)
        if gone is not None:
            _pass_over(found, group, self.start, self.row, gone)
        return pairs_of(found, self.row)

    @property
    def _searched(self) -> tuple[Ints, RangeKeys, RangeKeys]:
        return self.start, self.keys, self.top


def build(group: Codes, count: int, keys: RangeKeys, usable: Bools) -> SortedIndex:
    """The index of the table's usable rows, by their group of `count` and their key."""
    row, start = ordered(group, count, keys, usable)
    keys = keys[row]
    return SortedIndex(start, keys, row.astype(np.int32), keys[::_STRIDE].copy())


def ordered(group: Codes, count: int, keys: RangeKeys, usable: Bools) -> tuple[Ints, Ints]:
    """The usable rows by group, key and row, and where each group starts among them."""
    rows = np.flatnonzero(usable & (group >= 0))
    rows = rows[np.argsort(keys[rows], kind="stable")]
    order, start = stable_order(group[rows], count)
    return rows[order], start


@numba.njit(cache=True)
def expand_spans(first: Ints, last: Ints, row: Codes) -> tuple[Ints, Ints]:
    """Pairs (position, table row) of the entries from `first` up to `last`, that excluded."""
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
                near[k - block] = row[first[k]]  # prefetched
        for k in range(block, stop):
            for entry in range(first[k], last[k]):
                left[at], right[at] = k, row[entry]
                at += 1
    return left, right


def pairs_of(found: Ints, row: Codes) -> tuple[Ints, Ints]:
    """Pairs (position, table row) where something was found; where not, it is negative."""
    left = np.flatnonzero(found >= 0)
    return left, row[found[left]].astype(np.int64)


@numba.njit(cache=True, inline="always")
def count_below(keys: RangeKeys, low: int, size: int, bound: float, also_equal: bool) -> int:
    """How many of the `size` sorted keys from `low` on are below `bound`, or equal to it."""
    start = low
    while size > 0:
        half = size >> 1
        value = keys[low + half]
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
    group: Codes, bound: RangeKeys, also_equal: bool, index: tuple[Ints, RangeKeys, RangeKeys],
    begin: Ints, end: Ints, at: Ints, size: Ints,
) -> None:  # fmt: skip
    """Where each bound belongs `at` in the run of its group, which goes from `begin` to `end`.

    All searches take one step before any takes the next: their loads do not depend on each
    other, so the processor waits for many of them at once. A step has no branch, since a guess
    would be wrong half the time.
    """
    start, keys, top = index
    for k in range(len(group)):
        run = max(group[k], 0)
        begin[k], end[k] = start[run], start[run + 1]
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
    _halve(at, size, bound, also_equal, keys)


@numba.njit(cache=True)
def _halve(at: Ints, size: Ints, bound: RangeKeys, also_equal: bool, keys: RangeKeys) -> None:
    """Move each `at` to where its bound belongs among the `size` keys from there on."""
    steps = 0
    for k in range(len(at)):
        steps = max(steps, size[k])
    while steps > 1:
        for k in range(len(at)):
            half = size[k] >> 1
            if half:
                at[k] += half * _below(keys[at[k] + half - 1], bound[k], also_equal)
            size[k] -= half
        steps -= steps >> 1
    for k in range(len(at)):
        if size[k]:
            at[k] += _below(keys[at[k]], bound[k], also_equal)


@numba.njit(cache=True)
def _spans(
    group: Codes, low: RangeKeys, high: RangeKeys, index: tuple[Ints, RangeKeys, RangeKeys]
) -> tuple[Ints, Ints]:
    """Where each range starts and ends among the keys."""
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
def _end_of(keys: RangeKeys, at: int, end: int, high: float) -> int:
    """Where the keys up to `high` end: ranges are short, so the step is doubled, then halved."""
    step = 1
    while at + step <= end and keys[at + step - 1] <= high:
        at += step
        step *= 2
    return at + count_below(keys, at, min(step, end - at), high, True)


@numba.njit(cache=True)
def _last(group: Codes, high: RangeKeys, index: tuple[Ints, RangeKeys, RangeKeys]) -> Ints:
    """The last entry at or before each `high`, -1 where there is none."""
    found = np.empty(len(group), np.int64)
    begin, end = np.empty(_BLOCK, np.int64), np.empty(_BLOCK, np.int64)
    size = np.empty(_BLOCK, np.int64)
    for block in range(0, len(group), _BLOCK):
        part = slice(block, min(block + _BLOCK, len(group)))
        count = part.stop - block
        _seek(
            group[part], high[part], True, index,
            begin[:count], end[:count], found[part], size[:count],
        )  # fmt: skip
        for k in range(count):
            found[block + k] = found[block + k] - 1 if found[block + k] > begin[k] else -1
    return found


@numba.njit(cache=True)
def _pass_over(found: Ints, group: Codes, start: Ints, row: Codes, gone: Bytes) -> None:
    """Move each entry back to the last one whose row is not gone, -1 where there is none."""
    for k in range(len(found)):
        at = found[k]
        while at >= 0 and (gone[row[at] >> 3] >> (row[at] & 7)) & 1:
            at = at - 1 if at > start[group[k]] else -1
        found[k] = at


@numba.njit(cache=True)
def runs_between(
    keys: RangeKeys, start: Ints, count: Ints, low: RangeKeys, high: RangeKeys
) -> tuple[Ints, Ints]:
    """Of each record's run of sorted keys those in [low, high]: where they start, how many."""
    first, length = np.empty(len(start), np.int64), np.empty(len(start), np.int64)
    for i in range(len(start)):
        below = count_below(keys, start[i], count[i], low[i], False)
        first[i] = start[i] + below
        length[i] = count_below(keys, first[i], count[i] - below, high[i], True)
    return first, length


@numba.njit(cache=True)
def runs_asof(keys: RangeKeys, start: Ints, count: Ints, high: RangeKeys) -> tuple[Ints, Ints]:
    """The last of each record's run of sorted keys that is not above `high`: where, and whether."""
    first, length = np.empty(len(start), np.int64), np.empty(len(start), np.int64)
    for i in range(len(start)):
        before = count_below(keys, start[i], count[i], high[i], True)
        length[i] = before > 0
        first[i] = start[i] + before - length[i]
    return first, length
