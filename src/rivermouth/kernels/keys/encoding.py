"""Keys of any type as numbers and bytes that are equal exactly where the keys are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rivermouth.errors import ConditionError

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_NOTHING = np.empty(0, np.uint8)
_NO_OFFSETS = np.empty(0, np.int64)
_PREFIX = 8  # bytes of a length


@dataclass(frozen=True)
class EncodedKeys:
    """One key a record.

    Parameters
    ----------
    codes
        The key itself where it fits into 64 bits; else a hash of its bytes.
    data, offsets
        The keys' bytes, one after the other, and where each starts; empty where `codes` say all.
    """

    codes: Ints
    data: Bytes = field(default_factory=lambda: _NOTHING)
    offsets: Ints = field(default_factory=lambda: _NO_OFFSETS)

    def __post_init__(self) -> None:
        for array in (self.codes, self.data, self.offsets):
            array.setflags(write=False)  # of one type for numba, wherever they come from

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def nbytes(self) -> int:
        """How many bytes the keys have besides their codes."""
        return int(self.offsets[-1] - self.offsets[0]) if len(self.offsets) else 0


def encode(columns: Sequence[pa.Array]) -> EncodedKeys:
    """The keys made of these columns, none of them null or NaN anywhere.

    One column of numbers, dates, times or booleans is its own code. Strings and binaries are
    their bytes. Several columns become one run of bytes, in which each part that may differ in
    length stands behind its length, so that no two different keys look alike.

    Examples
    --------
    >>> encode([pa.array([3, 1, 3])]).codes.tolist()
    [3, 1, 3]
    >>> both = encode([pa.array(["a", "ab"]), pa.array(["bc", "c"])])
    >>> both.data[both.offsets[0] : both.offsets[1]].tolist()
    [1, 0, 0, 0, 0, 0, 0, 0, 97, 2, 0, 0, 0, 0, 0, 0, 0, 98, 99]
    """
    plain = [_decoded(column) for column in columns]
    if len(plain) == 1:
        number = _as_number(plain[0])
        if number is not None:
            return EncodedKeys(number)
        data, offsets, _ = _as_bytes(plain[0])
    else:
        data, offsets = _NOTHING, np.zeros(len(plain[0]) + 1, np.int64)
        for column in plain:
            more, ends, is_fixed = _as_bytes(column)
            data, offsets = _beside(data, offsets, more, ends, 0 if is_fixed else _PREFIX)
    return EncodedKeys(_hashes(data, offsets), data, offsets)


def _decoded(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _as_number(column: pa.Array) -> Ints | None:
    """64 bits a value, equal where the values are; None for types that need more."""
    kind = column.type
    if pa.types.is_floating(kind):
        values = column.cast(pa.float64()).to_numpy() + 0.0  # -0.0 becomes 0.0
        return np.ascontiguousarray(values).view(np.int64)
    if pa.types.is_boolean(kind):
        return np.asarray(column.cast(pa.int8()), np.int64)
    if not (pa.types.is_integer(kind) or pa.types.is_temporal(kind)):
        return None
    width = kind.bit_width
    if width > 64:  # an interval of months, days and nanoseconds
        return None
    signed = pa.types.is_temporal(kind) or pa.types.is_signed_integer(kind)
    numbers = column.view(getattr(pa, f"{'' if signed else 'u'}int{width}")()).to_numpy()
    return np.asarray(numbers.view(np.int64) if width == 64 else numbers, np.int64)


def _as_bytes(column: pa.Array) -> tuple[Bytes, Ints, bool]:
    """The values' bytes, where each starts, and whether all are of one length."""
    number = _as_number(column)
    if number is not None:
        return _fixed(number.view(np.uint8), 8, len(number))
    kind = column.type
    if pa.types.is_decimal(kind) or pa.types.is_fixed_size_binary(kind):
        width = kind.byte_width
        whole = np.frombuffer(column.buffers()[1], np.uint8)
        return _fixed(whole[column.offset * width :], width, len(column))
    if kind in (pa.string_view(), pa.binary_view()):
        column = column.cast(pa.large_binary())
    elif kind not in (pa.string(), pa.binary(), pa.large_string(), pa.large_binary()):
        raise ConditionError(
            "keys",
            f"keys of type {kind} cannot be kept apart",
            todo="Compare numbers, strings, dates, times, decimals, booleans or binaries.",
        )
    wide = column.type in (pa.large_string(), pa.large_binary())
    _, ends, data = column.buffers()
    offsets = np.frombuffer(ends, np.int64 if wide else np.int32) if ends else np.zeros(1)
    offsets = offsets[column.offset : column.offset + len(column) + 1].astype(np.int64)
    return np.frombuffer(data, np.uint8) if data else _NOTHING, offsets, False


def _fixed(data: Bytes, width: int, count: int) -> tuple[Bytes, Ints, bool]:
    return data, np.arange(count + 1, dtype=np.int64) * width, True


@numba.njit(cache=True)
def _beside(data: Bytes, offsets: Ints, more: Bytes, ends: Ints, prefix: int) -> tuple[Bytes, Ints]:
    """Each key's bytes followed by its part of `more`, behind that part's length if asked."""
    count = len(offsets) - 1
    size = (offsets[-1] - offsets[0]) + (ends[-1] - ends[0]) + count * prefix
    both, starts = np.empty(size, np.uint8), np.empty(count + 1, np.int64)
    at = 0
    for i in range(count):
        starts[i] = at
        for b in range(offsets[i], offsets[i + 1]):
            both[at] = data[b]
            at += 1
        length = ends[i + 1] - ends[i]
        for b in range(prefix):
            both[at] = (length >> (8 * b)) & 255
            at += 1
        for b in range(ends[i], ends[i + 1]):
            both[at] = more[b]
            at += 1
    starts[count] = at
    return both, starts


@numba.njit(cache=True)
def _hashes(data: Bytes, offsets: Ints) -> Ints:
    """A 64-bit hash of each key: eight bytes at a time, stirred as splitmix64 does."""
    codes = np.empty(len(offsets) - 1, np.int64)
    for i in range(len(codes)):
        at, end = offsets[i], offsets[i + 1]
        code = stirred(end - at)
        while at < end:
            block = np.uint64(0)
            for b in range(min(8, end - at)):
                block |= np.uint64(data[at + b]) << np.uint64(8 * b)
            code = stirred(code ^ np.int64(block))
            at += 8
        codes[i] = code
    return codes


@numba.njit(cache=True, inline="always")
def stirred(code: Any) -> Any:
    """A one-to-one map of 64 bits on which near numbers come out far apart (splitmix64)."""
    x = np.uint64(code) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.int64(x ^ (x >> np.uint64(31)))
