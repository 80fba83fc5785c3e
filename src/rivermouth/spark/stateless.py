"""The stateless door: a step over Arrow batches, with metrics that travel beside the rows.

A step's counts leave Python in a carrier row: one row per task whose data columns are null and
whose column `CARRIER` is not. ``observe`` sums the carriers into the query's progress and a
filter takes them out again, all of it public and without a second pass.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (as everybody writes it)
from pyspark.sql import types as t

CARRIER = "_rivermouth"
PREFIX = "rivermouth"

_numbers = itertools.count(1)


@dataclass(frozen=True)
class Gauge:
    """A number that tasks report: its name, and how tasks' numbers are put together."""

    name: str
    combine: str = "sum"


class Step(Protocol):
    """What is done in a task: batches in, columns out, and what to report at the end."""

    def batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The result of each batch."""
        ...

    def report(self) -> dict[str, float]:
        """The task's numbers, one for each gauge; asked once, after the last batch."""
        ...


def run(
    frame: DataFrame,
    make: Callable[[], Step],
    schema: t.StructType,
    *,
    name: str,
    gauges: tuple[Gauge, ...],
) -> DataFrame:
    """`frame` through a step made anew in each task; `schema` is the result's.

    `name` and a running number name the metrics in ``observedMetrics``.
    """
    carrier = t.StructType([t.StructField(gauge.name, t.DoubleType()) for gauge in gauges])
    fields = [t.StructField(field.name, field.dataType, True, field.metadata) for field in schema]
    full = t.StructType([*fields, t.StructField(CARRIER, carrier)])
    kind = pa.struct([(gauge.name, pa.float64()) for gauge in gauges])

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        step = make()
        last = None
        for batch in step.batches(batches):
            last = batch
            yield _with_carrier(batch, pa.nulls(batch.num_rows, kind))
        report = step.report()
        if report:
            yield _carrier_row(last, full, pa.array([report], kind))

    combined = [
        getattr(F, gauge.combine)(f"{CARRIER}.{gauge.name}").alias(gauge.name) for gauge in gauges
    ]
    carried = frame.mapInArrow(work, full)
    observed = carried.observe(f"{PREFIX}.{name}.{next(_numbers)}", *combined)
    return observed.filter(F.col(CARRIER).isNull()).drop(CARRIER)


def _with_carrier(batch: pa.RecordBatch, carrier: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([*batch.columns, carrier], [*batch.schema.names, CARRIER])


def _carrier_row(
    like: pa.RecordBatch | None, schema: t.StructType, carrier: pa.Array
) -> pa.RecordBatch:
    """A row of nulls with a carrier; of the types of the task's batches."""
    assert like is not None
    nulls = [pa.nulls(1, column.type) for column in like.columns]
    return pa.RecordBatch.from_arrays([*nulls, carrier], schema.names)
