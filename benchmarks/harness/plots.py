"""The results as plots for the documentation."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

mpl.use("svg")
import matplotlib.pyplot as plt

from benchmarks.papers import disorder_plots, promise_report
from benchmarks.papers.paper_b import plots as paper_b
from benchmarks.suites.reliability import soak_tables
from benchmarks.suites.routing import hosts_tables
from benchmarks.suites.stream_join import join_tables

Document = Mapping[str, Any]
OURS, OTHERS, PAPER = "#0b7a75", "#9aa5b1", "#d9822b"
STYLE = {
    "svg.hashsalt": "rivermouth",  # the same figures, the same file
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e7eb",
    "figure.facecolor": "white",
}

FIGURE11 = {
    "paper_loop": ("paper: plain loop", PAPER),
    "paper_rtree": ("paper: two-level R-tree", PAPER),
    "loop_over_records": ("plain loop, by record", OTHERS),
    "loop_over_batch": ("plain loop, by batch", OTHERS),
    "rtree": ("two-level R-tree, our index", OTHERS),
    "workers": ("rivermouth, workers", OURS),
    "native": ("rivermouth, native", OURS),
}


def draw_all(results: Path, folder: Path) -> list[Path]:
    """Draw each plot whose result is there."""
    drawn = []
    for name, (source, draw) in PLOTS.items():
        path = results / f"{source}.json"
        if path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            with mpl.rc_context(STYLE):
                figure = draw(json.loads(path.read_text()))
                figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
                plt.close(figure)
            drawn.append(folder / f"{name}.svg")
    return drawn


def changes(result: Document) -> Any:
    """Over the time that changes are followed: freshness, rate and the workers' memory."""
    row = next(row for row in result["rows"] if row["case"] == "follows changes")
    series, rows = row["series"], result["batch_rows"]
    minutes = np.cumsum(series["batch_s"]) / 60
    memory = series["memory_mb"]
    figure, three = plt.subplots(1, 3, figsize=(10, 2.8), layout="constrained")
    lines = [
        ("freshness, s", minutes, [value or np.nan for value in series["freshness_s"]]),
        ("points per second", minutes, [rows / took for took in series["batch_s"]]),
        ("workers' memory, MB", np.arange(len(memory)) * series["memory_every_s"] / 60, memory),
    ]
    for axes, (title, x, y) in zip(three, lines, strict=True):
        axes.plot(x, y, color=OURS, linewidth=1)
        axes.set_title(title, loc="left")
        axes.set_xlabel("minutes")
        axes.set_ylim(bottom=0)
    still = next(row for row in result["rows"] if row["case"] == "stays")
    three[0].axhline(2 * row["batch_s"], color=PAPER, linestyle=":", label="two micro-batches")
    three[1].axhline(still["rows_per_s"], color=OTHERS, linestyle="--", label="one that stays")
    for axes in three[:2]:
        axes.legend(fontsize=7, frameon=False, loc="lower right")
    return figure


def figure11(result: Document) -> Any:
    """Throughput by method: a bar for one core, a lighter one behind it for two."""
    figure, axes = plt.subplots(figsize=(7, 3.2), layout="constrained")
    for place, (case, (_, colour)) in enumerate(FIGURE11.items()):
        for row in sorted(result["rows"], key=lambda row: -row["cores"]):
            if row["case"] == case:
                solid = 1.0 if row["cores"] == 1 else 0.45
                axes.barh(place, row["points_per_s"], color=colour, alpha=solid, height=0.7)
    axes.set_yticks(range(len(FIGURE11)), [label for label, _ in FIGURE11.values()])
    axes.set_xscale("log")
    axes.set_xlim(left=1000)
    axes.set_xlabel("points per second; solid: one core, pale: two")
    axes.grid(axis="y", visible=False)
    axes.set_title("T-Drive in the districts of Beijing", loc="left")
    return figure


def growth(result: Document) -> Any:
    """Rates against the table's rows, and against a polygon's vertices."""
    figure, both = plt.subplots(1, 2, figsize=(9, 3.4), sharey=True, layout="constrained")
    for axes, axis, title in zip(
        both, ("rows", "vertices"), ("rows of the table", "vertices of each polygon"), strict=True
    ):
        for (question, case), line in _lines(result, axis).items():
            colour, style = (OURS, "-") if case == "rivermouth" else (OTHERS, "--")
            marker = MARKERS[question]
            axes.loglog(*line, style, color=colour, marker=marker, label=f"{question}, {case}")
        axes.set_xlabel(title)
        axes.legend(fontsize=7, frameon=False)
    both[0].set_ylabel("points per second, one core")
    return figure


MARKERS = {"small polygons": "o", "dwithin": "s", "nearest, k=1": "^", "complex polygons": "o"}


def _lines(result: Document, axis: str) -> dict[tuple[str, str], tuple[list[int], list[float]]]:
    lines: dict[tuple[str, str], tuple[list[int], list[float]]] = {}
    for row in result["rows"]:
        if (row["vertices"] is None) == (axis == "rows"):
            sizes, rates = lines.setdefault((row["question"], row["case"]), ([], []))
            sizes.append(row[axis])
            rates.append(row["points_per_s"])
    return lines


def hit_ratios(result: Document) -> Any:
    """Hit ratio against the part of the keys that is held: a panel a skew, a line a policy."""
    skews = sorted({row["z"] for row in result["rows"]})
    figure, panels = plt.subplots(
        1, len(skews), figsize=(9, 2.8), sharey=True, layout="constrained"
    )
    for axes, z in zip(panels, skews, strict=True):
        of = [row for row in result["rows"] if row["z"] == z]
        best = {row["part"]: row["most"] for row in of}
        axes.semilogx(*_line(best), ":", color=PAPER, label="the most frequent keys")
        for policy, (colour, style) in POLICIES.items():
            ratio = {row["part"]: row["hit_ratio"] for row in of if row["case"] == policy}
            axes.semilogx(*_line(ratio), style, color=colour, marker="o", label=policy)
        axes.set_title(f"z = {z:.2f}", loc="left")
        axes.set_xlabel("part of the keys held")
        axes.set_ylim(0.4, 1)
    panels[0].set_ylabel("hit ratio")
    panels[0].legend(fontsize=7, frameon=False, loc="lower right")
    return figure


def _line(points: Mapping[float, float]) -> tuple[list[float], list[float]]:
    return list(points), list(points.values())


POLICIES = {"lru": (OTHERS, "--"), "s3fifo": (OURS, "-")}


def workload_growth(result: Document) -> Any:
    """Time per 10,000 records against the rows of each table, at two cores."""
    figure, axes = plt.subplots(figsize=(5, 3), layout="constrained")
    for case, (label, colour) in WORKLOAD.items():
        time = {
            row["table_rows"]: 1e7 / row["rows_per_s"]
            for row in result["rows"]
            if row["case"] == case and row["cores"] == 2 and row["feed"] == "full speed"
        }
        axes.loglog(*_line(time), color=colour, marker="o", label=label)
    axes.set_xlabel("rows of each table")
    axes.set_ylabel("ms per 10,000 records")
    axes.legend(fontsize=8, frameon=False)
    return figure


WORKLOAD = {"by_record": ("a query per record", OTHERS), "ours": ("rivermouth", OURS)}


def routing_time(result: Document) -> Any:
    """Load CV of each way over time, and our load of each partition; moves are dotted."""
    figure, both = plt.subplots(2, 1, figsize=(8, 4.6), sharex=True, layout="constrained")
    ways = {"hash": OTHERS, "algorithm2": PAPER, "ours": OURS}
    for way, colour in ways.items():
        rows = [row for row in result["rows"] if row["case"] == way]
        both[0].plot([row["load_cv"] for row in rows], color=colour, marker="o", ms=3, label=way)
    for loads in zip(*(row["loads"] for row in rows), strict=True):
        both[1].plot(loads, color=OURS, alpha=0.6, lw=1)
    for row in rows:
        if row["moved"]:
            for axes in both:
                axes.axvline(row["batch"], color="black", ls=":", lw=1)
    both[0].axhline(0.15, color="black", lw=0.6)
    both[0].set_ylabel("load CV")
    both[0].legend(fontsize=8, frameon=False, ncols=3)
    both[1].set_ylabel("records per partition, ours")
    both[1].set_xlabel("micro-batch, one a cycle; dotted: the hot keys move")
    return figure


PLOTS: dict[str, tuple[str, Callable[[Document], Any]]] = {
    "figure11": ("stream_table", figure11),
    "changes": ("changes", changes),
    "growth": ("growth", growth),
    "routing_time": ("routing_time", routing_time),
    "routing_hosts_caches": ("routing_hosts_skews", hosts_tables.skews_plot),
    "routing_hosts_moves": ("routing_hosts_moves", hosts_tables.moves_plot),
    "recall_hosts": ("recall_hosts", hosts_tables.workload_plot),
    "traffic_hosts": ("traffic_hosts", hosts_tables.workload_plot),
    "slices_hosts": ("slices_hosts", hosts_tables.workload_plot),
    "hit_ratios": ("cache_hits", hit_ratios),
    "recall_growth": ("recall", workload_growth),
    "traffic_growth": ("traffic", workload_growth),
    "stream_stream_growth": ("stream_stream_growth", join_tables.growth_plot),
    "waiting": ("out_of_order", disorder_plots.figure3),
    "latency_by_slack": ("out_of_order", disorder_plots.figure4),
    "accuracy": ("out_of_order", disorder_plots.figure5),
    "paper_b_buffer": ("paper_b_accuracy", paper_b.figure3),
    "paper_b_accuracy": ("paper_b_accuracy", paper_b.figure5),
    "paper_b_latency": ("paper_b_latency", paper_b.figure4),
    "paper_b_scale": ("paper_b_scale", paper_b.figure6),
    "promise": ("promise", promise_report.picture),
    "soak": ("soak", soak_tables.picture),
    "phones_curve": ("phones_curve", disorder_plots.phones_curve),
}
