"""rm.exact: starts the stream, its backup and its corrections."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (as everybody writes it)
from pyspark.sql import types as t
from pyspark.sql.streaming.query import StreamingQuery

from rivermouth.errors import DefinitionError
from rivermouth.spark.aggregate import aggregate
from rivermouth.spark.exact.corrector import Corrector
from rivermouth.spark.exact.results import Results
from rivermouth.spark.exact.sink import Sink, sink_of
from rivermouth.spark.exact.store import BACKUP, DAY, EMITTED, WHERE, Correction, Store
from rivermouth.spark.runtime.folders import check_hosts
from rivermouth.spec.durations import Duration, microseconds
from rivermouth.spec.locations import Location
from rivermouth.spec.slack import Quality, Slack, quality
from rivermouth.spec.summaries import KIND, REASON, RECORD, START, Summary

History = DataFrame | Callable[[], DataFrame]
_DAY_SECONDS = 86_400


@dataclass(frozen=True)
class Exact:
    """An aggregation that is defined but not started; `exact` makes it."""

    events: DataFrame
    summary: Summary
    slack: Slack
    store: Store
    log: DataFrame
    span: int
    wait: int
    history: History | None
    sink: Sink | None

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
        self.store.claim(self.summary, self.events.schema)
        writer = self.log.writeStream.format("parquet").partitionBy(KIND, DAY).outputMode("append")
        writer = writer.option("checkpointLocation", self.store.checkpoint_path)
        if name is not None:
            writer = writer.queryName(name)
        if availableNow or processingTime:
            writer = writer.trigger(
                **({"availableNow": True} if availableNow else {"processingTime": processingTime})
            )
        query = writer.start(self.store.log_path)
        corrector = Corrector(
            query, self.store, self._results, span=self.span, wait=self.wait, sink=self.sink
        )
        corrector.start()
        return Running(self, query, corrector)

    def _results(self) -> Results:
        """The store as of now."""
        schema = t.StructType(
            [each for each in self.log.schema if each.name not in (KIND, RECORD, REASON, DAY)]
        )
        history = self.history() if callable(self.history) else self.history
        return Results.now(self.events.sparkSession, self.store, self.summary, schema, history)

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

    def promise(self) -> dict[str, Any]:
        """Whether the early results kept (eps, delta), by what is known now.

        Runs a Spark job. ``above_eps`` is the share of windows whose early result was off by eps
        or more, for each aggregate (of quantiles the error is one of rank; a user's own aggregates
        are left out); ``coverage`` the mean share of the records that early results had.
        """
        eps = self.slack.eps if isinstance(self.slack, Quality) else None
        return self._results().promise(eps)


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
        """The corrections so far, each with its ``rows`` and the time ``at`` which it was made.

        Reads small files of the store; no Spark job runs.
        """
        return self.job.store.corrections()

    def results(self) -> DataFrame:
        """As `Exact.results`."""
        return self.job.results()

    def changelog(self, *, after: int | None = None) -> DataFrame:
        """As `Exact.changelog`."""
        return self.job.changelog(after=after)

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
        How long windows wait; `quality` with its defaults if it is not given.
    span, wait
        Late records are corrected when their event times span more than `span`, or when the
        oldest of them has waited for `wait`; and at the end.
    history
        All records, where you keep them yourself: a frame that is read again at each correction,
        or a function that returns one. None: the store's backup.
    sink
        Where the results go besides: a table of ``rm.tables.postgres``, which is created if it does
        not exist and upserted by key; or a function of a frame of changes (see ``changelog``),
        which may get the newest changes twice after a crash.
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
    slack = quality() if slack is None else slack
    log = aggregate(
        events, summary, slack=slack, late="rows",
        max_future=max_future, idle_timeout=idle_timeout, buckets=buckets,
    )  # fmt: skip
    log = log.withColumn(EMITTED, F.current_timestamp())
    if history is None:
        backup = events.select(F.lit(BACKUP).alias(KIND), F.struct(*events.columns).alias(RECORD))
        backup = backup.withColumn(EMITTED, F.current_timestamp())
        log = log.unionByName(backup, allowMissingColumns=True)
    log = log.withColumn(
        DAY, _day(F.coalesce(START, F.col(RECORD)[summary.time]), log.schema[START])
    )
    return Exact(
        events,
        summary,
        slack,
        Store(Location.of(store), log.schema),
        log,
        microseconds(span, where="exact(span=)"),
        microseconds(wait, where="exact(wait=)"),
        history,
        sink_of(sink, summary),
    )


def _day(time: Column, field: t.StructField) -> Column:
    """The day since 1970 in UTC, whatever the session's time zone: it only names folders."""
    if isinstance(field.dataType, t.TimestampNTZType):
        return F.datediff(F.to_date(time), F.lit("1970-01-01")).cast("int")
    return F.floor(F.unix_seconds(time) / _DAY_SECONDS).cast("int")
