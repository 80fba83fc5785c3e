"""What an exact aggregation has answered: the table as of now, its changes, its promise."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (as everybody writes it)
from pyspark.sql import types as t

from rivermouth.spark.correct import (
    corrections,
    in_windows,
    newest_answers,
    same,
    semi_join,
    touched_windows,
    window_keys,
)
from rivermouth.spark.exact.store import BACKUP, EMITTED, Store, backup_of
from rivermouth.spec.aggregates import Standard
from rivermouth.spec.summaries import COVERAGE, KIND, RECORD, REVISION, Summary

ANSWER, CHANGE = "answer", "change"
EARLY, EXACT = "early", "exact"
_ORDER = (EMITTED, REVISION)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True)
class Answers:
    """One moment of a store: what the stream had written by then, and the corrections.

    Parameters
    ----------
    summary
        What is computed.
    answered
        The columns of an answer, as `aggregate` gives them, and when it was emitted.
    logged
        The log.
    corrected
        The corrections' rows.
    history
        All records, where the user keeps them; None: those of the log.
    upto
        Until when late records are accounted for by corrections, and until when everything is.
    """

    summary: Summary
    answered: tuple[str, ...]
    logged: DataFrame
    corrected: DataFrame
    history: DataFrame | None
    upto: tuple[int | None, int | None]

    @classmethod
    def now(
        cls, spark: SparkSession, store: Store, summary: Summary, answered: t.StructType,
        history: DataFrame | None,
    ) -> Answers:  # fmt: skip
        """The store as it is."""
        made = store.corrections()
        upto = made[-1].upto if made else None
        final = max((each.upto for each in made if each.final), default=None)
        corrected = store.corrected(spark, answered)
        names = tuple(answered.names)
        return cls(summary, names, store.logged(spark), corrected, history, (upto, final))

    @property
    def early(self) -> DataFrame:
        """The stream's own answers."""
        return self.logged.where(F.col(KIND) == "row").select(*self.answered)

    @property
    def all(self) -> DataFrame:
        """Every answer that was ever given."""
        return self.early.unionByName(self.corrected)

    @property
    def newest(self) -> DataFrame:
        """One answer for each window."""
        return newest_answers(self.all, self.summary, order=_ORDER)

    @property
    def records(self) -> DataFrame:
        """All records there are."""
        return backup_of(self.logged) if self.history is None else self.history

    @property
    def pending(self) -> DataFrame:
        """The late records that no correction has seen, as the log has them."""
        late = self.logged.where(F.col(KIND) == "late")
        return late if self.upto[0] is None else late.where(F.col(EMITTED) > _moment(self.upto[0]))

    def results(self) -> DataFrame:
        """One row for each window, each marked early or exact."""
        keys = window_keys(self.summary)
        touched = touched_windows(self.pending, self.summary)
        marks = touched.select(
            *(F.col(name).alias(f"_{name}") for name in keys), F.lit(True).alias("_touched")
        )
        final = F.lit(False) if self.upto[1] is None else F.col(EMITTED) <= _moment(self.upto[1])
        settled = (final | (F.col("_from") == EXACT)) & F.col("_touched").isNull()
        both = self.early.withColumn("_from", F.lit(EARLY)).unionByName(
            self.corrected.withColumn("_from", F.lit(EXACT))
        )
        newest = newest_answers(both, self.summary, order=_ORDER)
        joined = newest.join(marks, same({name: f"_{name}" for name in keys}), "left")
        answer = F.when(settled, EXACT).otherwise(EARLY)
        # what the stream could only guess is known now
        share = F.when(settled, 1.0).otherwise(F.col(COVERAGE)).alias(COVERAGE)
        columns = [share if name == COVERAGE else F.col(name) for name in self.answered]
        return joined.select(*columns, answer.alias(ANSWER))

    def changes(self, after: int | None = None) -> DataFrame:
        """Inserts, updates and deletes in the order of `EMITTED` and revision."""
        keys = window_keys(self.summary)
        new = self.all if after is None else self.all.where(F.col(EMITTED) > _moment(after))
        known = self.all if after is None else semi_join(self.all, new, keys)
        first = known.groupBy(*keys).agg(F.min(F.struct(*_ORDER)).alias("_first"))
        renamed = first.select(*(F.col(name).alias(f"_{name}") for name in (*keys, "_first")))
        joined = new.join(renamed, same({name: f"_{name}" for name in keys}))
        is_first = F.struct(*_ORDER) == F.col("__first")
        change = (
            F.when(F.col("records") == 0, "delete").when(is_first, "insert").otherwise("update")
        )
        return joined.select(change.alias(CHANGE), *self.answered).orderBy(*_ORDER)

    def differences(self, touched: DataFrame | None) -> DataFrame:
        """What a correction has to write, for these windows or for all."""
        answers = self.newest.drop(EMITTED)
        return corrections(answers, self.records, self.summary, touched)

    def new_windows(self) -> DataFrame | None:
        """The windows of all records since everything was last corrected; None: of any record.

        An answer that was right then can only have become wrong by one of these.
        """
        if self.upto[1] is None or self.history is not None:
            return None
        backup = self.logged.where(F.col(KIND) == BACKUP)
        return touched_windows(backup.where(F.col(EMITTED) > _moment(self.upto[1])), self.summary)

    def late_windows(self) -> DataFrame:
        """The windows that pending late records touch."""
        return touched_windows(self.pending, self.summary)

    def seen(self) -> dict[str, Any]:
        """The newest batch of the log, and what is pending: this runs a small Spark job."""
        times = F.col(f"{RECORD}.{self.summary.time}")
        span = F.unix_micros(F.max(times).cast("timestamp")) - F.unix_micros(
            F.min(times).cast("timestamp")
        )
        pending = self.pending.agg(
            F.count("*").alias("records"),
            F.coalesce(span, F.lit(0)).alias("span"),
            F.unix_micros(F.min(EMITTED)).alias("oldest"),
        ).first()
        newest = self.logged.agg(F.unix_micros(F.max(EMITTED)).alias("upto")).first()
        assert pending is not None
        assert newest is not None
        return {**pending.asDict(), **newest.asDict()}

    def promise(self, eps: float | None) -> dict[str, Any]:
        """How the early answers compare with what is known now; this runs a Spark job."""
        keys = window_keys(self.summary)
        early = newest_answers(self.early, self.summary, order=_ORDER)
        now = self.newest.select(*(F.col(name).alias(f"_{name}") for name in self.answered))
        both = early.join(now, same({name: f"_{name}" for name in keys}))
        aggregates = {n: a for n, a in self.summary.aggregates if isinstance(a, Standard)}
        errors = {name: _error(F.col(name), F.col(f"_{name}")) for name in aggregates}
        quantiles = {name: one for name, one in aggregates.items() if one.kind == "quantile"}
        if quantiles and eps is not None:
            ranked = self._rank_errors(early, quantiles)
            both = both.join(ranked, same({name: f"_ranked_{name}" for name in keys}), "left")
            errors |= {
                name: F.when(F.col(name).eqNullSafe(F.col(f"_{name}")), 0.0).otherwise(
                    F.coalesce(f"_off_{name}", F.lit(float("inf")))
                )
                for name in quantiles
            }
        share = F.col("records") / F.col("_records")
        found = both.agg(
            F.count("*").alias("windows"),
            F.mean(share).alias(COVERAGE),
            *(
                F.mean(F.when(error >= eps, 1.0).otherwise(0.0)).alias(name)
                for name, error in errors.items()
                if eps is not None
            ),
        ).first()
        assert found is not None
        numbers = found.asDict()
        said = {"windows": numbers.pop("windows"), COVERAGE: numbers.pop(COVERAGE)}
        return {**said, "eps": eps, "above_eps": numbers}

    def _rank_errors(self, early: DataFrame, quantiles: dict[str, Standard]) -> DataFrame:
        """By how much the early quantiles of each window are off in rank, of all its records."""
        keys = window_keys(self.summary)
        columns = list(dict.fromkeys(str(one.column) for one in quantiles.values()))
        placed = in_windows(self.records, self.summary, *columns)
        there = placed.select(*(F.col(n).alias(f"_ranked_{n}") for n in (*keys, *columns)))
        asked = early.select(*keys, *quantiles)
        both = asked.join(there, same({name: f"_ranked_{name}" for name in keys}))
        held = {n: F.col(f"_ranked_{one.column}").cast("double") for n, one in quantiles.items()}
        return both.groupBy(*(f"_ranked_{name}" for name in keys)).agg(
            *(
                F.greatest(
                    F.mean((held[name] < F.col(name)).cast("double")) - F.lit(one.share),
                    F.lit(one.share) - F.mean((held[name] <= F.col(name)).cast("double")),
                    F.lit(0.0),
                ).alias(f"_off_{name}")
                for name, one in quantiles.items()
            )
        )


def _error(early: Column, exact: Column) -> Column:
    """The relative error of an early answer; one that is right has none, also where it is 0."""
    early, exact = early.cast("double"), exact.cast("double")
    return F.when(early.eqNullSafe(exact), 0.0).otherwise(
        F.coalesce(F.abs(early - exact) / F.nullif(F.abs(exact), F.lit(0.0)), F.lit(float("inf")))
    )


def _moment(micros: int) -> Column:
    return F.lit(_EPOCH + dt.timedelta(microseconds=micros))
