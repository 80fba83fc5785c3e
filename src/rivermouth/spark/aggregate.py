"""aggregate: windows over records that arrive out of order, emitted early."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (as everybody writes it)
from pyspark.sql import types as t

from rivermouth.errors import ColumnError, DefinitionError, missing_column
from rivermouth.kernels.aggregation.processor import FUTURE, LATE, REJECTED, AggregateProcessor
from rivermouth.kernels.aggregation.routing import AggregateRouter, PartialsRouter
from rivermouth.kernels.aggregation.session_processor import processor_of
from rivermouth.kernels.aggregation.sessions import plan_of
from rivermouth.kernels.aggregation.state import FORMAT
from rivermouth.spark import types
from rivermouth.spark.engines.stateful import Input, Operator, bucket_count, future_limit, run
from rivermouth.spec import summaries as names
from rivermouth.spec.durations import Duration, positive_seconds
from rivermouth.spec.identity import identity, text_v1
from rivermouth.spec.slack import Quality, Slack, check_slack, max_delay, quality
from rivermouth.spec.summaries import Summary
from rivermouth.spec.windows import Session

Late = Literal["rows", "count"]

WHERE = "aggregate"


def aggregate(
    events: DataFrame,
    summary: Summary,
    *,
    slack: Slack | None = None,
    late: Late = "count",
    max_future: Duration = "1 hour",
    idle_timeout: Duration | None = None,
    buckets: int | None = None,
) -> DataFrame:
    """The windows of `summary`, each emitted once it has waited for its `slack`.

    At the end of a micro-batch the windows close whose end plus K the largest event time seen has
    reached. A record is late if any window that contains it has closed before; it still counts in
    those that are open. Late records are counted, and are rows on request, so that `correct` can
    correct the windows that had closed. The results of a batch frame are exact.

    Records of a micro-batch that follow each other by less than a session's gap are judged
    together: they are late if they reach into a session that has closed, or if theirs would have
    closed, and count in none then.

    Parameters
    ----------
    events
        A batch or streaming frame; also the result of another of our operators.
    summary
        What to compute: ``rm.summary(...)``.
    slack
        How long windows wait for late records: ``rm.quality(eps=, delta=)`` (the default),
        ``rm.fixed("3 seconds")`` or ``rm.max_delay()`` (the default of sessions, for which no
        quality can be promised).
    late
        "count": records that are late, too far in the future or without a time are counted in the
        query's metrics. "rows": they are also rows of the result, marked by a first column
        ``kind``; ``rm.rejected`` selects them.
    max_future
        A record whose time is farther ahead of the wall clock is rejected: one wrong clock would
        make all others late. Times without a zone may be 14 hours farther ahead.
    idle_timeout
        Close all windows when no record has come for so long. None: windows wait for records. It
        needs timers of Spark, with which an ``availableNow`` query does not end.
    buckets
        How many buckets the groups are hashed into. None: the session's shuffle partitions, at
        most 32; one where there are no groups. A checkpoint keeps its number.

    Returns
    -------
    DataFrame
        Groups, ``window_start`` (included), ``window_end`` (not included), the aggregates, and

        records
            How many records the result is computed from.
        coverage
            The share of the window's records that this was estimated to be, from recent delays.
        slack
            K when the window closed, in seconds.
        revision
            0; `correct` counts on from there.

        With ``late="rows"`` also ``kind`` ("row", "late", "future", "rejected"), ``record`` (the
        whole record of a row of another kind than "row") and ``reason`` (why it was rejected).
    """
    return aggregated(
        events, summary, slack=slack, late=late,
        max_future=max_future, idle_timeout=idle_timeout, buckets=buckets,
    )  # fmt: skip


def aggregated(
    events: DataFrame, summary: Summary, *, slack: Slack | None, late: Late, max_future: Duration,
    idle_timeout: Duration | None, buckets: int | None, partials: bool = False,
) -> DataFrame:  # fmt: skip
    """As `aggregate`; with `partials` also rows that hold the partials of what comes."""
    slack = slack_of(WHERE, slack, summary)
    arrow_types = _check(events.schema, summary, late)
    columns = tuple(arrow_types)
    plan = plan_of(
        summary, {name: arrow_types[name] for name in summary.columns}, isinstance(slack, Quality)
    )
    record = pa.struct(list(arrow_types.items())) if late == "rows" else None
    arrow = plan.schema(record, partials=partials)
    count = bucket_count(events.sparkSession, buckets, where=WHERE) if summary.by else 1
    future = future_limit(max_future, arrow_types[summary.time], where=WHERE)
    timeout = positive_seconds(idle_timeout, where="aggregate(idle_timeout=)")
    timeout_us = None if timeout is None else round(timeout * 1e6)

    # another quality can go on from the same state, if what is kept of windows is the same
    state = identity(format=FORMAT, summary=summary, columns=columns, shapes=plan.with_stats)
    state_v1 = f"{FORMAT} {text_v1(summary)} {columns} {plan.with_stats}"

    def router() -> AggregateRouter | PartialsRouter:
        if late == "rows":
            return AggregateRouter(summary, columns, count, future)
        return PartialsRouter(plan, count, future)

    def make(_: int) -> AggregateProcessor:
        return processor_of(plan, slack, arrow, timeout_us)

    schema = _spark_schema(arrow, events.schema, summary)
    return run(
        [Input(events.select(*columns), router)],
        Operator(WHERE, make, schema, arrow, count, state, state_v1, timeout),
    )


def slack_of(where: str, slack: Slack | None, summary: Summary) -> Slack:
    """The slack that was given, or the default; no quality can be promised for sessions."""
    is_session = isinstance(getattr(summary, "window", None), Session)
    if slack is None:
        return max_delay() if is_session else quality()
    if is_session and isinstance(slack, Quality):
        raise DefinitionError(
            where,
            "rm.quality cannot be promised for sessions",
            there="a late record changes which sessions there are, not only their values",
            todo="Use slack=rm.max_delay(), which is their default, or rm.fixed(...).",
        )
    return check_slack(where, slack)


def rejected(frame: DataFrame) -> DataFrame:
    """The records that are not in a result, or not in all of it: those of ``late="rows"``.

    Of `aggregate`, `fence_events` and `trips`: ``kind`` ("late", "future" or "rejected"), the
    record's own columns, and last ``reason``, unless the record has a column of that name. Of
    `join_window` and `join_interval`: the rows of these kinds.
    """
    if names.KIND not in frame.columns:
        raise ColumnError(
            "rejected",
            f"the frame has no column {names.KIND!r}",
            there=f"its columns are {frame.columns}",
            todo='Ask the operator for late="rows".',
        )
    rows = frame.where(F.col(names.KIND).isin(LATE, FUTURE, REJECTED))
    if {names.RECORD, names.REASON} <= set(frame.columns):
        own = frame.select(f"{names.RECORD}.*").columns
        reason = [] if names.REASON in own else [names.REASON]
        return rows.select(names.KIND, f"{names.RECORD}.*", *reason)
    return rows


def _check(events: t.StructType, summary: Summary, late: str) -> dict[str, pa.DataType]:
    """The Arrow types of the columns that are needed, if the definition is valid."""
    if not isinstance(summary, Summary):
        raise DefinitionError(
            WHERE, f"{summary!r} is not a summary", todo="Write one with rm.summary(...)."
        )
    if late not in ("rows", "count"):
        raise DefinitionError(WHERE, f"late is {late!r}", todo="Use 'rows' or 'count'.")
    for name in summary.columns:
        if name not in events.names:
            raise missing_column(WHERE, name, events.names, side="the events", by="summary")
    arrow_types = {
        name: types.to_arrow(events[name].dataType, where=WHERE, column=name)
        for name in (events.names if late == "rows" else summary.columns)
    }
    for role, name in (("time", summary.time), *(("by", name) for name in summary.by)):
        is_time, dtype = role == "time", arrow_types[name]
        if not pa.types.is_timestamp(dtype) if is_time else pa.types.is_nested(dtype):
            raise ColumnError(
                WHERE,
                f"{role} names column {name!r}, which is of type "
                f"{events[name].dataType.simpleString()}",
                todo="Cast it to timestamp." if is_time else "Group by its parts.",
            )
    return arrow_types


def _spark_schema(arrow: pa.Schema, events: t.StructType, summary: Summary) -> t.StructType:
    """The result's schema; columns of the events keep their Spark types."""
    time = events[summary.time].dataType
    kept: dict[str, t.DataType] = {name: events[name].dataType for name in summary.by}
    kept |= {names.START: time, names.END: time}
    kept[names.RECORD] = t.StructType([t.StructField(each.name, each.dataType) for each in events])
    fields = t.StructType()
    for field in arrow:
        made = kept.get(field.name) or types.to_spark(field.type, where=WHERE, column=field.name)
        fields = fields.add(field.name, made)
    return fields
