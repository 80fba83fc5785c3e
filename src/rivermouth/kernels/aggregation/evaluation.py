"""How good early results turned out to be: their errors, and the statistics of the windows.

Once a window has settled its records are all there, as far as recent delays tell, and the result
emitted when it closed can be compared with the one it would have now.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rivermouth.kernels.aggregation.control import SettledWindow
from rivermouth.kernels.aggregation.multisets import Multisets
from rivermouth.kernels.aggregation.plan import WindowResults
from rivermouth.kernels.aggregation.preferences import missing_shares
from rivermouth.kernels.aggregation.thresholds import WindowStats
from rivermouth.kernels.arrays import Floats, Ints
from rivermouth.kernels.state.groups import group, normalized
from rivermouth.spec.aggregates import Standard
from rivermouth.spec.preferences import Preference
from rivermouth.spec.slack import Quality

#: the columns of early results in the state, besides the group's; values are ``value.<name>``
WINDOW, EARLY = "window", "early"


def early_results(results: WindowResults, *, with_values: bool) -> pa.Table:
    """What is kept of results until they are evaluated."""
    values = results.values if with_values else {}
    return pa.table(
        {
            **results.groups,
            WINDOW: results.windows.window,
            EARLY: results.records,
            **{f"value.{name}": comparable(value) for name, value in values.items()},
        }
    )


def comparable(values: pa.Array) -> pa.Array:
    """What is kept of early values to compare them: numbers, of preferred records the lists."""
    return values if pa.types.is_list(values.type) else pa.array(as_doubles(values))


def as_doubles(values: pa.Array) -> Floats:
    """Values as numbers that can be compared, NaN for null; of texts the length."""
    dtype = values.type
    if pa.types.is_temporal(dtype):
        values = values.view(f"int{dtype.bit_width}")
    if pa.types.is_string(dtype):
        values = pc.binary_length(values)
    return np.asarray(values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), float)


@dataclass(frozen=True)
class Evaluation:
    """Settled windows of a bucket, in order, and how their early results did.

    `results` and `above` count results and those among them with an error of eps or more;
    `above_by` counts the latter by aggregate; `early` of `records` were there at the close.
    """

    windows: list[SettledWindow]
    results: int
    above: int
    above_by: dict[str, int]
    early: int
    records: int
    stats: dict[str | None, WindowStats]


def evaluate(
    slack: Quality | None,
    early: pa.Table | None,
    final: WindowResults,
) -> Evaluation:
    """Compare the early results of some windows with their final ones."""
    received, values = matched(early, final)
    above = {}
    if slack is not None:
        for name, error in result_errors(slack, values, final).items():
            above[name] = (received == 0) | (error >= slack.eps)
    missed = np.any([*above.values(), np.zeros(len(final), bool)], axis=0)
    return Evaluation(
        _by_window(final, received, missed),
        len(final),
        int(missed.sum()),
        {name: int(each.sum()) for name, each in above.items()},
        int(received.sum()),
        int(final.records.sum()),
        _window_stats(final),
    )


def matched(early: pa.Table | None, final: WindowResults) -> tuple[Ints, dict[str, Any]]:
    """Of each final result the early one's records and values; 0, NaN, null if there was none."""
    if early is None or not early.num_rows or not len(final):
        return np.zeros(len(final), np.int64), {}
    count = early.num_rows
    keys = [
        pa.concat_arrays([normalized(early.column(key)), normalized(column)])
        for key, column in final.groups.items()
    ]
    windows = pa.array(np.concatenate([early.column(WINDOW).to_numpy(), final.windows.window]))
    code = group([*keys, windows], count + len(final)).code
    source = np.full(int(code.max()) + 1, -1, np.int64)
    source[code[:count]] = np.arange(count)
    at = source[code[count:]]

    def taken(column: str, missing: float) -> Any:
        if pa.types.is_list(early.column(column).type):
            return normalized(early.column(column)).take(pa.array(at, mask=at < 0))
        return np.where(at >= 0, early.column(column).to_numpy()[np.maximum(at, 0)], missing)

    names = [name for name in early.column_names if name.startswith("value.")]
    values = {name.removeprefix("value."): taken(name, np.nan) for name in names}
    return taken(EARLY, 0).astype(np.int64), values


def result_errors(slack: Quality, early: dict[str, Any], final: WindowResults) -> dict[str, Floats]:
    """The error of each early result by aggregate; infinite where it is not known."""
    found = {}
    for name, aggregate in final.plan.summary.aggregates:
        if name not in early:
            found[name] = np.full(len(final), np.inf)
            continue
        if isinstance(aggregate, Preference):
            found[name] = missing_shares(early[name], final.values[name])
            continue
        exact = as_doubles(final.values[name])
        found[name] = errors(early[name], exact, absolute=slack.absolute)
        if isinstance(aggregate, Standard) and aggregate.kind == "quantile":
            ranks = _rank_errors(final, aggregate, early[name])
            found[name] = np.where(found[name] == 0, 0.0, ranks)
    return found


def errors(early: Floats, final: Floats, *, absolute: bool) -> Floats:
    """The errors of results, relative to the final ones or not; 0 for equal ones, NaN included.

    Examples
    --------
    >>> errors(np.array([9.0, 1.0, 0.0, np.nan]), np.array([10.0, 0.0, 0.0, 2.0]), absolute=False)
    array([0.1, inf, 0. , inf])
    """
    same = (early == final) | (np.isnan(early) & np.isnan(final))
    with np.errstate(divide="ignore", invalid="ignore"):
        off = np.abs(early - final) / (1.0 if absolute else np.abs(final))
    return np.where(same, 0.0, np.where(np.isnan(off), np.inf, off))


def _rank_errors(final: WindowResults, aggregate: Standard, early: Floats) -> Floats:
    """How far the rank of each early quantile is from the quantile's."""
    assert aggregate.column is not None
    assert aggregate.share is not None
    values = Multisets(f"{final.plan.summary.columns.index(aggregate.column)}.bag")
    below, upto = values.ranks(final.ranges, early)
    off = np.maximum(np.maximum(below - aggregate.share, aggregate.share - upto), 0.0)
    return np.where(np.isnan(early), np.inf, off)


def _by_window(
    final: WindowResults, received: Ints, missed: npt.NDArray[np.bool_]
) -> list[SettledWindow]:
    """The groups of each window together, windows in order."""
    windows, code = np.unique(final.windows.window, return_inverse=True)
    had, records, above, groups = (
        np.bincount(code, each, len(windows))
        for each in (received, final.records, missed, np.ones(len(code)))
    )
    columns = (windows, had / np.maximum(records, 1), above.astype(int), groups.astype(int))
    return [SettledWindow(*row) for row in zip(*map(np.ndarray.tolist, columns), strict=True)]


def _window_stats(final: WindowResults) -> dict[str | None, WindowStats]:
    """The statistics of the windows, for each column that an aggregate is of."""
    if not len(final):
        return {}
    columns = (None, *(each.column for _, each in final.plan.summary.aggregates))
    found: dict[str | None, WindowStats] = dict.fromkeys(
        columns, WindowStats(float(final.records.mean()))
    )
    for column, sums in final.plan.power_sums.items():
        found[column] = _mean_stats(sums.sums(final.ranges.merged(sums)))
    return found


def _mean_stats(sums: list[Floats]) -> WindowStats:
    """The mean statistics of windows from their sums of powers."""
    some = sums[0] > 0
    if not some.any():
        return WindowStats(0.0)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        count, *powers = (each[some] for each in sums)
        mean, square, *higher = (each / count for each in powers)
        variance = np.maximum(square - mean**2, 0.0)
        kurtosis, spread = 3.0, variance > 0
        if higher and spread.any():
            fourth = higher[1] - 4 * mean * higher[0] + 6 * mean**2 * square - 3 * mean**4
            kurtosis = float(np.mean(fourth[spread] / variance[spread] ** 2))
        return WindowStats(
            float(count.mean()), float(np.abs(mean).mean()), float(variance.mean()), kurtosis
        )
