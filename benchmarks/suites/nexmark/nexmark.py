"""Nexmark's enrichment, windows and joins: ours beside Spark's own operators, answers checked.

Each query reads seeded events as a stream of files, one a micro-batch, and each side runs it in a
session of its own. They take turns, after a round that does not count. What both give must be what
plain SQL says of the same files. Spark's own windows run on its default state store, its joins on
the one that costs them less of two that are tried before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.harness import streams
from benchmarks.harness.accounting import PeakMemory
from benchmarks.harness.experiment import SEED, Case, arguments, interleave, progress, save
from benchmarks.harness.runner import Runner
from benchmarks.suites.nexmark import nexmark_session
from benchmarks.suites.nexmark.events import Events
from benchmarks.suites.nexmark.queries import ASKED, READS

RUNS = 3
#: persons and auctions are a twelfth of the events
FULL = {query: Events(6_000_000 if query == "q8" else 2_000_000, 4) for query in ASKED}
QUICK = Events(200_000, 4)
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_FORMAT = "spark.sql.streaming.join.stateFormatVersion"
_STATE = "org.apache.spark.sql.execution.streaming.state"
#: where Spark's own operators can keep their state; the first is its default
STORES = {
    "in memory": {_PROVIDER: f"{_STATE}.HDFSBackedStateStoreProvider", _FORMAT: "2"},
    "RocksDB, state format 4": {_PROVIDER: f"{_STATE}.RocksDBStateStoreProvider", _FORMAT: "4"},
}
OURS, SPARK = "ours", "spark"


@dataclass
class Asked:
    """One side and one query; keeps the digests of its answers."""

    case: str
    query: str
    events: Events
    runner: Runner
    store: str = ""
    answers: list[dict[str, int]] = field(default_factory=list, init=False)

    def __call__(self) -> Mapping[str, float]:
        """Run it once."""
        with PeakMemory(self.runner.pid) as peak:
            found = self.runner.measure(**self.request(self.case), conf=STORES.get(self.store, {}))
        self.answers.append(found["answer"])
        return {
            "rows": found["rows_in"],
            "rows_per_cpu_s": found["rows_in"] / found["cpu_s"],
            "rows_per_s": found["rows_in"] / found["wall_s"],
            "batch_rows": found["rows_in"] / found["batches"],
            "batch_ms": found["batch_ms"],
            "memory_gb": peak.bytes / 1e9,
        }

    def request(self, case: str) -> dict[str, Any]:
        """What a session is asked for."""
        events = {"count": self.events.count, "files": self.events.files}
        return {"case": case, "query": self.query, **events}


def with_store(asked: Asked) -> Asked:
    """The same, of Spark's own with a state store; for a join the better one of a second run."""
    if asked.case == OURS:
        return asked
    if len(READS[asked.query]) == 1:
        return replace(asked, store=next(iter(STORES)))
    tried = [replace(asked, store=store) for store in STORES]
    rates = [(each(), each())[1]["rows_per_cpu_s"] for each in tried]
    return tried[rates.index(max(rates))]


def measured(asked: list[Asked], *, runs: int, minutes: float) -> list[dict[str, Any]]:
    """A row for each, with the number of rows it gave and whether they are right."""
    cases: dict[str, Case] = {f"{each.query} {each.case}": each for each in asked}
    with progress("nexmark", len(asked) * (runs + 1)) as step:
        rows = interleave(cases, runs=runs, step=step, minutes=minutes)
    right = {
        each.query: each.runner.ask(**each.request("truth"))["answer"]
        for each in asked
        if each.case == SPARK
    }
    return [
        row
        | {"case": each.case, "query": each.query, "events": each.events.count}
        | {"store": each.store}
        | {"answers": each.answers[-1]["rows"]}
        | {"is_right": all(answer == right[each.query] for answer in each.answers)}
        for row, each in zip(rows, asked, strict=True)
    ]


def main() -> None:
    """Leave ``nexmark``."""
    given = arguments(__doc__)
    runs = given.runs or (1 if given.quick else RUNS)
    with nexmark_session.start(OURS) as ours, nexmark_session.start(SPARK) as spark:
        asked = [
            with_store(Asked(case, query, QUICK if given.quick else FULL[query], runner))
            for query in ASKED
            for case, runner in ((OURS, ours), (SPARK, spark))
        ]
        rows = measured(asked, runs=runs, minutes=given.minutes)
    for row in rows:
        print(row, flush=True)
    wrong = [f"{row['query']} {row['case']}" for row in rows if not row["is_right"]]
    about = {"seed": SEED, "data": "seeded: persons, auctions and bids", "quick": given.quick}
    print(save("nexmark", rows, **about, conf=streams.CONF, stores=STORES))
    if wrong:
        raise SystemExit(f"wrong answers: {wrong}")


if __name__ == "__main__":
    main()
