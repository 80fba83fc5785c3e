"""What is kept of a group's records in a pane: one track for each thing that aggregates need.

A track lifts rows to what is kept of each cell (a group and a pane), and folds runs of such
entries into one. What is kept is columns of Arrow, so that it can be stored as it is. Several
aggregates share a track: a sum, a mean and a variance need one sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rivermouth.kernels.aggregation import exact_sums
from rivermouth.kernels.aggregation.exact_sums import Limbs
from rivermouth.kernels.aggregation.groups import plain

Ints = npt.NDArray[np.int64]
Kept = Mapping[str, Any]  # the columns of entries, by name


class Track(Protocol):
    """One thing that is kept of each cell."""

    def lift(self, column: pa.Array, place: Ints, size: int) -> dict[str, pa.Array]:
        """What to keep of the rows of each of `size` cells; `place` is each row's cell."""
        ...

    def fold(self, kept: Kept, low: Ints, high: Ints) -> dict[str, pa.Array]:
        """What is kept of each run of entries [low, high) together."""
        ...


def there(column: pa.Array, place: Ints) -> tuple[pa.Array, Ints]:
    """The values that are not null, and the cells they belong to."""
    if not column.null_count:
        return column, place
    return column.drop_null(), place[column.is_valid().to_numpy(zero_copy_only=False)]


def numbers(kept: Kept, name: str, rows: int) -> Ints:
    """A column of whole numbers, 0 where there is none."""
    if name not in kept:
        return np.zeros(rows, np.int64)
    column = plain(kept[name])
    return np.asarray(column.fill_null(0) if column.null_count else column, np.int64)


def run_sums(values: Ints, low: Ints, high: Ints) -> Ints:
    """The sum of each run [low, high); one pass, however the runs overlap."""
    before = np.zeros(len(values) + 1, np.int64)
    np.cumsum(values, out=before[1:])
    return before[high] - before[low]


@dataclass(frozen=True)
class Counts:
    """How many rows there are, or values that are not null."""

    name: str
    only_values: bool

    def lift(self, column: pa.Array, place: Ints, size: int) -> dict[str, pa.Array]:
        """See `Track`."""
        if self.only_values:
            _, place = there(column, place)
        return {self.name: pa.array(np.bincount(place, minlength=size).astype(np.int64))}

    def fold(self, kept: Kept, low: Ints, high: Ints) -> dict[str, pa.Array]:
        """See `Track`."""
        return {self.name: pa.array(run_sums(plain(kept[self.name]).to_numpy(), low, high))}


@dataclass(frozen=True)
class Totals:
    """Exact sums of a column's values, or of their squares: limbs, and what is not finite.

    `unit` is one of `exact_sums.DOUBLE`, `exact_sums.SQUARE` and `exact_sums.WHOLE`.
    """

    name: str
    unit: int

    def lift(self, column: pa.Array, place: Ints, size: int) -> dict[str, pa.Array]:
        """See `Track`."""
        values, place = there(column, place)
        if self.unit == exact_sums.WHOLE:
            low, high = words_of(values)
            return self._columns(exact_sums.lift_wholes(low, high, place, size), {})
        doubles = np.ascontiguousarray(doubles_of(values))
        finite = np.isfinite(doubles)
        odd: dict[str, Ints] = {}
        if not finite.all():
            odd = _odd(doubles, place, size)
            doubles, place = doubles[finite], place[finite]
        lift = (
            exact_sums.lift_doubles if self.unit == exact_sums.DOUBLE else exact_sums.lift_squares
        )
        return self._columns(lift(doubles, place, size), odd)

    def fold(self, kept: Kept, low: Ints, high: Ints) -> dict[str, pa.Array]:
        """See `Track`."""
        limbs = self.limbs(kept)
        sums = np.zeros((len(limbs) + 1, limbs.array.shape[1]), np.int64)
        np.cumsum(limbs.array, axis=0, out=sums[1:])
        odd = {
            name: run_sums(numbers(kept, f"{self.name}.{name}", len(limbs)), low, high)
            for name in _ODD
            if f"{self.name}.{name}" in kept
        }
        return self._columns(Limbs(limbs.first, sums[high] - sums[low]).carried(), odd)

    def limbs(self, kept: Kept) -> Limbs:
        """The sums that are kept."""
        prefix, rows = f"{self.name}.", len(next(iter(kept.values())))
        tails = (name.removeprefix(prefix) for name in kept if name.startswith(prefix))
        used = sorted(int(tail) for tail in tails if tail.isdigit())
        if not used:
            return Limbs(0, np.zeros((rows, 0), np.int64))
        array = np.zeros((rows, used[-1] - used[0] + 1), np.int64)
        for limb in used:
            array[:, limb - used[0]] = numbers(kept, f"{prefix}{limb}", rows)
        return Limbs(used[0], array)

    def doubles(self, kept: Kept) -> npt.NDArray[np.float64]:
        """The sums as doubles, infinite or NaN where a value was."""
        sums = exact_sums.to_doubles(self.limbs(kept), self.unit)
        up, down, nan = (numbers(kept, f"{self.name}.{odd}", len(sums)) > 0 for odd in _ODD)
        sums[up] = np.inf
        sums[down] = -np.inf
        sums[nan | (up & down)] = np.nan
        return sums

    def _columns(self, limbs: Limbs, odd: Mapping[str, Ints]) -> dict[str, pa.Array]:
        found = {
            f"{self.name}.{limbs.first + j}": limbs.array[:, j] for j in range(limbs.array.shape[1])
        } | {f"{self.name}.{name}": count for name, count in odd.items()}
        if not found:  # a table needs a column to know its length
            found = {f"{self.name}.0": np.zeros(len(limbs), np.int64)}
        return {name: pa.array(values) for name, values in found.items()}


_ODD = ("up", "down", "nan")  # how many values are infinity, -infinity, no number


def _odd(doubles: npt.NDArray[np.float64], place: Ints, size: int) -> dict[str, Ints]:
    """How many of each kind of value that is not finite."""
    masks = (doubles == np.inf, doubles == -np.inf, np.isnan(doubles))
    return {
        name: np.bincount(place[mask], minlength=size).astype(np.int64)
        for name, mask in zip(_ODD, masks, strict=True)
    }


def doubles_of(values: pa.Array) -> npt.NDArray[np.float64]:
    """Numbers of any kind as doubles; none is null."""
    kind = values.type
    if pa.types.is_decimal(kind):
        low, high = words_of(values)
        rows = exact_sums.lift_wholes(low, high, np.arange(len(values)), len(values))
        return np.asarray(exact_sums.to_doubles(rows, exact_sums.WHOLE) / 10.0**kind.scale)
    return np.asarray(values.cast(pa.float64(), safe=False).to_numpy(), np.float64)


def words_of(values: pa.Array) -> tuple[npt.NDArray[np.uint64], Ints]:
    """The low and high words of whole numbers, or of decimals without their point."""
    if not len(values):
        return np.empty(0, np.uint64), np.empty(0, np.int64)
    if pa.types.is_decimal(values.type):
        wide = values.cast(pa.decimal128(38, values.type.scale))
        both = np.frombuffer(wide.buffers()[1], np.int64).reshape(-1, 2)
        both = both[wide.offset : wide.offset + len(wide)]
        return both[:, 0].copy().view(np.uint64), both[:, 1].copy()
    whole = np.ascontiguousarray(values.cast(pa.int64()).to_numpy())
    return whole.view(np.uint64), whole >> 63


def decimals(low: npt.NDArray[np.uint64], high: Ints, kind: pa.DataType) -> pa.Array:
    """Decimals of these words."""
    both = np.stack([low.view(np.int64), high], axis=1)
    return pa.Array.from_buffers(kind, len(low), [None, pa.py_buffer(both.tobytes())])


@dataclass(frozen=True)
class Powers:
    """Sums of the first powers of a column's finite values, rounded: for the shape of windows."""

    name: str
    powers: int

    def lift(self, column: pa.Array, place: Ints, size: int) -> dict[str, pa.Array]:
        """See `Track`."""
        values, place = there(column, place)
        doubles = doubles_of(values)
        finite = np.isfinite(doubles)
        doubles, place = doubles[finite], place[finite]
        power, found = np.ones(len(doubles)), {}
        for k in range(self.powers + 1):
            sums = np.bincount(place, power, minlength=size)
            found[f"{self.name}.p{k}"] = pa.array(sums.astype(np.float64))
            with np.errstate(over="ignore"):
                power = power * doubles
        return found

    def fold(self, kept: Kept, low: Ints, high: Ints) -> dict[str, pa.Array]:
        """See `Track`."""
        found = {}
        for k in range(self.powers + 1):
            sums = np.zeros(len(plain(kept[f"{self.name}.p{k}"])) + 1)
            with np.errstate(invalid="ignore", over="ignore"):
                np.cumsum(plain(kept[f"{self.name}.p{k}"]).to_numpy(), out=sums[1:])
                found[f"{self.name}.p{k}"] = pa.array(sums[high] - sums[low])
        return found

    def sums(self, kept: Kept) -> list[npt.NDArray[np.float64]]:
        """The sums of the powers 0, 1, ... that are kept."""
        return [plain(kept[f"{self.name}.p{k}"]).to_numpy() for k in range(self.powers + 1)]
