"""exact: the aggregation with everything wired."""

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
from rivermouth.spark.exact.corrector import Follower, Receiver, Rules
from rivermouth.spark.exact.results import Answers
from rivermouth.spark.exact.sink import receiver_of
from rivermouth.spark.exact.store import BACKUP, DAY, EMITTED, WHERE, Correction, Store
from rivermouth.spec.durations import Duration, microseconds
from rivermouth.spec.slack import Quality, Slack, quality
from rivermouth.spec.summaries import KIND, RECORD, START, Summary
from rivermouth.tables.files import located

History = DataFrame | Callable[[], DataFrame]
_DAY_SECONDS = 86_400


@dataclass(frozen=True)
class Exact:
    """An aggregation that is defined but not started; `exact` makes it."""

    events: DataFrame
    summary: Summary
    slack: Slack
    store: Store
    answered: t.StructType
    written: DataFrame
    rules: Rules
    history: History | None
    receiver: Receiver | None

    def start(
        self, *, availableNow: bool | None = None, processingTime: str | None = None,  # noqa: N803
        name: str | None = None,
    ) -> Running:  # fmt: skip
        """Start the stream, or take it up where it was left.

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
        """
        self.store.claim(self.summary, self.events.schema)
        writer = self.written.writeStream.format("parquet").partitionBy(KIND, DAY)
        writer = writer.option("path", self.store.log)
        writer = writer.option("checkpointLocation", self.store.checkpoint).outputMode("append")
        if name is not None:
            writer = writer.queryName(name)
        if availableNow or processingTime:
            writer = writer.trigger(
                **({"availableNow": True} if availableNow else {"processingTime": processingTime})
            )
        query = writer.start()
        follower = Follower(query, self.store, self.answers, self.rules, self.receiver)
        follower.start()
        return Running(self, query, follower)

    def answers(self) -> Answers:
        """What the store holds now."""
        history = self.history() if callable(self.history) else self.history
        spark = self.events.sparkSession
        return Answers.now(spark, self.store, self.summary, self.answered, history)

    def results(self) -> DataFrame:
        """The table as of now: one row for each window, each marked ``early`` or ``exact``.

        An answer is exact once a correction has covered it and no late record has come for its
        window since.
        """
        return self.answers().results()

    def changelog(self, *, after: int | None = None) -> DataFrame:
        """Every change of the table so far: insert, update, delete, with revision and time.

        `after` leaves out what was emitted until then, in microseconds since 1970.
        """
        return self.answers().changes(after)

    def promise(self) -> dict[str, Any]:
        """Whether the early answers kept the promise, by what is known now.

        Runs a Spark job. ``above_eps`` is the share of windows whose early answer was off by eps
        or more, for each aggregate (of quantiles the error is one of rank; one's own aggregates
        are left out); ``coverage`` the mean share of the records that early answers had.
        """
        eps = self.slack.eps if isinstance(self.slack, Quality) else None
        return self.answers().promise(eps)


@dataclass(frozen=True)
class Running:
    """An exact aggregation at work."""

    job: Exact
    query: StreamingQuery
    _follower: Follower

    @property
    def isActive(self) -> bool:  # noqa: N802  (Spark's name)
        """Whether the stream runs, or has ended and waits for its last corrections."""
        failed = self._follower.error is not None or self.query.exception() is not None
        return self.query.isActive or not (self._follower.finished or failed)

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
        if self._follower.finished:
            return
        self._follower.join()
        if self._follower.error is not None:
            raise self._follower.error
        self._follower.finish()


def exact(
    events: DataFrame,
    summary: Summary,
    *,
    store: str | os.PathLike[str],
    slack: Slack | None = None,
    span: Duration = "5 seconds",
    wait: Duration = "1 minute",
    history: History | None = None,
    into: Any = None,
) -> Exact:
    """Aggregate a stream soon, and in the end exactly.

    Every record is backed up, windows are answered as soon as `slack` allows, records that come
    too late are registered, and the windows they touch are computed anew from the backup. Nothing
    runs before ``.start()``.

    Parameters
    ----------
    events
        A streaming frame.
    summary
        What is to be known of each window.
    store
        A folder for all of it, checkpoint included: the log of answers, late records and backup
        as Parquet, and the corrections.
    slack
        How long windows wait; `quality` with its defaults if it is not given.
    span, wait
        Late records are dealt with when their event times span more than `span`, or when the
        oldest of them has waited so long; and at the end.
    history
        All records, where you keep them yourself: a frame that is read anew at each correction,
        or a function that gives one. None: the store's backup.
    into
        Where the table is kept besides: a table of ``rm.tables.postgres``, which is made if it is
        not there and updated by key; or a function that is given a frame of changes (see
        ``changelog``), of which it may get the newest twice after a crash.

    Examples
    --------
    >>> job = rm.exact(events, s, store="/data/earnings")  # doctest: +SKIP
    >>> running = job.start(processingTime="1 second")  # doctest: +SKIP
    >>> running.results().where("answer = 'early'").show()  # doctest: +SKIP
    """
    if not events.isStreaming:
        raise DefinitionError(
            WHERE,
            "the events are a batch frame, whose aggregate is exact at once",
            todo="Use rm.aggregate(events, summary).",
        )
    chosen = quality() if slack is None else slack
    out = aggregate(events, summary, slack=chosen, late="rows").withColumn(
        EMITTED, F.current_timestamp()
    )
    answered = _answer_of(aggregate(events, summary, slack=chosen, late="count"), out.schema)
    if history is None:
        record = F.struct(*events.columns).alias(RECORD)
        backup = events.select(F.lit(BACKUP).alias(KIND), record)
        backup = backup.withColumn(EMITTED, F.current_timestamp())
        out = out.unionByName(backup, allowMissingColumns=True)
    out = out.withColumn(DAY, F.coalesce(_day(out, START), _day(out, f"{RECORD}.{summary.time}")))
    rules = Rules(
        microseconds(span, where="exact(span=)"), microseconds(wait, where="exact(wait=)")
    )
    place = Store(located(store), out.schema)
    receiver = receiver_of(into, summary)
    return Exact(events, summary, chosen, place, answered, out, rules, history, receiver)


def _answer_of(rows: DataFrame, log: t.StructType) -> t.StructType:
    """An answer's columns: those of `aggregate`, and when it was emitted."""
    return t.StructType([*rows.schema.fields, log[EMITTED]])


def _day(frame: DataFrame, column: str) -> Column:
    """The day since 1970 in UTC, whatever the session's time zone: it only names folders."""
    *outer, last = column.split(".")
    schema = frame.schema[outer[0]].dataType if outer else frame.schema
    assert isinstance(schema, t.StructType)
    if isinstance(schema[last].dataType, t.TimestampNTZType):
        return F.datediff(F.to_date(column), F.lit("1970-01-01")).cast("int")
    return F.floor(F.unix_seconds(column) / _DAY_SECONDS).cast("int")
