"""Values with their sizes before them, as PostgreSQL's binary forms have them, found in one walk.

An array's elements and the fields of COPY's rows are written alike: four bytes of size, the most
significant first, then the value; a size of -1 is a null. Rows of COPY have two bytes before
their fields.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from rivermouth.kernels.arrays import Bytes, Ints


@numba.njit(cache=True, nogil=True)
def locate(data: Bytes, head: int, columns: int, rows: int) -> tuple[Ints, Ints]:
    """Where each value starts and how long it is, by column; -1 for null.

    Gives two arrays of shape (columns, rows). `head` is the number of bytes before each row.
    """
    starts = np.empty((columns, rows), np.int64)
    sizes = np.empty((columns, rows), np.int64)
    at = 0
    for row in range(rows):
        at += head
        for column in range(columns):
            size = 0
            for byte in range(4):
                size = (size << 8) | data[at + byte]
            at += 4
            if size > 0x7FFFFFFF:
                size = -1
            starts[column, row] = at
            sizes[column, row] = size
            if size > 0:
                at += size
    return starts, sizes


@numba.njit(cache=True, nogil=True)
def gather(data: Bytes, starts: Ints, sizes: Ints, width: int) -> Bytes:
    """Values of one width side by side, the least significant byte first; zeros for null."""
    out = np.zeros(len(starts) * width, np.uint8)
    for row in range(len(starts)):
        if sizes[row] >= 0:
            for byte in range(width):
                out[row * width + byte] = data[starts[row] + width - 1 - byte]
    return out


@numba.njit(cache=True, nogil=True)
def pack(data: Bytes, starts: Ints, ends: Ints) -> Bytes:
    """Values of any width side by side; `ends` says where each ends, after a first zero."""
    out = np.empty(ends[-1], np.uint8)
    for row in range(len(starts)):
        size = ends[row + 1] - ends[row]
        out[ends[row] : ends[row] + size] = data[starts[row] : starts[row] + size]
    return out


def as_numbers(
    data: Bytes, starts: Ints, sizes: Ints, dtype: npt.DTypeLike
) -> npt.NDArray[Any] | None:
    """Numbers of one type, 0 for null; None where a value has another width."""
    width = np.dtype(dtype).itemsize
    if not ((sizes == width) | (sizes < 0)).all():
        return None
    return gather(data, starts, sizes, width).view(dtype)
