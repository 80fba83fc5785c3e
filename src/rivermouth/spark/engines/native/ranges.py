"""Ranges in the native plan: each key's values in order, and a binary search in Spark SQL.

The table comes as one row per key (one in all where the condition has no keys):

    key0, key1, ...   what the event's columns must equal
    steps             array: ..., 4, 2, 1, the steps of a search among so many values
    values            array: the key's values, in order
    rows              array: the projected columns, in the same order

Going up the steps counts the values that are not above the event's own; all that a range asks for
follows from one or two such counts, exactly, whatever the distribution of the values.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as t

from rivermouth.errors import PlanError
from rivermouth.kernels.keys.values import DIGITS, floats, key_ints, missing
from rivermouth.kernels.ranges.range_keys import LEAST, MOST, steps
from rivermouth.kernels.table_join.matching import Columns, Index
from rivermouth.spark.engines.native.columns import (
    codegen_barrier,
    event_columns,
    hidden,
    projected,
    quoted,
    with_index,
)
from rivermouth.spark.engines.native.expressions import Sql, number
from rivermouth.spark.engines.native.rows import (
    ROWS,
    Groups,
    KeyedRows,
    groups_of,
    list_array,
    list_of,
    non_null,
)
from rivermouth.spark.validation.join_table import WHERE, Join
from rivermouth.spec.conditions import Between, Offset

_STEPS, _VALUES = "steps", "values"


# -- the table's side


@dataclass(frozen=True)
class RangeRows(KeyedRows):
    """Rows for a range.

    Parameters
    ----------
    column
        The table's column that is compared.
    kind
        The type of its values, and of the event's.
    scale
        By how many digits decimals are moved to the left, to be whole numbers.
    """

    column: str
    kind: pa.DataType
    scale: int

    @classmethod
    def for_range(cls, join: Join, most_bytes: int) -> RangeRows:
        """What `join`, which has a range, needs."""
        assert join.range is not None
        kind = join.events[join.range.left].dataType
        is_float = isinstance(kind, (t.FloatType, t.DoubleType))
        return cls.of(
            join,
            most_bytes,
            column=join.range.right,
            kind=pa.float64() if is_float else pa.int64(),
            scale=_scale(join),
        )

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        steps, values = non_null(_STEPS, list_of(pa.int32())), non_null(_VALUES, list_of(self.kind))
        return pa.schema([*self.key_fields, steps, values, *self.row_fields])

    def make(self, table: Columns, index: Index | None = None) -> pa.RecordBatch:
        """The rows, as `KeyedRows.make` gives them."""
        there = ~missing([table[self.column]])
        groups = _only(groups_of(table, self.keys), there)
        if not groups.count:
            return pa.RecordBatch.from_pylist([], self.schema)
        values = _numbers(table[self.column].take(pa.array(groups.rows)), self.kind, self.scale)
        number_of = np.repeat(np.arange(groups.count), np.diff(groups.start))
        order = np.lexsort((values, number_of))  # stable: equal values stay in the table's order
        groups = Groups(groups.rows[order], groups.start)
        sizes = 8 * np.diff(groups.start) + 64 + self.row_bytes(table, groups)
        self.check_size(sizes)
        parts = [
            *self.keys_of(table, groups.rows[groups.start[:-1]]),
            _steps(groups),
            list_array(groups.start, pa.array(values[order])),
            *self.rows_of(table, groups),
        ]
        return pa.RecordBatch.from_arrays(parts, schema=self.schema)


def _only(groups: Groups, there: npt.NDArray[np.bool_]) -> Groups:
    """The groups without the rows that are not `there`, and without those that then are empty."""
    kept = there[groups.rows]
    sizes = (
        np.add.reduceat(kept, groups.start[:-1], dtype=np.int64) if groups.count else groups.start
    )
    sizes = sizes[sizes > 0]
    return Groups(groups.rows[kept], np.concatenate([[0], np.cumsum(sizes)]))


def _steps(groups: Groups) -> pa.Array:
    """For each group the powers of two up to its size, largest first."""
    sizes = np.diff(groups.start)
    count = np.frexp(sizes.astype(float))[1].astype(np.int64)
    start = np.concatenate([[0], np.cumsum(count)])
    exponent = np.repeat(start[1:], count) - 1 - np.arange(start[-1])
    return list_array(start, pa.array((1 << exponent).astype(np.int32)))


def _numbers(column: pa.Array, kind: pa.DataType, scale: int) -> npt.NDArray[np.generic]:
    """The range keys of the values, decimals at `scale`."""
    if pa.types.is_floating(kind):
        return floats(column)
    is_decimal = pa.types.is_decimal(column.type)
    return key_ints(column, pa.decimal128(38, scale) if is_decimal else column.type)[0]


# -- the events' side


def join_ranges(events: DataFrame, join: Join, index: DataFrame) -> DataFrame:
    """The join, `index` being the frame of `RangeRows`."""
    assert join.range is not None
    value = hidden("value")
    valued = events.selectExpr("*", f"{_value(join)} AS {value}")
    joined = with_index(valued, join, index, present=f"{value} IS NOT NULL")
    if isinstance(join.range, Between):
        low, high = (_bound(join, join.range, end) for end in ("lower", "upper"))
        first = _count("<", low)
        last = f"CASE WHEN {low} IS NOT NULL THEN {_count('<=', high)} ELSE 0 END"
    else:
        last = _count("<=", value)
        first = f"greatest({last} - 1, 0)"
    counted = joined.selectExpr("*", f"{first} AS {hidden('first')}", f"{last} AS {hidden('last')}")
    found = f"coalesce({hidden('last')} > {hidden('first')}, false)"
    if join.how in ("semi", "anti"):
        passes = found if join.how == "semi" else f"NOT {found}"
        return counted.filter(passes).selectExpr(*event_columns(join))
    rows = _rows_between(join, hidden("first"), hidden("last"))
    each = codegen_barrier(
        counted, f"{'explode_outer' if join.how == 'left' else 'explode'}({rows})", _ROW
    )
    return each.selectExpr(*event_columns(join), *projected(join, f"{_ROW}.c"))


_ROW = hidden("row")


def _count(relation: str, bound: Sql) -> Sql:
    """How many of the key's values are `relation` (< or <=) the bound; 0 without any."""
    reached = f"get({hidden(_VALUES)}, n + step - 1) {relation} {bound}"
    steps = f"coalesce({hidden(_STEPS)}, array())"
    return f"aggregate({steps}, 0, (n, step) -> CASE WHEN {reached} THEN n + step ELSE n END)"


def _rows_between(join: Join, first: Sql, last: Sql) -> Sql:
    count = f"greatest({last} - {first}, 0)"
    if not join.columns:
        return f"array_repeat(NULL, {count})"
    return f"slice({hidden(ROWS)}, {first} + 1, {count})"


def _value(join: Join) -> Sql:
    """The event's value as `_numbers` has the table's; null where it is NaN."""
    assert join.range is not None
    column, kind = quoted(join.range.left), join.events[join.range.left].dataType
    match kind:
        case t.TimestampType():
            return f"unix_micros({column})"
        case t.TimestampNTZType():
            return f"timestampdiff(MICROSECOND, TIMESTAMP_NTZ'1970-01-01 00:00:00', {column})"
        case t.DateType():
            return f"bigint(unix_date({column}))"
        case t.DecimalType():
            return f"bigint({column} * {10 ** _scale(join)}BD)"
        case t.FloatType() | t.DoubleType():
            return f"nullif(double({column}), double('NaN'))"
    return f"bigint({column})"


def _bound(join: Join, span: Between, end: str) -> Sql:
    """The event's value plus one of the offsets.

    Whole numbers stop where longs do; null where nothing can lie beyond the bound.
    """
    value, offset = hidden("value"), getattr(span, end)
    if isinstance(join.events[span.left].dataType, (t.FloatType, t.DoubleType)):
        return f"({value} + {number(float(offset))})"
    step = _whole(join, offset)
    moved = f"try_add({value}, {_long(step)})"
    if (step > 0) == (end == "lower"):
        return moved
    beyond = LEAST if end == "lower" else MOST
    return f"CASE WHEN {value} IS NOT NULL THEN coalesce({moved}, {_long(beyond)}) END"


def _long(value: int) -> Sql:
    return f"bigint('{max(LEAST, min(MOST, value))}')"


def _whole(join: Join, offset: Offset) -> int:
    """An offset in the unit of `_value`."""
    assert join.range is not None
    kind = join.table.field(join.range.right).type
    if pa.types.is_decimal(kind):
        return int(Decimal(offset).scaleb(_scale(join)))  # type: ignore[arg-type]
    return steps(offset, kind)


def _scale(join: Join) -> int:
    """How many digits behind the point the decimals of a range have, on either side."""
    assert join.range is not None
    ours = join.events[join.range.left].dataType
    if not isinstance(ours, t.DecimalType):
        return 0
    theirs = join.table.field(join.range.right).type
    offsets = (
        [Decimal(join.range.lower), Decimal(join.range.upper)]  # type: ignore[arg-type]
        if isinstance(join.range, Between)
        else []
    )
    behind = [-int(offset.as_tuple().exponent) for offset in offsets]
    scale = max(ours.scale, theirs.scale, *behind, 0)
    before = max(ours.precision - ours.scale, theirs.precision - theirs.scale)
    if before + scale > DIGITS:
        raise PlanError(
            WHERE,
            f"plan='native' cannot compare decimals of {before + scale} digits",
            there=f"{join.range.left!r} is {ours.simpleString()}, "
            f"{join.range.right!r} of {join.source.name} is {theirs}",
            todo=f"Cast to at most {DIGITS} digits, or use plan='workers'.",
        )
    return int(scale)
