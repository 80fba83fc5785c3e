"""correct: the batch path that makes every result exact."""

from __future__ import annotations

from decimal import Decimal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (as everybody writes it)

from rivermouth.errors import ColumnError, DefinitionError, missing_column
from rivermouth.spark.aggregate import aggregate
from rivermouth.spec.summaries import END, KIND, RECORD, RECORDS, REVISION, START, Summary
from rivermouth.spec.windows import Session, Window

WHERE = "correct"
_OTHER = "_other_{}"  # a column of a join's right side


def correct(
    results: DataFrame, history: DataFrame, summary: Summary, *, late: DataFrame | None = None
) -> DataFrame:
    """The rows to write over earlier results, recomputed from all records.

    An ordinary batch job; nothing runs before the frame is used. A row comes out only where the
    number of records differs from the result's, so that correcting what is correct gives no rows.

    Parameters
    ----------
    results
        The results so far, with the columns of `aggregate`. Of several for one window the one with
        the highest revision counts.
    history
        All records, with the columns that `summary` names.
    summary
        What was given to `aggregate`.
    late
        The records that came too late for some window: what ``rm.rejected`` returns for the
        stream's output, or any frame with the columns of `history`. Only the windows of these
        records are computed, also such as were never emitted. None: all windows are, and a result
        whose records are not in `history` is set to 0 records and nulls. Of sessions give all late
        records so far: one of them may have joined two sessions, of which one was still open.

    Returns
    -------
    DataFrame
        Rows with the columns of `aggregate`, of coverage 1 and with the revision that follows the
        result's. A session is known by its group, start and end: one that a late record has made
        longer comes as a new row, and what was emitted of it is set to 0 records and nulls.

    Examples
    --------
    >>> fixed = rm.correct(results, history, s, late=rm.rejected(out))  # doctest: +SKIP
    """
    _check(results, history, summary, late)
    if late is not None and KIND in late.columns:
        late = late.where(F.col(KIND) == "late")
    if isinstance(summary.window, Session) and late is not None:
        return session_corrections(results, history, summary, late)
    affected = None if late is None else affected_windows(late, summary)
    return corrections(results, history, summary, affected)


def corrections(
    results: DataFrame, history: DataFrame, summary: Summary, affected: DataFrame | None
) -> DataFrame:
    """The corrections of the affected windows, or of all where `affected` is None."""
    keys = window_keys(summary)
    old = newest_results(results, summary)
    if affected is None:
        exact = aggregate(history, summary, late="count")
    else:
        records = _records_of(affected, history, summary)
        exact = semi_join(aggregate(records, summary, late="count"), affected, keys)
        old = semi_join(old, affected, keys)
    return _differences(exact, old, summary)


def session_corrections(
    results: DataFrame,
    history: DataFrame,
    summary: Summary,
    late: DataFrame,
    *,
    early: DataFrame | None = None,
) -> DataFrame:
    """The corrections of the sessions that late records belong to, and of what lies in these.

    An earlier result lies in one session of all records, since its own records do. With `early`,
    all results that the stream itself has emitted, only sessions are corrected of which every
    record is late or in one of these: others may be open.
    """
    by, keys = list(summary.by), window_keys(summary)
    parts = late.select(*by, F.col(summary.time).alias(START), F.lit(1).alias(RECORDS))
    exact = aggregate(semi_join(history, parts, by) if by else history, summary)
    if early is not None:
        parts = parts.unionByName(early.select(*by, START, RECORDS))
    start = F.col(_OTHER.format(START))
    holds = (F.col(START) <= start) & (start < F.col(END))
    if early is None:
        exact = _join(exact, parts, by, "left_semi", holds)
    else:
        held = _join(exact.select(*keys, RECORDS), parts, by, "inner", holds)
        held = held.groupBy(*keys, RECORDS).agg(F.sum(_OTHER.format(RECORDS)).alias(REVISION))
        exact = semi_join(exact, held.where(F.col(RECORDS) == F.col(REVISION)), keys)
    inside = (start <= F.col(START)) & (F.col(START) < F.col(_OTHER.format(END)))
    found = exact.select(*keys)
    old = _join(newest_results(results, summary), found, by, "left_semi", inside)
    return _differences(exact, old, summary)


def reached_sessions(results: DataFrame, records: DataFrame, summary: Summary) -> DataFrame:
    """The sessions among `results` that these records reach into, each once."""
    assert isinstance(summary.window, Session)
    seconds = F.lit(Decimal(summary.window.gap_us) / 1_000_000)
    gap = F.make_dt_interval(F.lit(0), F.lit(0), F.lit(0), seconds)
    time = F.col(_OTHER.format(summary.time))
    near = (F.col(START) - gap < time) & (time < F.col(END))
    keys, by = window_keys(summary), list(summary.by)
    records = records.select(*by, summary.time)
    return _join(results.select(*keys), records, by, "left_semi", near).distinct()


def _differences(exact: DataFrame, old: DataFrame, summary: Summary) -> DataFrame:
    """The rows to write over `old` results, one for each window, such that they are exact."""
    keys = window_keys(summary)
    both = join_keys(exact, old.select(*keys, RECORDS, REVISION), keys, "full_outer")
    before, now = F.col(_OTHER.format(RECORDS)), F.coalesce(RECORDS, F.lit(0))
    revision = F.coalesce(_OTHER.format(REVISION), F.lit(0)) + 1
    values = {
        **{name: F.coalesce(F.col(name), F.col(_OTHER.format(name))) for name in keys},
        RECORDS: now,
        REVISION: revision.cast(exact.schema[REVISION].dataType),
    }
    changed = both.where(before.isNull() | (before != now))
    return changed.select(*(values.get(name, F.col(name)).alias(name) for name in exact.columns))


def newest_results(
    results: DataFrame, summary: Summary, *, order: tuple[str, ...] = (REVISION,)
) -> DataFrame:
    """One result for each window: the last by `order`."""
    keys = window_keys(summary)
    others = [name for name in results.columns if name not in keys]
    newest = results.groupBy(*keys).agg(F.max_by(F.struct(*others), F.struct(*order)).alias(RECORD))
    return newest.select(*keys, f"{RECORD}.*").select(*results.columns)


def affected_windows(records: DataFrame, summary: Summary) -> DataFrame:
    """The windows that these records belong to, each once; records may be in a struct `RECORD`."""
    if RECORD in records.columns:
        records = records.select(f"{RECORD}.*")
    return in_windows(records, summary).distinct()


def in_windows(records: DataFrame, summary: Summary, *columns: str) -> DataFrame:
    """These columns of each record, once for each window that it belongs to."""
    assert isinstance(summary.window, Window)
    window = _window(summary.time, summary.window, summary.window.every_us)
    found = records.select(*summary.by, window.alias(RECORD), *columns)
    bounds = F.col(RECORD).start.alias(START), F.col(RECORD).end.alias(END)
    return found.select(*summary.by, *bounds, *columns)


def _window(time: str, window: Window, every: int) -> Column:
    lengths = (window.size_us, every, window.start_us)
    return F.window(time, *(f"{length} microseconds" for length in lengths))


def _records_of(affected: DataFrame, history: DataFrame, summary: Summary) -> DataFrame:
    """The records of the affected windows, and some of their neighbours'.

    They are found by block, a piece of time as long as a window, since that is an equi-join: a
    window lies in two blocks at most.
    """
    assert isinstance(summary.window, Window)
    window = summary.window
    last = F.col(END) - F.expr("INTERVAL '0.000001' SECOND")
    ends = affected.select(*summary.by, F.explode(F.array(START, last)).alias(START))
    blocks = ends.withColumn(START, _window(START, window, window.size_us).start).distinct()
    records = history.withColumn(START, _window(summary.time, window, window.size_us).start)
    return semi_join(records, blocks, [*summary.by, START]).drop(START)


def semi_join(left: DataFrame, right: DataFrame, keys: list[str]) -> DataFrame:
    """The rows of `left` whose keys are in `right`; null is a key like others."""
    return join_keys(left, right.select(*keys), keys, "left_semi")


def join_keys(
    left: DataFrame, right: DataFrame, keys: list[str], how: str, renamed: str = _OTHER
) -> DataFrame:
    """An equi-join in which null equals null; the right columns are `renamed`."""
    return _join(left, right, keys, how, F.lit(True), renamed)


def _join(
    left: DataFrame,
    right: DataFrame,
    keys: list[str],
    how: str,
    condition: Column,
    renamed: str = _OTHER,
) -> DataFrame:
    """As `join_keys`, where a condition holds, too."""
    right = right.select(*(F.col(name).alias(renamed.format(name)) for name in right.columns))
    for name in keys:
        condition = condition & F.col(name).eqNullSafe(F.col(renamed.format(name)))
    return left.join(right, condition, how)


def window_keys(summary: Summary) -> list[str]:
    """The columns that identify a result's window."""
    return [*summary.by, START, END]


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
    aggregates = [name for name, _ in summary.aggregates]
    for name in (*window_keys(summary), *aggregates, RECORDS, REVISION):
        if name not in results.columns:
            raise ColumnError(
                WHERE,
                f"the results have no column {name!r}",
                there=f"their columns are {sorted(results.columns)}",
                todo="Give the rows of rm.aggregate for this summary, with all their columns.",
            )
