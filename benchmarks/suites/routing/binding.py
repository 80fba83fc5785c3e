"""Partitions that stay with an executor, by what Spark offers to everybody: a stateful operator.

Spark gives a partition of a stateful operator to the executor that has its state, and with it all
that follows in the same stage: our join and its cache. The operator here is a removal of
duplicates among the messages that routing by hotspots sends, a few dozen in a micro-batch; its
state is a number for each of them, for a second. A trial of the benchmark, not of the library.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_ID, _AT = "message_id", "message_at"
_TRIED = 512  # numbers, of which one in as many as there are partitions will do


@contextmanager
def bound(spark: SparkSession, partitions: int) -> Iterator[None]:
    """Joins that are defined meanwhile and routed by hotspots keep their partitions in place.

    Spark makes as many partitions of a stateful operator as its setting says when it starts.
    """
    from rivermouth.spark.engines import hotspots

    spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
    ours = hotspots.to_partitions
    hotspots.to_partitions = to_bound_partitions
    try:
        yield
    finally:
        hotspots.to_partitions = ours


def to_bound_partitions(packed: DataFrame, route: Column, count: int) -> DataFrame:
    """Messages in the partitions of their routes, as `partitioning.to_partitions` has them.

    Each gets a number of its own which Spark's hash sends to the partition of its route.
    """
    from pyspark.sql import functions as sf

    from rivermouth.spark.engines.partitioning import ROUTE

    (message,) = (name for name in packed.columns if name != ROUTE)
    first = sf.shiftright(sf.xxhash64(message), 1)
    tried = sf.sequence(first, first + sf.lit(_TRIED))
    here = sf.filter(tried, lambda number: sf.pmod(sf.hash(number), sf.lit(count)) == route)
    return (
        packed.withColumn(ROUTE, route)
        .withColumn(_ID, sf.get(here, sf.lit(0)))
        .withColumn(_AT, sf.current_timestamp())
        .withWatermark(_AT, "1 second")
        .dropDuplicatesWithinWatermark([_ID])
        .select(ROUTE, message)
    )
