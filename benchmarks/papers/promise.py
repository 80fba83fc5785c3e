"""Is the promise kept? Share of windows missed and mean K on eleven kinds of disorder and phones.

Ten streams of each kind, from seeds that nothing was tuned on, go through the kernel of `aggregate`
in micro-batches of a second (the fleet's, whose windows last a minute, of ten). Leaves ``promise``:
a row for each stream and slack. Missed is a window whose early SUM was off by eps or more against
the sum of all of its records, or that had closed before any of them came; counted are the windows
that end after the first two minutes. It takes about 15 CPU-minutes; what was found is kept in the
cache at once, and a run that was stopped goes on from there as long as no code has changed. With
``--minutes`` the paper's controller may have seen fewer seeds, which the table then says.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import rivermouth as rm
from benchmarks.harness.experiment import CACHE, ROOT, arguments, progress, save
from benchmarks.papers import kinds, out_of_order
from benchmarks.papers.walking import Outcome, outcome
from rivermouth.spec.windows import Window

EPS = DELTA = 0.05
FIRST_US = 120_000_000
SLACKS = {
    "quality": rm.quality(EPS, DELTA),
    "fixed": rm.fixed("1 second"),
    "max_delay": rm.max_delay(),
    "pd": rm.quality(EPS, DELTA, controller="pd"),
}
PHONES = ("phones 1", "phones 2")
#: what the figures depend on
CODE = (
    *("src/rivermouth/kernels/aggregation/*.py", "src/rivermouth/spec/slack.py"),
    *(f"benchmarks/papers/{name}.py" for name in ("kinds", "promise", "walking")),
)


def _window(kind: str) -> Window:
    if kind in PHONES:
        return rm.sliding("10 seconds", every="1 second")
    if kinds.is_fleet(kind):
        return rm.sliding("1 minute", every="10 seconds")
    return rm.sliding("1 second", every="200 milliseconds")


def one(kind: str, seed: int, slack: str, quick: bool) -> dict[str, Any]:
    """How a stream fared."""
    rows = out_of_order.stream(kind, False) if kind in PHONES else kinds.stream(kind, seed)
    summary = rm.summary(time="at", window=_window(kind), answer=rm.sum("value"))
    batch_s = 10.0 if kinds.is_fleet(kind) else 1.0
    rows = rows.slice(0, rows.num_rows // 10) if quick else rows
    begun = time.process_time()
    found = outcome(rows, summary, SLACKS[slack], eps=EPS, batch_s=batch_s)
    return {
        "kind": kind, "seed": seed, "case": slack, **_figures(found),
        "cpu_s": time.process_time() - begun,
    }  # fmt: skip


def _figures(found: Outcome) -> dict[str, float]:
    """Misses after the first two minutes and in them, and K over the whole run."""
    later = found.end - found.begun > FIRST_US
    return {
        "windows": int(later.sum()),
        "missed": float(found.missed[later].mean()) if later.any() else 0.0,
        "missed_first": float(found.missed[~later].mean()) if not later.all() else 0.0,
        "mean_slack_s": float(found.slack.mean()),
        "mean_latency_s": float(found.latency.mean()),
    }


def jobs(quick: bool) -> list[tuple[str, int, str]]:
    """What is run: the phones and the kinds by seed, each with every slack, the paper's last."""
    seeds = kinds.SEEDS[:1] if quick else kinds.SEEDS
    streams = [(phones, 0) for phones in PHONES]
    streams += [(kind, seed) for seed in seeds for kind in kinds.KINDS]
    return [(kind, seed, slack) for slack in SLACKS for kind, seed in streams]


def rows_of(
    todo: list[tuple[str, int, str]], *, quick: bool, minutes: float = math.inf
) -> Iterator[dict[str, Any]]:
    """A row for each job, two at a time; those that the cache has first.

    After so many `minutes` no further one is begun.
    """
    until, path = time.monotonic() + 60 * minutes, _found_before()
    lines = path.read_text().splitlines() if path.exists() and not quick else []
    known = [json.loads(line) for line in lines]
    yield from known
    done = {(row["kind"], row["seed"], row["case"]) for row in known}
    left = [(*job, quick) for job in todo if job not in done]
    if time.monotonic() >= until:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(2) as pool:
        for finished in as_completed([pool.submit(one, *job) for job in left]):
            row = finished.result()
            if not quick:
                with path.open("a") as file:
                    file.write(json.dumps(row) + "\n")
            yield row
            if time.monotonic() >= until:
                pool.shutdown(wait=False, cancel_futures=True)
                return


def _found_before() -> Path:
    """Where rows are kept that were found with the same code."""
    sources = sorted(path for pattern in CODE for path in ROOT.glob(pattern))
    code = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    return CACHE / f"promise-{code[:16]}.jsonl"


def main() -> None:
    """Go through all streams."""
    given = arguments(__doc__)
    todo, found = jobs(given.quick), {}
    with progress("promise", len(todo)) as step:
        for row in rows_of(todo, quick=given.quick, minutes=given.minutes):
            step(f"{row['kind']}, {row['seed']}, {row['case']}")
            found[row["kind"], row["seed"], row["case"]] = row
    about = {
        "quick": given.quick,
        "seed": list(kinds.SEEDS),
        "tuned_on": list(kinds.TUNED_ON),
        "eps": EPS,
        "delta": DELTA,
        "data": "seeded, and ../shared/data/phones_d*.csv and iot_delays_ms.txt.gz",
    }
    print(save("promise", [found[job] for job in todo if job in found], **about))


if __name__ == "__main__":
    main()
