"""rm.exact: starts the stream, its backup and its corrections."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as t
from pyspark.sql.streaming.query import StreamingQuery

from rivermouth.errors import DefinitionError
from rivermouth.kernels.aggregation.sessions import plan_of
from rivermouth.spark import types
from rivermouth.spark.aggregate import aggregated, slack_of
from rivermouth.spark.engines.stateful import future_limit
from rivermouth.spark.exact.convert import convert
from rivermouth.spark.exact.corrector import Corrector
from rivermouth.spark.exact.pieces import EMITTED, WRITTEN_DDL
from rivermouth.spark.exact.results import Results, Schemas, has_partials
from rivermouth.spark.exact.sink import Sink, sink_of
from rivermouth.spark.exact.snapshot import Snapshot
from rivermouth.spark.exact.store import WHERE, Correction, Store
from rivermouth.spark.exact.tasks import backup_writer, log_writer
from rivermouth.spark.runtime.folders import check_hosts
from rivermouth.spec.durations import Duration, microseconds, positive_seconds
from rivermouth.spec.locations import Location
from rivermouth.spec.slack import Quality, Slack
from rivermouth.spec.summaries import KIND, PARTIALS, REASON, RECORD, Summary

History = DataFrame | Callable[[], DataFrame]


@dataclass(frozen=True)
class Exact:
    """An aggregation that is defined but not started; `exact` makes it."""

    events: DataFrame
    summary: Summary
    slack: Slack
    store: Store
    log: DataFrame
    schemas: Schemas
    max_future: int
    span: int
    wait: int
    history: History | None
    sink: Sink | None
    retention: int | None

    def start(
        self, *, availableNow: bool | None = None, processingTime: str | None = None,  # noqa: N803
        name: str | None = None,
    ) -> Running:  # fmt: skip
        """Start the stream, or resume it.

        Parameters
        ----------
        availableNow, processingTime
            The trigger, in Spark's words. Neither: a batch as soon as the last is done.
        name
            The query's name.

        Raises
        ------
        StateError
            When the store belongs to another aggregation.
        FolderError
            When the store is a path, and not the same folder on every host of the cluster.
        """
        check_hosts(self.events.sparkSession, self.store.path, where=WHERE)
        spark, store = self.events.sparkSession, self.store
        if store.claim(self.summary, self.events.schema):
            convert(spark, store, self.schemas, max_future=self.max_future)
            store.define(self.summary, self.events.schema)

        def commit(written: DataFrame, batch: int) -> None:
            store.commit_batch(batch, written.toArrow())

        writer = self.log.writeStream.foreachBatch(commit).outputMode("append")
        writer = writer.option("checkpointLocation", store.checkpoint_path)
        if name is not None:
            writer = writer.queryName(name)
        if availableNow or processingTime:
            writer = writer.trigger(
                **({"availableNow": True} if availableNow else {"processingTime": processingTime})
            )
        query = writer.start()
        corrector = Corrector(
            query, store, self._results, span=self.span, wait=self.wait, sink=self.sink,
            retention=self.retention,
        )  # fmt: skip
        corrector.start()
        return Running(self, query, corrector)

    def _results(self, snapshot: Snapshot | None = None) -> Results:
        """The store at a moment, or as of now."""
        if snapshot is None:  # of a running query it was claimed when that started
            self.store.check(self.summary, self.events.schema)
            snapshot = self.store.snapshot()
        history = self.history() if callable(self.history) else self.history
        return Results(self.events.sparkSession, self.store, self.schemas, snapshot, history)

    def results(self) -> DataFrame:
        """The table as of now: one row for each window, each marked ``early`` or ``exact``.

        A result is exact once a correction has covered it and no late record has come for its
        window since.
        """
        return self._results().results()

    def changelog(self, *, after: int | None = None) -> DataFrame:
        """Every change of the table so far: insert, update, delete, with revision and time.

        `after` leaves out what was emitted until then, in microseconds since 1970.
        """
        return self._results().changes(after)

    def records(self) -> DataFrame:
        """The backup: every record so far, with the events' columns; of ``history=`` that."""
        return self._results().records

    def rejected(self) -> DataFrame:
        """The records that came late, too far ahead of time or without a time, as ``rm.rejected``.

        Only late ones are in results, after their correction; those that came when their windows
        had been forgotten (``retention=``) have the kind ``expired``, and are in none.
        """
        return self._results().rejected

    def promise(self) -> dict[str, Any]:
        """Whether the early results kept (eps, delta), by what is known now.

        Runs a Spark job.

        Returns
        -------
        dict
            windows
                How many early results there are.
            coverage
                The mean share of the records that they had.
            above_eps
                The share of them that was off by eps or more, for each aggregate (of quantiles the
                error is one of rank, of `top` and `skyline` the share of records that were missing;
                a user's own aggregates are left out).
            eps
                What is promised; None, and the following not there, where nothing is.
            delta
                The share that may be off by eps or more.
            missed
                The share that was, in any aggregate.
            missed_bounds
                Between which shares the true one lies, each bound with 95 % certainty. Windows that
                follow one another miss together, so the bounds are wider than for as many
                independent ones. None: too few windows to tell.
            verdict
                "kept" if the upper bound is at most delta, "missed" if the lower one is above it,
                else "open": it cannot be told yet.
        """
        return self._results().promise(self.slack if isinstance(self.slack, Quality) else None)


@dataclass(frozen=True)
class Running:
    """A running exact aggregation."""

    job: Exact
    query: StreamingQuery
    _corrector: Corrector

    @property
    def isActive(self) -> bool:  # noqa: N802  (Spark's name)
        """Whether the stream runs, or has ended and its last corrections are due."""
        failed = self._corrector.error is not None or self.query.exception() is not None
        return self.query.isActive or not (self._corrector.finished or failed)

    def corrections(self) -> list[Correction]:
        """The corrections so far: ``rows``, ``seconds`` and time ``at`` which each was made.

        Reads small files of the store; no Spark job runs.
        """
        return self.job.store.corrections()

    def results(self) -> DataFrame:
        """As `Exact.results`."""
        return self.job.results()

    def changelog(self, *, after: int | None = None) -> DataFrame:
        """As `Exact.changelog`."""
        return self.job.changelog(after=after)

    def records(self) -> DataFrame:
        """As `Exact.records`."""
        return self.job.records()

    def rejected(self) -> DataFrame:
        """As `Exact.rejected`."""
        return self.job.rejected()

    def promise(self) -> dict[str, Any]:
        """As `Exact.promise`."""
        return self.job.promise()

    def awaitTermination(self, timeout: int | None = None) -> bool:  # noqa: N802  (Spark's name)
        """Wait for the stream's end and the corrections after it; whether it has ended.

        Raises what ended it, where that was an error.
        """
        self.query.awaitTermination(timeout)
        if self.query.isActive:
            return False
        self._end()
        return True

    def stop(self) -> None:
        """Stop the stream and correct everything that is left."""
        self.query.stop()
        self._end()

    def _end(self) -> None:
        if not self._corrector.finished:
            self._corrector.join()
            if self._corrector.error is not None:
                raise self._corrector.error
            self._corrector.finish()


def exact(
    events: DataFrame,
    summary: Summary,
    *,
    store: str | os.PathLike[str],
    slack: Slack | None = None,
    span: Duration = "5 seconds",
    wait: Duration = "1 minute",
    history: History | None = None,
    sink: Any = None,
    retention: Duration | None = None,
    max_future: Duration = "1 hour",
    idle_timeout: Duration | None = None,
    buckets: int | None = None,
) -> Exact:
    """Aggregate a stream: early results soon, corrections until all are exact.

    Every record is backed up, results of windows are emitted as soon as `slack` allows, late
    records are kept, and their windows are recomputed from the backup. Nothing runs before
    ``.start()``.

    Parameters
    ----------
    events
        A streaming frame.
    summary
        What is computed of each window: ``rm.summary(...)``.
    store
        A folder for all of it, checkpoint included: the log of results, late records and backup
        as Parquet, and the corrections. A path, or a URI that both Spark and pyarrow.fs know, as in
        `snapshot`.
    slack
        How long windows wait; `quality` with its defaults if it is not given, of sessions
        `max_delay`.
    span, wait
        Late records are corrected when their event times span more than `span`, or when the
        oldest of them has waited for `wait`; and at the end.
    history
        All records, where you keep them yourself: a frame that is read again at each correction,
        or a function that returns one. None: the store's backup.
    sink
        Where the results go besides: a table of ``rm.tables.postgres``, which is created if it does
        not exist and upserted by key; or a function of a frame of changes (see ``changelog``),
        which may get the newest changes again after a restart.
    retention
        How far the store reaches back in event time, from the last window that all buckets have
        closed; None: for ever. Records, results and late records of earlier windows are deleted,
        at some later compaction: results that are to stay belong into a `sink`. A record that
        arrives for such a window is kept as ``expired`` (see ``rejected``), and corrects nothing.
        No shorter than `max_future`, and not for sessions or with `history`.
    max_future, idle_timeout, buckets
        As in `aggregate`.

    Examples
    --------
    >>> job = rm.exact(events, s, store="/data/earnings")  # doctest: +SKIP
    >>> running = job.start(processingTime="1 second")  # doctest: +SKIP
    >>> running.results().where("status = 'early'").show()  # doctest: +SKIP
    """
    if not events.isStreaming:
        raise DefinitionError(
            WHERE,
            "the events are a batch frame, whose aggregate is exact",
            todo="Use rm.aggregate(events, summary).",
        )
    kept_for = _retention(retention, summary, history, max_future)
    slack = slack_of(WHERE, slack, summary)
    log = aggregated(
        events, summary, slack=slack, late="rows", max_future=max_future,
        idle_timeout=idle_timeout, buckets=buckets,
        partials=history is None and has_partials(summary),
    )  # fmt: skip
    path, schemas = Location.of(store), _schemas(log.schema, events.schema, summary)
    if not path.is_uri and os.path.isfile(path):
        raise DefinitionError(WHERE, f"store={path!r} is a file", todo="Name a folder.")
    record = {field.name: field.type for field in schemas.arrow_record}
    written = log.mapInArrow(log_writer(path, schemas.plan, record), WRITTEN_DDL)
    if history is None:
        backup = backup_writer(path, schemas.plan, record)
        written = written.unionAll(events.mapInArrow(backup, WRITTEN_DDL))
    return Exact(
        events,
        summary,
        slack,
        Store(path),
        written,
        schemas,
        future_limit(max_future, schemas.plan.types[summary.time], where=WHERE),
        microseconds(span, where="exact(span=)"),
        microseconds(wait, where="exact(wait=)"),
        history,
        sink_of(sink, summary),
        kept_for,
    )


def _retention(
    retention: Duration | None, summary: Summary, history: History | None, max_future: Duration
) -> int | None:
    """A retention in microseconds; what a correction would need cannot be forgotten."""
    seconds = positive_seconds(retention, where="exact(retention=)")
    if seconds is None:
        return None
    if not has_partials(summary):
        raise DefinitionError(
            WHERE,
            "retention= is not for sessions, which may have begun at any time",
            todo="Leave retention= out, or give a tumbling or sliding window.",
        )
    if history is not None:
        raise DefinitionError(
            WHERE,
            "retention= is about the store's records, and history= is given instead of them",
            todo="Leave one of the two out.",
        )
    kept_for = round(seconds * 1e6)
    if kept_for < microseconds(max_future, where="exact(max_future=)"):
        raise DefinitionError(
            WHERE,
            f"retention={retention!r} is shorter than max_future={max_future!r}",
            there="a record from one wrong clock would make the store forget all others",
            todo="Give a longer retention=, or a shorter max_future=.",
        )
    return kept_for


def _schemas(log: t.StructType, events: t.StructType, summary: Summary) -> Schemas:
    others = (KIND, RECORD, REASON, PARTIALS)
    results = t.StructType([each for each in log if each.name not in others])
    arrow = {
        each.name: types.to_arrow(each.dataType, where=WHERE, column=each.name) for each in events
    }
    plan = plan_of(summary, {name: arrow[name] for name in summary.columns})
    record = t.StructType([t.StructField(each.name, each.dataType) for each in events])
    results = results.add(EMITTED, t.TimestampType())
    return Schemas(plan, results, record, pa.struct(list(arrow.items())))
