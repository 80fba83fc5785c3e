"""Changelogs of early events and trips: what they amount to, and what puts them right."""

from __future__ import annotations

import inspect
from collections.abc import Collection
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (as everybody writes it)
from pyspark.sql import types as t

from rivermouth.errors import ColumnError, DefinitionError, missing_column
from rivermouth.kernels.fences import query as fences
from rivermouth.kernels.trajectory.query import (
    CHANGE,
    DELETE,
    INSERT,
    KIND,
    REASON,
    RECORD,
    REVISION,
    UPDATE,
)
from rivermouth.kernels.trips import fold as trips
from rivermouth.spark import types
from rivermouth.spark.fence_events import events_of, fence_events
from rivermouth.spark.trips import trips as trips_of
from rivermouth.spark.validation.fence_events import check
from rivermouth.tables.source import Source

_AFFECTED = "_affected"  # a column of positions: whether their object has late ones
_WAS, _NOW = "_was", "_now"


def compact(log: DataFrame) -> DataFrame:
    """What a changelog amounts to: the newest revision of each row that is not deleted.

    Parameters
    ----------
    log
        All rows of ``rm.fence_events`` or ``rm.trips`` with ``early=True`` so far, and of its
        corrections, in any order; a row that is there twice counts once. Late and rejected
        positions are ignored.

    Returns
    -------
    DataFrame
        The log's columns without ``change``: each event, move or stay once, with its revision.

    Examples
    --------
    >>> events = rm.compact(spark.read.parquet("log"))  # doctest: +SKIP
    """
    columns = _columns("compact", log)
    newest = _newest(columns, _order(columns), _WAS)
    return (
        _grouped(log, columns, newest)
        .select(f"{_WAS}.*")
        .where(F.col(CHANGE) != DELETE)
        .drop(CHANGE)
    )


def correct_fence_events(
    log: DataFrame,
    positions: DataFrame,
    table: Source,
    *,
    late: DataFrame | None = None,
    **asked: Any,
) -> DataFrame:
    """The rows to append to a log of early events that make it right, whatever came how late.

    An ordinary batch job; nothing runs before the frame is used. Events are computed from all
    positions and compared with what the log amounts to. Correcting what is correct gives no rows.

    Parameters
    ----------
    log
        All rows of ``rm.fence_events(..., early=True)`` so far, and of its corrections.
    positions
        All positions, a batch frame: also those that were late.
    table
        The fences. Their newest version decides.
    late
        The positions that came too late: what ``rm.rejected`` returns for the stream's output, or
        any frame with the columns of `by`. Only the events of their objects are computed. None:
        those of all objects are, and events of objects without positions are deleted.
    asked
        The other arguments of the call that gave the log, by keyword: ``on``, ``by``, ``time`` and
        so on.

    Returns
    -------
    DataFrame
        Changes with the columns of the log, without ``kind`` and ``record``.

    Examples
    --------
    >>> late = rm.rejected(spark.read.parquet("log"))  # doctest: +SKIP
    >>> fixed = rm.correct_fence_events(log, history, zones, late=late, **asked)  # doctest: +SKIP
    """
    where = "correct_fence_events"
    _check_batch(where, log=log, positions=positions, late=late)
    columns = _columns(where, log)
    call = inspect.signature(fence_events).bind(positions, table, **asked)
    call.apply_defaults()
    arguments = {**call.arguments, "early": True, "late": "count"}
    buckets, by = arguments.pop("buckets"), arguments["by"]
    if late is not None:
        objects = _objects(where, late, [by] if isinstance(by, str) else list(by))
        arguments["positions"] = _marked(positions, objects)
        arguments["only"] = _AFFECTED
        log = log.join(objects, objects.columns, "left_semi")
    truth = events_of(check(**arguments), buckets)
    return _differences(log.select(*columns), truth.select(*columns))


def correct_trips(
    log: DataFrame, positions: DataFrame, *, late: DataFrame | None = None, **asked: Any
) -> DataFrame:
    """The rows to append to a log of early trips that make it right, whatever came how late.

    An ordinary batch job, as `correct_fence_events`: moves and stays are computed from all
    positions and compared with what the log amounts to.

    Parameters
    ----------
    log
        All rows of ``rm.trips(..., early=True)`` so far, and of its corrections.
    positions
        All positions, a batch frame: also those that were late.
    late
        The positions that came too late, or any frame with the columns of `by`. Only the rows of
        their objects are computed. None: those of all objects are.
    asked
        The other arguments of the call that gave the log, by keyword.

    Returns
    -------
    DataFrame
        Changes with the columns of the log, without ``record`` and ``reason``.

    Examples
    --------
    >>> fixed = rm.correct_trips(log, history, late=late, **asked)  # doctest: +SKIP
    """
    where = "correct_trips"
    _check_batch(where, log=log, positions=positions, late=late)
    columns = _columns(where, log)
    by = inspect.signature(trips_of).bind(positions, **asked).arguments["by"]
    if late is not None:
        objects = _objects(where, late, [by] if isinstance(by, str) else list(by))
        positions = positions.join(objects, objects.columns, "left_semi")
        log = log.join(objects, objects.columns, "left_semi")
    truth = trips_of(positions, **{**asked, "early": True, "late": "count"})
    return _differences(log.select(*columns), truth.select(*columns))


def _objects(where: str, late: DataFrame, by: list[str]) -> DataFrame:
    """The objects of late positions, each once."""
    for name in by:
        if name not in late.columns:
            raise missing_column(where, name, late.columns, side="the late positions", by="by")
    rows = late.where(F.col(KIND) == "late") if KIND in late.columns else late
    return rows.select(*by).distinct()


def _marked(positions: DataFrame, objects: DataFrame) -> DataFrame:
    """The positions with a column that says whether their object is one of these."""
    found = objects.withColumn(_AFFECTED, F.lit(True))
    marked = positions.join(found, objects.columns, "left")
    return marked.withColumn(_AFFECTED, F.col(_AFFECTED).isNotNull())


def _differences(log: DataFrame, truth: DataFrame) -> DataFrame:
    """The changes that make a log amount to these rows."""
    columns = log.columns
    tagged = log.withColumn(_NOW, F.lit(False)).unionByName(truth.withColumn(_NOW, F.lit(True)))
    of_truth = F.when(F.col(_NOW), 0)
    of_log = F.when(~F.col(_NOW), _order(columns))
    both = _grouped(
        tagged,
        columns,
        _newest(columns, of_log, _WAS),
        _newest(columns, of_truth, _NOW),
    )
    was, now = F.col(_WAS), F.col(_NOW)
    is_live = was.isNotNull() & (was[CHANGE] != DELETE)
    values = _values(columns)
    is_same = F.struct(*(was[name] for name in values)).eqNullSafe(
        F.struct(*(now[name] for name in values))
    )
    change = (
        F.when(now.isNotNull() & ~is_live, INSERT)
        .when(now.isNull() & is_live, DELETE)
        .when(now.isNotNull() & ~is_same, UPDATE)
    )
    revision = F.coalesce(was[REVISION], F.lit(-1)) + 1
    made = {CHANGE: change, REVISION: revision.cast("long")}
    row = F.coalesce(now, was)
    return both.select(*(made.get(name, row[name]).alias(name) for name in columns)).where(
        F.col(CHANGE).isNotNull()
    )


def _newest(columns: list[str], order: Column, name: str) -> Column:
    """The row with the largest `order`, those where it is null left out."""
    return F.max_by(F.struct(*columns), order).alias(name)


def _grouped(log: DataFrame, columns: list[str], *aggregates: Column) -> DataFrame:
    """Aggregates of the rows of each event."""
    others = (CHANGE, REVISION, *_values(columns))
    keys = [_key(log.schema[name]) for name in columns if name not in others]
    return log.where(F.col(CHANGE).isNotNull()).groupBy(*keys).agg(*aggregates)


def _key(field: t.StructField) -> Column:
    """What a column is grouped by; Spark cannot group by geometries."""
    column = F.col(f"`{field.name}`")
    return F.st_asbinary(column) if types.is_geometry(field.dataType) else column


def _order(columns: Collection[str]) -> Column:
    """Which row of an event counts: stream and correction may both give one of a revision."""
    return F.struct(REVISION, CHANGE, *_values(columns))


def _values(columns: Collection[str]) -> tuple[str, ...]:
    """The columns that a revision may change."""
    return fences.VALUES if fences.ENTERED in columns else trips.VALUES


def _columns(where: str, log: DataFrame) -> list[str]:
    """The columns of a log's changes."""
    values = _values(log.columns)
    for name in (CHANGE, REVISION, *values):
        if name not in log.columns:
            raise ColumnError(
                where,
                f"the log has no column {name!r}",
                there=f"its columns are {log.columns}",
                todo="Give the rows of rm.fence_events or rm.trips with early=True, with all their "
                "columns.",
            )
    others = {KIND, RECORD, REASON} - set(values) if RECORD in log.columns else ()  # of late="rows"
    return [name for name in log.columns if name not in others]


def _check_batch(where: str, **frames: DataFrame | None) -> None:
    for name, frame in frames.items():
        if frame is not None and frame.isStreaming:
            raise DefinitionError(
                where,
                f"{name} is a streaming frame",
                todo="Give what the stream has written, read with spark.read.",
            )
