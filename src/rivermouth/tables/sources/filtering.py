"""A filter against a table's columns: each value in the type of the column it is compared with."""

from __future__ import annotations

import datetime as dt
import functools
import operator
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from rivermouth.errors import ColumnError, missing_column
from rivermouth.spec.filters import Comparison, Filter
from rivermouth.tables.source import srid_of

_OPERATORS = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def values_of(test: Comparison, schema: pa.Schema, *, call: str) -> pa.Array:
    """What the column is compared with, in the column's type; of no length for "is".

    Raises
    ------
    ColumnError
        Where the column does not exist, or cannot be compared with these values.
    """
    if test.column not in schema.names:
        raise missing_column(call, test.column, schema.names, side="the table", by="where")
    field = schema.field(test.column)
    given = test.value if isinstance(test.value, tuple) else (test.value,)
    values = [] if test.value is None else list(given)
    try:
        if not all(_is_meant(value, field) for value in values):
            raise pa.ArrowInvalid("of another type")
        return pa.array(values, field.type)
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        type_ = "a geometry" if srid_of(field) is not None else field.type
        raise ColumnError(
            call,
            f"where compares column {test.column!r}, which is {type_}, with {test.value!r}",
            todo="Give a value of that type; cast the column in a view for any other.",
        ) from None


def _is_meant(value: Any, field: pa.Field) -> bool:
    """Whether Arrow would take `value` for what its writer meant."""
    if srid_of(field) is not None:
        return False
    if isinstance(value, bool) != pa.types.is_boolean(field.type):
        return False
    if isinstance(value, bytes):
        return not pa.types.is_string(field.type)
    if pa.types.is_integer(field.type):
        return isinstance(value, int)
    if pa.types.is_timestamp(field.type):
        has_zone = getattr(value, "tzinfo", None) is not None
        return isinstance(value, dt.datetime) and has_zone == (field.type.tz is not None)
    return True


def expression(where: Filter, schema: pa.Schema, *, call: str) -> ds.Expression | None:
    """The filter as Arrow evaluates it, None for none; raises as `values_of` does."""
    tests = [_test(test, values_of(test, schema, call=call)) for test in where]
    return functools.reduce(operator.and_, tests) if tests else None


def _test(test: Comparison, values: pa.Array) -> ds.Expression:
    """One comparison; null and NaN satisfy none."""
    column = ds.field(test.column)
    match test.operator:
        case "is":
            return column.is_null()
        case "is not":
            return column.is_valid()
        case "in":
            return is_in(column, values)
        case "not in":
            passed = ~is_in(column, values)
        case _:
            passed = _OPERATORS[test.operator](column, values[0])
    return passed & ~column.is_null(nan_is_null=True)


def is_in(column: ds.Expression, values: pa.Array) -> ds.Expression:
    """Whether a column is among `values`; 0.0 and -0.0, which Arrow tells apart, are equal."""
    if pa.types.is_floating(values.type) and 0.0 in values.to_pylist():
        values = pa.concat_arrays([values, pa.array([0.0, -0.0], values.type)])
    return column.isin(values)


def kept(rows: pa.Table, where: Filter, columns: Sequence[str], *, call: str) -> pa.Table:
    """These columns of the rows that pass."""
    passed = expression(where, rows.schema, call=call)
    return (rows if passed is None else rows.filter(passed)).select(list(columns))


def with_tested(columns: Sequence[str], where: Filter) -> list[str]:
    """The columns to read: those that are wanted, then those that the filter names."""
    return list(dict.fromkeys([*columns, *(test.column for test in where)]))
