"""Paper B's experiment: how long windows wait, how late and how wrong their early results are.

Streams as disordered as the paper's Game 1 and Game 2, made from a seed, and the messages of real
phones, which truly came out of order. No Spark: the kernel goes through at most 100 ms of event
time at once, and beside that through micro-batches of a second of arrivals, with which Spark gives
the same results (tests/spark/test_aggregate_kernel.py). Leaves ``out_of_order`` (the streams by
aggregate and slack, and K and accuracy over time) and ``phones_curve`` (latency against eps).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv

import rivermouth as rm
from benchmarks.harness.experiment import arguments, data, progress, save
from benchmarks.papers.walking import Walk, best_fixed, walk
from rivermouth.spec.slack import Slack
from rivermouth.spec.summaries import Summary
from rivermouth.testing.disorder import GAMES, disordered, measure

EPS = DELTA = 0.05
#: of the streams that are shown, and of further ones; the controller was tuned on none of these
SEED, SEEDS = 11, (12, 13, 14)
WINDOWS = {
    "game": rm.sliding("500 milliseconds", every="100 milliseconds"),
    "phones": rm.sliding("10 seconds", every="1 second"),
}
AGGREGATES = {"sum": rm.sum, "count": rm.count, "mean": rm.mean, "median": rm.median}
CASES = (
    *("calibrated", "controller", "max_delay", "best fixed"),
    *("calibrated, by second", "max_delay, by second"),
)
CURVE = (0.02, 0.05, 0.1, 0.2)
POINTS = 500  #: of a line over time


def stream(name: str, quick: bool) -> pa.Table:
    """The records of a stream, in the order of their arrival: ``at`` and ``value``.

    "game 2, 13" is the second game made from seed 13.
    """
    kind, _, number = name.partition(" ")
    if kind == "game":
        number, _, seed = number.partition(", ")
        rows = disordered(int(number), seed=int(seed or SEED)).select(["at", "value", "arrival"])
    else:
        rows = _phones(number)
    return rows.slice(0, 20_000 if kind == "game" else 2_000) if quick else rows


def _phones(number: str) -> pa.Table:
    table = csv.read_csv(data(f"phones_d{number}.csv"))
    sent, arrival = (table.column(f"{name}_ms").to_numpy() for name in ("sent", "arrival"))
    return pa.table(
        {
            "at": pa.array(sent * 1000).cast(pa.timestamp("us", "UTC")),
            "value": (arrival - sent).astype(float),
            "arrival": pa.array(arrival * 1000).cast(pa.timestamp("us", "UTC")),
        }
    )


def summary(name: str, aggregate: str) -> Summary:
    """What is computed of a stream."""
    window = WINDOWS[name.partition(" ")[0]]
    return rm.summary(time="at", window=window, answer=AGGREGATES[aggregate]("value"))


def slacks(eps: float = EPS) -> dict[str, Callable[[], Slack]]:
    """What is compared, by name."""
    return {
        "calibrated": lambda: rm.quality(eps, DELTA),
        "controller": lambda: rm.quality(eps, DELTA, controller="pd"),
        "max_delay": rm.max_delay,
    }


def one(name: str, aggregate: str, slack: str, eps: float, quick: bool) -> dict[str, Any]:
    """A stream's row of the table, with its lines over time."""
    rows, asked = stream(name, quick), summary(name, aggregate)
    if slack == "best fixed":
        wait = best_fixed(rows, asked, eps=eps, delta=DELTA)
        found = walk(rows, asked, rm.fixed(f"{wait:.6f} seconds"), eps=eps)
    else:
        kind, _, by_second = slack.partition(", ")
        batch_s = 1.0 if by_second else None
        found = walk(rows, asked, slacks(eps)[kind](), eps=eps, batch_s=batch_s)
    return {
        "stream": name, "aggregate": aggregate, "case": slack, "eps": eps, "delta": DELTA,
        **found.figures(), "over_time": _lines(found),
    }  # fmt: skip


def _lines(found: Walk) -> dict[str, list[float]]:
    """K by step, and the share of results so far that kept eps; seconds from the start."""
    at = np.unique(np.linspace(0, len(found.newest) - 1, POINTS).astype(int))
    kept = 1 - found.above["missed"]
    upto = np.unique(np.linspace(0, len(kept) - 1, POINTS).astype(int))
    begun = found.newest[0]
    return {
        "seconds": ((found.newest[at] - begun) / 1e6).round(2).tolist(),
        "slack_s": found.slack[at].round(3).tolist(),
        "answer_share": ((upto + 1) / len(kept)).round(4).tolist(),
        "accuracy": (np.cumsum(kept)[upto] / (upto + 1)).round(4).tolist(),
    }


def measured(names: list[str], quick: bool) -> dict[str, Any]:
    """How disordered the streams are."""
    found = {}
    for name in names:
        times = stream(name, quick).column("at").cast(pa.int64()).to_numpy()
        found[name] = measure(times)._asdict()
    return found


def main() -> None:
    """Walk through all streams, two at a time."""
    given = arguments(__doc__)
    games, phones = [f"game {number}" for number in GAMES], ["phones 1", "phones 2"]
    jobs = [(name, "sum", slack, EPS) for name in (*games, *phones) for slack in CASES]
    jobs += [
        (name, each, slack, EPS)
        for name in (*games, *phones)
        for each in ("count", "mean", "median")
        for slack in ("calibrated", "controller")
    ]
    jobs += [
        (f"{name}, {seed}", "sum", slack, EPS)
        for name in games
        for seed in SEEDS
        for slack in ("calibrated", "max_delay")
    ]
    curve = [(name, "sum", "calibrated", eps) for name in phones for eps in CURVE if eps != EPS]
    jobs = jobs[: len(CASES)] if given.quick else jobs
    curve = curve[:1] if given.quick else curve
    with (
        ProcessPoolExecutor(2) as pool,
        progress("out_of_order", len(jobs) + len(curve)) as step,
    ):
        rows = []
        for row in pool.map(one, *zip(*((*job, given.quick) for job in jobs + curve), strict=True)):
            step(f"{row['stream']}, {row['aggregate']}, {row['case']}")
            rows.append(row)
    about = {
        "quick": given.quick,
        "seed": [SEED, *SEEDS],
        "data": "seeded (rivermouth.testing.disorder) and ../shared/data/phones_d*.csv",
        "disorder": measured([*games, *phones], given.quick),
        "windows": {kind: str(window) for kind, window in WINDOWS.items()},
    }
    drawn = {(name, slack) for name in games for slack in ("calibrated", "controller", "max_delay")}
    for row in rows:
        if (row["stream"], row["case"]) not in drawn or row["aggregate"] != "sum":
            del row["over_time"]
    print(save("out_of_order", rows[: len(jobs)], **about))
    print(save("phones_curve", _curve(rows), **about))


def _curve(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The sums of the phones, by eps."""
    wanted = [
        row
        for row in rows
        if row["stream"].startswith("phones")
        and (row["aggregate"], row["case"]) == ("sum", "calibrated")
    ]
    return sorted(wanted, key=lambda row: (row["stream"], row["eps"]))


if __name__ == "__main__":
    main()
