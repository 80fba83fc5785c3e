"""The tables of the page about paper B: a result -> cells."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import mean
from typing import Any

from benchmarks.harness.formatting import Cells, Document, number

LABELS = {
    "exact": "**`rm.exact`**, `rm.quality()`",
    "aq": "AQ-K-slack: the paper's controller, not corrected",
    "mp": "MP-K-slack: `rm.max_delay()`",
    "k": 'K-slack: `rm.fixed("2.7 seconds")`',
}
#: the paper's Table 1, by game: records, late, largest and mean delay
TABLE1 = {
    "1": ("544,223", "57.58 %", "14.2 s", "34.0 ms"),
    "2": ("559,211", "66.82 %", "17.1 s", "64.0 ms"),
}


def table1(result: Document) -> Cells:
    """How disordered the games are, beside the paper's."""
    lines = [["Paper B, Table 1", "records", "late", "largest delay", "mean delay"]]
    for game, found in result["disorder"].items():
        lines.append([f"Game {game}, the paper", *TABLE1[game]])
        here = [
            f"{found['records']:,}", f"{100 * found['late']:.2f} %",
            f"{found['max_delay_s']:.1f} s", f"{found['mean_delay_ms']:.1f} ms",
        ]  # fmt: skip
        lines.append([f"Game {game}, here", *here])
    return lines


def buffer(result: Document) -> Cells:
    """K, in the mean over windows and at its largest."""
    lines = [["Paper B, Figure 3: K", "", "mean", "to MP-K-slack", "largest"]]
    lines.append(["the paper", "AHPM", "2.7 s", "", ""])
    lines.append(["the paper", "MP-K-slack", "", "", "about 17 s"])
    for row in result["rows"]:
        (most,) = (
            other["mean_slack_s"]
            for other in result["rows"]
            if (other["game"], other["case"]) == (row["game"], "mp")
        )
        lines.append(
            [
                f"Game {row['game']}",
                LABELS[row["case"]],
                _seconds(row["mean_slack_s"]),
                _share(row["mean_slack_s"], most),
                _seconds(row["max_slack_s"]),
            ]
        )
    return lines


def accuracy(result: Document) -> Cells:
    """Answers before and after correction, as PostgreSQL had them."""
    head = ["Paper B, Figure 5", "", "early answers", "within 5 %", "mean accuracy"]
    lines = [[*head, "corrections", "in the end: within 5 %", "exact"]]
    lines.append(["the paper", "AHPM", "", "95 %", "", "", "", "towards 100 %"])
    lines.append(["the paper", "AQ-K-slack", "", "95 %", "", "none", "95 %", ""])
    for row in result["rows"]:
        before, after = row["before"], row["after"]
        lines.append(
            [
                f"Game {row['game']}",
                LABELS[row["case"]],
                f"{before['answers']:,} of {row['windows']:,}",
                _percent(before["within_eps"]),
                _percent(before["accuracy"]),
                str(row["corrections"]) if row["case"] == "exact" else "none",
                _percent(after["within_eps"]),
                _exact(row),
            ]
        )
    return lines


def _exact(row: Mapping[str, Any]) -> str:
    """The share of exact answers in PostgreSQL, and for ours in the store."""
    shown = _percent(row["after"]["exact"])
    if row["store_exact"] is None:
        return shown
    return f"{shown} (of all windows, in the store: {_percent(row['store_exact'])})"


def latency(result: Document) -> Cells:
    """Wall time from a record's making to its window's answer, to MP-K-slack's."""
    head = ["Paper B, Figure 4", "", "mean", "to MP-K-slack", "median", "99th percentile"]
    lines = [[*head, "micro-batches"]]
    lines.append(["Game 2, the paper", "AHPM", "", "20 %", "", "", "none: Storm"])
    for row in result["rows"]:
        (most,) = (
            other["postgres"]["mean_s"]
            for other in result["rows"]
            if (other["game"], other["case"]) == (row["game"], "mp")
        )
        lines += [_latency(row, place, most) for place in _PLACES if place in row]
    return lines


def _latency(row: Mapping[str, Any], place: str, most: float) -> list[str]:
    found = row[place]
    return [
        f"Game {row['game']}",
        f"{LABELS[row['case']]}, in {_PLACES[place]}",
        _seconds(found["mean_s"]),
        _share(found["mean_s"], most),
        _seconds(found["p50_s"]),
        _seconds(found["p99_s"]),
        f"every {_seconds(row['batch_s']['apart'])}",
    ]


_PLACES = {"store": "the store", "postgres": "PostgreSQL"}


def scale(result: Document) -> Cells:
    """Rows per second by hosts."""
    hosts = sorted({row["hosts"] for row in result["rows"]})
    cores = result["cores"]["worker"]
    head = f"Paper B, Figure 6: rows/s, hosts of {cores:g} core"
    lines = [[head, *(f"{count} host{'s' * (count > 1)}" for count in hosts)]]
    for grouped, label in ((False, "not grouped"), (True, "grouped by 48 sensors")):
        rates = {row["hosts"]: row for row in result["rows"] if row["grouped"] is grouped}
        if not rates:
            continue
        alone = rates[min(rates)]["rows_per_s"]
        lines.append([label, *(number(rates[count]["rows_per_s"]) for count in hosts)])
        speedups = [f"{rates[count]['rows_per_s'] / alone:.2f}" for count in hosts]
        lines.append([f"{label}: speed-up", *speedups])
        used = [f"{mean(rates[c]['worker_cores']):.2f}" for c in hosts]
        lines.append([f"{label}: cores used, of {cores:g} of each host", *used])
    lines.append(["the paper", *("linear" if count > 1 else "" for count in hosts)])
    return lines


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.2f} %"


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.2f} s"


def _share(value: float | None, of: float | None) -> str:
    return f"{100 * value / of:.0f} %" if value is not None and of else ""
