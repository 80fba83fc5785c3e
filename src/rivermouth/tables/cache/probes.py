"""What a batch of records asks a database for, by equality, by a range, or by both.

Null and NaN are equal to nothing and in no range, so that records with one are not sent at all.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Context
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rivermouth.errors import ConditionError, PlanError
from rivermouth.kernels.keys import key_index
from rivermouth.spec.conditions import AsOf, Between, Condition, Keys, Range, split

Ints = npt.NDArray[np.int64]

_EXACT = Context(prec=80)  # any sum of two decimals of 38 digits


@dataclass(frozen=True)
class Probes:
    """The records that can match, and what they ask for.

    Parameters
    ----------
    rows
        Their numbers.
    columns
        By name: ``key0``, ``key1`` and so on; for a range ``low`` and ``high``, both included,
        or ``until``. Integers come as int64, floats as float64, times in microseconds.
    """

    rows: Ints
    columns: dict[str, pa.Array]


def answerable(condition: Condition, *, where: str) -> tuple[Keys | None, Range | None]:
    """The parts of a condition that any database can answer, or a `PlanError`."""
    equal, place, span = split(condition)
    if place is not None:
        raise PlanError(
            where,
            f"{type(place).__name__.lower()} of places cannot be answered by this store",
            there=f"the condition is {condition}",
            todo="Use cache=rm.full(), or keep the table in PostGIS (rm.tables.postgres).",
        )
    return equal, span


def probes_of(
    left: Mapping[str, pa.Array],
    equal: Keys | None,
    span: Range | None,
    table: pa.Schema,
    *,
    where: str,
) -> Probes:
    """The records of `left` that can match a table of this schema."""
    columns = columns_of(left, equal, span, table, where=where)
    usable = np.flatnonzero(~key_index.missing(list(columns.values())))
    taken = pa.array(usable)
    return Probes(usable, {name: column.take(taken) for name, column in columns.items()})


def columns_of(
    left: Mapping[str, pa.Array],
    equal: Keys | None,
    span: Range | None,
    table: pa.Schema,
    *,
    where: str,
) -> dict[str, pa.Array]:
    """What all records ask for, by the names that `Probes` has; null where nothing can match."""
    columns = {
        f"key{number}": _comparable("keys", left[name], table.field(right).type, where)
        for number, (name, right) in enumerate(equal.pairs if equal is not None else ())
    }
    if span is not None:
        columns.update(_sought(left, span, table, where))
    return columns


def _sought(
    left: Mapping[str, pa.Array], span: Range, table: pa.Schema, where: str
) -> dict[str, pa.Array]:
    what = "between" if isinstance(span, Between) else "asof"
    values = _comparable(what, left[span.left], table.field(span.right).type, where)
    match span:
        case Between(lower=lower, upper=upper):
            low, high = bounds(values, lower, upper)
            return {"low": low, "high": high}
        case AsOf():
            return {"until": values}


def bounds(values: pa.Array, lower: Any, upper: Any) -> tuple[pa.Array, pa.Array]:
    """The ends of [v + lower, v + upper] in the type of `values`; null where nothing can lie.

    Floats are added as doubles; all other types exactly, and an end beyond what the type holds
    is its last value.

    Examples
    --------
    >>> low, high = bounds(pa.array([5, 2**63 - 1, None]), -10, 1)
    >>> low.to_pylist(), high.to_pylist()
    ([-5, 9223372036854775797, None], [6, 9223372036854775807, None])
    """
    kind = values.type
    if pa.types.is_floating(kind):
        numbers = values.to_numpy(zero_copy_only=False)
        with np.errstate(over="ignore"):  # infinite then, which is an end like any other
            low, high = numbers + float(lower), numbers + float(upper)
        return pa.array(low, kind, from_pandas=True), pa.array(high, kind, from_pandas=True)
    if pa.types.is_decimal(kind):
        return _decimal_bounds(values, lower, upper)
    whole = pa.int32() if pa.types.is_date(kind) else pa.int64()
    low, high = _whole_bounds(values.cast(whole), _whole(lower, kind), _whole(upper, kind))
    return low.cast(kind), high.cast(kind)


def _whole(offset: Any, kind: pa.DataType) -> int:
    """An offset in units of `kind`."""
    if not isinstance(offset, dt.timedelta):
        return int(offset)
    one = dt.timedelta(days=1) if pa.types.is_date(kind) else dt.timedelta(microseconds=1)
    return offset // one


def _whole_bounds(values: pa.Array, lower: int, upper: int) -> tuple[pa.Array, pa.Array]:
    limits = np.iinfo(values.type.to_pandas_dtype())
    lows: list[int | None] = []
    highs: list[int | None] = []
    for value in values.to_pylist():
        low, high = (None, None) if value is None else (value + lower, value + upper)
        if low is None or high is None or low > limits.max or high < limits.min:
            low = high = None
        else:
            low, high = max(low, int(limits.min)), min(high, int(limits.max))
        lows.append(low)
        highs.append(high)
    return pa.array(lows, values.type), pa.array(highs, values.type)


def _decimal_bounds(values: pa.Array, lower: Any, upper: Any) -> tuple[pa.Array, pa.Array]:
    lows = [None if v is None else _EXACT.add(v, lower) for v in values.to_pylist()]
    highs = [None if v is None else _EXACT.add(v, upper) for v in values.to_pylist()]
    return pa.array(lows, pa.decimal256(76, 38)), pa.array(highs, pa.decimal256(76, 38))


def _comparable(what: str, column: pa.Array, theirs: pa.DataType, where: str) -> pa.Array:
    """The records' values in the widest type of the family that both sides belong to."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    widest = next((wide for is_one, wide in _FAMILIES
                   if is_one(column.type) and is_one(theirs)), None)  # fmt: skip
    if widest is None:
        raise ConditionError(
            where,
            f"{what} compares keys of type {column.type} with a column read as {theirs}",
            todo="Cast one of them.",
        )
    return column.cast(widest(column.type))


# Values of one family can be compared without loss.
_FAMILIES: tuple[tuple[Any, Any], ...] = (
    (pa.types.is_integer, lambda _: pa.int64()),
    (pa.types.is_floating, lambda _: pa.float64()),
    (pa.types.is_decimal, lambda kind: kind),
    (pa.types.is_boolean, lambda kind: kind),
    (pa.types.is_date, lambda _: pa.date32()),
    (
        lambda kind: kind in (pa.string(), pa.large_string(), pa.string_view()),
        lambda _: pa.string(),
    ),
    (
        lambda kind: kind in (pa.binary(), pa.large_binary(), pa.binary_view()),
        lambda _: pa.binary(),
    ),
    (
        lambda kind: pa.types.is_timestamp(kind) and kind.tz is None,
        lambda _: pa.timestamp("us"),
    ),
    (
        lambda kind: pa.types.is_timestamp(kind) and kind.tz is not None,
        lambda _: pa.timestamp("us", "UTC"),
    ),
)
