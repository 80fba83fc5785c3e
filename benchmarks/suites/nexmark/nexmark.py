"""Nexmark's enrichment, windows and joins: ours beside Spark's own operators, answers checked.

Each query reads seeded events as a stream of files, one a micro-batch, and each side runs it in a
session of its own. They take turns, after rounds that do not count. What both give must be what
plain SQL says of the same files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.harness import streams
from benchmarks.harness.experiment import SEED, Case, arguments, interleave, progress, save
from benchmarks.harness.runner import Runner
from benchmarks.suites.nexmark import nexmark_session
from benchmarks.suites.nexmark.events import Events
from benchmarks.suites.nexmark.queries import ASKED

RUNS, WARM = 3, 3
#: persons and auctions are a twelfth of the events
FULL = {query: Events(3_000_000 if query == "q8" else 1_000_000, 4) for query in ASKED}
QUICK = Events(200_000, 4)
_STATE = "org.apache.spark.sql.execution.streaming.state"
#: Spark's own runs on its default store: on RocksDB, with state format 4, Q8 took 1.6 times and Q9
#: three times the CPU time in a trial
CONF = {
    "ours": {},
    "spark": {
        "spark.sql.streaming.stateStore.providerClass": f"{_STATE}.HDFSBackedStateStoreProvider"
    },
}


@dataclass
class Asked:
    """One side and one query; keeps the digests of its answers."""

    case: str
    query: str
    events: Events
    runner: Runner
    answers: list[dict[str, int]] = field(default_factory=list, init=False)

    def __call__(self) -> Mapping[str, float]:
        """Run it once."""
        found = self.runner.measure(**self.request(self.case), conf=CONF[self.case])
        self.answers.append(found["answer"])
        took = f"{found['cpu_s']:.1f} CPU-s, {found['wall_s']:.1f} s"
        print(f"{self.query} {self.case}: {took}", flush=True)
        return {
            "rows": found["rows_in"],
            "rows_per_cpu_s": found["rows_in"] / found["cpu_s"],
            "rows_per_s": found["rows_in"] / found["wall_s"],
            "batch_rows": found["rows_in"] / found["batches"],
            "batch_ms": found["batch_ms"],
            "memory_gb": found["memory_gb"],
        }

    def request(self, case: str) -> dict[str, Any]:
        """What a session is asked for."""
        events = {"count": self.events.count, "files": self.events.files}
        return {"case": case, "query": self.query, **events}


def measured(asked: list[Asked], *, runs: int, warmup: int, minutes: float) -> list[dict[str, Any]]:
    """A row for each, with the number of rows it gave and whether they are right."""
    cases: dict[str, Case] = {f"{each.query} {each.case}": each for each in asked}
    with progress("nexmark", len(asked) * (runs + warmup)) as step:
        rows = interleave(cases, runs=runs, warmup=warmup, step=step, minutes=minutes)
    right = {
        each.query: each.runner.ask(**each.request("truth"))["answer"]
        for each in asked
        if each.case == "spark"
    }
    return [
        row
        | {"case": each.case, "query": each.query, "events": each.events.count}
        | {"answers": each.answers[-1]["rows"]}
        | {"is_right": all(answer == right[each.query] for answer in each.answers)}
        for row, each in zip(rows, asked, strict=True)
    ]


def main() -> None:
    """Leave ``nexmark``."""
    given = arguments(__doc__)
    runs = given.runs or (1 if given.quick else RUNS)
    with nexmark_session.start("ours") as ours, nexmark_session.start("spark") as spark:
        asked = [
            Asked(case, query, QUICK if given.quick else FULL[query], runner)
            for query in ASKED
            for case, runner in (("ours", ours), ("spark", spark))
        ]
        warmup = 0 if given.quick else WARM
        rows = measured(asked, runs=runs, warmup=warmup, minutes=given.minutes)
    for row in rows:
        print(row, flush=True)
    wrong = [f"{row['query']} {row['case']}" for row in rows if not row["is_right"]]
    about = {"seed": SEED, "data": "seeded: persons, auctions and bids", "quick": given.quick}
    print(save("nexmark", rows, **about, conf=streams.CONF | CONF["spark"]))
    if wrong:
        raise SystemExit(f"wrong answers: {wrong}")


if __name__ == "__main__":
    main()
