"""The tables about records out of order: a result -> cells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.harness.formatting import Cells, Document, number, spread

LABELS = {
    "calibrated": "**`rm.quality()`**",
    "controller": '`rm.quality(controller="pd")`: the paper\'s controller (AQ-K-slack)',
    "best fixed": "the best fixed K, known only in hindsight",
    "max_delay": "`rm.max_delay()` (MP-K-slack)",
    "calibrated, by second": "`rm.quality()`, in micro-batches of a second",
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
    """Errors and K of each aggregate alone, by controller."""
    kinds = ("sum", "count", "mean", "median")
    lines = [["error >= eps, mean K", "", *(f"`rm.{kind}`" for kind in kinds)]]
    for stream, label in STREAMS.items():
        for case in ("calibrated", "controller"):
            found = {
                row["aggregate"]: f"{100 * row['above']:.1f} %, {row['mean_slack_s']:.2f} s"
                for row in result["rows"]
                if row["stream"] == stream and row["case"] == case
            }
            lines.append([label, case, *(found.get(kind, "") for kind in kinds)])
    return lines


def seeds(result: Document) -> Cells:
    """The sums of the games made from other seeds."""
    lines = [["other seeds", "mean K", "to max_delay", "mean latency", "to it", "error >= eps"]]
    for row in result["rows"]:
        name, _, seed = row["stream"].partition(", ")
        if seed and row["case"] == "calibrated":
            (most,) = (
                other
                for other in result["rows"]
                if (other["stream"], other["case"]) == (row["stream"], "max_delay")
            )
            lines.append([f"{STREAMS[name]}, seed {seed}", *_line(row, most)[1:-1]])
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
    """Rows per CPU-second by the number of windows that contain a record."""
    head = ["windows that contain a record", "by", "ours", "Spark's own", "its rows a batch"]
    lines = [[*head, "times"]]
    rows = {(row["case"], row["ratio"], row["by"]): row for row in result["rows"]}
    for (case, *key), row in rows.items():
        if case == "spark":
            continue
        peer = rows["spark", *key]
        times = f"{row['rows_per_cpu_s'] / peer['rows_per_cpu_s']:.1f}"
        if case == "ours":
            theirs = [_rate(peer), f"{peer['batch']:,}"]
            lines.append([str(key[0]), key[1] or "-", _rate(row), *theirs, times])
        else:
            label = f"{key[0]}: a `mapInArrow` that counts the rows"
            lines.append([label, key[1] or "-", _rate(row), "", "", times])
    return lines


def _rate(row: Mapping[str, Any]) -> str:
    low, high = row["spread"]["rows_per_cpu_s"]
    return f"{number(row['rows_per_cpu_s'])} rows/CPU-s ({number(low)} to {number(high)})"


def corrections(result: Document) -> Cells:
    """A correction's CPU time by the store's age, from partials and from all records."""
    lines = [
        [
            "the store's age",
            "records",
            "files",
            "`rm.exact`: partials of the touched slots",
            "to the youngest",
            "`rm.correct` over all records",
            "to the youngest",
        ]
    ]
    found = {(row["case"], row["age"]): row for row in result["rows"]}
    for (way, age), ours in found.items():
        if way != "partials":
            continue
        peer = found["history", age]
        cells = [
            cell
            for row in (ours, peer)
            for cell in (
                f"{row['cpu_s']:.2f} CPU-s {spread(row, 'cpu_s')}",
                f"{row['cpu_s'] / found[row['case'], 1]['cpu_s']:.2f}",
            )
        ]
        lines.append(
            [f"{ours['hours']} hours", number(ours["records"]), f"{ours['files']}", *cells]
        )
    return lines
