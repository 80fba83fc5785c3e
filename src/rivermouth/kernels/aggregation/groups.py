"""Rows put into groups: equal keys get one number.

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

from rivermouth.kernels.keys.encoding import encode, stirred

Ints = npt.NDArray[np.int64]

_MOST = 1 << 62
_SPARSE = 4  # up to so many times as many numbers as rows are told apart by a table, not by sorting


@dataclass(frozen=True)
class Groups:
    """The number of each row's group, and the first row of each group."""

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
        encoded = pc.dictionary_encode(plain(column), null_encoding="encode")
        if many * max(1, len(encoded.dictionary)) > _MOST:
            code, first = dense(code, many)
            many = len(first)
        code = code * len(encoded.dictionary) + encoded.indices.to_numpy()
        many *= max(1, len(encoded.dictionary))
    return Groups(*dense(code, many))


def dense(code: Ints, bound: int) -> tuple[Ints, Ints]:
    """Numbers below `bound` as numbers without gaps, in order; and the first row of each.

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
    """Which of `count` buckets each row belongs to: the same for equal keys, here and everywhere.

    Without columns all rows belong to the first.
    """
    mixed = np.zeros(rows, np.int64)
    for column in columns:
        encoded = pc.dictionary_encode(plain(column), null_encoding="encode")
        mixed = _stir(mixed, _hashes(encoded.dictionary)[encoded.indices.to_numpy()])
    return (mixed.view(np.uint64) % np.uint64(count)).astype(np.int32)


def _hashes(values: pa.Array) -> Ints:
    """A hash of each value; of null one of its own."""
    hashes = np.full(len(values), -1, np.int64)
    there = values.is_valid().to_numpy(zero_copy_only=False)
    hashes[there] = encode([values.drop_null()]).codes
    return hashes


@numba.njit(cache=True)
def _stir(mixed: Ints, more: Ints) -> Ints:
    stirred_ones = np.empty(len(mixed), np.int64)
    for k in range(len(mixed)):
        stirred_ones[k] = stirred(mixed[k] ^ stirred(more[k]))
    return stirred_ones


def plain(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The column in one piece, whose equal keys have equal bits."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not pa.types.is_floating(column.type):
        return column
    column = pc.add(column, pa.scalar(0, column.type))  # -0.0 becomes 0.0
    return pc.if_else(pc.is_nan(column), pa.scalar(float("nan"), column.type), column)
