"""All values of a window: for quantiles and distinct counts, which no smaller state gives exactly.

A cell keeps its values as a list. Windows are swept in order: each value enters once and leaves
once, however many windows hold it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rivermouth.kernels.aggregation.accumulators import Kept, doubles_of, there
from rivermouth.kernels.aggregation.groups import group, plain

Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Bags:
    """The values of each cell; as a set each only once."""

    name: str
    is_set: bool

    def lift(self, column: pa.Array, place: Ints, size: int) -> dict[str, pa.Array]:
        """See `Track`."""
        values, place = there(plain(column), place)
        if self.is_set:
            codes = group([values], len(values))
            values, place = self._once(values, codes.code, place)
        else:
            values = pa.array(doubles_of(values))
        values = values.take(pa.array(np.argsort(place, kind="stable")))
        ends = np.cumsum(np.bincount(place, minlength=size))
        return {self.name: _listed(values, np.concatenate([[0], ends]))}

    def fold(self, kept: Kept, low: Ints, high: Ints) -> dict[str, pa.Array]:
        """See `Track`; the runs follow one another without gaps."""
        values, offsets = _flat(kept[self.name])
        starts = np.concatenate([offsets[low], offsets[high[-1:]]])
        if self.is_set:
            place = np.repeat(np.arange(len(low)), np.diff(starts))
            values, place = self._once(values, group([values], len(values)).code, place)
            starts = np.searchsorted(place, np.arange(len(low) + 1))
        return {self.name: _listed(values, starts)}

    def quantiles(self, kept: Kept, low: Ints, high: Ints, share: float) -> Doubles:
        """The quantile of each run, interpolated between neighbours; NaN for an empty one."""
        values, offsets = _flat(kept[self.name])
        order, rank = _ranked(values.to_numpy())
        return _quantiles(order, rank, offsets[low], offsets[high], share)

    def ranks(self, kept: Kept, low: Ints, high: Ints, values: Doubles) -> tuple[Doubles, Doubles]:
        """The share of each run's values that lie below `values`, and at or below them."""
        held, offsets = _flat(kept[self.name])
        order, rank = _ranked(held.to_numpy())
        below, upto = (np.searchsorted(order, values, side) for side in ("left", "right"))
        count = np.maximum(offsets[high] - offsets[low], 1)
        begin, end = offsets[low], offsets[high]
        return (
            _counts_below(rank, begin, end, below) / count,
            _counts_below(rank, begin, end, upto) / count,
        )

    def distinct(self, kept: Kept, low: Ints, high: Ints) -> Ints:
        """How many different values each run has."""
        values, offsets = _flat(kept[self.name])
        codes = group([values], len(values))
        return _distinct(codes.code, len(codes), offsets[low], offsets[high])

    def _once(self, values: pa.Array, code: Ints, place: Ints) -> tuple[pa.Array, Ints]:
        """Each value of each cell once, in the order of the cells."""
        order = np.lexsort((code, place))
        same = (np.diff(code[order]) == 0) & (np.diff(place[order]) == 0)
        once = order[np.concatenate([np.ones(min(1, len(order)), bool), ~same])]
        return values.take(pa.array(once)), place[once]


def _listed(values: pa.Array, offsets: Ints) -> pa.Array:
    return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), values)


def _flat(column: pa.Array | pa.ChunkedArray) -> tuple[pa.Array, Ints]:
    """The values of all entries one after the other, and where each entry's start."""
    lists = plain(column)
    offsets = lists.offsets.to_numpy()
    return lists.values.slice(offsets[0], offsets[-1] - offsets[0]), offsets - offsets[0]


def _ranked(values: Doubles) -> tuple[Doubles, Ints]:
    """The values in order, NaN last, and each value's place in it."""
    order = np.argsort(values, kind="stable")
    rank = np.empty(len(values), np.int64)
    rank[order] = np.arange(len(values))
    return values[order], rank


@numba.njit(cache=True, inline="always")
def _add(tree: Ints, at: int, change: int) -> None:
    at += 1
    while at < len(tree):
        tree[at] += change
        at += at & -at


@numba.njit(cache=True, inline="always")
def _sum_below(tree: Ints, at: int) -> int:
    total = 0
    while at > 0:
        total += tree[at]
        at -= at & -at
    return total


@numba.njit(cache=True)
def _nth(tree: Ints, n: int) -> int:
    """The place of the nth value that is in, counted from 0 (a Fenwick tree's descent)."""
    at, step = 0, 1
    while 2 * step < len(tree):
        step *= 2
    while step > 0:
        if at + step < len(tree) and tree[at + step] <= n:
            at += step
            n -= tree[at]
        step //= 2
    return at


@numba.njit(cache=True)
def _quantiles(order: Doubles, rank: Ints, begin: Ints, end: Ints, share: float) -> Doubles:
    tree, result = np.zeros(len(rank) + 1, np.int64), np.empty(len(begin), np.float64)
    entered, left = 0, 0
    for i in range(len(begin)):
        entered, left = _sweep(tree, rank, begin[i], end[i], entered, left)
        many = end[i] - begin[i]
        if many == 0:
            result[i] = np.nan
            continue
        position = share * (many - 1)
        lower = int(np.floor(position))
        value = order[_nth(tree, lower)]
        part = position - lower
        if part > 0:
            value = value * (1 - part) + order[_nth(tree, lower + 1)] * part
        result[i] = value
    return result


@numba.njit(cache=True)
def _counts_below(rank: Ints, begin: Ints, end: Ints, bound: Ints) -> Ints:
    tree, result = np.zeros(len(rank) + 1, np.int64), np.empty(len(begin), np.int64)
    entered, left = 0, 0
    for i in range(len(begin)):
        entered, left = _sweep(tree, rank, begin[i], end[i], entered, left)
        result[i] = _sum_below(tree, bound[i])
    return result


@numba.njit(cache=True, inline="always")
def _sweep(
    tree: Ints, rank: Ints, begin: int, end: int, entered: int, left: int
) -> tuple[int, int]:
    """Let values enter up to `end` and leave before `begin`; both only grow."""
    while entered < end:
        _add(tree, rank[entered], 1)
        entered += 1
    while left < begin:
        _add(tree, rank[left], -1)
        left += 1
    return entered, left


@numba.njit(cache=True)
def _distinct(code: Ints, many: int, begin: Ints, end: Ints) -> Ints:
    held, result = np.zeros(many, np.int64), np.empty(len(begin), np.int64)
    entered, left, different = 0, 0, 0
    for i in range(len(begin)):
        while entered < end[i]:
            different += held[code[entered]] == 0
            held[code[entered]] += 1
            entered += 1
        while left < begin[i]:
            held[code[left]] -= 1
            different -= held[code[left]] == 0
            left += 1
        result[i] = different
    return result
