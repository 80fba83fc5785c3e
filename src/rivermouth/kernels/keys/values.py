"""Columns as numbers or bytes that are equal where the column's values are.

What a column is turned into depends on the *table's* type; an event's column is brought to the
same form, so that 1.5 of any precision and scale, or an instant in any unit, meet each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rivermouth.errors import ConditionError
from rivermouth.kernels.spatial.geometry import Bools, Floats

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

#: digits that any int64 can hold
DIGITS = 18
# wide enough for every decimal of 38 digits at every scale, so that equal ones have equal bytes
_WIDEST = pa.decimal256(76, 38)


def missing(columns: Sequence[pa.Array]) -> Bools:
    """Rows in which a value is null or NaN, so that they equal nothing."""
    found = np.zeros(len(columns[0]), dtype=bool)
    for column in map(decoded, columns):
        if column.null_count or pa.types.is_floating(column.type):
            found |= pc.is_null(column, nan_is_null=True).to_numpy(zero_copy_only=False)
    return found


def decoded(column: pa.Array) -> pa.Array:
    """The column with its values side by side, not behind a dictionary or views."""
    if pa.types.is_dictionary(column.type):
        return decoded(column.dictionary_decode())
    is_view = pa.types.is_string_view(column.type) or pa.types.is_binary_view(column.type)
    return column.cast(pa.large_binary()) if is_view else column


def are_bytes(kind: pa.DataType) -> bool:
    """Whether a column of this type is compared as bytes; if not, as whole numbers."""
    return _is_text(kind) or (pa.types.is_decimal(kind) and kind.precision > DIGITS)


def numbers(column: pa.Array, kind: pa.DataType) -> tuple[Ints, Bools | None]:
    """The column as whole numbers, in the way of a table's column of `kind`.

    Where the second array is false the value cannot be written in that way, so that it equals
    nothing there; None: all can. What stands for null is undefined.
    """
    if pa.types.is_decimal(kind):
        return _at_scale(column, kind.scale)
    if pa.types.is_floating(kind):
        # adding zero makes -0.0 and 0.0 the same bits
        return (reals(column) + 0.0).view(np.int64), None
    return whole(column), None


def whole(column: pa.Array) -> Ints:
    """Integers, booleans, days of dates or microseconds of times; undefined where null."""
    kind = column.type
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", kind.tz), safe=False).view(pa.int64())
    elif pa.types.is_date(kind):
        column = column.cast(pa.date32()).view(pa.int32())
    elif pa.types.is_boolean(kind):
        column = column.cast(pa.int8())
    elif not pa.types.is_integer(kind) and not pa.types.is_null(kind):
        raise ConditionError(
            "on",
            f"a column of type {kind} cannot be looked up",
            todo="Compare numbers, strings, bytes, dates or times, or cast it to one of them.",
        )
    places: Ints = _raw(column.cast(pa.int64()), np.int64)
    return places


def reals(column: pa.Array) -> Floats:
    """Numbers as doubles; undefined where null."""
    doubles: Floats = _raw(column.cast(pa.float64()), np.float64)
    return doubles


def texts(column: pa.Array) -> tuple[Ints, Bytes]:
    """The column as bytes: where each value starts (and the last one ends), and all of them."""
    if pa.types.is_decimal(column.type):
        column = column.cast(_WIDEST)
        width = _WIDEST.bit_width // 8
        return np.arange(len(column) + 1) * width, _words(column).view(np.uint8).ravel()
    column = column.cast(pa.large_binary())
    if not len(column):
        return np.zeros(1, np.int64), np.empty(0, np.uint8)
    _, offsets, data = column.buffers()
    starts = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
    return starts, np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8)


def decimal_words(column: pa.Array) -> Ints:
    """Decimals of 128 bits as two numbers each, the lower first."""
    return np.ascontiguousarray(_raw(column, np.int64, width=2))


def unscaled(column: pa.Array) -> npt.NDArray[np.object_]:
    """Decimals without their point, as Python's integers."""
    words = _words(column.cast(pa.decimal256(76, column.type.scale)))
    high = words[:, 3].astype(object)
    for word in (2, 1, 0):
        high = high * 2**64 + words[:, word].view(np.uint64).astype(object)
    return high


def _at_scale(column: pa.Array, scale: int) -> tuple[Ints, Bools | None]:
    """Decimals times ten to the power of `scale`, and which of them are whole numbers then."""
    kind = column.type
    if pa.types.is_decimal128(kind) and kind.precision <= DIGITS and kind.scale == scale:
        return np.ascontiguousarray(_raw(column, np.int64, width=2)[:, 0]), None
    own = column.cast(_WIDEST)
    there = own.cast(pa.decimal256(76, scale), safe=False)
    exact = pc.equal(there.cast(_WIDEST), own).fill_null(False).to_numpy(zero_copy_only=False)
    words = _words(there)
    short = (words[:, 1:] == (words[:, :1] >> 63)).all(axis=1)
    return np.ascontiguousarray(words[:, 0]), exact & short


def _words(column: pa.Array) -> Ints:
    """Decimals of 256 bits as four numbers each, the lowest first."""
    words: Ints = _raw(column, np.int64, width=4)
    return words


def _raw(column: pa.Array, kind: Any, width: int = 1) -> Any:
    """A column's numbers as they lie in memory, whatever stands where they are null."""
    buffer = column.buffers()[1]
    if buffer is None:
        return np.zeros((len(column), width) if width > 1 else len(column), kind)
    found = np.frombuffer(buffer, kind)
    found = found.reshape(-1, width) if width > 1 else found
    return found[column.offset : column.offset + len(column)]


def _is_text(kind: pa.DataType) -> bool:
    return any(
        test(kind)
        for test in (
            pa.types.is_string, pa.types.is_large_string, pa.types.is_binary,
            pa.types.is_large_binary, pa.types.is_fixed_size_binary,
        )
    )  # fmt: skip
