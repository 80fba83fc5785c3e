"""Paper B as a system: ``python -m benchmarks paper_b accuracy|latency|scale [--quick]``.

``accuracy`` sends both games, whole and faster than they were made, through Kafka to four queries
at once and leaves ``paper_b_accuracy``: K, and accuracy before and after correction (Figures 3 and
5). ``latency`` sends the part of Game 2 around its longest outage in real time to ours and to
MP-K-slack, and leaves ``paper_b_latency`` (Figure 4). ``scale`` counts rows per second on several
hosts and leaves ``paper_b_scale`` (Figure 6).
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from tests.support.servers import postgres_server

from benchmarks.harness import kafka, limited_hosts
from benchmarks.harness.experiment import progress, save
from benchmarks.papers.paper_b import games, measures, scale, system

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Plan:
    """How games are replayed.

    Parameters
    ----------
    games
        Which of them, one after the other.
    before
        Where to begin: so many seconds before the longest outage.
    seconds
        How much of each, in seconds of the game.
    factor
        How many times as fast as they were made.
    trigger
        Of the queries, as in Spark.
    cases
        Which queries.
    warm
        Seconds of the run that do not count for latency: a JVM's first micro-batches are slow.
    """

    games: tuple[int, ...]
    before: float
    seconds: float
    factor: float
    trigger: str
    cases: tuple[str, ...]
    warm: float = 30.0

    def begin(self, game: int) -> float:
        """Where the replay of a game begins."""
        return max(0.0, games.outage(game) - self.before)


PLANS = {
    "accuracy": Plan((1, 2), math.inf, math.inf, 3.0, "1 second", system.CASES),
    "latency": Plan((2,), 60.0, 150.0, 1.0, "1 second", (system.EXACT, "mp")),
}
QUICK = 40.0  #: seconds of one game


@contextmanager
def _servers() -> Iterator[dict[str, Any]]:
    with (
        tempfile.TemporaryDirectory(prefix="paper-b-") as folder,
        postgres_server() as server,
        kafka.broker() as bootstrap,
    ):
        system.prepare(server.url)
        yield {"bootstrap": bootstrap, "url": server.url, "folder": Path(folder)}


def replay(plan: Plan, part: str) -> list[dict[str, Any]]:
    """The rows of all games, one game after the other."""
    rows: list[dict[str, Any]] = []
    with _servers() as servers, progress(part, len(plan.games)) as step:
        spark = system.session()
        for number in plan.games:
            step(f"game {number}")
            table = games.records(number, plan.begin(number), plan.seconds)
            rows += _game(spark, table, plan, part, number, servers)
        spark.stop()
    return rows


def _game(
    spark: SparkSession, table: pa.Table, plan: Plan, part: str, number: int,
    servers: dict[str, Any],
) -> list[dict[str, Any]]:  # fmt: skip
    how = {"factor": plan.factor, "trigger": plan.trigger, "cases": plan.cases}
    with system.replaying(spark, table, name=f"game{number}", **how, **servers) as game:
        found = game.finish()
    truth = games.truth(table)
    origin = int(games.microseconds(table, "arrival")[0])
    rows = []
    for case in plan.cases:
        if part == "accuracy":
            row = measures.accuracy(case, found, truth)
        else:
            when = {"origin_us": origin, "factor": plan.factor, "warm": plan.warm}
            row = measures.latency(case, found, truth, **when)
        rows.append({"game": number, "overdue_s": found.overdue, **row})
        print({name: value for name, value in rows[-1].items() if name != "over_time"}, flush=True)
    return rows


def _replay(given: argparse.Namespace) -> None:
    plan = PLANS[given.part]
    if given.quick:
        plan = replace(plan, games=plan.games[-1:], before=15.0, seconds=QUICK, warm=0.0)
    asked = ("games", "seconds", "factor", "trigger")
    plan = replace(plan, **{n: getattr(given, n) for n in asked if getattr(given, n) is not None})
    whole = {number: games.records(number) for number in games.GAMES}
    about = {
        "seed": games.SEED,
        "data": "seeded: rivermouth.testing.disorder, close to the paper's Table 1",
        "query": "SUM, window 0.5 s every 0.1 s, (0.05, 0.05)",
        "disorder": {number: games.measured(table)._asdict() for number, table in whole.items()},
        "replay": {
            "begin_s": {n: round(plan.begin(n), 1) for n in plan.games},
            "seconds": {n: min(plan.seconds, _length(whole[n])) for n in plan.games},
            "factor": plan.factor,
            "trigger": plan.trigger,
        },
        "conf": system.CONF,
    }
    rows = replay(plan, given.part)
    name = f"paper_b_{given.part}"
    print(save(name, rows, quick=given.quick, peers=kafka.versions(), **about))


def _length(table: pa.Table) -> float:
    arrival = games.microseconds(table, "arrival")
    return float(round((arrival[-1] - arrival[0]) / 1e6, 1))


def _scale(given: argparse.Namespace) -> None:
    if (reason := limited_hosts.why_not()) is not None:
        print(f"skipped: {reason}", file=sys.stderr)
        return
    hosts, rows, batches = scale.HOSTS, scale.ROWS, scale.MEASURED
    if given.quick:
        hosts, rows, batches = (1, 2), scale.ROWS // 20, {False: 1, True: 1}
    about = {
        "seed": games.SEED,
        "data": "seeded: as Game 1 at ten times its rate, 48 sensors",
        "batch_rows": rows,
        "cores": {"worker": limited_hosts.WORKER_CORES, "driver": limited_hosts.DRIVER_CORES},
    }
    found = scale.measured(hosts, rows=rows, batches=batches)
    print(save("paper_b_scale", found, quick=given.quick, **about))


def main() -> None:
    """Run one part."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("part", choices=[*PLANS, "scale"])
    parser.add_argument("--quick", action="store_true", help="a small part: a smoke test")
    parser.add_argument("--games", type=int, nargs="+", choices=games.GAMES, help="which of them")
    parser.add_argument("--seconds", type=float, help="of each game that are replayed")
    parser.add_argument("--factor", type=float, help="how many times as fast as they were made")
    parser.add_argument("--trigger", help="of the queries, as in Spark: '1 second'")
    given = parser.parse_args()
    (_scale if given.part == "scale" else _replay)(given)


if __name__ == "__main__":
    main()
