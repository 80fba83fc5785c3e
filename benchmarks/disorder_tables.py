"""The tables about records out of order: a result -> cells."""

from __future__ import annotations

from typing import Any

from benchmarks.figures import Cells, Document, number, only

LABELS = {
    "calibrated": "**`rm.quality(calibrate=True)`**",
    "controller": "`rm.quality()`: the paper's controller alone (AQ-K-slack)",
    "best fixed": "the best fixed K, known only in hindsight",
    "max_delay": "`rm.max_delay()` (MP-K-slack)",
    "calibrated, by second": "calibrated, in micro-batches of a second",
    "max_delay, by second": "`rm.max_delay()`, in micro-batches of a second",
}
STREAMS = {"game 1": "Game 1", "game 2": "Game 2", "phones 1": "phones 1", "phones 2": "phones 2"}
#: what the paper reports: mean K and latency against MP-K-slack's
PAPER = {"game 2": ("2.7 s of about 17 s", "20 %")}


def out_of_order(result: Document) -> Cells:
    """K, latency and errors of SUM by stream and slack, to `max_delay`'s."""
    head = ["SUM, (0.05, 0.05)", "slack", "mean K", "to max_delay", "mean latency", "to max_delay"]
    lines = [[*head, "error >= eps", "coverage"]]
    for stream, label in STREAMS.items():
        rows = {
            row["case"]: row
            for row in result["rows"]
            if row["stream"] == stream and row["aggregate"] == "sum"
        }
        if stream in PAPER:
            slack, latency = PAPER[stream]
            lines.append([label, "the paper", slack, "16 %", "", latency, "about 5 %", ""])
        for case in (case for case in LABELS if case in rows):
            most = rows["max_delay, by second" if "second" in case else "max_delay"]
            lines.append([label, *_line(rows[case], most)])
    return lines


def _line(row: dict[str, Any], most: dict[str, Any]) -> list[str]:
    return [
        LABELS[row["case"]],
        f"{row['mean_slack_s']:.2f} s",
        f"{100 * row['mean_slack_s'] / most['mean_slack_s']:.0f} %",
        f"{row['mean_latency_s']:.2f} s",
        f"{100 * row['mean_latency_s'] / most['mean_latency_s']:.0f} %",
        f"{100 * row['above']:.1f} %",
        f"{row['coverage']:.4f}",
    ]


def aggregates(result: Document) -> Cells:
    """Errors and K of each aggregate alone, calibrated."""
    kinds = ("sum", "count", "mean", "median")
    lines = [["calibrated: error >= eps, mean K", *(f"`rm.{kind}`" for kind in kinds)]]
    for stream, label in list(STREAMS.items())[:2]:
        found = {
            row["aggregate"]: f"{100 * row['above']:.1f} %, {row['mean_slack_s']:.2f} s"
            for row in result["rows"]
            if row["stream"] == stream and row["case"] == "calibrated"
        }
        lines.append([label, *(found.get(kind, "") for kind in kinds)])
    return lines


def phones_curve(result: Document) -> Cells:
    """Latency and errors by eps."""
    lines = [["phones, SUM of delays", "eps", "mean latency", "mean K", "error >= eps", "coverage"]]
    lines += [
        [
            STREAMS[row["stream"]],
            f"{row['eps']:g}",
            f"{row['mean_latency_s']:.2f} s",
            f"{row['mean_slack_s']:.2f} s",
            f"{100 * row['above']:.1f} %",
            f"{row['coverage']:.4f}",
        ]
        for row in result["rows"]
    ]
    return lines


def sliding(result: Document) -> Cells:
    """Rows per CPU-second by the number of windows that hold a record."""
    lines = [["windows that hold a record", "ours", "Spark's own", "times"]]
    for ratio in sorted({row["ratio"] for row in result["rows"]}):
        ours = only(result["rows"], case="ours", ratio=ratio, cores=2)
        peer = only(result["rows"], case="spark", ratio=ratio)
        lines.append(
            [
                f"{ratio}",
                f"{number(ours['rows_per_cpu_s'])} rows/CPU-s",
                f"{number(peer['rows_per_cpu_s'])} rows/CPU-s",
                f"{ours['rows_per_cpu_s'] / peer['rows_per_cpu_s']:.1f}",
            ]
        )
    return lines
