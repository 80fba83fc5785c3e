"""Values in one normal form: numbers or bytes that are equal exactly where the values are.

Every index, hash and range of keys is built on this. Values of one family (`family`) can be
compared whatever their width, unit or scale; a column is brought to the form of the *table's*
type, so that 1.5 of any precision and scale, or an instant in any unit, equal each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rivermouth.errors import ConditionError
from rivermouth.kernels.arrays import Bools, Bytes, Floats, Ints

#: digits that any int64 can hold
DIGITS = 18
#: holds every decimal of 38 digits at every scale, so that equal ones have equal bytes
WIDEST = pa.decimal256(76, 38)

#: family -> whether a type belongs to it, and the type that holds all of its values (None: any)
_FAMILIES: dict[str, tuple[Callable[[pa.DataType], bool], pa.DataType | None]] = {
    "integer": (pa.types.is_integer, pa.int64()),
    "float": (pa.types.is_floating, pa.float64()),
    "decimal": (pa.types.is_decimal, None),
    "boolean": (pa.types.is_boolean, pa.bool_()),
    "date": (pa.types.is_date, pa.date32()),
    "timestamp": (lambda kind: pa.types.is_timestamp(kind) and not kind.tz, pa.timestamp("us")),
    "zoned timestamp": (pa.types.is_timestamp, pa.timestamp("us", "UTC")),
    "string": (
        lambda kind: kind in (pa.string(), pa.large_string(), pa.string_view()), pa.string(),
    ),
    "binary": (
        lambda kind: kind in (pa.binary(), pa.large_binary(), pa.binary_view())
        or pa.types.is_fixed_size_binary(kind), pa.binary(),
    ),
}  # fmt: skip


def family(kind: pa.DataType) -> str:
    """The name of the types that values of `kind` can be compared with; "" where there are none.

    Examples
    --------
    >>> family(pa.int8()), family(pa.large_string()), family(pa.list_(pa.int8()))
    ('integer', 'string', '')
    """
    return next((name for name, (is_one, _) in _FAMILIES.items() if is_one(kind)), "")


def widest(kind: pa.DataType) -> pa.DataType:
    """The type that holds all values of the family of `kind`; decimals stay as they are."""
    return _FAMILIES[family(kind)][1] or kind


def missing(columns: Sequence[pa.Array]) -> Bools:
    """Rows in which a value is null or NaN, so that they equal nothing."""
    found = np.zeros(len(columns[0]), dtype=bool)
    for column in map(decoded, columns):
        if column.null_count or pa.types.is_floating(column.type):
            found |= pc.is_null(column, nan_is_null=True).to_numpy(zero_copy_only=False)
    return found


def decoded(column: pa.Array) -> pa.Array:
    """The column without a dictionary or views."""
    if pa.types.is_dictionary(column.type):
        return decoded(column.dictionary_decode())
    is_view = column.type in (pa.string_view(), pa.binary_view())
    return column.cast(pa.large_binary()) if is_view else column


def are_bytes(kind: pa.DataType) -> bool:
    """Whether a column of this type is compared as bytes; if not, as integers."""
    is_wide = pa.types.is_decimal(kind) and kind.precision > DIGITS
    return is_wide or family(kind) in ("string", "binary")


def key_ints(column: pa.Array, kind: pa.DataType) -> tuple[Ints, Bools | None]:
    """The column as integers, in the form of a table's column of `kind`; undefined where null.

    Where the second array is false the value has no such form, and so equals nothing there;
    None: all have one.
    """
    if pa.types.is_decimal(kind):
        return _at_scale(column, kind.scale)
    if pa.types.is_floating(kind):
        return (floats(column) + 0.0).view(np.int64), None  # -0.0 becomes 0.0
    return ints(column), None


def ints(column: pa.Array) -> Ints:
    """Integers, booleans, days of dates or microseconds of timestamps; undefined where null.

    Times of day and durations count in their own unit.
    """
    kind = column.type
    match family(kind):
        case "timestamp" | "zoned timestamp":
            column = column.cast(pa.timestamp("us", kind.tz), safe=False).view(pa.int64())
        case "date":
            column = column.cast(pa.date32()).view(pa.int32())
        case "boolean":
            column = column.cast(pa.int8())
        case "" if pa.types.is_time(kind) or pa.types.is_duration(kind):
            column = column.view(pa.int64() if kind.bit_width == 64 else pa.int32())
        case other if other != "integer" and not pa.types.is_null(kind):
            raise ConditionError(
                "on",
                f"a column of type {kind} cannot be looked up",
                todo="Compare numbers, strings, bytes, dates or times, or cast it to one of them.",
            )
    values: Ints = _buffer(column.cast(pa.int64()), np.int64)
    return values


def floats(column: pa.Array) -> Floats:
    """Numbers as doubles; undefined where null."""
    values: Floats = _buffer(column.cast(pa.float64()), np.float64)
    return values


def key_bytes(column: pa.Array) -> tuple[Ints, Bytes]:
    """The column as bytes: where each value starts (and the last one ends), and all of them."""
    if pa.types.is_decimal(column.type):
        width = WIDEST.byte_width
        words = _buffer(column.cast(WIDEST), np.uint8, width)
        return np.arange(len(column) + 1) * width, words.ravel()
    column = column.cast(pa.large_binary())
    if not len(column):
        return np.zeros(1, np.int64), np.empty(0, np.uint8)
    _, offsets, data = column.buffers()
    starts = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
    return starts, np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8)


def raw_bytes(column: pa.Array) -> Bytes:
    """Values of one width as they lie in memory, one after the other."""
    raw: Bytes = _buffer(column, np.uint8, column.type.byte_width).ravel()
    return raw


def decimal_words(column: pa.Array) -> Ints:
    """Decimals of 128 bits as two numbers each, the lower first."""
    return np.ascontiguousarray(_buffer(column, np.int64, 2))


def unscaled(column: pa.Array) -> Any:
    """Decimals without their point, as Python's integers."""
    words = _buffer(column.cast(pa.decimal256(76, column.type.scale)), np.int64, 4)
    return big_ints(words)


def big_ints(words: Ints) -> Any:
    """Integers of several words each, the lowest first, as Python's."""
    value = words[:, -1].astype(object)
    for word in range(words.shape[1] - 2, -1, -1):
        value = value * 2**64 + np.ascontiguousarray(words[:, word]).view(np.uint64).astype(object)
    return value


def _at_scale(column: pa.Array, scale: int) -> tuple[Ints, Bools | None]:
    """Decimals times ten to the power of `scale`, and which of them are int64 then."""
    kind = column.type
    if pa.types.is_decimal128(kind) and kind.precision <= DIGITS and kind.scale == scale:
        return np.ascontiguousarray(_buffer(column, np.int64, 2)[:, 0]), None
    own = column.cast(WIDEST)
    rescaled = own.cast(pa.decimal256(76, scale), safe=False)
    is_exact = pc.equal(rescaled.cast(WIDEST), own).fill_null(False).to_numpy(zero_copy_only=False)
    words = _buffer(rescaled, np.int64, 4)
    is_short = (words[:, 1:] == (words[:, :1] >> 63)).all(axis=1)
    return np.ascontiguousarray(words[:, 0]), is_exact & is_short


def _buffer(column: pa.Array, kind: Any, width: int = 1) -> Any:
    """A column's values as they lie in memory, whatever stands where they are null."""
    buffer = column.buffers()[1]
    if buffer is None:
        return np.zeros((len(column), width) if width > 1 else len(column), kind)
    found = np.frombuffer(buffer, kind)
    found = found.reshape(-1, width) if width > 1 else found
    return found[column.offset : column.offset + len(column)]
