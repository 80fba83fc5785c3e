"""correct: the batch path that makes every answer exact."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (as everybody writes it)

from rivermouth.errors import ColumnError, DefinitionError, missing_column
from rivermouth.spark.aggregate import aggregate
from rivermouth.spec.summaries import (
    END,
    KIND,
    RECORD,
    RECORDS,
    REVISION,
    START,
    Summary,
)

WHERE = "correct"
_OLD, _NEW = "_old_{}", "_new_{}"


def correct(
    results: DataFrame, history: DataFrame, summary: Summary, *, late: DataFrame | None = None
) -> DataFrame:
    """The rows to write over earlier answers, computed anew from all records.

    An ordinary batch job; nothing runs before the frame is used. A row comes out only where the
    number of records differs from the answer's, so that correcting what is correct gives nothing.

    Parameters
    ----------
    results
        The answers so far, with the columns that `aggregate` gives. Of several for one window the
        one with the highest revision counts.
    history
        All records, with the columns that `summary` names.
    summary
        What was asked of `aggregate`.
    late
        The records that came too late for some window: what ``rm.late`` gives of the stream's
        output, or any frame with the columns of `history`. Only the windows that these touch are
        computed, also such as were never answered. None: all windows are, and an answer whose
        records are nowhere in `history` is put to 0 records and nulls.

    Returns
    -------
    DataFrame
        Rows as `aggregate` gives them, of coverage 1 and with the revision that follows the
        answer's.

    Examples
    --------
    >>> fixed = rm.correct(results, history, s, late=rm.late(out))  # doctest: +SKIP
    """
    _check(results, history, summary, late)
    if late is not None and KIND in late.columns:
        late = late.where(F.col(KIND) == "late")
    touched = None if late is None else touched_windows(late, summary)
    return corrections(results, history, summary, touched)


def corrections(
    results: DataFrame, history: DataFrame, summary: Summary, touched: DataFrame | None
) -> DataFrame:
    """The corrections of the touched windows, or of all where `touched` is None."""
    records = history if touched is None else _records_of(touched, history, summary)
    exact = aggregate(records, summary, late="count")
    answers = newest_answers(results, summary)
    if touched is not None:
        keys = window_keys(summary)
        exact = semi_join(exact, touched, keys)
        answers = semi_join(answers, touched, keys)
    return _differences(answers, exact, summary)


def newest_answers(
    results: DataFrame, summary: Summary, *, order: tuple[str, ...] = (REVISION,)
) -> DataFrame:
    """One answer for each window: the last by `order`."""
    keys = window_keys(summary)
    others = [name for name in results.columns if name not in keys]
    newest = results.groupBy(*keys).agg(F.max_by(F.struct(*others), F.struct(*order)).alias(RECORD))
    return newest.select(*keys, f"{RECORD}.*").select(*results.columns)


def touched_windows(records: DataFrame, summary: Summary) -> DataFrame:
    """The windows that these records belong to, each once; records may be in a struct `RECORD`."""
    if RECORD in records.columns:
        records = records.select(f"{RECORD}.*")
    return in_windows(records, summary).distinct()


def in_windows(records: DataFrame, summary: Summary, *columns: str) -> DataFrame:
    """These columns of each record, once for each window that it belongs to."""
    window = _window(summary.time, summary.window.size_us, summary.window.every_us)
    found = records.select(*summary.by, window.alias(RECORD), *columns)
    bounds = F.col(RECORD).start.alias(START), F.col(RECORD).end.alias(END)
    return found.select(*summary.by, *bounds, *columns)


def _window(time: str, size: int, every: int) -> Column:
    return F.window(time, f"{size} microseconds", f"{every} microseconds")


def _records_of(touched: DataFrame, history: DataFrame, summary: Summary) -> DataFrame:
    """The records of the touched windows, and some of their neighbours'.

    They are found by block, a piece of time as long as a window, since that is an equality and a
    window is not: a window lies in two blocks at most.
    """
    size = summary.window.size_us
    last = F.col(END) - F.expr("INTERVAL '0.000001' SECOND")
    ends = touched.select(*summary.by, F.explode(F.array(START, last)).alias(START))
    blocks = ends.withColumn(START, _window(START, size, size).start).distinct()
    block = _window(summary.time, size, size).start
    return semi_join(history.withColumn(START, block), blocks, [*summary.by, START]).drop(START)


def semi_join(left: DataFrame, right: DataFrame, keys: list[str]) -> DataFrame:
    """The rows of `left` whose keys are in `right`; null is a key like others."""
    names = {name: _NEW.format(name) for name in keys}
    renamed = right.select(*(F.col(old).alias(new) for old, new in names.items()))
    return left.join(renamed, same(names), "left_semi")


def same(names: dict[str, str]) -> Column:
    """Whether columns are equal, one by one; null equals null."""
    condition = F.lit(True)
    for old, new in names.items():
        condition = condition & F.col(old).eqNullSafe(F.col(new))
    return condition


def window_keys(summary: Summary) -> list[str]:
    """The columns that tell one answer's window from others."""
    return [*summary.by, START, END]


def _differences(answers: DataFrame, exact: DataFrame, summary: Summary) -> DataFrame:
    """The exact rows whose number of records is not that of the answer."""
    keys = window_keys(summary)
    old = answers.select(
        *(F.col(name).alias(_OLD.format(name)) for name in (*keys, RECORDS, REVISION))
    )
    both = exact.join(old, same({name: _OLD.format(name) for name in keys}), "full_outer")
    was, now = F.col(_OLD.format(RECORDS)), F.coalesce(RECORDS, F.lit(0))
    revision = F.coalesce(_OLD.format(REVISION), F.lit(0)) + 1
    values = {
        **{name: F.coalesce(F.col(name), F.col(_OLD.format(name))) for name in keys},
        RECORDS: now,
        REVISION: revision.cast(exact.schema[REVISION].dataType),
    }
    changed = both.where(was.isNull() | (was != now))
    return changed.select(*(values.get(name, F.col(name)).alias(name) for name in exact.columns))


def _check(
    results: DataFrame, history: DataFrame, summary: Summary, late: DataFrame | None
) -> None:
    for name, frame in (("results", results), ("history", history), ("late", late)):
        if frame is not None and frame.isStreaming:
            raise DefinitionError(
                WHERE,
                f"{name} is a streaming frame",
                todo="Give what the stream has written, read with spark.read.",
            )
    for name in summary.columns:
        if name not in history.columns:
            raise missing_column(WHERE, name, history.columns, side="the history", by="the summary")
    for name in (*window_keys(summary), RECORDS, REVISION):
        if name not in results.columns:
            raise ColumnError(
                WHERE,
                f"the results have no column {name!r}",
                there=f"their columns are {sorted(results.columns)}",
                todo="Give the rows that rm.aggregate gave for this summary, all their columns.",
            )
