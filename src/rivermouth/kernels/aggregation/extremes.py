"""The smallest and the largest value, of any type that has an order and fits into 64 bits."""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rivermouth.kernels.aggregation.accumulators import (
    Ints,
    Kept,
    decimals,
    doubles_of,
    numbers,
    there,
    words_of,
)
from rivermouth.kernels.aggregation.groups import plain

Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Extremes:
    """The smallest or the largest value, as a number that is ordered as the values are."""

    name: str
    largest: bool

    def lift(self, column: pa.Array, place: Ints, size: int) -> dict[str, pa.Array]:
        """See `Track`."""
        values, place = there(column, place)
        best, found = _extremes_by_place(ordered(values), place, size, self.largest)
        return {self.name: pa.array(best, mask=~found)}

    def fold(self, kept: Kept, low: Ints, high: Ints) -> dict[str, pa.Array]:
        """See `Track`."""
        column = plain(kept[self.name])
        found = column.is_valid().to_numpy(zero_copy_only=False)
        values = numbers(kept, self.name, len(column))
        best, some = _extremes_of_runs(values, found, low, high, self.largest)
        return {self.name: pa.array(best, mask=~some)}


_FLIP = np.int64((1 << 63) - 1)


def ordered(values: pa.Array) -> Ints:
    """Whole numbers in the order of the values, NaN behind all others; none is null."""
    kind = values.type
    if pa.types.is_floating(kind):
        bits = np.ascontiguousarray(doubles_of(plain(values))).view(np.int64)
        return bits ^ ((bits >> 63) & _FLIP)
    if pa.types.is_decimal(kind):
        return words_of(values)[0].view(np.int64)
    if pa.types.is_temporal(kind):
        return np.asarray(values.view(f"int{kind.bit_width}").to_numpy(), np.int64)
    return np.asarray(values.cast(pa.int64()).to_numpy(), np.int64)


def unordered(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """What `ordered` made of values of this type, made undone; null stays null."""
    if pa.types.is_floating(kind):
        bits = numbers({"": values}, "", len(values))
        doubles = (bits ^ ((bits >> 63) & _FLIP)).view(np.float64)
        found = values.is_valid().to_numpy(zero_copy_only=False)
        return pa.array(doubles, mask=~found, from_pandas=False).cast(kind)
    if pa.types.is_decimal(kind):
        low = numbers({"": values}, "", len(values))
        made = decimals(low.view(np.uint64), low >> 63, kind)
        return pc.if_else(values.is_valid(), made, pa.scalar(None, kind))
    if pa.types.is_temporal(kind):
        return values.cast(getattr(pa, f"int{kind.bit_width}")()).view(kind)
    return values.cast(kind)


@numba.njit(cache=True)
def _extremes_by_place(values: Ints, place: Ints, size: int, largest: bool) -> tuple[Ints, Bools]:
    best, found = np.zeros(size, np.int64), np.zeros(size, np.bool_)
    for k in range(len(values)):
        at = place[k]
        if not found[at] or (values[k] > best[at] if largest else values[k] < best[at]):
            best[at], found[at] = values[k], True
    return best, found


@numba.njit(cache=True)
def _extremes_of_runs(
    values: Ints, found: Bools, low: Ints, high: Ints, largest: bool
) -> tuple[Ints, Bools]:
    """The extreme of each run; runs neither start nor end before the one before them.

    A queue holds the entries that can still be the extreme of a run: each worse than the one
    before it. An entry enters and leaves once, whatever the length of the runs.
    """
    best, some = np.zeros(len(low), np.int64), np.zeros(len(low), np.bool_)
    queue = np.empty(len(values), np.int64)
    head, tail, seen = 0, 0, 0
    for i in range(len(low)):
        while seen < high[i]:
            if found[seen]:
                while tail > head and (
                    values[queue[tail - 1]] <= values[seen]
                    if largest
                    else values[queue[tail - 1]] >= values[seen]
                ):
                    tail -= 1
                queue[tail] = seen
                tail += 1
            seen += 1
        while head < tail and queue[head] < low[i]:
            head += 1
        if head < tail:
            best[i], some[i] = values[queue[head]], True
    return best, some
