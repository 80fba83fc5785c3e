"""join_table's plan "udf": a scalar function of the condition's columns, unfolded by the JVM.

events -> what each finds (Python gets the condition's columns, and nothing else)
       -> observe: the tasks' reports -> inline, or filter

What an event finds is a list of structs; a struct, where it can be one row at most; a boolean in
semi and anti joins. A task's report travels in the last value of its last batch, which
is known to be the last since a batch is held back until the next has come. The function is said
not to be deterministic, and ``observe`` stands behind it: so Spark neither computes it twice nor
moves a filter past it, and the reports count every event once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (as everybody writes it)
from pyspark.sql import types as t

from rivermouth.kernels.table_join import nested
from rivermouth.kernels.table_join.pairs import Pairs
from rivermouth.spark.engines.native.columns import event_columns, hidden, quoted
from rivermouth.spark.engines.stateless import REPORTS, report_name
from rivermouth.spark.engines.table_steps import MakeStep, cast
from rivermouth.spark.runtime.freeze_gc import freeze_gc
from rivermouth.spark.validation.join_table import WHERE, Join
from rivermouth.spec.conditions import AsOf, Nearest

FOUND = hidden("found")
_VALUE, _REPORT = "value", "report"
_NOTHING = "nothing"  # the field of a struct that would have none

Arguments = Iterator[pa.Array | tuple[pa.Array, ...]]


def join_by_function(events: DataFrame, join: Join, make: MakeStep) -> DataFrame:
    """The events with what a function of the condition's columns finds for them."""
    kind = t.StructType(
        [t.StructField(_VALUE, _kind(join)), t.StructField(_REPORT, t.StringType())]
    )
    find = arrow_function(_Reporting(join, make), kind).asNondeterministic()
    asked = find(*(F.col(quoted(name)) for name in join.left_columns))
    reports = F.collect_list(f"{FOUND}.{_REPORT}").alias(REPORTS)
    observed = events.select("*", asked.alias(FOUND)).observe(
        report_name(f"{WHERE}.{join.source.name}", join), reports
    )
    return _unfolded(observed, join)


def arrow_function(work: Callable[[Arguments], Iterator[pa.Array]], kind: t.DataType) -> Any:
    """A function of Spark's that is given its arguments batch by batch, all of a task in one go."""

    # Spark tells the kind of function by these annotations
    def each(arguments: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
        return work(arguments)

    # by its name: Spark 4.0 has none, and PySpark's own types leave it out
    return getattr(F, "arrow_udf")(each, kind)  # noqa: B009


def is_single(join: Join) -> bool:
    """Whether an event finds one row at most."""
    nearest = isinstance(join.spatial, Nearest) and join.spatial.k == 1
    return nearest or isinstance(join.range, AsOf)


def _kind(join: Join) -> t.DataType:
    """What a function gives for an event."""
    if join.how in ("semi", "anti"):
        return t.BooleanType()
    return row_type(join) if is_single(join) else t.ArrayType(row_type(join))


def row_type(join: Join) -> t.StructType:
    """What is brought from the table, at least one field."""
    return t.StructType(join.added or [t.StructField(_NOTHING, t.BooleanType())])


def _unfolded(observed: DataFrame, join: Join) -> DataFrame:
    """The rows of the result from what each event found."""
    events, value = event_columns(join), f"{FOUND}.{_VALUE}"
    names = [quoted(added.name) for added in join.added]
    if join.how in ("semi", "anti"):
        return observed.filter(value if join.how == "semi" else f"NOT {value}").selectExpr(*events)
    if is_single(join):
        kept = observed if join.how == "left" else observed.filter(f"{value} IS NOT NULL")
        return kept.selectExpr(*events, *(f"{value}.{name} AS {name}" for name in names))
    unfold = "inline_outer" if join.how == "left" else "inline"
    fields = ", ".join(names or [_NOTHING])
    unfolded = observed.selectExpr(*events, f"{unfold}({value}) AS ({fields})")
    return unfolded if names else unfolded.selectExpr(*events)


def found(
    join: Join, batch: pa.RecordBatch, pairs: Pairs, table: dict[str, pa.Array]
) -> tuple[pa.RecordBatch, int]:
    """What each event of a batch found, and how many joined rows that is."""
    count, matched = batch.num_rows, nested.matched(pairs.left, batch.num_rows)
    hits = int(np.count_nonzero(matched))
    if join.how in ("semi", "anti"):
        return _one(pa.array(matched)), hits if join.how == "semi" else count - hits
    make = nested.structs if is_single(join) else nested.lists
    rows = len(pairs.left) + (count - hits if join.how == "left" else 0)
    return _one(make(pairs.left, count, _brought(join, pairs, table))), rows


def listed(
    join: Join, batch: pa.RecordBatch, pairs: Pairs, table: dict[str, pa.Array]
) -> tuple[pa.RecordBatch, int]:
    """The list of what each event of a batch found, whatever can be known of its length."""
    brought = _brought(join, pairs, table)
    return _one(nested.lists(pairs.left, batch.num_rows, brought)), len(pairs.left)


def _one(value: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([value], [_VALUE])


def _brought(join: Join, pairs: Pairs, table: dict[str, pa.Array]) -> dict[str, pa.Array]:
    """The columns that the result has besides the events', a value per pair."""
    if not join.added:
        return {_NOTHING: pa.nulls(len(pairs.left), pa.bool_())}
    index = pa.array(pairs.right)
    columns = {new: table[old].take(index) for new, old in join.columns}
    if join.distance is not None:
        columns[join.distance] = pa.array(pairs.distance)
    return cast(join, columns)


@dataclass(frozen=True)
class _Reporting:
    """A task of the function, with its report in the last value of the last batch."""

    join: Join
    make: MakeStep

    def __call__(self, arguments: Arguments) -> Iterator[pa.Array]:
        """What the events of each batch found."""
        step, held = self.make(found), None
        for batch in step.batches(batches(self.join, arguments)):
            if held is not None:
                yield _carrying(held, None)
            held = batch.column(0)
        if held is not None:
            yield _carrying(held, json.dumps(step.report()))
        freeze_gc()


def batches(join: Join, arguments: Arguments) -> Iterator[pa.RecordBatch]:
    """The function's arguments as batches of the events' columns; without those of no rows."""
    for given in arguments:
        columns = list(given) if isinstance(given, tuple) else [given]
        if len(columns[0]):
            yield pa.RecordBatch.from_arrays(columns, list(join.left_columns))


def _carrying(value: pa.Array, report: str | None) -> pa.Array:
    reports = pa.nulls(len(value), pa.string())
    if report is not None:
        reports = pa.concat_arrays([reports[1:], pa.array([report])])
    return pa.StructArray.from_arrays([value, reports], [_VALUE, _REPORT])
