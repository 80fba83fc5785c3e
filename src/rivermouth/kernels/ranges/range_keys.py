"""Range keys: a table's column as numbers in the order of its values, and events' limits in it.

Integers, dates (days), timestamps (microseconds) and decimals of up to 18 digits (at the column's
scale) are int64, floats are doubles. Larger decimals are Python's integers (`limits`), and in an
index ranks among the table's distinct values (`RangeEncoder`): slower, and as exact. Limits are
rounded inwards to the next key, so that "at least" and "at most" mean among keys what they mean
among the values.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from rivermouth.errors import ConditionError
from rivermouth.kernels.arrays import Bools, Floats, Ints
from rivermouth.kernels.keys.values import (
    DIGITS,
    big_ints,
    decimal_words,
    decoded,
    floats,
    ints,
    key_ints,
    missing,
    unscaled,
)
from rivermouth.spec.conditions import Between, Offset, Range

RangeKeys = Ints | Floats

#: what int64 holds
LEAST, MOST = -(2**63), 2**63 - 1
_WIDE = Context(prec=400)  # more digits than any offset times any scale has


class Limits(NamedTuple):
    """The least and the largest key in the range of each event, and which events have a range.

    An event at or after which everything lies (`asof`) has no least key; it is any.
    """

    low: Any
    high: Any
    exists: Bools

    def take(self, rows: Ints) -> Limits:
        """The limits of these events."""
        return Limits(*(part[rows] for part in self))


def limits(span: Range, column: pa.Array, kind: pa.DataType) -> Limits:
    """The limits of events whose values are in `column`, over a table's column of `kind`.

    Decimals of more than 18 digits give Python's integers; see `RangeEncoder` for their ranks.

    Examples
    --------
    >>> near = Between("v", "w", -10, 1)
    >>> limits(near, pa.array([5, 2**63 - 1, None]), pa.int64())
    Limits(low=array([                 -5, 9223372036854775797,                 -10]), \
high=array([                  6, 9223372036854775807,                   1]), \
exists=array([ True,  True, False]))
    """
    column = decoded(column)
    column = column.cast(kind) if pa.types.is_null(column.type) else column
    lower, upper = (span.lower, span.upper) if isinstance(span, Between) else (0, 0)
    high, exists = _shifted(column, kind, upper, up=False)
    low = high
    if isinstance(span, Between):
        low, reaches = _shifted(column, kind, lower, up=True)
        exists = exists & reaches
    return Limits(low, high, exists & ~missing([column]))


def _shifted(column: pa.Array, kind: pa.DataType, offset: Offset, *, up: bool) -> tuple[Any, Any]:
    """The key of v + `offset`, rounded up or down, and whether any key can lie on its inner side.

    Beyond the type's last value it is that value.
    """
    if pa.types.is_floating(kind):
        with np.errstate(over="ignore"):  # infinite then, which is a limit like any other
            return floats(column) + float(offset), True  # type: ignore[arg-type]
    if pa.types.is_decimal(kind):
        value, unit = _at_one_scale(column, kind.scale, Decimal(offset))  # type: ignore[arg-type]
        key, most = -(-value // unit) if up else value // unit, 10 ** max(DIGITS, kind.precision)
        key = np.clip(key, -most, most)  # no value lies beyond its digits
        return key.astype(np.int64) if kind.precision <= DIGITS else key.astype(object), True
    least, most = (-(2**31), 2**31 - 1) if pa.types.is_date(kind) else (LEAST, MOST)
    values, by = ints(column), steps(offset, kind, up=up)
    below, above = values < least - by, values > most - by
    moved = values + ((by - LEAST) % 2**64 + LEAST)  # may wrap
    return (np.where(below, least, moved), ~above) if up else (np.where(above, most, moved), ~below)


def steps(offset: Offset, kind: pa.DataType, *, up: bool = False) -> int:
    """An offset in whole keys of an integer, a date or a timestamp, rounded up or down."""
    if isinstance(offset, dt.timedelta):
        one = dt.timedelta(days=1) if pa.types.is_date(kind) else dt.timedelta(microseconds=1)
        return -(-offset // one) if up else offset // one
    return math.ceil(offset) if up else math.floor(offset)


def _at_one_scale(column: pa.Array, scale: int, by: Decimal) -> tuple[Any, int]:
    """Decimals moved `by`, times a power of ten that makes all whole; and what 1 at `scale` is."""
    own = column.type.scale
    finest = max(own, scale, -int(by.as_tuple().exponent))
    unit, move = 10 ** (finest - scale), int(by.scaleb(finest, _WIDE))
    if column.type.precision - own + finest <= DIGITS and abs(move) < 8 * 10**DIGITS:
        return key_ints(column, column.type)[0] * 10 ** (finest - own) + move, unit
    return unscaled(column) * 10 ** (finest - own) + move, unit


@dataclass(frozen=True)
class RangeEncoder:
    """How the values of a table's column become range keys.

    Parameters
    ----------
    kind
        The column's type.
    distinct
        Where keys are ranks: the distinct values in order, as decimals of the column's type
        lie in memory, two numbers each. Empty where they are not.
    """

    kind: pa.DataType
    distinct: Ints

    @classmethod
    def fit(cls, column: pa.Array) -> tuple[RangeEncoder, RangeKeys]:
        """The encoder of a table's column, and the key of each row; undefined where missing.

        Raises
        ------
        ConditionError
            Where the column's values have no order: they are no numbers, dates or times.
        """
        column = decoded(column)
        kind, none = column.type, np.empty((0, 2), np.int64)
        if pa.types.is_floating(kind):
            return cls(kind, none), floats(column)
        if pa.types.is_decimal(kind):
            if kind.precision <= DIGITS:
                return cls(kind, none), key_ints(column, kind)[0]
            return _ranked(kind, decimal_words(column))
        if pa.types.is_integer(kind) or pa.types.is_date(kind) or pa.types.is_timestamp(kind):
            return cls(kind, none), ints(column)
        raise ConditionError(
            "on",
            f"a column of type {kind} has no ranges",
            todo="Use numbers, dates or times, or join by rm.keys.",
        )

    @staticmethod
    def merge(
        parts: Sequence[tuple[RangeEncoder, RangeKeys]],
    ) -> tuple[RangeEncoder, RangeKeys]:
        """One encoder for the rows of all parts, which are of one type, and their keys."""
        first, keys = parts[0][0], np.concatenate([keys for _, keys in parts])
        if not first._has_ranks:
            return first, keys
        return _ranked(first.kind, np.concatenate([own.distinct[keys] for own, keys in parts]))

    def limits(self, span: Range, column: pa.Array) -> Limits:
        """The limits of events' ranges among the keys."""
        return self.encode(limits(span, column, self.kind))

    def encode(self, found: Limits) -> Limits:
        """Limits as ranks, where keys are ranks."""
        if not self._has_ranks:
            return found
        low = np.searchsorted(self._values, found.low, "left")
        high = np.searchsorted(self._values, found.high, "right") - 1
        return Limits(low.astype(np.int64), high.astype(np.int64), found.exists)

    @property
    def _has_ranks(self) -> bool:
        return pa.types.is_decimal(self.kind) and bool(self.kind.precision > DIGITS)

    @cached_property
    def _values(self) -> Any:
        """The distinct values as Python's integers."""
        return big_ints(self.distinct)


def _ranked(kind: pa.DataType, words: Ints) -> tuple[RangeEncoder, Ints]:
    _, first, rank = np.unique(big_ints(words), return_index=True, return_inverse=True)
    return RangeEncoder(kind, words[first]), rank.astype(np.int64)
