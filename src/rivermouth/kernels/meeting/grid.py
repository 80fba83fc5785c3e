"""Cells of a uniform grid, dealt to buckets by a hash: neither an extent nor a look at the data.

Since many small cells go to each bucket, crowded ones spread over all buckets, and the choice is
the same in every task and after every restart. Where one cell alone is too much for a bucket, its
rows of one side can be spread over several (`spread`), each of which gets all of the other side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from rivermouth.kernels.geometry import Floats
from rivermouth.kernels.hashing import mix

Buckets = npt.NDArray[np.int32]
Ints = npt.NDArray[np.int64]

_FARTHEST = float(1 << 52)
_MANY = 64  # cells a bucket that one row meets, beyond which it simply goes everywhere


@dataclass(frozen=True)
class Grid:
    """How cells become buckets.

    Parameters
    ----------
    buckets
        How many there are.
    cell
        The side of a cell, None for one cell that is all there is.
    spread
        Over how many buckets the rows of one cell are dealt, at least 1.
    """

    buckets: int
    cell: float | None
    spread: int = 1

    def home(self, code: Ints, corner: Floats, salt: Ints) -> Buckets:
        """The bucket of each row, whose place (a row of coordinates) lies in one cell."""
        return _home(code, self._cells(corner), salt % self.spread, self.buckets)

    def copies(self, code: Ints, boxes: Floats) -> tuple[Ints, Buckets]:
        """All buckets in which rows with these boxes may be asked for: (row, bucket), by row."""
        axes = boxes.shape[1] // 2
        low, high = self._cells(boxes[:, :axes]), self._cells(boxes[:, axes:])
        return _copies(code, low, high, self.spread, self.buckets)

    def _cells(self, places: Floats) -> Ints:
        if self.cell is None:
            return np.zeros(places.shape, np.int64)
        with np.errstate(over="ignore"):
            cells = np.floor(places / self.cell)
        return np.clip(cells, -_FARTHEST, _FARTHEST).astype(np.int64)


@numba.njit(cache=True, inline="always")
def _bucket(code: int, cell: Ints, buckets: int) -> Any:
    mixed = np.int64(mix(code))
    for axis in range(len(cell)):
        mixed = np.int64(mix(mixed ^ cell[axis]))
    # the upper bits: a hash's best
    return np.int64(np.uint64(mixed) >> np.uint64(33)) % buckets


@numba.njit(cache=True)
def _home(code: Ints, cells: Ints, salt: Ints, buckets: int) -> Buckets:
    home = np.empty(len(code), np.int32)
    for k in range(len(code)):
        home[k] = (_bucket(code[k], cells[k], buckets) + salt[k]) % buckets
    return home


@numba.njit(cache=True)
def _copies(code: Ints, low: Ints, high: Ints, spread: int, buckets: int) -> tuple[Ints, Buckets]:
    axes = low.shape[1]
    rows, found = np.empty(2 * len(code) + 64, np.int64), np.empty(2 * len(code) + 64, np.int32)
    last, cell = np.full(buckets, -1, np.int64), np.empty(axes, np.int64)
    count = 0
    for k in range(len(code)):
        if count + buckets > len(rows):
            rows = np.append(rows, np.empty(len(rows) + buckets, np.int64))
            found = np.append(found, np.empty(len(found) + buckets, np.int32))
        many = 1.0
        for axis in range(axes):
            many *= high[k, axis] - low[k, axis] + 1.0
        begun = count
        if many * spread > _MANY * buckets:
            for bucket in range(buckets):
                rows[count], found[count] = k, bucket
                count += 1
            continue
        for number in range(int(many)):
            rest = number
            for axis in range(axes):
                wide = high[k, axis] - low[k, axis] + 1
                cell[axis] = low[k, axis] + rest % wide
                rest //= wide
            home = _bucket(code[k], cell, buckets)
            for salt in range(min(spread, buckets)):
                bucket = (home + salt) % buckets
                if last[bucket] != k:
                    last[bucket] = k
                    rows[count], found[count] = k, bucket
                    count += 1
            if count - begun == buckets:
                break
    return rows[:count], found[:count]
