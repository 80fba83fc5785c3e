"""The arrays that kernels take and give; a counting sort, runs of numbers, and sets of rows."""

from __future__ import annotations

import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rivermouth.errors import StateError

Bools = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Codes = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_OFFSETS = 2**31 - 1  # bytes that a 32-bit offset reaches
Shapes = npt.NDArray[np.object_]


@numba.njit(cache=True)
def stable_order(values: npt.NDArray[np.integer], bound: int) -> tuple[Ints, Ints]:
    """The order that sorts `values`, all in [0, bound), and where each value starts in it.

    Equal values keep their order.

    Examples
    --------
    >>> stable_order(np.array([2, 0, 2, 1]), 3)
    (array([1, 3, 0, 2]), array([0, 1, 2, 4]))
    """
    start = np.zeros(bound + 1, np.int64)
    for value in values:
        start[value + 1] += 1
    for value in range(bound):
        start[value + 1] += start[value]
    at = start[:-1].copy()
    order = np.empty(len(values), np.int64)
    for k in range(len(values)):
        order[at[values[k]]] = k
        at[values[k]] += 1
    return order, start


def packed_bits(flags: Bools) -> Bytes:
    """A set of rows as one bit a row, so that it can be kept and mapped.

    Examples
    --------
    >>> bits = packed_bits(np.array([True, False, True]))
    >>> has_bit(bits, np.array([0, 1, 2]))
    array([ True, False,  True])
    """
    return np.packbits(flags, bitorder="little")


def has_bit(bits: Bytes, rows: npt.NDArray[np.integer]) -> Bools:
    """Whether each of these rows is in a set that `packed_bits` made."""
    return np.asarray((bits[rows >> 3] >> (rows & 7).astype(np.uint8)) & 1, dtype=bool)


def with_bits(bits: Bytes, rows: npt.NDArray[np.integer]) -> Bytes:
    """The set with these rows, too."""
    more = np.array(bits)
    np.bitwise_or.at(more, rows >> 3, (1 << (rows & 7)).astype(np.uint8))
    return more


def ranges(first: Ints, end: Ints) -> tuple[Ints, Ints]:
    """The numbers from each `first` to before its `end`, and where each run of them starts.

    Examples
    --------
    >>> ranges(np.array([3, 9]), np.array([5, 10]))
    (array([3, 4, 9]), array([0, 2, 3]))
    """
    start = np.concatenate([[0], np.cumsum(end - first)])
    shift = np.repeat(first - start[:-1], end - first)
    return np.arange(start[-1]) + shift, start


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """The rows of a join of streams as one batch.

    Raises
    ------
    StateError
        Where a column of texts or shapes has more bytes than Arrow's 32-bit offsets reach: the rows
        would be several batches.
    """
    for field, column in zip(table.schema, table.columns, strict=True):
        if column.nbytes > _OFFSETS and not pa.types.is_primitive(field.type):
            raise StateError(
                "join",
                f"one bucket holds more than 2 GiB of column {field.name!r} at once",
                there=f"{table.num_rows:,} rows of {column.nbytes:,} bytes",
                todo="Leave the column out, or take more buckets=, which in a stream needs another "
                "checkpoint.",
            )
    batches = table.combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=table.schema)
