"""The results of an exact aggregation: the table as of now, its changes, its promise."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (as everybody writes it)
from pyspark.sql import types as t

from rivermouth.kernels.aggregation.plan import AggPlan
from rivermouth.kernels.aggregation.processor import FUTURE, LATE, REJECTED, ROW
from rivermouth.kernels.aggregation.promise import share_bounds, verdict
from rivermouth.kernels.aggregation.slots import Slots
from rivermouth.spark.correct import (
    affected_windows,
    corrections,
    in_windows,
    join_keys,
    newest_results,
    reached_sessions,
    semi_join,
    session_corrections,
    window_keys,
)
from rivermouth.spark.exact import tasks
from rivermouth.spark.exact.pieces import (
    BACKUP,
    EMITTED,
    EMITTED_TYPE,
    EXPIRED,
    WRITTEN,
    WRITTEN_DDL,
    Piece,
    by_slot,
    packed,
)
from rivermouth.spark.exact.snapshot import Snapshot, touched
from rivermouth.spark.exact.store import Store
from rivermouth.spec.aggregates import Standard
from rivermouth.spec.preferences import Preference
from rivermouth.spec.slack import Quality
from rivermouth.spec.summaries import (
    COVERAGE,
    KIND,
    REASON,
    RECORD,
    RECORDS,
    REVISION,
    START,
    Summary,
)
from rivermouth.spec.windows import Window

STATUS, CHANGE = "status", "change"
EARLY, EXACT = "early", "exact"
ORDER = (EMITTED, REVISION)
_BLOCKS = 40  # of neighbouring windows, in which misses are counted
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_SLOTS = "slot long, pieces string"


@dataclass(frozen=True)
class Schemas:
    """What the store's rows are, for Spark and for Arrow.

    Parameters
    ----------
    plan
        What is computed, and of columns of which types.
    results
        The columns of a result: those of `aggregate`, and when it was emitted.
    record
        A record.
    arrow_record
        The same in Arrow.
    """

    plan: AggPlan
    results: t.StructType
    record: t.StructType
    arrow_record: pa.DataType

    @property
    def arrow_results(self) -> pa.Schema:
        """The columns of a result in Arrow."""
        return self.plan.schema().append(pa.field(EMITTED, EMITTED_TYPE))

    def records(self) -> tuple[t.StructType, pa.Schema]:
        """Records as they are stored: whole, why they were rejected, when they came."""
        spark = t.StructType().add(RECORD, self.record).add(REASON, t.StringType())
        arrow = [(RECORD, self.arrow_record), (REASON, pa.string()), (EMITTED, EMITTED_TYPE)]
        return spark.add(EMITTED, t.TimestampType()), pa.schema(arrow)


@dataclass(frozen=True)
class Results:
    """A store at one moment: what the stream had written by then, and the corrections.

    Parameters
    ----------
    spark
        The session that reads it.
    store
        Where it is.
    schemas
        Its columns.
    snapshot
        The moment.
    history
        All records, where the user keeps them; None: those of the store.
    """

    spark: SparkSession
    store: Store
    schemas: Schemas
    snapshot: Snapshot
    history: DataFrame | None

    @property
    def summary(self) -> Summary:
        """What is computed."""
        return self.schemas.plan.summary

    @property
    def _slots(self) -> Slots:
        return Slots.of(self.schemas.plan.grid)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of a result: those of `aggregate`, and when it was emitted."""
        return tuple(self.schemas.results.names)

    @property
    def early(self) -> DataFrame:
        """The stream's own results."""
        return self.all.where(F.col(REVISION) == 0)

    @property
    def all(self) -> DataFrame:
        """Every result that was ever emitted."""
        return self.rows()

    @property
    def newest(self) -> DataFrame:
        """One result for each window."""
        return newest_results(self.all, self.summary, order=ORDER)

    @property
    def records(self) -> DataFrame:
        """All records there are."""
        if self.history is not None:
            return self.history
        return self.stored(BACKUP).select(f"{RECORD}.*")

    @property
    def rejected(self) -> DataFrame:
        """The late records, and those without a usable time, as `rejected` returns them."""
        found = [
            self.stored(kind).select(F.lit(kind).alias(KIND), f"{RECORD}.*", REASON)
            if REASON not in self.schemas.record.names
            else self.stored(kind).select(F.lit(kind).alias(KIND), f"{RECORD}.*")
            for kind in (LATE, EXPIRED, FUTURE, REJECTED)
        ]
        return reduce(DataFrame.unionAll, found)

    @property
    def pending(self) -> DataFrame:
        """The late records that no correction has seen."""
        return self._read(LATE, by_slot(self.snapshot.pending), only_pieces=True)

    def rows(self, slots: Iterable[int | None] | None = None) -> DataFrame:
        """The results that were emitted of windows in these slots, or of all."""
        return self.stored(ROW, slots)

    def stored(self, kind: str, slots: Iterable[int | None] | None = None) -> DataFrame:
        """The rows of one kind, of these slots or of all; lazily, as of this moment."""
        there = by_slot(each for each in self.snapshot.pieces if each.kind == kind)
        wanted = {*self.store.slots(), *there} if slots is None else {*slots}
        kept = filter(self.snapshot.head.keeps, wanted)
        return self._read(kind, {slot: there.get(slot, []) for slot in kept})

    def _read(
        self, kind: str, slots: dict[int | None, list[Piece]], *, only_pieces: bool = False
    ) -> DataFrame:
        spark, arrow = self.schemas.results, self.schemas.arrow_results
        if kind != ROW:
            spark, arrow = self.schemas.records()
        upto = self.snapshot.upto
        if upto is None or not slots:
            return self.spark.createDataFrame([], spark)
        path = self.store.path
        work = tasks.reader(path, kind, arrow, until=upto, only_pieces=only_pieces)
        return slot_frame(self.spark, slots).mapInArrow(work, spark)

    def results(self) -> DataFrame:
        """One row for each window, each marked early or exact."""
        newest = newest_results(self.all, self.summary, order=ORDER)
        marks = self.late_windows().withColumn(RECORD, F.lit(True))
        joined = join_keys(newest, marks, window_keys(self.summary), "left", "_{}")
        all_upto = self.snapshot.all_upto
        covered = F.lit(False) if all_upto is None else ~_after(all_upto)
        is_exact = (covered | (F.col(REVISION) > 0)) & F.col(f"_{RECORD}").isNull()
        # what the stream could only estimate is known now
        coverage = F.when(is_exact, 1.0).otherwise(F.col(COVERAGE)).alias(COVERAGE)
        columns = [coverage if name == COVERAGE else F.col(name) for name in self.columns]
        status = F.when(is_exact, EXACT).otherwise(EARLY).alias(STATUS)
        return joined.where(F.col(RECORDS) > 0).select(*columns, status)  # others are deleted

    def changes(self, after: int | None = None) -> DataFrame:
        """Inserts, updates and deletes in the order of `EMITTED` and revision."""
        new, known = self.all, self.all
        if after is not None:
            new = new.where(_after(after))
            known = semi_join(known, new, window_keys(self.summary))
        return self._changes(new, known)

    def changes_since(self, offset: int | None) -> DataFrame:
        """The changes since `offset`, and those of that very time, which reads no other slots."""
        compacted = self.snapshot.head.emitted
        if offset is None or (compacted is not None and offset < compacted):
            return self.changes(None if offset is None else offset - 1)
        pieces = by_slot(
            each
            for each in self.snapshot.pieces
            if each.kind == ROW and (each.emitted is None or each.emitted >= offset)
        )
        new = self._read(ROW, pieces, only_pieces=True).where(_after(offset - 1))
        return self._changes(new, self.rows(pieces))

    def _changes(self, new: DataFrame, known: DataFrame) -> DataFrame:
        keys = window_keys(self.summary)
        first = known.groupBy(*keys).agg(F.min(F.struct(*ORDER)).alias(RECORD))
        joined = join_keys(new, first, keys, "inner", "_{}")
        is_first = F.struct(*ORDER) == F.col(f"_{RECORD}")
        change = F.when(F.col(RECORDS) == 0, "delete").when(is_first, "insert").otherwise("update")
        return joined.select(change.alias(CHANGE), *self.columns).orderBy(*ORDER)

    def differences(self, *, final: bool) -> DataFrame:
        """What a correction has to write, by all records."""
        if final:
            return corrections(self.newest.drop(EMITTED), self.records, self.summary, None)
        if not has_partials(self.summary):  # a session may have begun in any slot
            late = self.stored(LATE).select(f"{RECORD}.*")
            old = self.newest.drop(EMITTED)
            return session_corrections(old, self.records, self.summary, late, early=self.early)
        slots = touched(self._slots, self.snapshot.pending, LATE)
        old = newest_results(self.rows(slots), self.summary, order=ORDER)
        return corrections(old.drop(EMITTED), self.records, self.summary, self.late_windows())

    def corrected(self, *, final: bool) -> pa.Table:
        """Write the rows of a correction; what was written, which is not committed yet."""
        plan, path = self.schemas.plan, self.store.path
        if self.history is not None or not has_partials(self.summary):
            work = tasks.results_writer(path, plan)
            frame = self.differences(final=final)
        else:
            after = self.snapshot.late_upto
            work = tasks.slot_corrector(path, plan, after=after, final=final)
            slots = self.snapshot.to_correct(self._slots, final=final)
            if not slots:
                return WRITTEN.empty_table()
            frame = slot_frame(self.spark, slots)
        return frame.mapInArrow(work, WRITTEN_DDL).toArrow()

    def late_windows(self) -> DataFrame:
        """The windows of pending late records."""
        if not has_partials(self.summary):
            records = self.pending.select(f"{RECORD}.*")
            return reached_sessions(self.newest, records, self.summary)
        return affected_windows(self.pending, self.summary)

    def promise(self, slack: Quality | None) -> dict[str, Any]:
        """How the early results compare with what is known now; this runs a Spark job."""
        eps = None if slack is None else slack.eps
        absolute = slack is not None and slack.absolute
        keys = window_keys(self.summary)
        early = newest_results(self.early, self.summary, order=ORDER)
        both = join_keys(early, self.newest, keys, "inner", "_{}")
        aggregates = {n: a for n, a in self.summary.aggregates if isinstance(a, Standard)}
        errors = {n: _error(F.col(n), F.col(f"_{n}"), absolute=absolute) for n in aggregates}
        for name, one in self.summary.aggregates:
            if isinstance(one, Preference):
                errors[name] = _missing_share(F.col(name), F.col(f"_{name}"))
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
        above = {n: F.when(e >= eps, 1).otherwise(0) for n, e in errors.items() if eps is not None}
        return {"eps": eps} | self._judged(early, both, above, slack)

    def _judged(
        self, early: DataFrame, both: DataFrame, above: dict[str, Column], slack: Quality | None
    ) -> dict[str, Any]:
        """The shares of windows that are `above`, with the bounds of those in any aggregate."""
        start = F.unix_micros(F.col(START).cast("timestamp"))
        span = early.agg(F.min(start).alias("_low"), F.max(start).alias("_high"))
        block = F.floor((start - F.col("_low")) * _BLOCKS / (F.col("_high") - F.col("_low") + 1))
        coverage = F.try_divide(F.col(RECORDS), F.col(f"_{RECORDS}"))
        rows = (
            both.crossJoin(F.broadcast(span))
            .groupBy(block.alias("_block"), "_low", "_high")
            .agg(
                F.count("*").alias("_windows"),
                F.sum(coverage).alias("_coverage"),
                F.count(coverage).alias("_covered"),
                F.sum(F.greatest(F.lit(0), F.lit(0), *above.values())).alias("_missed"),
                *(F.sum(each).alias(name) for name, each in above.items()),
            )
            .collect()
        )
        windows, covered = (sum(row[name] for row in rows) for name in ("_windows", "_covered"))
        found: dict[str, Any] = {
            "windows": windows,
            COVERAGE: sum(row["_coverage"] or 0 for row in rows) / covered if covered else None,
            "above_eps": {n: sum(row[n] for row in rows) / max(1, windows) for n in above},
        }
        if slack is None:
            return found
        missed = np.array([row["_missed"] for row in rows])
        apart = float(windows)
        if rows and isinstance(self.summary.window, Window):
            apart = (rows[0]["_high"] - rows[0]["_low"]) / self.summary.window.size_us + 1
        bounds = share_bounds(np.array([row["_windows"] for row in rows]), missed, apart)
        return found | {
            "delta": slack.delta,
            "missed": float(missed.sum()) / max(1, windows),
            "missed_bounds": None if bounds is None else tuple(bounds),
            "verdict": verdict(bounds, slack.delta),
        }

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


def _error(early: Column, exact: Column, *, absolute: bool) -> Column:
    """The error of an early result, relative or not; 0 for one that is right, also of 0."""
    early, exact = early.cast("double"), exact.cast("double")
    off, unit = F.abs(early - exact), F.lit(1.0) if absolute else F.abs(exact)
    return F.when(early.eqNullSafe(exact), 0.0).otherwise(
        F.coalesce(off / F.nullif(unit, F.lit(0.0)), F.lit(float("inf")))
    )


def _missing_share(early: Column, exact: Column) -> Column:
    """The share of an exact list's records that the early one did not have; equal ones count."""

    def count(records: Column, record: Column) -> Column:
        return F.size(F.filter(records, lambda each: each.eqNullSafe(record)))

    early, exact = F.coalesce(early, F.array()), F.coalesce(exact, F.array())
    found = F.aggregate(
        F.array_distinct(exact),
        F.lit(0),
        lambda total, each: total + F.least(count(early, each), count(exact, each)),
    )
    return F.coalesce(1 - found / F.nullif(F.size(exact), F.lit(0)), F.lit(0.0))


def has_partials(summary: Summary) -> bool:
    """Whether the store keeps partials, by which a window is computed from few slots."""
    return isinstance(summary.window, Window)


def slot_frame(spark: SparkSession, slots: dict[int | None, list[Piece]]) -> DataFrame:
    """A row for each slot, with its pieces: what tasks are given."""
    rows = [(slot, packed(pieces)) for slot, pieces in slots.items()]
    return spark.createDataFrame(rows, _SLOTS).coalesce(max(1, len(rows)))


def _after(micros: int | None) -> Column:
    if micros is None:
        return F.lit(True)
    return F.col(EMITTED) > F.lit(_EPOCH + dt.timedelta(microseconds=micros))
