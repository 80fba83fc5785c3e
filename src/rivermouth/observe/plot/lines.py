"""The standard pictures of a run, over time: throughput, latency, skew, quality."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rivermouth.observe import reports
from rivermouth.observe.history import Reader
from rivermouth.observe.metrics import keys
from rivermouth.observe.plot.figures import GRID, INK, LINES, SOFT, empty
from rivermouth.observe.recorder import recorder_of
from rivermouth.observe.run_api import briefly

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Place = str | os.PathLike[str]
Brief = dict[str, Any]
Points = Sequence[float | None]

_SIZE = (9.0, 3.4)  # inches


def throughput(run: Any, *, path: Place | None = None, title: str | None = None) -> Figure:
    """Rows per second over time: how many arrived, and how many a second of work took.

    Parameters
    ----------
    run
        A query, running or ended, or the path of a history that ``rm.watch`` wrote.
    path
        Where to save it, as what its ending says: ``.png``, ``.svg``, ``.pdf``.
    title
        A text above it.

    Returns
    -------
    matplotlib.figure.Figure
        To be shown by a notebook, added to, or saved again.

    Raises
    ------
    SessionError
        When matplotlib is not installed.
    """
    batches = _briefs("plot.throughput", run)
    lines: dict[str, Points] = {
        "processed": [_ratio(batch, batch["seconds"]) for batch in batches],
        "arrived": [
            None if then is None else _ratio(now, now["at"] - then["at"])
            for then, now in zip([None, *batches], batches, strict=False)
        ],
    }
    return _saved(_drawn("plot.throughput", batches, lines, "rows per second", title), path)


def latency(run: Any, *, path: Place | None = None, title: str | None = None) -> Figure:
    """Seconds of each batch over time, and how long its median and its slowest row took.

    Takes and gives what `throughput` does; rows are taken to arrive as `metrics` says.
    """
    batches = _briefs("plot.latency", run)
    lines: dict[str, Points] = {
        "batch": [batch["seconds"] for batch in batches],
        "median row": [b["seconds"] + b["wait"] / 2 if b["rows"] else None for b in batches],
        "slowest row": [b["seconds"] + b["wait"] if b["rows"] else None for b in batches],
    }
    return _saved(_drawn("plot.latency", batches, lines, "seconds", title), path)


def skew(run: Any, *, path: Place | None = None, title: str | None = None) -> Figure:
    """How uneven the load of the partitions was over time: the load CV, a line per operator.

    Takes and gives what `throughput` does.
    """
    batches = _briefs("plot.skew", run)
    lines = _by_operator(batches, lambda operator: operator["load_cv"])
    return _saved(_drawn("plot.skew", batches, lines, "load CV (0 is even)", title), path)


def quality(run: Any, *, path: Place | None = None, title: str | None = None) -> Figure:
    """Coverage of early results against what is required, and beneath it the slack K, over time.

    Takes and gives what `throughput` does; of the run's first aggregate.
    """
    where = "plot.quality"
    batches = _briefs(where, run)
    gauges = [_gauges(batch) for batch in batches]

    def heard(name: str) -> Points:
        return [one.get(name) for one in gauges]

    figure = empty(where, _SIZE[0], _SIZE[1] * 1.6)
    above, beneath = figure.subplots(2, 1, sharex=True)
    times = _times(batches)
    _add_lines(
        above,
        times,
        {"coverage": heard("settled_coverage"), "required": heard("required_coverage")},
    )
    _finish(above, "share of records", title)
    _add_lines(beneath, times, {"K": heard("slack")})
    _finish(beneath, "seconds", None)
    return _saved(figure, path)


def _briefs(where: str, run: Any) -> list[Brief]:
    """The newest batches of a query or of a history."""
    if isinstance(run, str | os.PathLike):
        log = Reader(Path(run)).log
    else:
        recorder = recorder_of(reports.query_of(run, where=where))
        recorder.look()
        log = recorder.log
    return briefly(list(log.recent), keys(log.totals.operators))


def _ratio(batch: Brief, seconds: float) -> float | None:
    return batch["rows"] / seconds if seconds else None


def _by_operator(
    batches: Sequence[Brief], pick: Callable[[dict[str, Any]], float | None]
) -> dict[str, Points]:
    names = dict.fromkeys(name for batch in batches for name in batch["operators"])
    found = {
        name: [pick(b["operators"][name]) if name in b["operators"] else None for b in batches]
        for name in names
    }
    return {name: line for name, line in found.items() if any(y is not None for y in line)}


def _gauges(batch: Brief) -> dict[str, float]:
    """Those of the first operator that has any of coverage."""
    gauges: Iterable[dict[str, float]] = (one["gauges"] for one in batch["operators"].values())
    return next((one for one in gauges if {"slack", "settled_coverage"} & one.keys()), {})


def _times(batches: Sequence[Brief]) -> list[datetime]:
    return [datetime.fromtimestamp(batch["at"], UTC) for batch in batches]


def _drawn(
    where: str, batches: Sequence[Brief], lines: dict[str, Points], unit: str, title: str | None
) -> Figure:
    figure = empty(where, *_SIZE)
    axes = figure.add_subplot()
    _add_lines(axes, _times(batches), lines)
    _finish(axes, unit, title)
    return figure


def _add_lines(axes: Axes, times: Sequence[datetime], lines: dict[str, Points]) -> None:
    for number, (name, values) in enumerate(lines.items()):
        known = [(at, y) for at, y in zip(times, values, strict=True) if y is not None]
        if known:
            marker = "." if len(known) < 3 else None
            colour = LINES[number % len(LINES)]
            axes.plot(*zip(*known, strict=True), color=colour, label=name, lw=1.6, marker=marker)


def _finish(axes: Axes, unit: str, title: str | None) -> None:
    """Axes as a reader wants them: from zero, a light grid, a legend."""
    axes.set_ylim(bottom=0)
    axes.set_ylabel(unit, color=INK)
    axes.grid(color=GRID)
    axes.tick_params(colors=SOFT, length=0)
    axes.spines[:].set_visible(False)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(loc="upper left", frameon=False, ncols=4, fontsize=9)
    if title:
        axes.set_title(title, loc="left", fontsize=13, fontweight="bold", color=INK)


def _saved(figure: Figure, path: Place | None) -> Figure:
    if path is not None:
        figure.savefig(path, dpi=110)
    return figure
