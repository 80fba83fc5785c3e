"""All values of a window: for quantiles and distinct counts, which no smaller state gives exactly.

A partial keeps its values as a list. Windows are swept in order: each value enters once and leaves
once, however many windows hold it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
import pyarrow as pa

from rivermouth.kernels.aggregation.accumulators import Partials, Ranges, doubles_of, non_null
from rivermouth.kernels.arrays import Floats, Ints
from rivermouth.kernels.state.groups import group, normalized


@dataclass(frozen=True)
class Multisets:
    """The values of each partial; as a set each only once."""

    name: str
    is_set: bool = False

    def lift(self, column: pa.Array, index: Ints, size: int) -> dict[str, pa.Array]:
        """See `Accumulator`."""
        values, index = non_null(normalized(column), index)
        if self.is_set:
            values, index = _distinct_values(values, index)
        else:
            order = np.argsort(index, kind="stable")
            values, index = pa.array(doubles_of(values)).take(pa.array(order)), index[order]
        return {self.name: listed(values, np.searchsorted(index, np.arange(size + 1)))}

    def merge(self, partials: Partials, low: Ints, high: Ints) -> dict[str, pa.Array]:
        """See `Accumulator`; the ranges follow one another without gaps."""
        values, offsets = flat(partials[self.name])
        starts = np.concatenate([offsets[low], offsets[high[-1:]]])
        if self.is_set:
            index = np.repeat(np.arange(len(low)), np.diff(starts))
            values, index = _distinct_values(values, index)
            starts = np.searchsorted(index, np.arange(len(low) + 1))
        return {self.name: listed(values, starts)}

    def quantiles(self, ranges: Ranges, share: float) -> Floats:
        """The quantile of each range, interpolated between neighbours; NaN for an empty one."""
        values, offsets = flat(ranges.partials[self.name])
        order, rank = _ranked(values.to_numpy())
        return _quantiles(order, rank, offsets[ranges.low], offsets[ranges.high], share)

    def ranks(self, ranges: Ranges, values: Floats) -> tuple[Floats, Floats]:
        """The share of each range's values that lie below `values`, and at or below them."""
        among, offsets = flat(ranges.partials[self.name])
        order, rank = _ranked(among.to_numpy())
        begin, end = offsets[ranges.low], offsets[ranges.high]
        below, upto = (
            _counts_below(rank, begin, end, np.searchsorted(order, values, side))
            / np.maximum(end - begin, 1)
            for side in ("left", "right")
        )
        return below, upto

    def distinct(self, ranges: Ranges) -> Ints:
        """How many different values each range has."""
        values, offsets = flat(ranges.partials[self.name])
        codes = group([values], len(values))
        return _distinct(codes.code, len(codes), offsets[ranges.low], offsets[ranges.high])


def _distinct_values(values: pa.Array, index: Ints) -> tuple[pa.Array, Ints]:
    """Each value of each partial once, in the order of the partials."""
    code = group([values], len(values)).code
    order = np.lexsort((code, index))
    is_new = np.ones(len(order), bool)
    is_new[1:] = (np.diff(code[order]) != 0) | (np.diff(index[order]) != 0)
    return values.take(pa.array(order[is_new])), index[order[is_new]]


def listed(values: pa.Array, offsets: Ints) -> pa.Array:
    """Lists of the values between neighbouring offsets."""
    return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), values)


def flat(column: pa.Array | pa.ChunkedArray) -> tuple[pa.Array, Ints]:
    """The values of all partials one after the other, and where each partial's start."""
    lists = normalized(column)
    offsets = lists.offsets.to_numpy()
    return lists.values.slice(offsets[0], offsets[-1] - offsets[0]), offsets - offsets[0]


def _ranked(values: Floats) -> tuple[Floats, Ints]:
    """The values in order, NaN last, and each value's rank."""
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


@numba.njit(cache=True)
def nth_rank(tree: Ints, n: int) -> int:
    """The rank of the nth value that is in, counted from 0 (a Fenwick tree's descent)."""
    at, step = 0, 1
    while 2 * step < len(tree):
        step *= 2
    while step > 0:
        if at + step < len(tree) and tree[at + step] <= n:
            at += step
            n -= tree[at]
        step //= 2
    return at


@numba.njit(cache=True, inline="always")
def slide(tree: Ints, rank: Ints, begin: Ints, end: Ints, i: int) -> None:
    """Let the values of range i enter and those before it leave; begin and end only grow."""
    for k in range(end[i - 1] if i else 0, end[i]):
        _add(tree, rank[k], 1)
    for k in range(begin[i - 1] if i else 0, begin[i]):
        _add(tree, rank[k], -1)


@numba.njit(cache=True)
def _quantiles(order: Floats, rank: Ints, begin: Ints, end: Ints, share: float) -> Floats:
    tree, result = np.zeros(len(rank) + 1, np.int64), np.full(len(begin), np.nan)
    for i in range(len(begin)):
        slide(tree, rank, begin, end, i)
        if end[i] > begin[i]:
            position = share * (end[i] - begin[i] - 1)
            lower = int(np.floor(position))
            part = position - lower
            result[i] = order[nth_rank(tree, lower)]
            if part > 0:
                result[i] = result[i] * (1 - part) + order[nth_rank(tree, lower + 1)] * part
    return result


@numba.njit(cache=True)
def _counts_below(rank: Ints, begin: Ints, end: Ints, bound: Ints) -> Ints:
    tree, result = np.zeros(len(rank) + 1, np.int64), np.zeros(len(begin), np.int64)
    for i in range(len(begin)):
        slide(tree, rank, begin, end, i)
        at = bound[i]
        while at > 0:
            result[i] += tree[at]
            at -= at & -at
    return result


@numba.njit(cache=True)
def _distinct(code: Ints, codes: int, begin: Ints, end: Ints) -> Ints:
    count, result = np.zeros(codes, np.int64), np.empty(len(begin), np.int64)
    distinct = 0
    for i in range(len(begin)):
        for k in range(end[i - 1] if i else 0, end[i]):
            distinct += count[code[k]] == 0
            count[code[k]] += 1
        for k in range(begin[i - 1] if i else 0, begin[i]):
            count[code[k]] -= 1
            distinct -= count[code[k]] == 0
        result[i] = distinct
    return result
