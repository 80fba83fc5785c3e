"""The micro-batch that a task belongs to, by what Spark tells its tasks."""

from __future__ import annotations

from pyspark import TaskContext

from rivermouth.tables.cache.batch_versions import MicroBatch

# local properties of Spark's tasks; a query keeps its id when it is started again
_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"


def micro_batch() -> MicroBatch | None:
    """The micro-batch of the task that asks, None outside of a stream."""
    context = TaskContext.get()
    if context is None:
        return None
    query, number = context.getLocalProperty(_QUERY), context.getLocalProperty(_BATCH)
    return None if query is None or number is None else MicroBatch(query, int(number))


def batch_number() -> int | None:
    """The number of that micro-batch, None outside of a stream."""
    batch = micro_batch()
    return None if batch is None else batch.number
