"""A summary run over a stream without Spark, and its early results compared with the truth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rivermouth.kernels.aggregation.evaluation import EARLY, WINDOW, as_doubles, evaluate
from rivermouth.kernels.aggregation.plan import AggPlan, WindowResults
from rivermouth.kernels.aggregation.processor import AggregateProcessor
from rivermouth.kernels.aggregation.routing import PartialsRouter
from rivermouth.kernels.state.bucketing import Arrivals
from rivermouth.spec.slack import Fixed, Quality, Slack, quality
from rivermouth.spec.summaries import Summary

Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

STEP_US = 100_000  #: event time that a step goes through, at most


@dataclass(frozen=True)
class Walk:
    """What came out: early results, the largest event time seen at each, and K after each step."""

    rows: pa.Table
    summary: Summary
    results: pa.Table
    seen: Ints
    newest: Ints
    slack: Doubles
    eps: float

    @cached_property
    def truth(self) -> WindowResults:
        """The results of the whole stream at once."""
        plan = _plan(self.rows, self.summary, quality())
        return plan.results(plan.lift(self.rows, plan.times(self.rows)), -(1 << 60), 1 << 60)

    @property
    def latency(self) -> Doubles:
        """Seconds from a window's end to its result, by the largest event time seen."""
        end = self.results.column("window_end").cast(pa.int64()).to_numpy()
        return np.asarray((self.seen - end) / 1e6)

    @cached_property
    def above(self) -> dict[str, Any]:
        """How many of the results had an error of eps or more; and the coverage they had.

        A window that closed before any of its records came has no result, and counts as missed.
        """
        every = self.truth.plan.grid.every
        start = self.results.column("window_start").cast(pa.int64()).to_numpy()
        names = [name for name, _ in self.summary.aggregates]
        early = pa.table(
            {
                WINDOW: start // every,
                EARLY: self.results.column("records"),
                **{
                    f"value.{name}": as_doubles(self.results.column(name).combine_chunks())
                    for name in names
                },
            }
        )
        asked = self.truth.windows.window <= (start // every).max()
        windows = type(self.truth.windows)(*(part[asked] for part in self.truth.windows))
        final = WindowResults(self.truth.plan, self.truth.partials, windows)
        found = evaluate(quality(self.eps), early, final)
        return {
            "answers": found.results,
            "above": found.above / max(1, found.results),
            "coverage": found.early / max(1, found.records),
            "window": np.array([window.window for window in found.windows]),
            "missed": np.array([window.missed / window.results for window in found.windows]),
        }

    def figures(self) -> dict[str, float]:
        """The numbers of a row of the table."""
        return {
            "mean_slack_s": float(self.slack.mean()),
            "max_slack_s": float(self.slack.max()),
            "mean_latency_s": float(self.latency.mean()),
            "answers": self.above["answers"],
            "windows": len(self.truth),
            "above": self.above["above"],
            "coverage": self.above["coverage"],
        }


def walk(
    rows: pa.Table, summary: Summary, slack: Slack, *, eps: float = 0.05,
    batch_s: float | None = None,
) -> Walk:  # fmt: skip
    """All of `rows`, in the order of arrival, in steps of at most `STEP_US` of event time.

    With `batch_s` a step is what arrived in so many seconds, as a stream's micro-batches are.
    """
    plan = _plan(rows, summary, slack)
    schema, router = plan.schema(), PartialsRouter(plan, 1, 0)
    store: dict[str, bytes] = {}
    cache: dict[str, Any] = {}
    results, seen, newest_times, slacks = [schema.empty_table()], [], [], []
    for part, newest in _steps(rows, plan.times(rows), batch_s):
        processor = AggregateProcessor(plan, slack, schema)
        combined = router.combine(part)
        arrivals = Arrivals(((combined.rows,),), (newest,), newest, times=(combined.times,))
        for table in processor.process(store, arrivals, cache):
            results.append(table)
            seen.append(np.full(table.num_rows, newest))
        newest_times.append(newest)
        slacks.append(processor.report()["slack"])
    columns = np.concatenate(seen), np.array(newest_times), np.array(slacks)
    return Walk(rows, summary, pa.concat_tables(results), *columns, eps)


def _plan(rows: pa.Table, summary: Summary, slack: Slack) -> AggPlan:
    types = {name: rows.schema.field(name).type for name in summary.columns}
    return AggPlan(summary, types, isinstance(slack, Quality))


def _steps(
    rows: pa.Table, times: Ints, batch_s: float | None = None
) -> Iterator[tuple[pa.Table, int]]:
    newest = np.maximum.accumulate(times)
    passed, step = newest, STEP_US
    if batch_s is not None:
        passed, step = rows.column("arrival").cast(pa.int64()).to_numpy(), round(batch_s * 1e6)
    ends = np.searchsorted(passed, np.arange(passed[0], passed[-1] + step, step), side="right")
    cuts = np.unique(np.concatenate([[0], ends, [len(times)]]))
    for begin, end in zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True):
        yield rows.slice(begin, end - begin), int(newest[end - 1])


@dataclass(frozen=True)
class Outcome:
    """Windows that closed, in order: their ends, whether they were missed, the latency of results.

    And K after each step, and the largest event time of the first.
    """

    end: Ints
    missed: Doubles
    latency: Doubles
    slack: Doubles
    begun: int


def outcome(
    rows: pa.Table, summary: Summary, slack: Slack, *, eps: float, batch_s: float | None = None
) -> Outcome:
    """How the windows of a stream fared, as `walk` finds it.

    Where K does not depend on results and one SUM is asked for it is computed at once, in a
    hundredth of the time.
    """
    if not isinstance(slack, Quality):
        return _outcome_of_known(rows, summary, slack, eps, batch_s)
    found = walk(rows, summary, slack, eps=eps, batch_s=batch_s)
    grid = found.truth.plan.grid
    end = found.above["window"] * grid.every + grid.size
    return Outcome(end, found.above["missed"], found.latency, found.slack, int(found.newest[0]))


def _outcome_of_known(
    rows: pa.Table, summary: Summary, slack: Slack, eps: float, batch_s: float | None
) -> Outcome:
    """The outcome of a constant K, or of the largest delay seen; a SUM, one group."""
    (name,) = (aggregate.column for _, aggregate in summary.aggregates)
    plan = _plan(rows, summary, slack)
    times, values = plan.times(rows), rows.column(name or "").to_numpy()
    step, newest = _step_of(rows, times, batch_s)
    if isinstance(slack, Fixed):
        wait = np.full(len(newest), round(slack.length.total_seconds() * 1e6))
    else:
        delay = np.where(step > 0, newest[step - 1] - times, 0)
        wait = np.zeros(len(newest), np.int64)
        np.maximum.at(wait, step, delay)
        wait = np.maximum.accumulate(wait)
    window, row = _pairs(plan, times)
    low = int(window.min())
    total, count = np.bincount(window - low, values[row]), np.bincount(window - low)
    end = (np.arange(len(total)) + low) * plan.grid.every + plan.grid.size
    closes = np.searchsorted(np.maximum.accumulate(newest - wait), end)
    inside = step[row] <= closes[window - low]
    early, early_count = (
        np.bincount(window[inside] - low, weight, len(total))
        for weight in (values[row[inside]], None)
    )
    missed = (np.abs(early - total) >= eps * np.abs(total)) | (early_count == 0)
    has_result = (closes < len(newest)) & (early_count > 0)
    closed = (count > 0) & (np.arange(len(total)) <= np.flatnonzero(has_result).max())
    latency = (newest[closes[has_result]] - end[has_result]) / 1e6
    return Outcome(end[closed], missed[closed].astype(float), latency, wait / 1e6, int(newest[0]))


def best_fixed(rows: pa.Table, summary: Summary, *, eps: float, delta: float) -> float:
    """The shortest K, in seconds and to 2 %, that would have kept the promise; SUM, one group.

    Known only in hindsight. Windows and values are few enough to be tried one K after the other.
    """
    (name,) = (aggregate.column for _, aggregate in summary.aggregates)
    plan = _plan(rows, summary, quality())
    times, values = plan.times(rows), rows.column(name or "").to_numpy()
    step, newest = _step_of(rows, times)
    window, row = _pairs(plan, times)
    low = int(window.min())
    total = np.bincount(window - low, values[row])
    ends = (np.arange(len(total)) + low) * plan.grid.every + plan.grid.size

    def missed(wait: float) -> float:
        closes = np.searchsorted(newest, ends + wait * 1e6)
        inside = step[row] <= closes[window - low]
        early = np.bincount(window[inside] - low, values[row[inside]], len(total))
        counts = np.bincount(window[inside] - low, minlength=len(total)) > 0
        answered = (closes < len(newest)) & counts
        return float((np.abs(early - total) >= eps * np.abs(total))[answered].mean())

    short, long = 0.0, float((np.maximum.accumulate(times) - times).max() / 1e6)
    while long - short > 0.02 * long:
        middle = (short + long) / 2
        short, long = (short, middle) if missed(middle) <= delta else (middle, long)
    return long


def _step_of(rows: pa.Table, times: Ints, batch_s: float | None = None) -> tuple[Ints, Ints]:
    """The step in which each row comes, and the largest event time seen after each step."""
    parts = list(_steps(rows, times, batch_s))
    return (
        np.repeat(np.arange(len(parts)), [part.num_rows for part, _ in parts]),
        np.array([newest for _, newest in parts]),
    )


def _pairs(plan: AggPlan, times: Ints) -> tuple[Ints, Ints]:
    """Each window and each of its rows."""
    pane = plan.grid.panes(times)
    first, last = plan.grid.first_window(pane), plan.grid.last_window(pane)
    count = last - first + 1
    row = np.repeat(np.arange(len(times)), count)
    return first[row] + np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count), row
