"""Which partition an event goes to: a column beside its own, and a shuffle by it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from operator import or_

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (as everybody writes it)
from pyspark.sql import types as t

from rivermouth.kernels.arrays import stable_order
from rivermouth.kernels.state.bucket_keys import bucket_keys
from rivermouth.spark import types
from rivermouth.spark.engines.native.columns import quoted
from rivermouth.spark.validation.join_table import WHERE, Join

ROUTE = "_rivermouth_route"
_DIGITS = 38
_SALT = 20_260  # what tells the hash of an event from that of its key
_NOT_HASHED = ("map<", "variant", "geometry(", "geography(")  # by xxhash64, nor what holds one


def by_hash(join: Join, count: int) -> Column:
    """The bucket of an event's keys, of `count`, as `kernels.keys.murmur` finds the table's.

    Events with a null among their keys find nothing anywhere, and so go everywhere.
    """
    keys = keys_of(join)
    without = reduce(or_, (key.isNull() for key in keys))
    anywhere = F.pmod(event_hash(join.events), F.lit(count)).cast("int")
    return F.when(without, anywhere).otherwise(F.pmod(F.hash(*keys), F.lit(count)))


def keys_of(join: Join) -> list[Column]:
    """The events' keys, each in the one type of its family, so that equal ones hash alike."""
    assert join.keys is not None
    return [_alike(join, left, right) for left, right in join.keys.pairs]


def event_hash(schema: t.StructType) -> Column:
    """A number of an event, the same whenever it is computed, and not that of its key.

    It comes from all of the event that Spark can hash. ``rand`` would have another seed in every
    micro-batch, which Spark would compile again.
    """
    columns = [F.col(quoted(field.name)) for field in schema if _hashable(field.dataType)]
    return F.xxhash64(F.lit(_SALT), *columns)


def _hashable(kind: t.DataType) -> bool:
    return not any(name in kind.simpleString() for name in _NOT_HASHED)


def to_partitions(events: DataFrame, route: Column, count: int) -> DataFrame:
    """The events with column `ROUTE`, those of each of `count` routes in a partition of its own.

    By keys that Spark hashes to as many partitions, since ``repartitionById`` is not in Spark 4.0.
    """
    keys = ", ".join(f"{key}L" for key in bucket_keys(count))  # a call for each would take seconds
    chosen = F.get(F.expr(f"array({keys})"), F.col(ROUTE))
    return events.withColumn(ROUTE, route).repartition(count, chosen)


def parts(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows of each route in a batch, without the column that says it; as a rule one."""
    index = batch.schema.get_field_index(ROUTE)
    route, rows = batch.column(index).to_numpy(), batch.remove_column(index)
    if not len(route):
        return
    if route.min() == route.max():
        yield int(route[0]), rows
        return
    order, start = stable_order(route, int(route.max()) + 1)
    ordered = rows.take(pa.array(order))
    for one in np.flatnonzero(np.diff(start)):
        yield int(one), ordered.slice(start[one], start[one + 1] - start[one])


def _alike(join: Join, left: str, right: str) -> Column:
    kind = types.to_spark(join.table.field(right).type, where=WHERE, column=right)
    column = F.col(quoted(left))
    match types.family(kind):
        case "integer":
            return column.cast("bigint")
        case "float":
            return column.cast("double") + F.lit(0.0)  # -0.0 equals 0.0
        case "string":
            return column.cast("binary")  # whatever its collation
        case "decimal":
            # at the table's scale: what cannot be written in it equals nothing of the table
            assert isinstance(kind, t.DecimalType)
            return column.try_cast(f"decimal({_DIGITS},{kind.scale})")
    return column
