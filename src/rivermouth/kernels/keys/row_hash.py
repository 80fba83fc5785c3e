"""One number for the values of a row's key columns: equal where the values are, in any process."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rivermouth.kernels.keys.dictionaries import mixed_numbers, mixed_texts
from rivermouth.kernels.keys.values import are_bytes, decoded, numbers, texts
from rivermouth.kernels.spatial.geometry import Bools

Ints = npt.NDArray[np.int64]


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
        mixed = mixed_numbers(mixed ^ _code(column)).view(np.int64)
    return mixed


def _code(column: pa.Array) -> Ints:
    if _as_bytes(column.type):
        return mixed_texts(*texts(column)).view(np.int64)
    return numbers(column, column.type)[0]


def same(one: Sequence[pa.Array], rows: Ints, other: Sequence[pa.Array], other_rows: Ints) -> Bools:
    """Whether rows paired by their codes have equal keys."""
    equal = np.ones(len(rows), dtype=bool)
    for left, right in zip(map(decoded, one), map(decoded, other), strict=True):
        if _as_bytes(left.type):
            kind = pa.decimal256(76, 38) if pa.types.is_decimal(left.type) else pa.large_binary()
            asked, held = left.take(pa.array(rows)), right.take(pa.array(other_rows))
            alike = pc.equal(asked.cast(kind), held.cast(kind)).fill_null(False)
            equal &= alike.to_numpy(zero_copy_only=False)
        else:
            asked, held = numbers(left, left.type)[0], numbers(right, right.type)[0]
            equal &= asked[rows] == held[other_rows]
    return equal


def _as_bytes(kind: pa.DataType) -> bool:
    """Decimals, too: as bytes of the widest they do not depend on their scale."""
    return are_bytes(kind) or pa.types.is_decimal(kind)
