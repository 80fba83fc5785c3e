"""Where records go: all of a group into one bucket, those without a usable time aside."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from rivermouth.kernels.aggregation.groups import buckets
from rivermouth.kernels.state.bucketing import REASON, Routed
from rivermouth.spec.summaries import Summary

NULL_TIME, FUTURE = "null_time", "future"


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
    ahead
        How far a time may lie ahead of the wall clock, in microseconds. Farther ahead it is set
        aside: one such clock would make all other records late.
    """

    summary: Summary
    columns: tuple[str, ...]
    count: int
    ahead: int

    def note(self) -> None:
        """Buckets need to know nothing of a task."""

    def route(self, batch: pa.RecordBatch, now: int) -> Routed:
        """The records of `batch` with their buckets."""
        time = batch.column(self.summary.time)
        micros = time.cast(pa.timestamp("us", time.type.tz)).cast(pa.int64())
        usable = pc.fill_null(pc.less_equal(micros, now + self.ahead), False)
        rejected = None
        if not pc.all(usable).as_py() and batch.num_rows:
            reasons = pc.if_else(pc.is_null(time), NULL_TIME, FUTURE)
            rejected = batch.append_column(REASON, reasons).filter(pc.invert(usable))
            batch, micros = batch.filter(usable), micros.filter(usable)
        keys = [batch.column(name) for name in self.summary.by]
        newest = pc.max(micros).as_py()
        rows = batch.select(list(self.columns))
        return Routed(rows, buckets(keys, batch.num_rows, self.count), newest, rejected)


def bucket_count(summary: Summary, asked: int) -> int:
    """How many buckets are of use: one where all records are one group."""
    return asked if summary.by else 1
