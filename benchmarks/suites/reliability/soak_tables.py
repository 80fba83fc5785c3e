"""The soak as a table and a plot: the second tenth of the micro-batches and the last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.harness.formatting import Cells, Document

LABELS = {
    "aggregate": "`rm.aggregate`, sliding windows, `rm.quality()`",
    "sessions": "`rm.aggregate`, sessions",
    "join_window": "`rm.join_window`",
    "join_interval": "`rm.join_interval`",
    "fence_events": "`rm.fence_events`",
    "trips": "`rm.trips`",
    "exact": '`rm.exact`, `retention="10 minutes"`',
    "spark_aggregate": "Spark's own sliding windows",
}
#: measures, what they are called, and in which form they are written
MEASURES = {
    "batch_ms": ("time, ms", ".0f"),
    "cpu_ms": ("CPU, ms", ".0f"),
    "state_rows": ("rows of state", ",.0f"),
    "state_mb": ("the state store's memory, MB", ".1f"),
    "python_mb": ("Python, MB", ".0f"),
    "heap_mb": ("JVM's live heap, MB", ".0f"),
    "java_mb": ("JVM with a heap of 1 GB, MB", ".0f"),
    "files": ("files", ",.0f"),
    "store_mb": ("all files, MB", ".1f"),
    "correction_s": ("a correction, s", ".2f"),
}


def table(result: Document) -> Cells:
    """Each measure in the second tenth, and how much more it is in the last."""
    return _lines(result, lambda row, name: row[name])


def halves(result: Document) -> Cells:
    """The most of each measure in the first half without its first tenth, and in the second."""
    return _lines(result, lambda row, name: _most(row["series"][name]))


def _lines(result: Document, of: Callable[[Document, str], tuple[float, float]]) -> Cells:
    head = ["a micro-batch, or after it", "micro-batches", *(name for name, _ in MEASURES.values())]
    rows = {row["case"]: row for row in result["rows"]}
    lines = []
    for case, label in LABELS.items():
        if case in rows:
            row = rows[case]
            cells = [_cell(name, of(row, name)) if name in row else "" for name in MEASURES]
            lines.append([label, f"{row['batches']:,}", *cells])
    return [head, *lines]


def _most(series: Sequence[float]) -> tuple[float, float]:
    tenth, half = len(series) // 10, len(series) // 2
    return max(series[tenth:half]), max(series[half:])


def _cell(name: str, values: tuple[float, float]) -> str:
    before, after = values
    growth = f" {100 * (after / before - 1):+.0f} %" if before else ""
    return f"{before:{MEASURES[name][1]}}{growth}"


def picture(result: Document) -> Any:
    """A panel for each measure, a line for each query, to what it was in the second tenth."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(3, 4, figsize=(13, 8), layout="constrained")
    colours = plt.get_cmap("tab10")
    for axes, (name, (title, _)) in zip(panels.flat, MEASURES.items(), strict=False):
        for number, case in enumerate(LABELS):
            for row in result["rows"]:
                if row["case"] == case and name in row and row[name][0]:
                    line = [value / row[name][0] for value in row["series"][name]]
                    share = [(each + 0.5) / len(line) for each in range(len(line))]
                    axes.plot(share, line, color=colours(number), lw=0.8, label=case)
        axes.axhspan(0.9, 1.1, color="#e4e7eb", zorder=0)
        axes.set_title(title, loc="left")
        axes.set_ylim(0, max(2.0, axes.get_ylim()[1]))
        axes.set_xlim(0, 1)
    lines, names = panels.flat[0].get_legend_handles_labels()
    for axes in panels.flat[len(MEASURES) :]:
        axes.axis("off")
    panels.flat[-1].legend(lines, names, fontsize=8, frameon=False, loc="center")
    figure.supxlabel("part of the micro-batches; 1 on the vertical axis: the second tenth")
    return figure
