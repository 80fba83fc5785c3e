"""What is sent of the records to the buckets: partials, or the records themselves.

All of a group goes to one bucket; records without a usable time are rejected.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rivermouth.kernels.aggregation.plan import AggPlan
from rivermouth.kernels.arrays import Ints
from rivermouth.kernels.state.bucketing import (
    COUNT,
    FUTURE,
    NO_TIME,
    OLDEST,
    REASON,
    Combined,
    Routed,
)
from rivermouth.kernels.state.groups import buckets, dense
from rivermouth.spec.summaries import Summary

_PARTS = 8  # of a pane, or of an octave of ages: how finely times are kept apart
_LOG_CELLS = 512  # cells that grow with the age; there are 64 octaves
_MOST_BITS = 48  # of a cell's number, so that it can be numbered together with its bucket
_MANTISSA = 49  # bits of a double behind its exponent and the three first of its mantissa
_ONE = (1023 << 3) - 1  # those of 1.0, less one


@dataclass(frozen=True)
class AggregateRouter:
    """Sends each record to its group's bucket.

    Parameters
    ----------
    summary
        What names the groups and the time.
    columns
        The columns that are sent.
    count
        How many buckets there are.
    max_future
        How far a time may lie ahead of the wall clock, in microseconds. Records farther ahead are
        rejected: one wrong clock would make all other records late.
    """

    summary: Summary
    columns: tuple[str, ...]
    count: int
    max_future: int

    def note(self) -> None:
        """Buckets need to know nothing of a task."""

    def route(self, batch: pa.RecordBatch, now: int) -> Routed:
        """The records of `batch` with their buckets."""
        batch, newest, rejected = _checked(batch, self.summary.time, now + self.max_future)
        keys = [batch.column(name) for name in self.summary.by]
        to = buckets(keys, batch.num_rows, self.count)
        return Routed(batch.select(list(self.columns)), to, newest, rejected)


@dataclass(frozen=True)
class PartialsRouter:
    """Sends the partials of records, one for each group and pane, to their groups' buckets.

    Parameters
    ----------
    plan
        What lifts records to partials.
    count, max_future
        See `AggregateRouter`.
    """

    plan: AggPlan
    count: int
    max_future: int

    def note(self) -> None:
        """Buckets need to know nothing of a task."""

    def route(self, batch: pa.RecordBatch, now: int) -> Routed:
        """The usable records of `batch`; of the others the reasons only."""
        time = self.plan.summary.time
        batch, newest, rejected = _checked(batch, time, now + self.max_future)
        if rejected is not None:
            rejected = rejected.select([REASON])
        to = np.zeros(batch.num_rows, np.int32)  # of records; partials get theirs below
        return Routed(batch.select(list(self.plan.types)), to, newest, rejected)

    def combine(self, rows: pa.Table) -> Combined:
        """The partials of `rows`, and the records' times."""
        times = self.plan.times(rows)
        partials, index = self.plan.lift_indexed(rows, times)
        keys = [partials.column(key) for key in self.plan.keys]
        to = buckets(keys, partials.num_rows, self.count)
        return Combined(partials, to, *thinned(times, to[index], self.plan.grid.pane))


def thinned(
    times: Ints, bucket: npt.NDArray[np.int32], pane: int
) -> tuple[pa.Table, npt.NDArray[np.int32]]:
    """The times of some records, those of a cell together, and the bucket of each cell.

    A cell is at most an eighth of a pane long, and at most an eighth of its distance from the
    newest of the times: delays that are short to a window are told apart, and so are those that
    are short to a micro-batch. Its oldest time is exact, and so is the largest delay.
    """
    newest = int(times.max())
    length = max(1, pane // _PARTS, (newest - int(times.min())) >> _MOST_BITS)
    count = int(bucket.max()) + 1
    code, most = _cells(times, bucket, newest, length, count)
    cell, first = dense(code, (most + 1) * count)
    oldest, records = _oldest(times, cell, len(first))
    return pa.table({OLDEST: oldest, COUNT: records}), bucket[first]


def _checked(
    batch: pa.RecordBatch, time: str, most: int
) -> tuple[pa.RecordBatch, int | None, pa.RecordBatch | None]:
    """The records with a time up to `most`, the newest time, and the others with the reason."""
    times = batch.column(time)
    micros = times.cast(pa.timestamp("us", times.type.tz)).cast(pa.int64())
    usable = pc.fill_null(pc.less_equal(micros, most), False)
    rejected = None
    if batch.num_rows and not pc.all(usable).as_py():
        reasons = pc.if_else(pc.is_null(times), NO_TIME, FUTURE)
        rejected = batch.append_column(REASON, reasons).filter(pc.invert(usable))
        batch, micros = batch.filter(usable), micros.filter(usable)
    return batch, pc.max(micros).as_py(), rejected


@numba.njit(cache=True)
def _cells(
    times: Ints, bucket: npt.NDArray[np.int32], newest: int, length: int, count: int
) -> tuple[Ints, int]:
    """A number for each cell and bucket, and the largest number of a cell."""
    ages = newest - times
    bits, most = ages.astype(np.float64).view(np.int64), 0
    code = np.empty(len(times), np.int64)
    for k in range(len(times)):
        if ages[k] < _PARTS * length:
            cell = max(0, (bits[k] >> _MANTISSA) - _ONE)
        else:
            cell = _LOG_CELLS + ages[k] // length
        most = max(most, cell)
        code[k] = cell * count + bucket[k]
    return code, most


@numba.njit(cache=True)
def _oldest(times: Ints, cell: Ints, size: int) -> tuple[Ints, Ints]:
    """The oldest time of each cell, and how many times it has."""
    oldest, count = np.full(size, np.iinfo(np.int64).max), np.zeros(size, np.int64)
    for k in range(len(times)):
        oldest[cell[k]] = min(oldest[cell[k]], times[k])
        count[cell[k]] += 1
    return oldest, count
