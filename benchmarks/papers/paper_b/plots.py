"""The paper's Figures 3 to 6 from what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt

Document = Mapping[str, Any]
OURS, OTHERS, PAPER, FOURTH = "#0b7a75", "#9aa5b1", "#d9822b", "#52606d"
LINES = {
    "mp": ("MP-K-slack", OTHERS, "-"),
    "k": ("K-slack", FOURTH, ":"),
    "aq": ("AQ-K-slack", PAPER, "-"),
    "exact": ("rm.exact", OURS, "-"),
}


def _rows(result: Document, game: int) -> dict[str, Mapping[str, Any]]:
    return {row["case"]: row for row in result["rows"] if row["game"] == game}


def _games(result: Document) -> list[int]:
    return sorted({row["game"] for row in result["rows"]})


def figure3(result: Document) -> Any:
    """K over the event time; both axes from 0."""
    names = _games(result)
    size = (4.6 * len(names), 3.2)
    figure, panels = plt.subplots(
        1, len(names), figsize=size, sharey=True, squeeze=False, layout="constrained"
    )
    for axes, game in zip(panels[0], names, strict=True):
        rows = _rows(result, game)
        for case, (label, colour, style) in LINES.items():
            if case in rows:
                line = rows[case]["over_time"]
                axes.plot(line["event_s"], line["slack_s"], style, color=colour, label=label)
        axes.axhline(2.7, color="black", lw=0.7, ls="--", label="the paper's mean, AHPM")
        axes.set_title(f"Game {game}", loc="left")
        axes.set_xlabel("event time, s")
        axes.set_xlim(left=0)
    panels[0][0].set_ylim(bottom=0)  # of both, once both have their lines: it ends the scaling
    panels[0][0].set_ylabel("K, s")
    panels[0][-1].legend(fontsize=7, frameon=False)
    return figure


def figure4(result: Document) -> Any:
    """Mean latency in PostgreSQL, and of ours in its store; the axis from 0."""
    figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
    bars = (
        ("mp", "postgres", "MP-K-slack, in PostgreSQL", OTHERS, 1.0),
        ("exact", "postgres", "rm.exact, in PostgreSQL", OURS, 1.0),
        ("exact", "store", "rm.exact, in its store", OURS, 0.5),
    )
    names = _games(result)
    for place, game in enumerate(names):
        rows = _rows(result, game)
        for shift, (case, where, label, colour, solid) in enumerate(bars):
            axes.bar(
                place + 0.26 * (shift - 1), rows[case][where]["mean_s"] or 0.0, 0.24,
                color=colour, alpha=solid, label=None if place else label,
            )  # fmt: skip
    axes.set_xticks(range(len(names)), [f"Game {game}" for game in names])
    axes.set_ylim(bottom=0)
    axes.set_ylabel("mean latency, s of wall time")
    axes.grid(axis="x", visible=False)
    axes.legend(fontsize=8, frameon=False)
    return figure


def figure5(result: Document) -> Any:
    """What a reader of PostgreSQL saw: the share of all answers so far that are within eps."""
    names = _games(result)
    size = (4.6 * len(names), 3.4)
    figure, panels = plt.subplots(
        1, len(names), figsize=size, sharey=True, squeeze=False, layout="constrained"
    )
    lowest = 1.0
    for axes, game in zip(panels[0], names, strict=True):
        rows = _rows(result, game)
        for case, (label, colour, style) in LINES.items():
            if case in rows:
                line = rows[case]["over_time"]
                axes.plot(line["run_s"], line["within_eps"], style, color=colour, label=label)
                settled = line["within_eps"][len(line["within_eps"]) // 10 :]
                lowest = min([lowest, *settled])
        axes.axhline(0.95, color="black", lw=0.7, ls="--", label="1 - delta")
        axes.set_title(f"Game {game}", loc="left")
        axes.set_xlabel("time of the run, s")
        axes.set_xlim(left=0)
    bottom = max(0.0, min(0.9, lowest - 0.02))
    panels[0][0].set_ylim(bottom, 1.005)
    panels[0][0].set_ylabel(f"share within eps (axis from {bottom:.2f})")
    panels[0][0].legend(fontsize=7, frameon=False, loc="lower right")
    return figure


def figure6(result: Document) -> Any:
    """Rows per second by hosts, and what each would be if they grew in proportion."""
    figure, axes = plt.subplots(figsize=(5, 3.2), layout="constrained")
    for grouped, marker, label in ((False, "o", "not grouped"), (True, "s", "grouped")):
        rows = sorted(
            (row for row in result["rows"] if row["grouped"] is grouped),
            key=lambda row: row["hosts"],
        )
        if not rows:
            continue
        hosts = [row["hosts"] for row in rows]
        axes.plot(
            hosts, [row["rows_per_s"] for row in rows], color=OURS, marker=marker,
            ls="--" if grouped else "-", label=label,
        )  # fmt: skip
        one = rows[0]["rows_per_s"] / rows[0]["hosts"]
        axes.plot(hosts, [one * count for count in hosts], color=OTHERS, lw=0.8, ls=":")
    axes.set_xticks(sorted({row["hosts"] for row in result["rows"]}))
    axes.set_ylim(bottom=0)
    axes.set_xlabel("hosts of a quarter core; dotted: in proportion to the first")
    axes.set_ylabel("rows per second")
    axes.legend(fontsize=8, frameon=False)
    return figure
