"""How good early answers turned out to be: their errors, and the shape of the windows.

Once a window has settled its records are all there, as far as the delays of late tell, and the
answer that it gave when it closed can be held against the one it would give now.
"""

from __future__ import annotations

from dataclasses import dataclass

import numba
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rivermouth.kernels.aggregation.control import Settled
from rivermouth.kernels.aggregation.groups import group, plain
from rivermouth.kernels.aggregation.multisets import Bags
from rivermouth.kernels.aggregation.partials import PANE, Answers, Book
from rivermouth.kernels.aggregation.thresholds import Shape
from rivermouth.spec.aggregates import Standard
from rivermouth.spec.slack import Quality

Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

WINDOW, EARLY = "window", "early"
#: what is kept of arrivals: how many records came to a pane, and where the clock stood before
CLOCK, COUNT = "clock", "count"


def early_answers(answers: Answers, *, with_values: bool) -> pa.Table:
    """What is kept of answers until they are checked."""
    values = answers.values if with_values else {}
    return pa.table(
        {
            **dict(zip(answers.groups.column_names, answers.groups.columns, strict=True)),
            WINDOW: answers.spans.window,
            EARLY: answers.records,
            **{f"value.{name}": pa.array(as_doubles(value)) for name, value in values.items()},
        }
    )


def as_doubles(values: pa.Array) -> Doubles:
    """Values as numbers that can be compared, NaN for null; texts and the like as whether equal."""
    kind = values.type
    if pa.types.is_temporal(kind):
        values = values.view(f"int{kind.bit_width}")
    if pa.types.is_string(kind):
        values = pc.binary_length(values)
    return np.asarray(values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), float)


@dataclass(frozen=True)
class Checked:
    """Settled windows of a bucket, in order, and how their early answers did.

    `answers` and `above` count answers and those among them with an error of eps or more;
    `above_by` counts the latter by aggregate; `early` of `records` were in hand.
    """

    windows: list[Settled]
    answers: int
    above: int
    above_by: dict[str, int]
    early: int
    records: int
    shapes: dict[str | None, Shape]


def check(
    book: Book,
    slack: Quality | None,
    early: pa.Table | None,
    final: Answers,
    needed: tuple[Ints, Ints] | None = None,
) -> Checked:
    """Hold the early answers of some windows against their final ones.

    `needed` is how long windows would have had to wait, by window.
    """
    received, values = _matched(book, early, final)
    errors = {} if slack is None else _errors(book, slack, values, received, final)
    bound = slack.eps if slack is not None else np.inf
    above = {name: error >= bound for name, error in errors.items()}
    missed = np.any([*above.values(), np.zeros(len(final), bool)], axis=0)
    return Checked(
        _by_window(final.spans.window, received, final.records, missed, needed),
        len(final),
        int(missed.sum()),
        {name: int(each.sum()) for name, each in above.items()},
        int(received.sum()),
        int(final.records.sum()),
        _shapes(book, final),
    )


def _matched(book: Book, early: pa.Table | None, final: Answers) -> tuple[Ints, dict[str, Doubles]]:
    """Of each final answer the early one's records and values; 0 and NaN where there was none."""
    names = [f"value.{name}" for name in book.plan.results.names]
    nothing = np.zeros(len(final), np.int64)
    if early is None or not early.num_rows or not len(final):
        return nothing, {}
    keys = [
        pa.concat_arrays([plain(early.column(key)), plain(final.groups.column(key))])
        for key in book.keys
    ]
    rows = early.num_rows + len(final)
    windows = pa.array(np.concatenate([early.column(WINDOW).to_numpy(), final.spans.window]))
    code = group([*keys, windows], rows).code
    source = np.full(int(code.max()) + 1, -1, np.int64)
    source[code[: early.num_rows]] = np.arange(early.num_rows)
    at = source[code[early.num_rows :]]
    taken = {
        name.removeprefix("value."): np.where(
            at >= 0, early.column(name).to_numpy()[np.maximum(at, 0)], np.nan
        )
        for name in names
        if name in early.column_names
    }
    records = early.column(EARLY).to_numpy()[np.maximum(at, 0)]
    return np.where(at >= 0, records, 0), taken


def _errors(
    book: Book, slack: Quality, early: dict[str, Doubles], received: Ints, final: Answers
) -> dict[str, Doubles]:
    """The error of each early answer by aggregate; infinite for a window that gave none."""
    found = {}
    for name, aggregate in book.summary.aggregates:
        if name not in early:
            error = np.full(len(final), np.inf)
        elif isinstance(aggregate, Standard) and aggregate.kind == "quantile":
            error = _rank_errors(book, aggregate, early[name], final)
        else:
            error = errors(early[name], as_doubles(final.values[name]), absolute=slack.absolute)
        found[name] = np.where(received == 0, np.inf, error)
    return found


def errors(early: Doubles, final: Doubles, *, absolute: bool) -> Doubles:
    """How far answers are off, relative to the final ones or not; equal ones are not, NaN too.

    Examples
    --------
    >>> errors(np.array([9.0, 1.0, 0.0, np.nan]), np.array([10.0, 0.0, 0.0, 2.0]), absolute=False)
    array([0.1, inf, 0. , inf])
    """
    same = (early == final) | (np.isnan(early) & np.isnan(final))
    with np.errstate(divide="ignore", invalid="ignore"):
        off = np.abs(early - final) / (1.0 if absolute else np.abs(final))
    return np.where(same, 0.0, np.where(np.isnan(off), np.inf, off))


def _rank_errors(book: Book, aggregate: Standard, early: Doubles, final: Answers) -> Doubles:
    """How far the rank of each early quantile is from the one that was asked for."""
    assert aggregate.column is not None
    assert aggregate.share is not None
    bag = Bags(f"{book.summary.columns.index(aggregate.column)}.bag", is_set=False)
    runs = final.runs
    below, upto = bag.ranks(runs.kept, runs.low, runs.high, early)
    off = np.maximum(np.maximum(below - aggregate.share, aggregate.share - upto), 0.0)
    exact = as_doubles(final.values[_name_of(book, aggregate)])
    same = (early == exact) | (np.isnan(early) & np.isnan(exact))
    return np.where(same, 0.0, np.where(np.isnan(early), np.inf, off))


def _name_of(book: Book, aggregate: Standard) -> str:
    return next(name for name, each in book.summary.aggregates if each == aggregate)


def _by_window(
    window: Ints,
    received: Ints,
    records: Ints,
    missed: npt.NDArray[np.bool_],
    needed: tuple[Ints, Ints] | None,
) -> list[Settled]:
    """The groups of each window together, windows in order."""
    numbers, code = np.unique(window, return_inverse=True)
    count = len(numbers)
    had, all_ = (np.bincount(code, each, count) for each in (received, records))
    share = np.bincount(code, missed, count) / np.maximum(np.bincount(code, minlength=count), 1)
    coverage = had / np.maximum(all_, 1)
    waits = np.zeros(count, np.int64)
    if needed is not None:
        waits = needed[1][np.searchsorted(needed[0], numbers)]
    return [
        Settled(float(c), float(m), int(w)) for c, m, w in zip(coverage, share, waits, strict=True)
    ]


def arrived(panes: Ints, clock: int) -> pa.Table:
    """What is kept of records that came to these panes when the clock stood there."""
    pane, count = np.unique(panes, return_counts=True)
    return pa.table({PANE: pane, CLOCK: np.full(len(pane), clock), COUNT: count})


def needed_waits(book: Book, log: pa.Table, windows: Ints, share: float) -> tuple[Ints, Ints]:
    """The windows, sorted and each once, and how long each had to wait for `share` of its records.

    In microseconds behind the window's end: the least K with which it would have been open still
    when the last record of that share came.
    """
    pane, clock, count = (log.column(name).to_numpy() for name in (PANE, CLOCK, COUNT))
    order = np.lexsort((clock, pane))
    windows = np.unique(windows)
    begin = windows * book.grid.every // book.grid.pane
    low, high = (
        np.searchsorted(pane[order], edge)
        for edge in (begin, begin + book.grid.size // book.grid.pane)
    )
    end = book.grid.start(windows) + book.grid.size
    return windows, _needed(clock[order], count[order], low, high, end, share)


@numba.njit(cache=True)
def _needed(clock: Ints, count: Ints, low: Ints, high: Ints, end: Ints, share: float) -> Ints:
    waits = np.zeros(len(low), np.int64)
    for i in range(len(low)):
        total = count[low[i] : high[i]].sum()
        order = np.argsort(clock[low[i] : high[i]])
        there = 0
        for k in order:
            there += count[low[i] + k]
            if there >= share * total:
                waits[i] = max(0, clock[low[i] + k] - end[i] + 1)
                break
    return waits


def _shapes(book: Book, final: Answers) -> dict[str | None, Shape]:
    """The mean shape of the windows, for each column that an aggregate is of."""
    if not len(final):
        return {}
    plain_shape = Shape(float(final.records.mean()))
    found: dict[str | None, Shape] = {None: plain_shape}
    found |= {each.column: plain_shape for _, each in book.summary.aggregates}
    for column, track in book.plan.shapes:
        found[column] = _shape(track.sums(final.runs.of(track)))
    return found


def _shape(sums: list[Doubles]) -> Shape:
    """The mean shape of windows from their sums of powers."""
    count = sums[0]
    some = count > 0
    if not some.any():
        return Shape(0.0)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        raw = [each[some] / count[some] for each in sums]
        mean = raw[1]
        variance = np.maximum(raw[2] - mean**2, 0.0)
        kurtosis = 3.0
        if len(raw) > 4:
            fourth = raw[4] - 4 * mean * raw[3] + 6 * mean**2 * raw[2] - 3 * mean**4
            spread = variance > 0
            kurtosis = float(np.mean(fourth[spread] / variance[spread] ** 2)) if spread.any() else 3
        return Shape(
            float(count[some].mean()), float(np.abs(mean).mean()), float(variance.mean()), kurtosis
        )
