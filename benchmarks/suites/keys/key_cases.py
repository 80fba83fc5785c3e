"""What is measured on a stream of keys, each a function DataFrame -> DataFrame.

The workers import this module too: a connection is kept between batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa

from benchmarks.suites.keys.keyed import REACH

if TYPE_CHECKING:
    import psycopg
    from pyspark.sql import DataFrame

Frame = Callable[..., "DataFrame"]
Batches = Iterator[pa.RecordBatch]

_NAME, _DELAY = pa.field("name", pa.string()), pa.field("delay", pa.float64())


# -- equal


def identity_with_name(events: DataFrame) -> DataFrame:
    """Rows through Python and back with one more string column: what any join must cost."""
    return events.mapInArrow(_constant, _with(events, "name", "string"))


def equal(events: DataFrame, *, table: str, plan: str) -> DataFrame:
    """Our join on a full cache."""
    import rivermouth as rm

    source = rm.tables.parquet(table)
    return rm.join_table(events, source, on=rm.keys({"key": "id"}), columns=["name"], plan=plan)


def spark_equal(events: DataFrame, *, table: str) -> DataFrame:
    """Spark's own join with the table in its cache; which side is broadcast is left to it."""
    rows = _cached(events, table)
    return events.join(rows, events.key == rows.id).drop("id")


def spark_jdbc(events: DataFrame, *, url: str, relation: str, most: int) -> DataFrame:
    """Spark's own join with a table in a database, read by two connections at once."""
    place = urlsplit(url)
    rows = (
        events.sparkSession.read.format("jdbc")
        .option("url", f"jdbc:postgresql://{place.hostname}:{place.port}{place.path}")
        .option("driver", "org.postgresql.Driver")
        .option("user", place.username)
        .option("password", unquote(place.password or ""))
        .option("dbtable", relation)
        .option("fetchsize", 10_000)  # the default fetches the whole table into memory first
        .option("partitionColumn", "id")
        .option("numPartitions", 2)
        .option("lowerBound", 0)
        .option("upperBound", most)
        .load()
    )
    return events.join(rows, events.key == rows.id).drop("id")


# -- equal, rows fetched when they are asked for


def kept(events: DataFrame, *, url: str, relation: str, rows: int, policy: str) -> DataFrame:
    """Our join on an incremental cache."""
    import rivermouth as rm

    held = rm.incremental(rows=rows, policy=policy, missing_ttl="1 hour")
    return _items(events, url, relation, held)


def by_batch(events: DataFrame, *, url: str) -> DataFrame:
    """Our join that keeps nothing: a statement per Arrow batch."""
    import rivermouth as rm

    return _items(events, url, "items", rm.external())


def by_record(events: DataFrame, *, url: str) -> DataFrame:
    """The plain form: a prepared statement for each record, one connection a worker."""
    statement = "SELECT name FROM items WHERE id = %s"
    step = partial(_asked, url=url, statement=statement, names=("key",), brings=_NAME)
    return events.mapInArrow(step, _with(events, "name", "string"))


# -- equal, routed


def routed(
    events: DataFrame,
    *,
    way: str,
    partitions: int,
    cycle: int,
    table: str | None = None,
    url: str | None = None,
    rows: int | None = None,
) -> DataFrame:
    """Our join, its events routed in one of the ways, or not at all.

    On a full cache of a file, or on an incremental one of so many rows of a PostgreSQL.
    """
    import rivermouth as rm

    ways = {
        "none": None,
        "hash": rm.by_hash(partitions),
        "algorithm2": rm.by_hotspot(cycle=cycle, split=False, partitions=partitions),
        "ours": rm.by_hotspot(cycle=cycle, partitions=partitions),
        "cost": rm.by_hotspot(cycle=cycle, partitions=partitions, weight="cost"),
    }
    source = rm.tables.postgres(url, "items") if url else rm.tables.parquet(str(table))
    return rm.join_table(
        events, source, on=rm.keys({"key": "id"}), columns=["name"], routing=ways[way],
        cache=rm.incremental(rows=rows) if rows else rm.full(),
    )  # fmt: skip


# -- between


def between(events: DataFrame, *, table: str, plan: str, index: str | None = None) -> DataFrame:
    """Our join on a full cache."""
    import rivermouth as rm

    return rm.join_table(
        events,
        rm.tables.parquet(table),
        on=rm.between("at", "slot", lower=-REACH, upper=REACH, by="road"),
        columns=["delay"],
        cache=rm.full(index=index),
        plan=plan,
    )


def identity_fourfold(events: DataFrame) -> DataFrame:
    """Each row four times through Python and back with one more column: what any join must cost."""
    return events.mapInArrow(_fourfold, _with(events, "delay", "double"))


def spark_between(events: DataFrame, *, table: str, hint: bool) -> DataFrame:
    """Spark's own join with the table in its cache, broadcast where `hint` says so."""
    from pyspark.sql import functions as sf

    rows = _cached(events, table)
    near = (events.road == rows.road) & rows.slot.between(events.at - REACH, events.at + REACH)
    side = sf.broadcast(rows) if hint else rows
    return events.join(side, near).select(events["*"], rows.delay)


def between_by_record(events: DataFrame, *, url: str, power: int) -> DataFrame:
    """The plain form: a prepared statement for each record, one connection a worker."""
    statement = (
        f"SELECT delay FROM slices_{power} WHERE road = %s"
        f" AND slot BETWEEN %s::int8 - {REACH} AND %s::int8 + {REACH}"
    )
    names = ("road", "at", "at")
    step = partial(_asked, url=url, statement=statement, names=names, brings=_DELAY)
    return events.mapInArrow(step, _with(events, "delay", "double"))


CASES: dict[str, Frame] = {
    "identity_with_name": identity_with_name,
    "equal": equal,
    "spark_equal": spark_equal,
    "spark_jdbc": spark_jdbc,
    "kept": kept,
    "by_batch": by_batch,
    "by_record": by_record,
    "routed": routed,
    "between": between,
    "identity_fourfold": identity_fourfold,
    "spark_between": spark_between,
    "between_by_record": between_by_record,
}


def _with(events: DataFrame, name: str, kind: str) -> Any:
    from pyspark.sql.types import StructType

    return StructType(list(events.schema.fields)).add(name, kind)


def _constant(batches: Batches) -> Batches:
    for batch in batches:
        yield batch.append_column("name", pa.repeat("item 5000000", batch.num_rows))


def _fourfold(batches: Batches) -> Batches:
    for batch in batches:
        rows = batch.take(pa.array(np.repeat(np.arange(batch.num_rows), 4)))
        yield rows.append_column("delay", pa.repeat(12.5, rows.num_rows))


def _items(events: DataFrame, url: str, relation: str, held: Any) -> DataFrame:
    import rivermouth as rm

    source = rm.tables.postgres(url, relation)
    return rm.join_table(events, source, on=rm.keys({"key": "id"}), columns=["name"], cache=held)


@cache  # one copy in Spark's cache, read before any stream starts
def _cached(events: DataFrame, table: str) -> DataFrame:
    rows = events.sparkSession.read.parquet(table).cache()
    rows.count()
    return rows


def _asked(
    batches: Batches, url: str, statement: str, names: tuple[str, ...], brings: pa.Field
) -> Batches:
    with connection(url).cursor(binary=True) as cursor:
        for batch in batches:
            asked = zip(*(batch[name].to_pylist() for name in names), strict=True)
            left: list[int] = []
            found: list[Any] = []
            for row, values in enumerate(asked):
                cursor.execute(statement, values, prepare=True)
                for (value,) in cursor.fetchall():
                    left.append(row)
                    found.append(value)
            rows = batch.take(pa.array(left, pa.int64()))
            yield pa.RecordBatch.from_arrays(
                [*rows.columns, pa.array(found, brings.type)], [*rows.schema.names, brings.name]
            )


@cache
def connection(url: str) -> psycopg.Connection[Any]:
    """The connection of this worker."""
    import psycopg

    return psycopg.connect(url, autocommit=True)
