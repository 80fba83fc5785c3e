"""aggregate: windows over records that come out of order, answered soon."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (as everybody writes it)
from pyspark.sql import types as t

from rivermouth.errors import ColumnError, DefinitionError, missing_column
from rivermouth.kernels.aggregation.output import Output
from rivermouth.kernels.aggregation.partials import Book
from rivermouth.kernels.aggregation.processor import ROW, AggregateStepper
from rivermouth.kernels.aggregation.routing import AggregateRouter
from rivermouth.kernels.aggregation.state import FORMAT
from rivermouth.spark import types
from rivermouth.spark.engines.stateful import Input, Operator, bucket_count, run
from rivermouth.spec import summaries as names
from rivermouth.spec.durations import Duration, microseconds, positive_seconds
from rivermouth.spec.identity import identity, text_v1
from rivermouth.spec.slack import Quality, Slack, check_slack, quality
from rivermouth.spec.summaries import Summary

Late = Literal["rows", "count"]

WHERE = "aggregate"
_ZONES = 14 * 3_600_000_000  # how far a local time without a zone may be ahead of UTC


def aggregate(
    events: DataFrame,
    summary: Summary,
    *,
    slack: Slack | None = None,
    late: Late = "rows",
    max_future: Duration = "1 hour",
    idle_timeout: Duration | None = None,
    buckets: int | None = None,
) -> DataFrame:
    """The windows of `summary`, each answered once it has waited as long as `slack` says.

    A stream's rows are judged by the largest event time seen in earlier micro-batches. A record
    is late if any window that contains it has closed. It still counts in those that are open, and
    is given back, so that `correct` can mend the others. Of a batch frame all windows come out
    exact.

    Parameters
    ----------
    events
        A batch or streaming frame; also the result of another of our operators.
    summary
        What to compute: ``rm.summary(...)``.
    slack
        How long windows wait for late records: ``rm.quality(eps=, delta=)`` (the default),
        ``rm.fixed("3 seconds")`` or ``rm.max_delay()``.
    late
        "rows": records that are late, too far ahead or without a time come as rows, too, told
        apart by a first column ``kind``; ``rm.late`` takes them out. "count": they are only
        counted, in the query's metrics, and the result has no such columns.
    max_future
        A record whose time is farther ahead of the wall clock is set aside: one clock that is
        wrong would make all others late. Times without a zone may be 14 hours farther ahead.
    idle_timeout
        Close all windows when no record has come for so long. None: windows wait for records. It
        needs timers of Spark, with which an ``availableNow`` query does not end.
    buckets
        Into how many parts the groups are divided. None: the session's shuffle partitions, at
        most 32; one where there are no groups. A checkpoint keeps its number.

    Returns
    -------
    DataFrame
        Groups, ``window_start`` (included), ``window_end`` (not included), the aggregates, and

        records
            How many records the answer is made of.
        coverage
            The share of the window's records that this was expected to be, from recent delays.
        slack
            K when the window closed, in seconds.
        revision
            0; `correct` counts on from there.

        With ``late="rows"`` also ``kind`` ("row", "late", "future", "set aside"), ``record`` (the
        record that is not a "row", whole) and ``reason`` (why it was set aside).
    """
    slack = quality() if slack is None else check_slack(WHERE, slack)
    kinds = _check(events.schema, summary, late)
    columns = tuple(events.columns) if late == "rows" else summary.columns
    book = Book(
        summary, {name: kinds[name] for name in summary.columns}, isinstance(slack, Quality)
    )
    output = _output(events.schema, book, late)
    record = pa.struct(list(kinds.items())) if late == "rows" else None
    arrow = Output.of(book, record).schema
    count = bucket_count(events.sparkSession, buckets, where=WHERE) if summary.by else 1
    far = microseconds(max_future, where="aggregate(max_future=)")
    if kinds[summary.time].tz is None:
        far += _ZONES
    silent = positive_seconds(idle_timeout, where="aggregate(idle_timeout=)")
    wait = None if silent is None else round(silent * 1e6)

    # another promise can go on from the same state, if what is kept of windows is the same
    state = identity(format=FORMAT, summary=summary, columns=columns, shapes=book.shapes)
    state_v1 = f"{FORMAT} {text_v1(summary)} {columns} {book.shapes}"

    def make(_: int) -> AggregateStepper:
        return AggregateStepper(book, slack, Output(arrow), wait)

    return run(
        [Input(events, lambda: AggregateRouter(summary, columns, count, far))],
        Operator(WHERE, make, output, arrow, count, state, state_v1, silent),
    )


def late(frame: DataFrame) -> DataFrame:
    """The records that a stateful operator's ``late="rows"`` gave back.

    Of `aggregate`: ``kind`` ("late", "future" or "set aside") and the record's own columns. Of
    others: their rows whose ``kind`` is not "row".
    """
    if names.KIND not in frame.columns:
        raise ColumnError(
            "late",
            f"the frame has no column {names.KIND!r}",
            there=f"its columns are {frame.columns}",
            todo='Ask the operator for late="rows".',
        )
    rows = frame.where(F.col(names.KIND) != ROW)
    if {names.RECORD, names.REVISION} <= set(frame.columns):
        return rows.select(names.KIND, f"{names.RECORD}.*")
    return rows


def _check(events: t.StructType, summary: Summary, late: str) -> dict[str, pa.DataType]:
    """The Arrow types of the columns that are needed, if the question makes sense."""
    if not isinstance(summary, Summary):
        raise DefinitionError(
            WHERE, f"{summary!r} is not a summary", todo="Write one with rm.summary(...)."
        )
    if late not in ("rows", "count"):
        raise DefinitionError(WHERE, f"late is {late!r}", todo="Use 'rows' or 'count'.")
    for name in summary.columns:
        if name not in events.names:
            raise missing_column(WHERE, name, events.names, side="the events", by="summary")
    wanted = events.names if late == "rows" else summary.columns
    kinds = {
        name: types.to_arrow(events[name].dataType, where=WHERE, column=name) for name in wanted
    }
    if not pa.types.is_timestamp(kinds[summary.time]):
        raise ColumnError(
            WHERE,
            f"time names column {summary.time!r}, which is of type "
            f"{events[summary.time].dataType.simpleString()}",
            todo="Cast it to timestamp.",
        )
    for name in summary.by:
        if pa.types.is_nested(kinds[name]):
            raise ColumnError(
                WHERE,
                f"by names column {name!r}, which is of type "
                f"{events[name].dataType.simpleString()}",
                todo="Group by its parts.",
            )
    return kinds


def _output(events: t.StructType, book: Book, late: str) -> t.StructType:
    """The result's schema."""
    time = events[book.summary.time].dataType
    fields = [
        *((name, events[name].dataType) for name in book.summary.by),
        (names.START, time),
        (names.END, time),
        *(
            (field.name, types.to_spark(field.type, where=WHERE, column=field.name))
            for field in book.plan.results
        ),
        (names.RECORDS, t.LongType()),
        (names.COVERAGE, t.DoubleType()),
        (names.SLACK, t.DoubleType()),
        (names.REVISION, t.LongType()),
    ]
    if late == "rows":
        record = t.StructType([t.StructField(field.name, field.dataType) for field in events])
        fields = [
            (names.KIND, t.StringType()),
            *fields,
            (names.RECORD, record),
            (names.REASON, t.StringType()),
        ]
    return t.StructType([t.StructField(name, kind) for name, kind in fields])
