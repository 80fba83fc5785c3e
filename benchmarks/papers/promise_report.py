"""Is the promise kept: the table by kind of disorder, and the picture of all streams."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt

from benchmarks.harness.formatting import Cells, Document

OURS, OTHERS, PAPER = "#0b7a75", "#9aa5b1", "#d9822b"
WORST = 1.3  #: the most that the worst seed of a kind may miss, to delta
SLACKS = {
    "quality": "`rm.quality()`",
    "pd": '`controller="pd"` (the paper)',
    "fixed": '`rm.fixed("1 second")` (K-slack)',
    "max_delay": "`rm.max_delay()` (MP-K-slack)",
}
DRAWN = {"quality": OURS, "pd": PAPER, "max_delay": OTHERS}

Row = Mapping[str, Any]


def promise(result: Document) -> Cells:
    """Misses and K by kind of disorder, in the mean over seeds; those above what may be are bold.

    Last the share of the kinds that kept the promise, and the median K over all streams.
    """
    delta, by_kind = result["delta"], _by_kind(result)
    lines = [[
        f"missed, {_percent(delta)} promised: mean (worst seed)",
        *(_label(case, by_kind) for case in SLACKS),
        "`rm.quality()`, first two minutes", "its mean K", "`max_delay`'s", "its share of it",
    ]]  # fmt: skip
    for kind, cases in by_kind.items():
        slack, longest = (
            statistics.mean(row["mean_slack_s"] for row in cases[case])
            for case in ("quality", "max_delay")
        )
        first = statistics.mean(row["missed_first"] for row in cases["quality"])
        lines.append([
            kind,
            *(_missed([row["missed"] for row in cases[case]], delta) for case in SLACKS),
            _percent(first), f"{slack:.2f} s", f"{longest:.2f} s",
            f"{statistics.mean(_shares(cases)):.2f}",
        ])  # fmt: skip
    kept = [sum(_is_kept(cases[case], delta) for cases in by_kind.values()) for case in SLACKS]
    shares = [share for cases in by_kind.values() for share in _shares(cases)]
    lines.append([
        "kinds that kept it; K in the median over streams",
        *(f"{count} of {len(by_kind)}" for count in kept),
        *[""] * 3, f"{statistics.median(shares):.2f}",
    ])  # fmt: skip
    return lines


def _label(case: str, by_kind: Mapping[str, Mapping[str, list[Row]]]) -> str:
    """A slack's name, and of how many seeds it saw where these are fewer than ours."""
    seeds, most = (max(len(cases[of]) for cases in by_kind.values()) for of in (case, "quality"))
    return SLACKS[case] if seeds == most else f"{SLACKS[case]}, {seeds} of {most} seeds"


def _by_kind(result: Document) -> dict[str, dict[str, list[Row]]]:
    """The rows of each kind and slack, by seed."""
    found: dict[str, dict[str, list[Row]]] = {}
    for row in sorted(result["rows"], key=lambda row: row["seed"] or 1_000_000):
        found.setdefault(row["kind"], {}).setdefault(row["case"], []).append(row)
    return found


def _shares(cases: Mapping[str, list[Row]]) -> list[float]:
    """The mean K of each stream to that of `max_delay`."""
    both = zip(cases["quality"], cases["max_delay"], strict=True)
    return [ours["mean_slack_s"] / most["mean_slack_s"] for ours, most in both]


def _is_kept(rows: list[Row], delta: float) -> bool:
    missed = [row["missed"] for row in rows]
    return statistics.mean(missed) <= delta and max(missed) <= WORST * delta


def _missed(missed: list[float], delta: float) -> str:
    mean, worst = statistics.mean(missed), max(missed)
    shown = _bold(_percent(mean), mean > delta)
    return (
        shown if len(missed) == 1 else f"{shown} ({_bold(_percent(worst), worst > WORST * delta)})"
    )


def _bold(text: str, above: bool) -> str:
    return f"**{text}**" if above else text


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def picture(result: Document) -> Any:
    """The share that each stream missed, and its mean K to `max_delay`'s."""
    delta, by_kind = result["delta"], _by_kind(result)
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(9, 0.36 * len(by_kind) + 1.2), sharey=True, layout="constrained"
    )
    for place, cases in enumerate(by_kind.values()):
        for shift, (case, colour) in zip((0.22, 0.0, -0.22), DRAWN.items(), strict=True):
            missed = [100 * row["missed"] for row in cases[case]]
            at = [place + shift] * len(missed)
            left.plot(
                missed, at, "o", color=colour, ms=4, alpha=0.7, label=case if place == 0 else None
            )
        shares = _shares(cases)
        right.plot(shares, [place] * len(shares), "o", color=OURS, ms=4, alpha=0.7)
    left.axvline(100 * delta, color="black", lw=0.8)
    left.axvline(100 * WORST * delta, color="black", lw=0.8, ls=":")
    left.set_xscale("symlog", linthresh=10)
    left.set_xticks([0, 5, 10, 50, 100], ["0", "5", "10", "50", "100"])
    left.set_xlabel("windows missed, %; lines: delta, and 1.3 times that")
    left.set_yticks(range(len(by_kind)), list(by_kind))
    left.invert_yaxis()
    left.legend(fontsize=8, frameon=False)
    right.set_xlim(0, None)
    right.axvline(1.0, color=OTHERS, lw=0.8)
    right.set_xlabel("mean K of rm.quality() to max_delay's")
    return figure
