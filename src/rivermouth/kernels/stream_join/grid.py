"""Cells of a uniform grid, dealt to buckets by a hash: neither an extent nor a look at the data.

Since many small cells go to each bucket, crowded ones spread over all buckets, and the choice is
the same in every task and after every restart. Where one cell alone is too much for a bucket, its
rows of one side can be spread over several (`spread`, or `crowds`, which is learned), each of which
gets all of the other side.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from rivermouth.kernels.keys.dictionaries import mix
from rivermouth.kernels.skew.salting import Crowds, bucket_of, most_between
from rivermouth.kernels.spatial.geometry import Floats

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

    def spots(self, code: Ints, corner: Floats) -> Ints:
        """The number of each row's code and cell, for places (rows of coordinates) in one cell."""
        return np.asarray(_spots(code, self._cells(corner)))

    def home(self, spots: Ints, salt: Ints, spread: Ints | int = 1) -> Buckets:
        """The bucket of each row, dealt over as many as its spot has."""
        dealt = salt % np.maximum(spread, self.spread)
        return ((bucket_of(spots, self.buckets) + dealt) % self.buckets).astype(np.int32)

    def copies(
        self, code: Ints, boxes: Floats, crowds: Crowds, first: Ints, last: Ints
    ) -> tuple[Ints, Buckets]:
        """All buckets in which rows with these boxes may be asked for: (row, bucket), by row.

        `first` and `last` are the times of the rows that may ask.
        """
        axes = boxes.shape[1] // 2
        low, high = self._cells(boxes[:, :axes]), self._cells(boxes[:, axes:])
        steps = Steps(first, last, *crowds.arrays)
        return _copies(code, low, high, self.spread, self.buckets, steps)

    def _cells(self, places: Floats) -> Ints:
        if self.cell is None:
            return np.zeros(places.shape, np.int64)
        with np.errstate(over="ignore"):
            cells = np.floor(places / self.cell)
        return np.clip(cells, -_FARTHEST, _FARTHEST).astype(np.int64)


class Steps(NamedTuple):
    """`Crowds` in the form of kernels, with the times at which each row asks for them."""

    first: Ints
    last: Ints
    spot: Ints
    since: Ints
    spread: Ints


@numba.njit(cache=True, inline="always")
def _spot(code: int, cell: Ints) -> Any:
    mixed = np.int64(mix(code))
    for axis in range(len(cell)):
        mixed = np.int64(mix(mixed ^ cell[axis]))
    return mixed


@numba.njit(cache=True, inline="always")
def _home(spot: int, buckets: int) -> Any:
    """As `bucket_of`."""
    return np.int64(np.uint64(spot) >> np.uint64(33)) % buckets


@numba.njit(cache=True)
def _spots(code: Ints, cells: Ints) -> Ints:
    spots = np.empty(len(code), np.int64)
    for k in range(len(code)):
        spots[k] = _spot(code[k], cells[k])
    return spots


@numba.njit(cache=True)
def _copies(
    code: Ints, low: Ints, high: Ints, spread: int, buckets: int, steps: Steps
) -> tuple[Ints, Buckets]:
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
            spot = _spot(code[k], cell)
            home = _home(spot, buckets)
            most = most_between(
                spot, steps.first[k], steps.last[k], steps.spot, steps.since, steps.spread
            )
            for salt in range(min(max(spread, most), buckets)):
                bucket = (home + salt) % buckets
                if last[bucket] != k:
                    last[bucket] = k
                    rows[count], found[count] = k, bucket
                    count += 1
            if count - begun == buckets:
                break
    return rows[:count], found[:count]
