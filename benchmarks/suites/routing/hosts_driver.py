"""What the driver of `routing_hosts` starts: a join, its events routed in one of the ways.

The workers import this module too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from benchmarks.harness import hosts_query
from benchmarks.suites.routing.choices import Choices

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "key bigint, number bigint, arrival bigint"
EVERY = 20  #: one record in so many tells when it came and went
_ROUTE = "route"


def start(
    spark: SparkSession, *, folder: str, files: int, options: dict[str, Any], rows: int
) -> None:
    """Start a routed join on ``folder/in/*`` and wait until so many rows have been joined.

    A micro-batch takes up to `files` files of those that are there, or as many bytes.
    """
    events = hosts_query.read(spark, folder, schema=SCHEMA, files=files)
    hosts_query.run(routed(events, **options), folder=folder, rows=rows, every=EVERY)


def routed(
    events: DataFrame,
    *,
    way: str,
    url: str,
    relation: str,
    held: int,
    partitions: int,
    cycle: int,
    path: str,
    bound: str = "",
) -> DataFrame:
    """Our join on an incremental cache of `held` rows, its events routed in one of the ways.

    `bound` is what keeps the partitions of what is routed by hotspots with their executors, of
    `binding`: ``state`` or ``cache``.
    """
    import rivermouth as rm

    hotspots: Callable[..., Any] = lambda **more: rm.by_hotspot(  # noqa: E731
        partitions=partitions, path=path, **{"cycle": cycle, **more}
    )
    routings = {
        "hash": lambda: rm.by_hash(partitions),
        "packed_hash": lambda: hotspots(cycle=1 << 60),  # a first cycle that never ends
        "algorithm2": lambda: hotspots(split=False),
        "ours": hotspots,
        "cost": lambda: hotspots(weight="cost"),
    }
    if way in ("pkg", "wchoices"):
        events = by_choices(events, partitions, head=way == "wchoices")
    table = rm.tables.postgres(url, relation)
    if bound:
        from benchmarks.suites.routing import binding

        with binding.bound(events.sparkSession, partitions, bound, relation):
            return _joined(events, table, held, routings[way]())
    return _joined(events, table, held, routings[way]() if way in routings else None)


def _joined(events: DataFrame, table: Any, held: int, routing: Any) -> DataFrame:
    import rivermouth as rm

    return rm.join_table(
        events, table, on=rm.keys({"key": "id"}), columns=["name"],
        cache=rm.incremental(rows=held), routing=routing,
    )  # fmt: skip


def by_choices(events: DataFrame, partitions: int, *, head: bool) -> DataFrame:
    """The events in the partitions of a rule of `choices`, as rows."""
    from pyspark.sql import functions as sf

    from rivermouth.spark.engines.partitioning import ROUTE, to_partitions

    def route(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rule = Choices(partitions, head=head)
        for batch in batches:
            to = rule.route(batch.column("key").to_numpy())
            yield batch.append_column(_ROUTE, pa.array(to, pa.int32()))

    sent = events.mapInArrow(route, f"{SCHEMA}, {_ROUTE} int")
    return to_partitions(sent, sf.col(_ROUTE), partitions).drop(ROUTE, _ROUTE)
