"""What is kept of a group's records in a pane: one accumulator for each thing aggregates need.

An accumulator lifts rows to partial aggregates, one for each group and pane, and merges ranges of
partials into one. Partials are Arrow columns, so that they can be stored as they are. Several
aggregates share an accumulator: a sum, a mean and a variance need one sum.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from rivermouth.kernels.aggregation import exact_sums
from rivermouth.kernels.aggregation.exact_sums import Limbs, Words
from rivermouth.kernels.arrays import Floats, Ints
from rivermouth.kernels.state.groups import normalized

Partials = Mapping[str, Any]  # the columns of partial aggregates, by name


class Accumulator(Protocol):
    """One thing that is kept of each group and pane."""

    def lift(self, column: pa.Array, index: Ints, size: int) -> dict[str, pa.Array]:
        """The `size` partials of the column's rows; `index` is each row's partial."""
        ...

    def merge(self, partials: Partials, low: Ints, high: Ints) -> dict[str, pa.Array]:
        """One partial for each range [low, high)."""
        ...


@dataclass(frozen=True)
class Ranges:
    """Ranges [low, high) of partials, one for each window; each accumulator is merged once."""

    partials: Partials
    low: Ints
    high: Ints
    _merged: dict[Any, Partials] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.low)

    def merged(self, accumulator: Accumulator) -> Partials:
        """The merged partials of each range."""
        if accumulator not in self._merged:
            self._merged[accumulator] = accumulator.merge(self.partials, self.low, self.high)
        return self._merged[accumulator]


def non_null(column: pa.Array, index: Ints) -> tuple[pa.Array, Ints]:
    """The values that are not null, and the partials they belong to."""
    if not column.null_count:
        return column, index
    return column.drop_null(), index[column.is_valid().to_numpy(zero_copy_only=False)]


def integers(partials: Partials, name: str, rows: int) -> Ints:
    """A column of integers, 0 where there is none."""
    if name not in partials:
        return np.zeros(rows, np.int64)
    column = normalized(partials[name])
    return np.asarray(column.fill_null(0) if column.null_count else column, np.int64)


def range_sums(values: Any, low: Ints, high: Ints) -> Any:
    """The sum of each range [low, high) of rows; one pass, however the ranges overlap."""
    before = np.zeros((len(values) + 1, *values.shape[1:]), values.dtype)
    np.cumsum(values, axis=0, out=before[1:])
    return before[high] - before[low]


def index_counts(index: Ints, size: int) -> pa.Array:
    """How many rows each partial has."""
    return pa.array(np.bincount(index, minlength=size).astype(np.int64))


@dataclass(frozen=True)
class Counts:
    """How many rows there are, or values that are not null."""

    name: str
    only_values: bool = True

    def lift(self, column: pa.Array, index: Ints, size: int) -> dict[str, pa.Array]:
        """See `Accumulator`."""
        if self.only_values:
            _, index = non_null(column, index)
        return {self.name: index_counts(index, size)}

    def merge(self, partials: Partials, low: Ints, high: Ints) -> dict[str, pa.Array]:
        """See `Accumulator`."""
        counts = normalized(partials[self.name]).to_numpy()
        return {self.name: pa.array(range_sums(counts, low, high))}


@dataclass(frozen=True)
class Sums:
    """Exact sums of a column's values, or of their squares: limbs, and counts of inf and NaN.

    `unit` is one of `exact_sums.DOUBLE`, `exact_sums.SQUARE` and `exact_sums.INTEGER`.
    """

    name: str
    unit: int

    def lift(self, column: pa.Array, index: Ints, size: int) -> dict[str, pa.Array]:
        """See `Accumulator`."""
        values, index = non_null(column, index)
        if self.unit == exact_sums.INTEGER:
            return self._columns(exact_sums.lift_integers(*int128_words(values), index, size))
        doubles = np.ascontiguousarray(doubles_of(values))
        finite = np.isfinite(doubles)
        counts = {}
        if not finite.all():
            counts = {
                f"{self.name}.{name}": index_counts(index[which(doubles)], size)
                for name, which in _NOT_FINITE.items()
            }
            doubles, index = doubles[finite], index[finite]
        squared = self.unit == exact_sums.SQUARE
        return (
            self._columns(exact_sums.lift_doubles(doubles, index, size, squared=squared)) | counts
        )

    def merge(self, partials: Partials, low: Ints, high: Ints) -> dict[str, pa.Array]:
        """See `Accumulator`."""
        limbs = self.limbs(partials)
        merged = self._columns(Limbs(limbs.first, range_sums(limbs.array, low, high)).carried())
        for name in (f"{self.name}.{name}" for name in _NOT_FINITE):
            if name in partials:
                counts = integers(partials, name, len(limbs))
                merged[name] = pa.array(range_sums(counts, low, high))
        return merged

    def limbs(self, partials: Partials) -> Limbs:
        """The sums that are kept."""
        prefix, rows = f"{self.name}.", len(next(iter(partials.values())))
        tails = (name.removeprefix(prefix) for name in partials if name.startswith(prefix))
        used = sorted(int(tail) for tail in tails if tail.isdigit())
        if not used:
            return Limbs(0, np.zeros((rows, 0), np.int64))
        array = np.zeros((rows, used[-1] - used[0] + 1), np.int64)
        for limb in used:
            array[:, limb - used[0]] = integers(partials, f"{prefix}{limb}", rows)
        return Limbs(used[0], array)

    def doubles(self, partials: Partials, *divisors: Ints | int) -> Floats:
        """The sums over the divisors, rounded once; infinite or NaN where a value was."""
        sums = exact_sums.to_doubles(self.limbs(partials), self.unit, *divisors)
        up, down, nan = (
            integers(partials, f"{self.name}.{name}", len(sums)) > 0 for name in _NOT_FINITE
        )
        sums[up] = np.inf
        sums[down] = -np.inf
        sums[nan | (up & down)] = np.nan
        return sums

    def _columns(self, limbs: Limbs) -> dict[str, pa.Array]:
        columns = limbs.array.T if limbs.array.shape[1] else np.zeros((1, len(limbs)), np.int64)
        return {
            f"{self.name}.{limb}": pa.array(np.ascontiguousarray(column))
            for limb, column in enumerate(columns, limbs.first)
        }


_NOT_FINITE: dict[str, Callable[[Floats], Any]] = {
    "up": np.isposinf,
    "down": np.isneginf,
    "nan": np.isnan,
}


def powers_of_ten(scale: int) -> tuple[int, ...]:
    """Divisors whose product is 10^scale, each fit for `exact_sums.to_doubles`.

    Examples
    --------
    >>> powers_of_ten(2), powers_of_ten(20)
    ((100,), (1000000000, 1000000000, 100))
    """
    most, rest = divmod(scale, 9)
    return (10**9,) * most + ((10**rest,) if rest else ())


def doubles_of(values: pa.Array) -> Floats:
    """Numbers of any type as doubles; none is null."""
    if pa.types.is_decimal(values.type):
        each = exact_sums.lift_integers(*int128_words(values), np.arange(len(values)), len(values))
        return exact_sums.to_doubles(each, exact_sums.INTEGER, *powers_of_ten(values.type.scale))
    return np.asarray(values.cast(pa.float64(), safe=False).to_numpy(), np.float64)


def int128_words(values: pa.Array) -> tuple[Words, Ints]:
    """The low and high words of integers, or of decimals without their point."""
    if not len(values):
        return np.empty(0, np.uint64), np.empty(0, np.int64)
    if pa.types.is_decimal(values.type):
        wide = values.cast(pa.decimal128(38, values.type.scale))
        both = np.frombuffer(wide.buffers()[1], np.int64).reshape(-1, 2)
        both = both[wide.offset : wide.offset + len(wide)]
        return both[:, 0].copy().view(np.uint64), both[:, 1].copy()
    low = np.ascontiguousarray(values.cast(pa.int64()).to_numpy())
    return low.view(np.uint64), low >> 63


def decimals(low: Words, high: Ints, dtype: pa.DataType) -> pa.Array:
    """Decimals of these words."""
    both = np.stack([low.view(np.int64), high], axis=1)
    return pa.Array.from_buffers(dtype, len(low), [None, pa.py_buffer(both.tobytes())])


@dataclass(frozen=True)
class PowerSums:
    """Rounded sums of the powers 0 to `powers` of a column's finite values, for statistics."""

    name: str
    powers: int

    def lift(self, column: pa.Array, index: Ints, size: int) -> dict[str, pa.Array]:
        """See `Accumulator`."""
        values, index = non_null(column, index)
        doubles = doubles_of(values)
        finite = np.isfinite(doubles)
        doubles, index = doubles[finite], index[finite]
        power, lifted = np.ones(len(doubles)), {}
        for name in self._names:
            lifted[name] = pa.array(np.bincount(index, power, minlength=size).astype(np.float64))
            with np.errstate(over="ignore"):
                power = power * doubles
        return lifted

    def merge(self, partials: Partials, low: Ints, high: Ints) -> dict[str, pa.Array]:
        """See `Accumulator`."""
        with np.errstate(invalid="ignore", over="ignore"):
            return {
                name: pa.array(range_sums(sums, low, high))
                for name, sums in zip(self._names, self.sums(partials), strict=True)
            }

    def sums(self, partials: Partials) -> list[Floats]:
        """The sums of the powers 0, 1, ... that are kept."""
        return [normalized(partials[name]).to_numpy() for name in self._names]

    @property
    def _names(self) -> list[str]:
        return [f"{self.name}.p{power}" for power in range(self.powers + 1)]
