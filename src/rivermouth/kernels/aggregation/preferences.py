"""The preferred records of a window: the first k of an order, or those that none dominates.

A partial keeps its own first k records, or its own skyline, as a list of structs; what is not
preferred in a part of a window is not preferred in the window. The structs' first fields are the
compared ones, and no null is among these.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rivermouth.kernels.aggregation.accumulators import Partials
from rivermouth.kernels.aggregation.extremes import ordered
from rivermouth.kernels.aggregation.multisets import flat, listed, nth_rank, slide
from rivermouth.kernels.arrays import Bools, Floats, Ints
from rivermouth.kernels.state.groups import group, normalized


@dataclass(frozen=True)
class Firsts:
    """The first `k` records of each partial.

    Parameters
    ----------
    name
        The column of partials.
    largest
        Of each compared field whether its largest values come first.
    k
        How many records are kept.
    """

    name: str
    largest: tuple[bool, ...]
    k: int

    def lift(self, column: pa.Array, index: Ints, size: int) -> dict[str, pa.Array]:
        """See `Accumulator`."""
        records, index = _comparable(column, len(self.largest), index)
        key = _turned(records.field(0), largest=self.largest[0])
        near = np.flatnonzero(key <= _kth(key, index, size, self.k)[index])
        records, index = records.take(pa.array(near)), index[near]  # the others cannot be chosen
        order = np.lexsort((*_sort_keys(records, self.largest)[::-1], index))
        count = np.bincount(index, minlength=size)
        place = np.arange(len(order)) - (np.cumsum(count) - count)[index[order]]
        chosen = records.take(pa.array(order[place < self.k]))
        return {self.name: listed(chosen, _offsets(np.minimum(count, self.k)))}

    def merge(self, partials: Partials, low: Ints, high: Ints) -> dict[str, pa.Array]:
        """See `Accumulator`; ranges neither start nor end before the one before them."""
        records, offsets = flat(partials[self.name])
        order, rank = _ranked(records, self.largest)
        begin, end = offsets[low], offsets[high]
        chosen = _first_of_ranges(order, rank, begin, end, self.k)
        count = np.minimum(end - begin, self.k)
        return {self.name: listed(records.take(pa.array(chosen)), _offsets(count))}


@dataclass(frozen=True)
class Skylines:
    """The records of each partial that no other of its records dominates, ordered as `Firsts`."""

    name: str
    largest: tuple[bool, ...]

    def lift(self, column: pa.Array, index: Ints, size: int) -> dict[str, pa.Array]:
        """See `Accumulator`."""
        records, index = _comparable(column, len(self.largest), index)
        points = _points(records, self.largest)
        order = np.lexsort((*points.T[::-1], index))
        kept = order[_is_undominated(points[order], index[order])]
        count = np.bincount(index[kept], minlength=size)
        return {self.name: listed(records.take(pa.array(kept)), _offsets(count))}

    def merge(self, partials: Partials, low: Ints, high: Ints) -> dict[str, pa.Array]:
        """See `Accumulator`; ranges neither start nor end before the one before them."""
        records, offsets = flat(partials[self.name])
        points = _points(records, self.largest)
        first, last = _ranges_of_points(points, offsets[low], offsets[high])
        times = np.maximum(last - first + 1, 0)  # how many ranges each record is preferred in
        chosen = np.repeat(np.arange(len(records)), times)
        place = np.arange(len(chosen)) - np.repeat(np.cumsum(times) - times, times)
        at = first[chosen] + place
        order = np.lexsort((_ranked(records, self.largest)[1][chosen], at))
        count = np.bincount(at, minlength=len(low))
        return {self.name: listed(records.take(pa.array(chosen[order])), _offsets(count))}


def missing_shares(early: pa.Array, final: pa.Array) -> Floats:
    """The share of each final list's records that the early one, perhaps null, did not have.

    0 where the final list is empty or null. Of equal records each counts.

    Examples
    --------
    >>> early = pa.array([[{"v": 1}], None, None])
    >>> missing_shares(early, pa.array([[{"v": 1}, {"v": 1}], [{"v": 2}], None]))
    array([0.5, 1. , 0. ])
    """
    lists = [pc.fill_null(normalized(each), []) for each in (early, final)]
    records = pa.concat_arrays([each.flatten().cast(final.type.value_type) for each in lists])
    row = np.concatenate([pc.list_parent_indices(each).to_numpy() for each in lists])
    here = np.arange(len(row)) >= len(row) - len(lists[1].flatten())  # in the final list
    same = group([pa.array(row), *records.flatten()], len(row))
    both = np.minimum(*(np.bincount(same.code[of], minlength=len(same)) for of in (~here, here)))
    found = np.bincount(row[same.first], both, minlength=len(final))
    size = pc.list_value_length(lists[1]).to_numpy()
    return np.where(size > 0, 1 - found / np.maximum(size, 1), 0.0)


def _comparable(column: pa.Array, compared: int, index: Ints) -> tuple[pa.StructArray, Ints]:
    """The records without a null among the compared fields, and the partials they belong to."""
    fields = [normalized(each) for each in column.flatten()]
    records = pa.StructArray.from_arrays(fields, [each.name for each in column.type])
    usable = np.ones(len(index), bool)
    for each in fields[:compared]:
        if each.null_count:
            usable &= each.is_valid().to_numpy(zero_copy_only=False)
    if usable.all():
        return records, index
    return records.filter(pa.array(usable)), index[usable]


def _turned(values: pa.Array, *, largest: bool) -> Ints:
    """Integers that are smaller where the values are preferred."""
    numbers = ordered(values)
    return ~numbers if largest else numbers


def _points(records: pa.StructArray, largest: tuple[bool, ...]) -> Ints:
    """The compared fields, one row for each record; what is smaller is preferred."""
    fields = records.flatten()
    turned = [_turned(fields[k], largest=each) for k, each in enumerate(largest)]
    return np.ascontiguousarray(np.stack(turned, axis=1))


def _sort_keys(records: pa.StructArray, largest: tuple[bool, ...]) -> list[Ints]:
    """Integers in the order of the compared fields, then of the others; the first decides."""
    fields = records.flatten()
    first = [_turned(fields[k], largest=each) for k, each in enumerate(largest)]
    return first + [_codes(field) for field in fields[len(largest) :]]


def _ranked(records: pa.StructArray, largest: tuple[bool, ...]) -> tuple[Ints, Ints]:
    """The order of the records, and the place of each in it."""
    order = np.lexsort(_sort_keys(records, largest)[::-1]).astype(np.int64)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return order, rank


def _codes(column: pa.Array) -> Ints:
    """Integers in the order of values of any plain type: texts by bytes, NaN and null last."""
    encoded = pc.dictionary_encode(column)
    values = encoded.dictionary
    place = np.full(len(values) + 1, len(values), np.int64)
    place[pc.sort_indices(values).to_numpy()] = np.arange(len(values))
    return np.asarray(place[pc.fill_null(encoded.indices, len(values)).to_numpy()])


def _kth(key: Ints, index: Ints, size: int, k: int) -> Ints:
    """The kth smallest key of each partial, or its largest where it has fewer."""
    order = np.lexsort((key, index))
    count = np.bincount(index, minlength=size)
    last = np.cumsum(count) - count + np.minimum(count, k) - 1
    result = np.zeros(size, np.int64)
    some = count > 0
    result[some] = key[order[last[some]]]
    return result


def _offsets(count: Ints) -> Ints:
    return np.concatenate([[0], np.cumsum(count)]).astype(np.int64)


@numba.njit(cache=True)
def _first_of_ranges(order: Ints, rank: Ints, begin: Ints, end: Ints, k: int) -> Ints:
    """The first k of each range in order; each record enters and leaves once, as in quantiles."""
    tree = np.zeros(len(rank) + 1, np.int64)
    chosen = np.empty(np.minimum(end - begin, k).sum(), np.int64)
    at = 0
    for i in range(len(begin)):
        slide(tree, rank, begin, end, i)
        for n in range(min(end[i] - begin[i], k)):
            chosen[at] = order[nth_rank(tree, n)]
            at += 1
    return chosen


@numba.njit(cache=True, inline="always")
def _dominates(points: Ints, one: int, other: int) -> bool:
    better = False
    for k in range(points.shape[1]):
        if points[one, k] > points[other, k]:
            return False
        if points[one, k] < points[other, k]:
            better = True
    return better


@numba.njit(cache=True)
def _is_undominated(points: Ints, index: Ints) -> Bools:
    """Which points no other of their partial dominates; sorted by partial, then coordinates.

    What dominates a point comes before it, so that it is compared with the skyline so far only
    (sort-filter-skyline).
    """
    kept = np.zeros(len(points), np.bool_)
    skyline, count = np.empty(len(points), np.int64), 0
    for j in range(len(points)):
        if j and index[j] != index[j - 1]:
            count = 0
        kept[j] = True
        for k in range(count):
            if _dominates(points, skyline[k], j):
                kept[j] = False
                break
        if kept[j]:
            skyline[count] = j
            count += 1
    return kept


@numba.njit(cache=True)
def _ranges_of_points(points: Ints, begin: Ints, end: Ints) -> tuple[Ints, Ints]:
    """The first and the last range in which no other dominates each point; last < first: in none.

    A point is on the skyline of the ranges between its nearest dominator before it and the nearest
    after it. Ranges neither start nor end before the one before them, so that these follow one
    another.
    """
    first, last = np.empty((2, len(points)), np.int64)
    for j in range(len(points)):
        low = np.searchsorted(end, j, "right")
        high = np.searchsorted(begin, j, "right") - 1
        k = j + 1
        while low <= high and k < end[high]:
            if _dominates(points, k, j):
                high = np.searchsorted(end, k, "right") - 1
                break
            k += 1
        k = j - 1
        while low <= high and k >= begin[low]:
            if _dominates(points, k, j):
                low = np.searchsorted(begin, k, "right")
                break
            k -= 1
        first[j], last[j] = low, high
    return first, last
