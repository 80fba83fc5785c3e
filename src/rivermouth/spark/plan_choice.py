"""Which plan a join with a table takes where its user leaves that open."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as t

from rivermouth.spark.engines.native.rows import (
    auto_broadcast_bytes,
    broadcast_limit,
    expected_bytes,
)
from rivermouth.spark.engines.plan_costs import Condition, Kind, cheapest_plan
from rivermouth.spark.runtime import versions
from rivermouth.spark.validation.join_table import Join
from rivermouth.spec.caches import Cache, Full
from rivermouth.spec.plans import Cheapest, Plan
from rivermouth.spec.routing import Routing
from rivermouth.tables.source import InFiles
from rivermouth.tables.sources.frame import FrameTable

#: rows of a batch frame that are expected where nobody says
ROWS_OF_A_FRAME = 1_000_000
#: with more, Spark does not compile a plan (``spark.sql.codegen.maxFields`` is 100)
_MOST_COLUMNS = 80


def chosen(
    events: DataFrame, join: Join, cache: Cache, routing: Routing | None, wanted: Cheapest | None
) -> Plan:
    """The plan that is expected to take the least CPU time, of those that can be expected to do it.

    There is a choice where a join was measured: the whole table in one piece, by keys, by a range
    or by places. A stream whose rows are not given keeps `workers`, since `native` has few metrics.
    """
    if isinstance(join.source, FrameTable):
        return "native"  # no other plan reads a frame
    if wanted is None and events.isStreaming:
        return "workers"
    condition = _condition(join)
    is_full = isinstance(cache, Full) and cache.buckets is None and cache.index is None
    if condition is None or not is_full or routing is not None or len(join.output) > _MOST_COLUMNS:
        return "workers"
    plans: list[Plan] = ["workers"]
    if versions.common(events.sparkSession) >= versions.ARROW_FUNCTIONS.since:
        plans.append("udf")
    table_bytes = _broadcast_bytes(join, condition, events.sparkSession)
    if table_bytes is not None:
        plans.append("native")
    kind: Kind = "stream" if events.isStreaming else "batch"
    return cheapest_plan(
        condition, kind, plans,
        rows=ROWS_OF_A_FRAME if wanted is None else wanted.rows,
        columns=len(join.events), table_bytes=table_bytes or 0,
    )  # fmt: skip


def _condition(join: Join) -> Condition | None:
    """What the plans' costs were measured for, if the condition is that."""
    if join.spatial is not None:
        return "place" if join.keys is None else None
    if join.range is None:
        return "keys"
    compared = join.events[join.range.left].dataType
    is_measured = join.keys is None and not isinstance(compared, t.DecimalType)
    return "range" if is_measured else None


def _broadcast_bytes(join: Join, condition: Condition, spark: SparkSession) -> int | None:
    """What the table's files take, if `native` can be expected to broadcast the table.

    Of places it finds out only when it reads the rows that some are neither polygons nor points.
    The size of a table in a database is not known before. Spark by itself looks at the files' size
    alone, which says little of rows that are alike: they are also counted.
    """
    if condition == "place" or not isinstance(join.source, InFiles):
        return None
    table_bytes = join.source.file_bytes()
    if table_bytes > auto_broadcast_bytes(spark):
        return None
    expected = expected_bytes(join, join.source.file_rows())
    return table_bytes if expected <= broadcast_limit(spark, doubling=True) else None
