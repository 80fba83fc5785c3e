"""A filter against a table's columns: each value in the type of the column it is compared with."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa

from rivermouth.errors import ColumnError, did_you_mean
from rivermouth.spec.filters import Comparison, Filter
from rivermouth.tables.source import srid_of


def check_filter(where: Filter, schema: pa.Schema, *, call: str) -> None:
    """Raise a `ColumnError` unless every comparison makes sense of its column."""
    for test in where:
        values_of(test, schema, call=call)


def values_of(test: Comparison, schema: pa.Schema, *, call: str) -> pa.Array:
    """What the column is compared with, in the column's type; of no length for "is"."""
    if test.column not in schema.names:
        raise ColumnError(
            call,
            f"where names column {test.column!r}, which is not there",
            there=f"the columns are {sorted(schema.names)}",
            todo=did_you_mean(test.column, schema.names) or "Name one of these.",
        )
    field = schema.field(test.column)
    given = test.value if isinstance(test.value, tuple) else (test.value,)
    values = [] if test.value is None else list(given)
    try:
        if not all(_is_meant(value, field) for value in values):
            raise pa.ArrowInvalid("of another kind")
        return pa.array(values, field.type)
    except (pa.ArrowException, OverflowError, ValueError, TypeError):
        kind = "a geometry" if srid_of(field) is not None else field.type
        raise ColumnError(
            call,
            f"where compares column {test.column!r}, which is {kind}, with {test.value!r}",
            todo="Give a value of that type; cast the column in a view for any other.",
        ) from None


def _is_meant(value: Any, field: pa.Field) -> bool:
    """Whether Arrow would take `value` for what its writer meant."""
    if srid_of(field) is not None:
        return False
    kind = field.type
    if isinstance(value, bool) != pa.types.is_boolean(kind):
        return False
    if isinstance(value, bytes):
        return not pa.types.is_string(kind)
    if pa.types.is_integer(kind):
        return isinstance(value, int)
    if pa.types.is_timestamp(kind):
        has_zone = getattr(value, "tzinfo", None) is not None
        return isinstance(value, dt.datetime) and has_zone == (kind.tz is not None)
    return True
