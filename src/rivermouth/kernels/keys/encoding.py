"""Keys of one or several columns as one code each, and bytes that tell equal codes apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numba
import numpy as np
import pyarrow as pa

from rivermouth.kernels.arrays import Bytes, Ints
from rivermouth.kernels.keys.values import are_bytes, decoded, key_bytes, key_ints, raw_bytes

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
    data: Bytes = field(default_factory=lambda: np.empty(0, np.uint8))
    offsets: Ints = field(default_factory=lambda: np.empty(0, np.int64))

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

    One column of numbers, dates, times or booleans is its own code. Strings, binaries and decimals
    are their bytes. Several columns become one run of bytes, in which each part that may differ in
    length stands behind its length, so that no two different keys look alike.

    Examples
    --------
    >>> encode([pa.array([3, 1, 3])]).codes.tolist()
    [3, 1, 3]
    >>> both = encode([pa.array(["a", "ab"]), pa.array(["bc", "c"])])
    >>> both.data[both.offsets[0] : both.offsets[1]].tolist()
    [1, 0, 0, 0, 0, 0, 0, 0, 97, 2, 0, 0, 0, 0, 0, 0, 0, 98, 99]
    """
    plain = [decoded(column) for column in columns]
    if len(plain) == 1 and not (are_bytes(plain[0].type) or pa.types.is_decimal(plain[0].type)):
        return EncodedKeys(key_ints(plain[0], plain[0].type)[0])
    data, offsets, _ = _as_bytes(plain[0])
    if len(plain) > 1:
        data, offsets = data[:0], np.zeros(len(offsets), np.int64)
        for column in plain:
            data, offsets = _beside(data, offsets, *_as_bytes(column))
    return EncodedKeys(_hashes(data, offsets), data, offsets)


def _as_bytes(column: pa.Array) -> tuple[Bytes, Ints, int]:
    """The values' bytes, where each starts, and how many bytes of a length they need before them.

    Decimals are of one type here, and so need not be of the widest.
    """
    kind, width = column.type, 8
    if pa.types.is_decimal(kind):
        data, width = raw_bytes(column), kind.byte_width
    elif are_bytes(kind):
        offsets, data = key_bytes(column)
        return data, offsets, _PREFIX
    else:
        data = key_ints(column, kind)[0].view(np.uint8)
    return data, np.arange(len(column) + 1) * width, 0


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
    """A 64-bit hash of each key, eight bytes at a time."""
    codes = np.empty(len(offsets) - 1, np.int64)
    for i in range(len(codes)):
        at, end = offsets[i], offsets[i + 1]
        code = splitmix64(end - at)
        while at < end:
            block = np.uint64(0)
            for b in range(min(8, end - at)):
                block |= np.uint64(data[at + b]) << np.uint64(8 * b)
            code = splitmix64(code ^ np.int64(block))
            at += 8
        codes[i] = code
    return codes


@numba.njit(cache=True, inline="always")
def splitmix64(code: Any) -> Any:
    """A one-to-one map of 64 bits on which near numbers come out far apart."""
    x = np.uint64(code) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.int64(x ^ (x >> np.uint64(31)))
