"""What a range is measured on: a table's column as places on a line, and events' bounds on it.

Integers, dates, timestamps and decimals of up to 18 digits are whole numbers, floats are doubles.
Larger decimals are ranks among the table's distinct values, found by Python's integers: slower,
and as exact. Bounds are rounded inwards to the next place, so that "at least" and "at most"
mean on the line what they mean among the values.
"""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rivermouth.errors import ConditionError
from rivermouth.kernels.keys.values import (
    DIGITS,
    decimal_words,
    decoded,
    missing,
    numbers,
    reals,
    unscaled,
    whole,
)
from rivermouth.kernels.spatial.geometry import Bools, Floats
from rivermouth.spec.conditions import Between, Offset

Ints = npt.NDArray[np.int64]
Places = Ints | Floats

_LEAST, _MOST = -(2**63), 2**63 - 1
_WIDE = Context(prec=400)  # more digits than any offset times any scale has


@dataclass(frozen=True)
class Axis:
    """The line of a table's column.

    Parameters
    ----------
    kind
        The column's type.
    distinct
        Where places are ranks: the distinct values in order, as decimals of the column's type
        lie in memory, two numbers each. Empty where they are not.
    """

    kind: pa.DataType
    distinct: Ints

    @classmethod
    def of(cls, column: pa.Array) -> tuple[Axis, Places]:
        """The line of a table's column, and the place of each row; undefined where missing.

        Raises
        ------
        ConditionError
            Where the column's values are not in a line: they are no numbers, dates or times.
        """
        column = decoded(column)
        kind, none = column.type, np.empty((0, 2), np.int64)
        if pa.types.is_floating(kind):
            return cls(kind, none), reals(column)
        if pa.types.is_decimal(kind):
            if kind.precision <= DIGITS:
                return cls(kind, none), numbers(column, kind)[0]
            _, first, rank = np.unique(unscaled(column), return_index=True, return_inverse=True)
            return cls(kind, decimal_words(column.take(pa.array(first)))), rank.astype(np.int64)
        if pa.types.is_integer(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind):
            return cls(kind, none), whole(column)
        raise ConditionError(
            "on",
            f"a column of type {kind} has no ranges",
            todo="Use numbers, dates or times, or join by rm.keys.",
        )

    def bounds(self, column: pa.Array, between: Between) -> tuple[Places, Places, Bools]:
        """The least and the largest place of each event's range, and which events have one."""
        asked = self._asked(column)
        low, some = self._at_least(asked, between.lower)
        high, others = self._at_most(asked, between.upper)
        return low, high, some & others & ~missing([asked])

    def moments(self, column: pa.Array) -> tuple[Places, Bools]:
        """The largest place at or before each event, and which events have one."""
        asked = self._asked(column)
        place, some = self._at_most(asked, 0)
        return place, some & ~missing([asked])

    def _asked(self, column: pa.Array) -> pa.Array:
        column = decoded(column)
        return column.cast(self.kind) if pa.types.is_null(column.type) else column

    def _at_least(self, column: pa.Array, offset: Offset) -> tuple[Places, Bools]:
        """The least place that is no less than v + `offset`."""
        if pa.types.is_floating(self.kind):
            return reals(column) + float(offset), _all(column)  # type: ignore[arg-type]
        if pa.types.is_decimal(self.kind):
            value, unit = _at_one_scale(column, self.kind.scale, _exact(offset))
            return self._rounded_up(-(-value // unit)), _all(column)
        place, below, above = _moved(whole(column), -self._steps(-offset))
        return np.where(below, _LEAST, place), ~above

    def _at_most(self, column: pa.Array, offset: Offset) -> tuple[Places, Bools]:
        """The largest place that is no more than v + `offset`."""
        if pa.types.is_floating(self.kind):
            return reals(column) + float(offset), _all(column)  # type: ignore[arg-type]
        if pa.types.is_decimal(self.kind):
            value, unit = _at_one_scale(column, self.kind.scale, _exact(offset))
            return self._rounded_down(value // unit), _all(column)
        place, below, above = _moved(whole(column), self._steps(offset))
        return np.where(above, _MOST, place), ~below

    def _steps(self, offset: Offset) -> int:
        """An offset in whole places, rounded down."""
        if isinstance(offset, dt.timedelta):
            is_date = pa.types.is_date(self.kind)
            return offset // (dt.timedelta(days=1) if is_date else dt.timedelta(microseconds=1))
        return math.floor(offset)

    def _rounded_up(self, value: Any) -> Any:
        if not self._has_ranks:
            return _within_digits(value)
        return np.searchsorted(self._known, value.astype(object), "left").astype(np.int64)

    def _rounded_down(self, value: Any) -> Any:
        if not self._has_ranks:
            return _within_digits(value)
        return np.searchsorted(self._known, value.astype(object), "right").astype(np.int64) - 1

    @property
    def _has_ranks(self) -> bool:
        return bool(self.kind.precision > DIGITS)

    @cached_property
    def _known(self) -> npt.NDArray[np.object_]:
        """The distinct values as Python's integers."""
        low, high = self.distinct.T
        known: npt.NDArray[np.object_] = high.astype(object) * 2**64
        known += np.ascontiguousarray(low).view(np.uint64).astype(object)
        return known


def _at_one_scale(column: pa.Array, scale: int, by: Decimal) -> tuple[Any, int]:
    """Decimals moved `by`, times a power of ten that makes all whole; and what 1 at `scale` is."""
    own = column.type.scale
    finest = max(own, scale, -int(by.as_tuple().exponent))
    unit, move = 10 ** (finest - scale), int(by.scaleb(finest, _WIDE))
    if column.type.precision - own + finest <= DIGITS and abs(move) < 8 * 10**DIGITS:
        return numbers(column, column.type)[0] * 10 ** (finest - own) + move, unit
    return unscaled(column) * 10 ** (finest - own) + move, unit


def _exact(offset: Offset) -> Decimal:
    assert not isinstance(offset, dt.timedelta)
    return Decimal(offset)


def _within_digits(value: Any) -> Ints:
    """Places of decimals: none lies beyond its digits, so that bounds need not either."""
    clipped: Ints = np.clip(value, -(10**DIGITS), 10**DIGITS).astype(np.int64)
    return clipped


def _moved(place: Ints, by: int) -> tuple[Ints, Bools, Bools]:
    """Places moved by so many, and which of them fall below and above what 64 bits hold."""
    below, above = place < _LEAST - by, place > _MOST - by
    wrapped = (by - _LEAST) % 2**64 + _LEAST
    return place + wrapped, below, above


def _all(column: pa.Array) -> Bools:
    return np.ones(len(column), dtype=bool)
