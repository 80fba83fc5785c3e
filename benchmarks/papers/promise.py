"""Is the promise kept? Share of windows missed and mean K on nine kinds of disorder and the phones.

Ten streams of each kind, from seeds that nothing was tuned on, go through the kernel of `aggregate`
in micro-batches of a second (the fleet's, whose windows last a minute, of ten). Leaves ``promise``:
a row for each stream and slack. Missed is a window whose early SUM was off by eps or more against
the sum of all of its records; counted are the windows that end after the first two minutes.
"""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa

import rivermouth as rm
from benchmarks.harness.experiment import arguments, progress, save
from benchmarks.papers import kinds, out_of_order
from benchmarks.papers.walking import Walk, walk

EPS = DELTA = 0.05
FIRST_US = 120_000_000
SLACKS = {
    "quality": rm.quality(EPS, DELTA),
    "pd": rm.quality(EPS, DELTA, controller="pd"),
    "fixed": rm.fixed("1 second"),
    "max_delay": rm.max_delay(),
}
PHONES = ("phones 1", "phones 2")
WINDOWS = {
    "fleet": rm.sliding("1 minute", every="10 seconds"),
    **dict.fromkeys(PHONES, rm.sliding("10 seconds", every="1 second")),
}


def one(kind: str, seed: int, slack: str, quick: bool) -> dict[str, Any]:
    """How a stream fared."""
    rows = out_of_order.stream(kind, False) if kind in PHONES else kinds.stream(kind, seed)
    window = WINDOWS.get(kind, rm.sliding("1 second", every="200 milliseconds"))
    summary = rm.summary(time="at", window=window, answer=rm.sum("value"))
    batch_s = 10.0 if kind == "fleet" else 1.0
    rows = rows.slice(0, rows.num_rows // 10) if quick else rows
    begun = time.process_time()
    found = walk(rows, summary, SLACKS[slack], eps=EPS, batch_s=batch_s)
    return {
        "kind": kind, "seed": seed, "case": slack, **_figures(found),
        "cpu_s": time.process_time() - begun,
    }  # fmt: skip


def _figures(found: Walk) -> dict[str, float]:
    """Misses after the first two minutes and in them, and K over the whole run."""
    end = np.sort(found.results.column("window_end").cast(pa.int64()).to_numpy())
    later, missed = end - found.newest[0] > FIRST_US, found.above["missed"]
    return {
        "windows": int(later.sum()),
        "missed": float(missed[later].mean()) if later.any() else 0.0,
        "missed_first": float(missed[~later].mean()) if not later.all() else 0.0,
        "mean_slack_s": float(found.slack.mean()),
        "mean_latency_s": float(found.latency.mean()),
    }


def jobs(quick: bool, seeds: tuple[int, ...] = kinds.SEEDS) -> list[tuple[str, int, str]]:
    """What is run: the kinds by seed, and the phones, each with every slack."""
    seeds = seeds[:1] if quick else seeds
    streams = [(kind, seed) for kind in kinds.KINDS for seed in seeds]
    return [
        (kind, seed, slack)
        for kind, seed in (*streams, *((phones, 0) for phones in PHONES))
        for slack in SLACKS
    ]


def main() -> None:
    """Go through all streams, two at a time."""
    given = arguments(__doc__)
    todo, rows = jobs(given.quick), []
    with ProcessPoolExecutor(2) as pool, progress("promise", len(todo)) as step:
        for row in pool.map(one, *zip(*((*job, given.quick) for job in todo), strict=True)):
            step(f"{row['kind']}, {row['seed']}, {row['case']}")
            rows.append(row)
    about = {
        "quick": given.quick,
        "seed": list(kinds.SEEDS),
        "tuned_on": [100, 101, 102, 103, 104],
        "eps": EPS,
        "delta": DELTA,
        "data": "seeded, and ../shared/data/phones_d*.csv and iot_delays_ms.txt.gz",
    }
    print(save("promise", rows, **about))


if __name__ == "__main__":
    main()
