"""Ranges within sorted runs: which part of a key's rows a record meets.

Values that are compared become numbers of one kind first: doubles if either side has them, else
whole numbers of one unit (microseconds for dates and times, the finer scale of two decimals).
"""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rivermouth.errors import ConditionError
from rivermouth.kernels.keys.encoding import Ints
from rivermouth.kernels.ranges.sorted_index import count_below
from rivermouth.spec.conditions import Between, Offset, Range

Bools = npt.NDArray[np.bool_]
Numbers = npt.NDArray[Any]  # int64 or float64

_LEAST, _MOST = -(1 << 63), (1 << 63) - 1


@dataclass(frozen=True)
class Scale:
    """How values of two columns become comparable numbers: doubles, or steps of 1 / `steps`."""

    is_float: bool
    steps: int = 1

    def numbers(self, column: pa.Array) -> tuple[Numbers, Bools]:
        """The values as numbers, and which of them are neither null nor NaN."""
        there = ~pc.is_null(column, nan_is_null=True).to_numpy(zero_copy_only=False)
        kind = column.type
        if self.is_float:
            return _filled(column.cast(pa.float64(), safe=False)), there
        if pa.types.is_temporal(kind):
            zone = kind.tz if pa.types.is_timestamp(kind) else None
            column = column.cast(pa.timestamp("us", zone), safe=False).cast(pa.int64())
            return _filled(column), there
        if self.steps == 1:
            return _filled(column.cast(pa.int64())), there
        return _unscaled(column, self.steps), there

    def offset(self, given: Offset) -> int | float:
        """An offset in these numbers, rounded down to a whole step."""
        if isinstance(given, dt.timedelta):
            return given // dt.timedelta(microseconds=1)
        if self.is_float:
            return float(given)
        return math.floor(Fraction(given) * self.steps)


def scale_of(left: pa.DataType, right: pa.DataType) -> Scale:
    """How values of these two types are compared."""
    kinds = (left, right)
    if any(pa.types.is_floating(kind) for kind in kinds):
        return Scale(is_float=True)
    digits = max((kind.scale for kind in kinds if pa.types.is_decimal(kind)), default=0)
    return Scale(is_float=False, steps=10 ** max(digits, 0))


def _filled(column: pa.Array) -> Numbers:
    """The numbers, with any number in place of a null."""
    values: Numbers = (column.fill_null(0) if column.null_count else column).to_numpy()
    return values


def _unscaled(column: pa.Array, steps: int) -> Ints:
    """Decimals as whole numbers of steps, exactly."""
    digits = len(str(steps)) - 1
    wide = column.cast(pa.decimal128(38, digits)).fill_null(Decimal(0))
    halves = np.frombuffer(wide.buffers()[1], np.int64).reshape(-1, 2)
    halves = halves[wide.offset : wide.offset + len(wide)]
    if (halves[:, 1] != halves[:, 0] >> 63).any():
        raise ConditionError(
            "between",
            f"a value of type {column.type} has more than 18 digits at a scale of {digits}",
            todo="Compare doubles, or decimals of a smaller scale.",
        )
    return np.ascontiguousarray(halves[:, 0])


def bounds(span: Range, values: Numbers, scale: Scale) -> tuple[Numbers, Numbers]:
    """The least and the largest table value that each record meets; for `asof` the largest only."""
    if not isinstance(span, Between):
        return values, values
    low, high = -scale.offset(-span.lower), scale.offset(span.upper)
    if scale.is_float:
        return values + low, values + high
    none = (values > _MOST - int(low)) | (values < _LEAST - int(high))  # nothing lies out there
    lows, highs = _moved(values, int(low)), _moved(values, int(high))
    return np.where(none, _MOST, lows), np.where(none, _LEAST, highs)


def _moved(values: Ints, by: int) -> Ints:
    """``values + by``, held at the ends of 64 bits."""
    by = max(min(by, _MOST - _LEAST), _LEAST - _MOST)
    moved = (values.view(np.uint64) + np.uint64(by % (1 << 64))).view(np.int64)  # may wrap
    if by >= 0:
        return np.where(values > max(_MOST - by, _LEAST), _MOST, moved)
    return np.where(values < min(_LEAST - by, _MOST), _LEAST, moved)


@numba.njit(cache=True)
def within(
    order: Numbers, start: Ints, count: Ints, low: Numbers, high: Numbers
) -> tuple[Ints, Ints]:
    """The rows of each record's run in [low, high]: the first of them, and how many."""
    first, length = np.empty(len(start), np.int64), np.empty(len(start), np.int64)
    for i in range(len(start)):
        below = count_below(order, start[i], count[i], low[i], False)
        first[i] = start[i] + below
        length[i] = count_below(order, first[i], count[i] - below, high[i], True)
    return first, length


@numba.njit(cache=True)
def newest(order: Numbers, start: Ints, count: Ints, at: Numbers) -> tuple[Ints, Ints]:
    """The last row of each record's run that is not above `at`, and whether there is one."""
    first, length = np.empty(len(start), np.int64), np.empty(len(start), np.int64)
    for i in range(len(start)):
        before = count_below(order, start[i], count[i], at[i], True)
        length[i] = before > 0
        first[i] = start[i] + before - length[i]
    return first, length
