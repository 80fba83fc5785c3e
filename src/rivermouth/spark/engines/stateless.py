"""The stateless engine: a step over Arrow batches, with its report travelling beside the rows.

A task's report leaves Python in a carrier row: one row whose data columns are null and whose
column `CARRIER` holds the report as JSON. ``observe`` gathers the carriers into the query's
progress and a filter takes them out again: public API only, and no second pass. One list is
gathered rather than a sum per number, since Spark updates an observed sum at every row (0.5
CPU-seconds per million rows for nine of them, against nothing to be seen for the list).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (as everybody writes it)
from pyspark.sql import types as t

from rivermouth.spark.runtime.freeze_gc import freeze_gc
from rivermouth.tables.worker_cache import WorkerCache

CARRIER = "_rivermouth"
#: what our names in ``observedMetrics`` start with, and the field that holds the reports
PREFIX = "rivermouth"
REPORTS = "tasks"

_numbers = itertools.count(1)
_abouts: WorkerCache[str, Any] = WorkerCache(size=256)


class Step(Protocol):
    """What is done in a task: batches in, batches out, and a report at the end."""

    def batches(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The result of each batch."""
        ...

    def report(self) -> dict[str, Any]:
        """The task's numbers; asked once, after the last batch, if there was one."""
        ...


def run(
    frame: DataFrame,
    make: Callable[[], Step],
    schema: t.StructType,
    *,
    name: str,
    about: Any = None,
) -> DataFrame:
    """`frame` through a step made anew in each task; `schema` is the result's.

    `name` and a running number name the reports in ``observedMetrics``; under that name `about`,
    what was asked for, is known to those who look on.
    """

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        step, last = make(), None
        for batch in step.batches(batches):
            last = batch
            yield _with_carrier(batch.columns, pa.nulls(batch.num_rows, pa.string()), batch)
        if last is not None:
            nulls = [pa.nulls(1, column.type) for column in last.columns]
            yield _with_carrier(nulls, pa.array([json.dumps(step.report())]), last)
        freeze_gc()

    observed_as = report_name(name, about)
    carried = frame.mapInArrow(
        work, t.StructType([*nullable(schema), t.StructField(CARRIER, t.StringType())])
    )
    observed = carried.observe(observed_as, F.collect_list(CARRIER).alias(REPORTS))
    return observed.filter(F.col(CARRIER).isNull()).drop(CARRIER)


def nullable(schema: t.StructType) -> t.StructType:
    """The schema, any of whose columns may be null."""
    fields = [t.StructField(field.name, field.dataType, True, field.metadata) for field in schema]
    return t.StructType(fields)


def about(observed_as: str) -> Any:
    """What was asked for under this name in this process; None where that is not known."""
    return _abouts.find(observed_as)


def report_name(name: str, about: Any = None) -> str:
    """What an operator's reports are called in ``observedMetrics``; another one each time.

    Under that name `about`, what was asked for, can be found in this process.
    """
    observed_as = f"{PREFIX}.{name}.{next(_numbers)}"
    if about is not None:
        _abouts.put(observed_as, about)
    return observed_as


def _with_carrier(
    columns: list[pa.Array], carrier: pa.Array, like: pa.RecordBatch
) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([*columns, carrier], [*like.schema.names, CARRIER])
