"""Paths through positions: their length, and their WKB."""

from __future__ import annotations

import numba
import numpy as np
import pyarrow as pa

from rivermouth.kernels.arrays import Bools, Bytes, Codes, Floats, Ints
from rivermouth.kernels.spatial.distance import distance

_POINT, _LINE = 1, 2  # WKB's type ids
_HEAD, _XY = 9, 16  # bytes before the coordinates of a line, and of a pair of coordinates


@numba.njit(cache=True)
def located(start: Ints, time: Ints, objects: Ints, at: Ints) -> Ints:
    """Where the position of each object at a time is; object i's begin at ``start[i]``."""
    found = np.empty(len(at), np.int64)
    for row in range(len(at)):
        first = start[objects[row]]
        of_object = time[first : start[objects[row] + 1]]
        found[row] = first + np.searchsorted(of_object, at[row])
    return found


def lengths(first: Ints, end: Ints, x: Floats, y: Floats, *, on_sphere: bool) -> Floats:
    """The lengths of paths through the positions from each `first` to before its `end`.

    The steps are added one by one in their order, so that a path has one length however it came
    to be known.
    """
    return _lengths(first, end, np.column_stack([x, y]), 3 if on_sphere else 2)


def wkb(first: Ints, end: Ints, x: Floats, y: Floats) -> pa.Array:
    """The paths as WKB: a LINESTRING of all positions, a POINT where all are at one place.

    A line whose points are all the same is not valid, so there is none among them.

    Examples
    --------
    >>> import shapely
    >>> x, y = np.array([0.0, 3.0, 5.0, 5.0]), np.array([0.0, 4.0, 1.0, 1.0])
    >>> made = wkb(np.array([0, 2]), np.array([2, 4]), x, y)
    >>> shapely.from_wkb(made.to_pylist())
    array([<LINESTRING (0 0, 3 4)>, <POINT (5 1)>], dtype=object)
    """
    xy = np.ascontiguousarray(np.column_stack([x, y]), dtype="<f8")
    is_line = _is_line(first, end, xy)
    size = np.where(is_line, _HEAD + _XY * (end - first), _HEAD - 4 + _XY)
    offsets = np.concatenate([[0], np.cumsum(size)]).astype(np.int32)
    data = _wkb(first, end, is_line, offsets, xy.reshape(-1).view(np.uint8))
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(first), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )


@numba.njit(cache=True)
def _lengths(first: Ints, end: Ints, xy: Floats, dims: int) -> Floats:
    found = np.zeros(len(first))
    for row in range(len(first)):
        for k in range(first[row] + 1, end[row]):
            found[row] += distance(xy, k - 1, xy, k, dims)
    return found


@numba.njit(cache=True)
def _is_line(first: Ints, end: Ints, xy: Floats) -> Bools:
    found = np.zeros(len(first), np.bool_)
    for row in range(len(first)):
        a = first[row]
        for k in range(a + 1, end[row]):
            if xy[k, 0] != xy[a, 0] or xy[k, 1] != xy[a, 1]:
                found[row] = True
                break
    return found


@numba.njit(cache=True)
def _wkb(first: Ints, end: Ints, is_line: Bools, offsets: Codes, coordinates: Bytes) -> Bytes:
    data = np.zeros(offsets[-1], np.uint8)
    for row in range(len(first)):
        at, count = offsets[row], 1
        data[at] = 1  # little-endian
        data[at + 1] = _LINE if is_line[row] else _POINT
        at += _HEAD - 4
        if is_line[row]:
            count = end[row] - first[row]
            for byte in range(4):
                data[at + byte] = (count >> (8 * byte)) & 255
            at += 4
        begin = first[row] * _XY
        data[at : at + count * _XY] = coordinates[begin : begin + count * _XY]
    return data
