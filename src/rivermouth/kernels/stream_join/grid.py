"""Cells of a uniform grid, assigned to buckets by a hash: no extent and no statistics needed.

Many small cells go to each bucket, so dense areas spread over all buckets, and the assignment is
the same in every task and after every restart. Where one cell alone is too much for a bucket, its
rows are salted: rows of one side are spread over several buckets (`CellGrid.salts` for all cells, a
`SaltSchedule` for those found to be skewed), and the other side's rows are replicated to each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from rivermouth.kernels.arrays import Floats, Ints
from rivermouth.kernels.keys.dictionaries import hash_int
from rivermouth.kernels.stream_join.salting import SaltSchedule, home_buckets, most_salts

Buckets = npt.NDArray[np.int32]

_FARTHEST = float(1 << 52)
_MANY = 64  # cells per bucket that one row overlaps, beyond which it is sent to all buckets


@dataclass(frozen=True)
class CellGrid:
    """How cells are assigned to buckets.

    Parameters
    ----------
    buckets
        The number of buckets.
    cell
        The side of a cell, None for one cell that covers everything.
    salts
        Over how many buckets the rows of every cell are spread, at least 1.
    """

    buckets: int
    cell: float | None
    salts: int = 1

    def cell_keys(self, code: Ints, corner: Floats) -> Ints:
        """A hash of each row's key code and cell, for points (rows of coordinates)."""
        return np.asarray(_cell_keys(code, self._cells(corner)))

    def assigned(self, cell_keys: Ints, salt: Ints, salts: Ints | int = 1) -> Buckets:
        """The bucket of each row, spread over as many as its cell has salts."""
        shift = salt % np.maximum(salts, self.salts)
        return ((home_buckets(cell_keys, self.buckets) + shift) % self.buckets).astype(np.int32)

    def replicas(
        self, code: Ints, boxes: Floats, schedule: SaltSchedule, first: Ints, last: Ints
    ) -> tuple[Ints, Buckets]:
        """All buckets that rows with these boxes are sent to: (row, bucket), by row.

        `first` and `last` bound the times of the rows that each may be joined with.
        """
        axes = boxes.shape[1] // 2
        low, high = self._cells(boxes[:, :axes]), self._cells(boxes[:, axes:])
        salting = _Salting(first, last, *schedule.arrays)
        return _replicas(code, low, high, self.salts, self.buckets, salting)

    def _cells(self, points: Floats) -> Ints:
        if self.cell is None:
            return np.zeros(points.shape, np.int64)
        with np.errstate(over="ignore"):
            cells = np.floor(points / self.cell)
        return np.clip(cells, -_FARTHEST, _FARTHEST).astype(np.int64)


class _Salting(NamedTuple):
    """A `SaltSchedule` as arrays, and the range of times in which each row needs it."""

    first: Ints
    last: Ints
    cell_key: Ints
    since: Ints
    salts: Ints


@numba.njit(cache=True, inline="always")
def _cell_key(code: int, cell: Ints) -> Any:
    mixed = np.int64(hash_int(code))
    for axis in range(len(cell)):
        mixed = np.int64(hash_int(mixed ^ cell[axis]))
    return mixed


@numba.njit(cache=True)
def _cell_keys(code: Ints, cells: Ints) -> Ints:
    cell_keys = np.empty(len(code), np.int64)
    for k in range(len(code)):
        cell_keys[k] = _cell_key(code[k], cells[k])
    return cell_keys


@numba.njit(cache=True)
def _replicas(
    code: Ints, low: Ints, high: Ints, salts: int, buckets: int, salting: _Salting
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
        begin = count
        if many * salts > _MANY * buckets:
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
            cell_key = _cell_key(code[k], cell)
            home = np.int64(np.uint64(cell_key) >> np.uint64(33)) % buckets  # as `home_buckets`
            most = most_salts(
                cell_key, salting.first[k], salting.last[k],
                salting.cell_key, salting.since, salting.salts,
            )  # fmt: skip
            for salt in range(min(max(salts, most), buckets)):
                to = (home + salt) % buckets
                if last[to] != k:
                    last[to] = k
                    rows[count], found[count] = k, to
                    count += 1
            if count - begin == buckets:
                break
    return rows[:count], found[:count]
