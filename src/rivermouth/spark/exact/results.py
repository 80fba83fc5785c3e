"""The results of an exact aggregation: the table as of now, its changes, its promise."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (as everybody writes it)
from pyspark.sql import types as t

from rivermouth.spark.correct import (
    affected_windows,
    corrections,
    in_windows,
    join_keys,
    newest_results,
    semi_join,
    window_keys,
)
from rivermouth.spark.exact.store import BACKUP, EMITTED, Store
from rivermouth.spec.aggregates import Standard
from rivermouth.spec.summaries import COVERAGE, KIND, RECORD, RECORDS, REVISION, Summary

STATUS, CHANGE = "status", "change"
EARLY, EXACT = "early", "exact"
ORDER = (EMITTED, REVISION)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True)
class Results:
    """A store at one moment: what the stream had written by then, and the corrections.

    Parameters
    ----------
    summary
        What is computed.
    columns
        The columns of a result: those of `aggregate`, and when it was emitted.
    log
        What the stream has written.
    corrected
        The corrections' rows.
    history
        All records, where the user keeps them; None: those of the log.
    late_upto, all_upto
        Until when corrections account for late records, and until when for all records; in
        microseconds since 1970, None before the first.
    """

    summary: Summary
    columns: tuple[str, ...]
    log: DataFrame
    corrected: DataFrame
    history: DataFrame | None
    late_upto: int | None
    all_upto: int | None

    @classmethod
    def now(
        cls, spark: SparkSession, store: Store, summary: Summary, schema: t.StructType,
        history: DataFrame | None,
    ) -> Results:  # fmt: skip
        """The store as it is."""
        made = store.corrections()
        log, corrected = store.log(spark), store.corrected(spark, schema)
        final = max((each.upto for each in made if each.final), default=None)
        late = made[-1].upto if made else None
        return cls(summary, tuple(schema.names), log, corrected, history, late, final)

    @property
    def early(self) -> DataFrame:
        """The stream's own results."""
        return self.log.where(F.col(KIND) == "row").select(*self.columns)

    @property
    def all(self) -> DataFrame:
        """Every result that was ever emitted."""
        return self.early.unionByName(self.corrected)

    @property
    def newest(self) -> DataFrame:
        """One result for each window."""
        return newest_results(self.all, self.summary, order=ORDER)

    @property
    def backup(self) -> DataFrame:
        """The log's rows that hold all records."""
        return self.log.where(F.col(KIND) == BACKUP)

    @property
    def records(self) -> DataFrame:
        """All records there are."""
        return self.backup.select(f"{RECORD}.*") if self.history is None else self.history

    @property
    def pending(self) -> DataFrame:
        """The late records that no correction has seen, as the log has them."""
        late = self.log.where(F.col(KIND) == "late")
        return late if self.late_upto is None else late.where(_after(self.late_upto))

    def results(self) -> DataFrame:
        """One row for each window, each marked early or exact."""
        both = self.early.withColumn(KIND, F.lit(EARLY)).unionByName(
            self.corrected.withColumn(KIND, F.lit(EXACT))
        )
        newest = newest_results(both, self.summary, order=ORDER)
        marks = self.late_windows().withColumn(RECORD, F.lit(True))
        joined = join_keys(newest, marks, window_keys(self.summary), "left", "_{}")
        covered = F.lit(False) if self.all_upto is None else ~_after(self.all_upto)
        is_exact = (covered | (F.col(KIND) == EXACT)) & F.col(f"_{RECORD}").isNull()
        # what the stream could only estimate is known now
        coverage = F.when(is_exact, 1.0).otherwise(F.col(COVERAGE)).alias(COVERAGE)
        columns = [coverage if name == COVERAGE else F.col(name) for name in self.columns]
        return joined.select(*columns, F.when(is_exact, EXACT).otherwise(EARLY).alias(STATUS))

    def changes(self, after: int | None = None) -> DataFrame:
        """Inserts, updates and deletes in the order of `EMITTED` and revision."""
        keys, new, known = window_keys(self.summary), self.all, self.all
        if after is not None:
            new = self.all.where(_after(after))
            known = semi_join(self.all, new, keys)
        first = known.groupBy(*keys).agg(F.min(F.struct(*ORDER)).alias(RECORD))
        joined = join_keys(new, first, keys, "inner", "_{}")
        is_first = F.struct(*ORDER) == F.col(f"_{RECORD}")
        change = F.when(F.col(RECORDS) == 0, "delete").when(is_first, "insert").otherwise("update")
        return joined.select(change.alias(CHANGE), *self.columns).orderBy(*ORDER)

    def differences(self, affected: DataFrame | None) -> DataFrame:
        """What a correction has to write, for these windows or for all."""
        return corrections(self.newest.drop(EMITTED), self.records, self.summary, affected)

    def new_windows(self) -> DataFrame | None:
        """The windows of all records since everything was last corrected; None: of any record.

        Only these records can have made a result wrong that was right then.
        """
        if self.all_upto is None or self.history is not None:
            return None
        return affected_windows(self.backup.where(_after(self.all_upto)), self.summary)

    def late_windows(self) -> DataFrame:
        """The windows of pending late records."""
        return affected_windows(self.pending, self.summary)

    def progress(self) -> dict[str, Any]:
        """The newest batch of the log, and what is pending: this runs a small Spark job."""
        time = F.unix_micros(F.col(f"{RECORD}.{self.summary.time}").cast("timestamp"))
        pending = self.pending.agg(
            F.count("*").alias("records"),
            F.coalesce(F.max(time) - F.min(time), F.lit(0)).alias("span"),
            F.unix_micros(F.min(EMITTED)).alias("oldest"),
        )
        newest = self.log.agg(F.unix_micros(F.max(EMITTED)).alias("upto"))
        (row,) = pending.crossJoin(newest).collect()
        return row.asDict()

    def promise(self, eps: float | None) -> dict[str, Any]:
        """How the early results compare with what is known now; this runs a Spark job."""
        keys = window_keys(self.summary)
        early = newest_results(self.early, self.summary, order=ORDER)
        both = join_keys(early, self.newest, keys, "inner", "_{}")
        aggregates = {n: a for n, a in self.summary.aggregates if isinstance(a, Standard)}
        errors = {name: _error(F.col(name), F.col(f"_{name}")) for name in aggregates}
        quantiles = {name: one for name, one in aggregates.items() if one.kind == "quantile"}
        if quantiles and eps is not None:
            ranked = self._rank_errors(early, quantiles)
            both = join_keys(both, ranked, keys, "left", "_rank_{}")
            errors |= {
                name: F.when(F.col(name).eqNullSafe(F.col(f"_{name}")), 0.0).otherwise(
                    F.coalesce(f"_rank_{name}", F.lit(float("inf")))
                )
                for name in quantiles
            }
        (row,) = both.agg(
            F.count("*").alias("windows"),
            F.mean(F.col(RECORDS) / F.col(f"_{RECORDS}")).alias(COVERAGE),
            *(
                F.mean(F.when(error >= eps, 1.0).otherwise(0.0)).alias(name)
                for name, error in errors.items()
                if eps is not None
            ),
        ).collect()
        above = row.asDict()
        known = {name: above.pop(name) for name in ("windows", COVERAGE)}
        return {**known, "eps": eps, "above_eps": above}

    def _rank_errors(self, early: DataFrame, quantiles: dict[str, Standard]) -> DataFrame:
        """How far the early quantiles of each window are off in rank, of all its records."""
        keys = window_keys(self.summary)
        columns = list(dict.fromkeys(str(one.column) for one in quantiles.values()))
        records = in_windows(self.records, self.summary, *columns)
        both = join_keys(early.select(*keys, *quantiles), records, keys, "inner", "_{}")

        def off(name: str, one: Standard) -> Column:
            value, share = F.col(f"_{one.column}").cast("double"), F.lit(one.share)
            below, upto = (
                F.mean(each.cast("double")) for each in (value < F.col(name), value <= F.col(name))
            )
            return F.greatest(below - share, share - upto, F.lit(0.0))

        return both.groupBy(*keys).agg(*(off(n, one).alias(n) for n, one in quantiles.items()))


def _error(early: Column, exact: Column) -> Column:
    """The relative error of an early result; 0 for one that is right, also where it is 0."""
    early, exact = early.cast("double"), exact.cast("double")
    return F.when(early.eqNullSafe(exact), 0.0).otherwise(
        F.coalesce(F.abs(early - exact) / F.nullif(F.abs(exact), F.lit(0.0)), F.lit(float("inf")))
    )


def _after(micros: int) -> Column:
    return F.col(EMITTED) > F.lit(_EPOCH + dt.timedelta(microseconds=micros))
