"""The soak as a table and a plot: the second tenth of the micro-batches and the last."""

from __future__ import annotations

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
    "python_mb": ("Python, MB", ".0f"),
    "heap_mb": ("JVM's live heap, MB", ".0f"),
    "java_mb": ("JVM with a heap of 1 GB, MB", ".0f"),
    "files": ("files", ",.0f"),
    "store_mb": ("all files, MB", ".1f"),
    "correction_s": ("a correction, s", ".2f"),
}


def table(result: Document) -> Cells:
    """Each measure in the second tenth, and how much more it is in the last."""
    head = ["a micro-batch, or after it", "micro-batches", *(name for name, _ in MEASURES.values())]
    rows = {row["case"]: row for row in result["rows"]}
    return [
        head,
        *(
            [label, f"{rows[case]['batches']:,}", *(_cell(rows[case], name) for name in MEASURES)]
            for case, label in LABELS.items()
            if case in rows
        ),
    ]


def _cell(row: Document, name: str) -> str:
    if name not in row:
        return ""
    before, after = row[name]
    growth = f" {100 * (after / before - 1):+.0f} %" if before else ""
    return f"{before:{MEASURES[name][1]}}{growth}"


def picture(result: Document) -> Any:
    """A panel for each measure, a line for each query, to what it was in the second tenth."""
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(2, 5, figsize=(14, 6), layout="constrained")
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
    panels.flat[-1].axis("off")
    panels.flat[-1].legend(lines, names, fontsize=8, frameon=False, loc="center")
    figure.supxlabel("part of the micro-batches; 1 on the vertical axis: the second tenth")
    return figure
