"""The smallest and the largest value, of any type that has an order and fits into 64 bits."""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rivermouth.kernels.aggregation.accumulators import (
    Partials,
    decimals,
    doubles_of,
    int128_words,
    integers,
    non_null,
)
from rivermouth.kernels.arrays import Bools, Ints
from rivermouth.kernels.state.groups import normalized


@dataclass(frozen=True)
class Extremes:
    """The smallest or the largest value, as an integer that is ordered as the values are."""

    name: str
    largest: bool

    def lift(self, column: pa.Array, index: Ints, size: int) -> dict[str, pa.Array]:
        """See `Accumulator`."""
        values, index = non_null(column, index)
        best = np.full(size, _LARGEST)
        np.minimum.at(best, index, self._turned(ordered(values)))
        return self._column(best, np.bincount(index, minlength=size) > 0)

    def merge(self, partials: Partials, low: Ints, high: Ints) -> dict[str, pa.Array]:
        """See `Accumulator`."""
        column = normalized(partials[self.name])
        found = column.is_valid().to_numpy(zero_copy_only=False)
        values = self._turned(integers(partials, self.name, len(column)))
        return self._column(*_smallest_of_ranges(values, found, low, high))

    def _turned(self, values: Ints) -> Ints:
        """The values such that the wanted one is the smallest; turned twice they are as before."""
        return ~values if self.largest else values

    def _column(self, best: Ints, found: Bools) -> dict[str, pa.Array]:
        return {self.name: pa.array(self._turned(best), mask=~found)}


_LARGEST = np.int64((1 << 63) - 1)


def ordered(values: pa.Array) -> Ints:
    """Integers in the order of the values, NaN above all others; none is null."""
    dtype = values.type
    if pa.types.is_floating(dtype):
        bits = np.ascontiguousarray(doubles_of(normalized(values))).view(np.int64)
        return bits ^ ((bits >> 63) & _LARGEST)
    if pa.types.is_decimal(dtype):
        return int128_words(values)[0].view(np.int64)
    if pa.types.is_temporal(dtype):
        return np.asarray(values.view(f"int{dtype.bit_width}").to_numpy(), np.int64)
    return np.asarray(values.cast(pa.int64()).to_numpy(), np.int64)


def unordered(values: pa.Array, dtype: pa.DataType) -> pa.Array:
    """The inverse of `ordered` for values of this type; null stays null."""
    if pa.types.is_floating(dtype):
        bits = integers({"": values}, "", len(values))
        doubles = (bits ^ ((bits >> 63) & _LARGEST)).view(np.float64)
        found = values.is_valid().to_numpy(zero_copy_only=False)
        return pa.array(doubles, mask=~found, from_pandas=False).cast(dtype)
    if pa.types.is_decimal(dtype):
        low = integers({"": values}, "", len(values))
        made = decimals(low.view(np.uint64), low >> 63, dtype)
        return pc.if_else(values.is_valid(), made, pa.scalar(None, dtype))
    if pa.types.is_temporal(dtype):
        return values.cast(getattr(pa, f"int{dtype.bit_width}")()).view(dtype)
    return values.cast(dtype)


@numba.njit(cache=True)
def _smallest_of_ranges(values: Ints, found: Bools, low: Ints, high: Ints) -> tuple[Ints, Bools]:
    """The smallest of each range; ranges neither start nor end before the one before them.

    A monotonic queue holds the partials that can still be the smallest of a range: each larger than
    the one before it. A partial enters and leaves once, whatever the length of the ranges.
    """
    best, some = np.zeros(len(low), np.int64), np.zeros(len(low), np.bool_)
    queue = np.empty(len(values), np.int64)
    head, tail = 0, 0
    for i in range(len(low)):
        for k in range(high[i - 1] if i else 0, high[i]):
            if found[k]:
                while tail > head and values[queue[tail - 1]] >= values[k]:
                    tail -= 1
                queue[tail] = k
                tail += 1
        while head < tail and queue[head] < low[i]:
            head += 1
        if head < tail:
            best[i], some[i] = values[queue[head]], True
    return best, some
