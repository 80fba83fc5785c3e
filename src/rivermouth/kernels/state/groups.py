"""Rows put into groups: equal keys get one code.

As in Spark's GROUP BY null is a key like others, NaN equals NaN, and -0.0 equals 0.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rivermouth.kernels.arrays import Ints
from rivermouth.kernels.keys.encoding import encode, splitmix64

_MOST = 1 << 62
_SPARSE = 4  # codes up to so many times the rows are made dense by a table, not by sorting


@dataclass(frozen=True)
class Groups:
    """The code of each row's group, and the first row of each group."""

    code: Ints
    first: Ints

    def __len__(self) -> int:
        return len(self.first)


def group(columns: Sequence[pa.Array], rows: int) -> Groups:
    """The groups of rows that are equal in all `columns`; without columns there is one.

    Examples
    --------
    >>> group([pa.array(["a", None, "a", None]), pa.array([1, 1, 2, 1])], 4)
    Groups(code=array([0, 2, 1, 2]), first=array([0, 2, 1]))
    """
    code, many = np.zeros(rows, np.int64), 1
    for column in columns:
        encoded = pc.dictionary_encode(normalized(column), null_encoding="encode")
        if many * max(1, len(encoded.dictionary)) > _MOST:
            code, first = dense(code, many)
            many = len(first)
        code = code * len(encoded.dictionary) + encoded.indices.to_numpy()
        many *= max(1, len(encoded.dictionary))
    return Groups(*dense(code, many))


def dense(code: Ints, bound: int) -> tuple[Ints, Ints]:
    """Codes below `bound` as codes without gaps, in order; and the first row of each.

    Examples
    --------
    >>> dense(np.array([7, 0, 7]), 100)
    (array([1, 0, 1]), array([1, 0]))
    """
    if bound <= _SPARSE * len(code) + 1024:
        return _dense(code, bound)
    _, first, number = np.unique(code, return_index=True, return_inverse=True)
    return number.astype(np.int64), first.astype(np.int64)


@numba.njit(cache=True)
def _dense(code: Ints, bound: int) -> tuple[Ints, Ints]:
    seen, first = np.full(bound, -1, np.int64), np.empty(len(code), np.int64)
    for k in range(len(code) - 1, -1, -1):
        seen[code[k]] = k
    count = 0
    for value in range(bound):
        if seen[value] >= 0:
            first[count] = seen[value]
            seen[value] = count
            count += 1
    number = np.empty(len(code), np.int64)
    for k in range(len(code)):
        number[k] = seen[code[k]]
    return number, first[:count].copy()


def buckets(columns: Sequence[pa.Array], rows: int, count: int) -> npt.NDArray[np.int32]:
    """Which of `count` buckets each row belongs to: the same for equal keys, in every process.

    Without columns all rows belong to the first. Checkpoints rely on it: a key keeps its bucket.
    """
    hashes = np.zeros(rows, np.int64)
    for column in columns:
        encoded = pc.dictionary_encode(normalized(column), null_encoding="encode")
        keys = np.full(len(encoded.dictionary), -1, np.int64)  # of null, a key of its own
        valid = encoded.dictionary.is_valid().to_numpy(zero_copy_only=False)
        keys[valid] = encode([encoded.dictionary.drop_null()]).codes
        hashes = _mix(hashes, keys[encoded.indices.to_numpy()])
    return (hashes.view(np.uint64) % np.uint64(count)).astype(np.int32)


@numba.njit(cache=True)
def _mix(hashes: Ints, keys: Ints) -> Ints:
    mixed = np.empty(len(hashes), np.int64)
    for k in range(len(hashes)):
        mixed[k] = splitmix64(hashes[k] ^ splitmix64(keys[k]))
    return mixed


def normalized(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The column as one array, whose equal keys have equal bits."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not pa.types.is_floating(column.type):
        return column
    column = pc.add(column, pa.scalar(0, column.type))  # -0.0 becomes 0.0
    return pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), column.type), column)
