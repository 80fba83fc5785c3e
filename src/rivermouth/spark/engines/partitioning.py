"""Which partition an event goes to: a column beside its own, and a shuffle by it."""

from __future__ import annotations

from collections.abc import Iterator

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


def by_hash(join: Join, count: int) -> Column:
    """The bucket of an event's keys, of `count`, as `kernels.keys.murmur` finds the table's."""
    return F.pmod(F.hash(*keys_of(join)), F.lit(count))


def keys_of(join: Join) -> list[Column]:
    """The events' keys, each in the one type of its family, so that equal ones hash alike."""
    assert join.keys is not None
    return [_alike(join, left, right) for left, right in join.keys.pairs]


def to_partitions(events: DataFrame, route: Column, count: int) -> DataFrame:
    """The events with column `ROUTE`, those of each of `count` routes in a partition of its own.

    By keys that Spark hashes to as many partitions, since ``repartitionById`` is not in Spark 4.0.
    """
    keys = F.array(*(F.lit(key).cast("bigint") for key in bucket_keys(count)))
    return events.withColumn(ROUTE, route).repartition(count, F.get(keys, F.col(ROUTE)))


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
