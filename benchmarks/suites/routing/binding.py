"""Partitions that stay with an executor, by what Spark offers to everybody: trials, not ours yet.

Spark gives a task to the executor that has what it needs, if that is free within
``spark.locality.wait``, and with it all that follows in the same stage: our join and its cache.
What it needs may be

- the *state* of a stateful operator: here a removal of duplicates among the messages that routing
  by hotspots sends, a few dozen in a micro-batch, whose state is a number for each of them, for a
  second; or
- a *cached* partition: here of a frame that has one row for each partition, which the messages are
  joined with.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_ID, _AT, _ANCHOR = "message_id", "message_at", "message_anchor"
_TRIED = 512  # numbers, of which one in as many as there are partitions will do


@contextmanager
def bound(spark: SparkSession, partitions: int, by: str, name: str) -> Iterator[None]:
    """Joins that are defined meanwhile and routed by hotspots keep their partitions in place.

    `name` is that of the query.
    Spark makes as many partitions of a stateful operator as its setting says when it starts.
    """
    from rivermouth.spark.engines import hotspots

    ours = hotspots.to_partitions
    if by == "state":
        spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
        hotspots.to_partitions = by_state
    else:
        hotspots.to_partitions = partial(by_cache, anchors=anchors(spark, partitions, name))
    try:
        yield
    finally:
        hotspots.to_partitions = ours


def by_state(packed: DataFrame, route: Column, count: int) -> DataFrame:
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


def anchors(spark: SparkSession, count: int, name: str) -> DataFrame:
    """A row for each partition, in that partition; cached where it is computed, which is now.

    Each comes from a task of its own while nothing else runs, so that each host has as many: from
    one task, all would be computed where that had run, and beside a query, where tasks end first.
    `name` tells frames apart, since Spark caches equal ones once.
    """
    from pyspark.sql import functions as sf

    numbers = spark.range(0, count, 1, count).withColumn("of", sf.lit(name))
    keys = numbers.select(sf.get(_keys(count), sf.col("id").cast("int")).alias(_ANCHOR), "of")
    placed = keys.repartition(count, _ANCHOR).persist()
    placed.count()
    return placed


def by_cache(packed: DataFrame, route: Column, count: int, *, anchors: DataFrame) -> DataFrame:
    """Messages in the partitions of their routes, beside the anchors that are cached there."""
    from pyspark.sql import functions as sf

    from rivermouth.spark.engines.partitioning import ROUTE

    (message,) = (name for name in packed.columns if name != ROUTE)
    keyed = packed.withColumn(ROUTE, route)
    keyed = keyed.withColumn(_ANCHOR, sf.get(_keys(count), sf.col(ROUTE)))
    return keyed.join(anchors.hint("shuffle_hash"), _ANCHOR).select(ROUTE, message)


def _keys(count: int) -> Column:
    """A key for each partition, which Spark hashes to it."""
    from pyspark.sql import functions as sf

    from rivermouth.kernels.state.bucket_keys import bucket_keys

    return sf.array(*(sf.lit(key).cast("bigint") for key in bucket_keys(count)))
