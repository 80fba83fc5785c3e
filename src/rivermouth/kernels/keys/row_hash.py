"""One number for a row's key columns: equal where the keys are, in every process."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rivermouth.kernels.arrays import Bools, Ints
from rivermouth.kernels.keys.dictionaries import hash_bytes, hash_ints
from rivermouth.kernels.keys.values import WIDEST, are_bytes, decoded, key_bytes, key_ints


def codes(columns: Sequence[pa.Array]) -> Ints:
    """A code per row. Rows of different keys may share one; see `same`.

    Columns of one family (all integers, all decimals, ...) give the same code for the same
    value. What stands for a null or NaN key is undefined.

    Examples
    --------
    >>> one, other = codes([pa.array([7, 8], pa.int16())]), codes([pa.array([8, 7], pa.int64())])
    >>> bool(one[0] == other[1]), bool(one[0] == other[0])
    (True, False)
    """
    mixed = np.zeros(len(columns[0]), np.int64)
    for column in map(decoded, columns):
        is_bytes = _is_hashed_as_bytes(column.type)
        code = hash_bytes(*key_bytes(column)).view(np.int64) if is_bytes else _ints(column)
        mixed = hash_ints(mixed ^ code).view(np.int64)
    return mixed


def same(one: Sequence[pa.Array], rows: Ints, other: Sequence[pa.Array], other_rows: Ints) -> Bools:
    """Whether rows paired by their codes have equal keys."""
    equal = np.ones(len(rows), dtype=bool)
    for left, right in zip(map(decoded, one), map(decoded, other), strict=True):
        if _is_hashed_as_bytes(left.type):
            kind = WIDEST if pa.types.is_decimal(left.type) else pa.large_binary()
            ours, theirs = left.take(pa.array(rows)), right.take(pa.array(other_rows))
            alike = pc.equal(ours.cast(kind), theirs.cast(kind)).fill_null(False)
            equal &= alike.to_numpy(zero_copy_only=False)
        else:
            equal &= _ints(left)[rows] == _ints(right)[other_rows]
    return equal


def _ints(column: pa.Array) -> Ints:
    return key_ints(column, column.type)[0]


def _is_hashed_as_bytes(kind: pa.DataType) -> bool:
    """Decimals are, all of them: as bytes of the widest type they do not depend on their scale."""
    return are_bytes(kind) or pa.types.is_decimal(kind)
