"""Spark's own hash of a row of keys, so that a table is partitioned as Spark routes the events.

``hash(...)`` in Spark SQL is 32-bit Murmur3 with the seed 42; each column's hash is the seed of the
next, and null leaves it as it is. Values are first brought to one type a family (see `hashes`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rivermouth.kernels.arrays import Bools, Bytes, Codes, Ints
from rivermouth.kernels.keys.values import (
    decimal_words,
    decoded,
    family,
    floats,
    ints,
    key_bytes,
)

Hashes = npt.NDArray[np.uint32]
Word = Any  # numba's uint32

_SEED = 42
_FIRST, _SECOND, _ADDED = np.uint32(0xCC9E2D51), np.uint32(0x1B873593), np.uint32(0xE6546B64)
_FOLD, _MIX = np.uint32(0x85EBCA6B), np.uint32(0xC2B2AE35)
_WIDE = 38  # digits of the decimals that are compared


def buckets(columns: Sequence[pa.Array], count: int) -> Codes:
    """The bucket of each row, of `count`: ``pmod(hash(...), count)``.

    Equal keys share one, whatever types of a family they are in; where a key is null or NaN, and
    so equal to nothing, it is any.

    Examples
    --------
    >>> buckets([pa.array([1, 2, None]), pa.array(["a", "b", "c"])], 8)
    array([1, 7, 2], dtype=int32)
    """
    return (hashes(columns).view(np.int32) % count).astype(np.int32)


def hashes(columns: Sequence[pa.Array]) -> Hashes:
    """The hash of each row.

    Whole numbers are hashed as long, floats as double without -0.0, text as its bytes, decimals as
    ones of 38 digits, times as microseconds.
    """
    found = np.full(len(columns[0]), _SEED, np.uint32)
    for column in map(decoded, columns):
        if not pa.types.is_null(column.type):
            _add(column, column.is_valid().to_numpy(zero_copy_only=False), found)
    return found


def _add(column: pa.Array, there: Bools, found: Hashes) -> None:
    match family(column.type):
        case "decimal":
            wide = column.cast(pa.decimal128(_WIDE, column.type.scale))
            _add_decimals(decimal_words(wide), there, found)
        case "float":
            # what stands for null is looked at, too, and may be anything
            _add_longs((floats(pc.fill_null(column, 0)) + 0.0).view(np.int64), there, found)
        case "date" | "boolean":
            _add_ints(ints(column), there, found)
        case "string" | "binary":
            _add_bytes(*key_bytes(column), there, found)
        case _:
            _add_longs(ints(column), there, found)


# numba computes with 64 bits: what is beyond 32 is cut off after every step


@numba.njit(cache=True, inline="always")
def _turned(word: Word, bits: int) -> Word:
    return np.uint32((word << np.uint32(bits)) | (np.uint32(word) >> np.uint32(32 - bits)))


@numba.njit(cache=True, inline="always")
def _mixed(word: Word, state: Word) -> Word:
    """The state after four more bytes."""
    word = np.uint32(np.uint32(word) * _FIRST)
    word = np.uint32(_turned(word, 15) * _SECOND)
    return np.uint32(_turned(np.uint32(state ^ word), 13) * np.uint32(5) + _ADDED)


@numba.njit(cache=True, inline="always")
def _ended(state: Word, length: int) -> Word:
    """The hash, after the last of so many bytes."""
    state = np.uint32(state ^ np.uint32(length))
    state = np.uint32((state ^ (state >> np.uint32(16))) * _FOLD)
    state = np.uint32((state ^ (state >> np.uint32(13))) * _MIX)
    return np.uint32(state ^ (state >> np.uint32(16)))


@numba.njit(cache=True)
def _add_ints(values: Ints, there: Bools, found: Hashes) -> None:
    for k in range(len(values)):
        if there[k]:
            found[k] = _ended(_mixed(np.uint32(values[k]), found[k]), 4)


@numba.njit(cache=True)
def _add_longs(values: Ints, there: Bools, found: Hashes) -> None:
    for k in range(len(values)):
        if there[k]:
            value = np.uint64(values[k])
            state = _mixed(np.uint32(value & np.uint64(0xFFFFFFFF)), found[k])
            found[k] = _ended(_mixed(np.uint32(value >> np.uint64(32)), state), 8)


@numba.njit(cache=True)
def _of_bytes(data: Bytes, start: int, stop: int, state: Word) -> Word:
    """Spark's way with bytes: those that fill no word count as a signed word each."""
    length = stop - start
    while start + 4 <= stop:
        word = np.uint32(0)
        for b in range(4):
            word |= np.uint32(data[start + b]) << np.uint32(8 * b)
        state = _mixed(word, state)
        start += 4
    for at in range(start, stop):
        state = _mixed(np.uint32(np.int32(np.int8(data[at]))), state)
    return _ended(state, length)


@numba.njit(cache=True)
def _add_bytes(offsets: Ints, data: Bytes, there: Bools, found: Hashes) -> None:
    for k in range(len(there)):
        if there[k]:
            found[k] = _of_bytes(data, offsets[k], offsets[k + 1], found[k])


@numba.njit(cache=True)
def _add_decimals(words: Ints, there: Bools, found: Hashes) -> None:
    """The unscaled number's bytes, highest first, as few as show its sign."""
    data = np.empty(16, np.uint8)
    for k in range(len(there)):
        if not there[k]:
            continue
        for b in range(8):
            shift = np.uint64(8 * (7 - b))
            data[b] = (np.uint64(words[k, 1]) >> shift) & np.uint64(0xFF)
            data[8 + b] = (np.uint64(words[k, 0]) >> shift) & np.uint64(0xFF)
        sign = 0xFF if data[0] >= 0x80 else 0
        start = 0
        while start < 15 and data[start] == sign and (data[start + 1] >= 0x80) == (sign != 0):
            start += 1
        found[k] = _of_bytes(data, start, 16, found[k])
