"""What is sent to a database of a batch of records, for keys, for a range, or for both.

Null and NaN are equal to nothing and in no range, so that records with one are not sent at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from rivermouth.errors import ConditionError, PlanError
from rivermouth.kernels.arrays import Bools, Ints
from rivermouth.kernels.keys.values import family, missing, widest
from rivermouth.kernels.ranges.range_keys import limits
from rivermouth.spec.conditions import Between, Condition, Keys, Range, split

_WIDE = Context(prec=100)  # more digits than a decimal of 256 bits has


@dataclass(frozen=True)
class Probes:
    """The records that can match, and what is sent of them.

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
    """The parts of a condition that any database can evaluate, or a `PlanError`."""
    keys, spatial, span = split(condition)
    if spatial is not None:
        raise PlanError(
            where,
            f"{type(spatial).__name__.lower()} of places cannot be answered by this store",
            there=f"the condition is {condition}",
            todo="Use cache=rm.full(), or keep the table in PostGIS (rm.tables.postgres).",
        )
    return keys, span


def probes_of(
    left: Mapping[str, pa.Array],
    keys: Keys | None,
    span: Range | None,
    table: pa.Schema,
    *,
    where: str,
) -> Probes:
    """The records of `left` that can match a table of this schema."""
    columns = columns_of(left, keys, span, table, where=where)
    usable = np.flatnonzero(~missing(list(columns.values())))
    taken = pa.array(usable)
    return Probes(usable, {name: column.take(taken) for name, column in columns.items()})


def columns_of(
    left: Mapping[str, pa.Array],
    keys: Keys | None,
    span: Range | None,
    table: pa.Schema,
    *,
    where: str,
) -> dict[str, pa.Array]:
    """What is sent of all records, by the names that `Probes` has; null where nothing can match."""
    columns = {
        f"key{number}": _comparable("keys", left[name], table.field(right).type, where)
        for number, (name, right) in enumerate(keys.pairs if keys is not None else ())
    }
    if span is not None:
        what = "between" if isinstance(span, Between) else "asof"
        values = _comparable(what, left[span.left], table.field(span.right).type, where)
        kind = _exact(span, values.type) if pa.types.is_decimal(values.type) else values.type
        low, high, exists = limits(span, values, kind)
        ends = {"low": low, "high": high} if isinstance(span, Between) else {"until": high}
        columns |= {name: _as_values(end, exists, kind) for name, end in ends.items()}
    return columns


def _exact(span: Range, kind: pa.DataType) -> pa.DataType:
    """A type for sums of decimals and offsets, which are not rounded to the table's scale."""
    offsets = (span.lower, span.upper) if isinstance(span, Between) else ()
    scales = (-int(Decimal(o).as_tuple().exponent) for o in offsets)  # type: ignore[arg-type]
    return pa.decimal256(76, max(kind.scale, *scales, 0))


def _as_values(keys: Any, exists: Bools, kind: pa.DataType) -> pa.Array:
    """Range keys as values of `kind`, null where there is none."""
    if pa.types.is_decimal(kind):
        most = 10**kind.precision - 1
        decimals = [
            Decimal(min(max(key, -most), most)).scaleb(-kind.scale, _WIDE) if there else None
            for key, there in zip(keys, exists, strict=True)
        ]
        return pa.array(decimals, kind)
    keys = keys.astype(np.int32) if pa.types.is_date(kind) else keys
    return pa.array(keys, mask=~exists).cast(kind)


def _comparable(what: str, column: pa.Array, theirs: pa.DataType, where: str) -> pa.Array:
    """The records' values in the widest type of the family that both sides belong to."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not family(theirs) or family(column.type) != family(theirs):
        raise ConditionError(
            where,
            f"{what} compares keys of type {column.type} with a column read as {theirs}",
            todo="Cast one of them.",
        )
    return column.cast(widest(column.type))
