"""Figures 3 to 5 of paper B, and the phones' curve."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt

Document = Mapping[str, Any]
OURS, OTHERS, PAPER = "#0b7a75", "#9aa5b1", "#d9822b"
GAMES = ("game 1", "game 2")


def _row(result: Document, stream: str, case: str) -> Mapping[str, Any]:
    return next(
        row
        for row in result["rows"]
        if (row["stream"], row["case"], row["aggregate"]) == (stream, case, "sum")
    )


def figure3(result: Document) -> Any:
    """K over time, ours and the largest delay's; the paper's means as lines."""
    figure, panels = plt.subplots(1, 2, figsize=(9, 3.2), sharey=True, layout="constrained")
    for axes, stream in zip(panels, GAMES, strict=True):
        for case, colour, label in (
            ("max_delay", OTHERS, "max_delay (MP-K-slack)"),
            ("calibrated", OURS, "quality"),
        ):
            line = _row(result, stream, case)["over_time"]
            axes.plot(line["seconds"], line["slack_s"], color=colour, label=label)
        axes.set_title(stream.capitalize(), loc="left")
        axes.set_xlabel("event time, s")
    panels[1].axhline(2.7, color=PAPER, ls=":", label="the paper's mean")
    panels[1].axhline(17, color=PAPER, ls="--", label="the paper's MP-K-slack")
    panels[0].set_ylabel("K, s")
    panels[1].legend(fontsize=8, frameon=False)
    return figure


def figure4(result: Document) -> Any:
    """Mean latency by slack."""
    figure, axes = plt.subplots(figsize=(6, 3), layout="constrained")
    for place, stream in enumerate(GAMES):
        for shift, (case, colour, label) in enumerate(
            (("max_delay", OTHERS, "max_delay"), ("calibrated", OURS, "quality"))
        ):
            axes.bar(
                place + 0.36 * (shift - 0.5), _row(result, stream, case)["mean_latency_s"],
                0.34, color=colour, label=label if place == 0 else None,
            )  # fmt: skip
    axes.set_xticks(range(len(GAMES)), [stream.capitalize() for stream in GAMES])
    axes.set_ylabel("mean latency, s")
    axes.grid(axis="x", visible=False)
    axes.legend(fontsize=8, frameon=False)
    return figure


def figure5(result: Document) -> Any:
    """The share of answers within eps: early ones as they come, and after correction."""
    figure, axes = plt.subplots(figsize=(6, 3.2), layout="constrained")
    styles = dict(zip(GAMES, ("-", "--"), strict=True))
    for stream, style in styles.items():
        line = _row(result, stream, "controller")["over_time"]
        axes.plot(
            line["answer_share"], line["accuracy"], style, color=OTHERS,
            label=f"the paper's controller, no correction, {stream}",
        )  # fmt: skip
        line = _row(result, stream, "calibrated")["over_time"]
        axes.plot(
            line["answer_share"], line["accuracy"], style, color=OURS,
            label=f"quality, early, {stream}",
        )  # fmt: skip
    axes.axhline(1.0, color=OURS, lw=2.5, alpha=0.5, label="after correction, both")
    axes.axhline(0.95, color=PAPER, ls=":", label="1 - delta; the paper's AQ-K-slack")
    axes.set_xlabel("share of the answers so far")
    axes.set_ylabel("share of them within eps")
    axes.legend(fontsize=7, frameon=False)
    return figure


def phones_curve(result: Document) -> Any:
    """Latency against eps."""
    figure, axes = plt.subplots(figsize=(5.5, 3), layout="constrained")
    for stream, marker in (("phones 1", "o"), ("phones 2", "s")):
        rows = [row for row in result["rows"] if row["stream"] == stream]
        axes.semilogx(
            [row["eps"] for row in rows], [row["mean_latency_s"] for row in rows],
            color=OURS, marker=marker, label=stream,
        )  # fmt: skip
    axes.set_xlabel("eps, for delta = 0.05")
    axes.set_ylabel("mean latency, s")
    axes.legend(fontsize=8, frameon=False)
    return figure
