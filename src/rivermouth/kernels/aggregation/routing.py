"""The bucket of each record: one for all of a group; records without a usable time are rejected."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from rivermouth.kernels.state.bucketing import FUTURE, NO_TIME, REASON, Routed
from rivermouth.kernels.state.groups import buckets
from rivermouth.spec.summaries import Summary


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
        time = batch.column(self.summary.time)
        micros = time.cast(pa.timestamp("us", time.type.tz)).cast(pa.int64())
        usable = pc.fill_null(pc.less_equal(micros, now + self.max_future), False)
        rejected = None
        if not pc.all(usable).as_py() and batch.num_rows:
            reasons = pc.if_else(pc.is_null(time), NO_TIME, FUTURE)
            rejected = batch.append_column(REASON, reasons).filter(pc.invert(usable))
            batch, micros = batch.filter(usable), micros.filter(usable)
        keys = [batch.column(name) for name in self.summary.by]
        to = buckets(keys, batch.num_rows, self.count)
        return Routed(batch.select(list(self.columns)), to, pc.max(micros).as_py(), rejected)
