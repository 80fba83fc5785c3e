"""SpatialBench's queries by place, ours beside SedonaDB, DuckDB, GeoPandas and Sedona on Spark.

Every engine reads the tables from Parquet and gives the hundred rows of the answer, which are
compared with the answers that the benchmark's makers print (scale factor 1) and with each other's.
Beside Q8 stands what Spark takes without a join, in our session.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.harness.experiment import Case, interleave, progress, save
from benchmarks.harness.runner import Runner
from benchmarks.peers import spatialbench_engines as peers
from benchmarks.peers.environment import PeerUnavailable
from benchmarks.suites.spatialbench import ours
from benchmarks.suites.spatialbench.questions import PUBLISHED, QUERIES, folder, same

RUNS = 3
OURS = "rivermouth"
#: by query: what our session also does, which is no answer
FLOORS = {"q8": ("q8_read", "q8_into_python")}


class Asked:
    """One engine and one query; keeps the answer of the first run."""

    def __init__(self, runner: Runner, query: str) -> None:
        self._runner, self._query = runner, query
        self.rows: list[list[Any]] = []

    def __call__(self) -> dict[str, float]:
        """Run it once."""
        found = self._runner.measure(query=self._query)
        self.rows = found["rows"]
        return {name: found[name] for name in ("cpu_s", "wall_s", "memory_gb")}


def engines(data: Path, names: list[str], stack: ExitStack) -> dict[str, Runner]:
    """Those that can be had, ready."""
    found: dict[str, Runner] = {}
    for name in names:
        try:
            runner = ours.start(data) if name == OURS else peers.start(name, data)
        except PeerUnavailable as why:
            print(f"without {name}: {why}")
            continue
        found[name] = stack.enter_context(runner)
    return {name: runner.ready() for name, runner in found.items()}


def measured(
    runners: dict[str, Runner], queries: list[str], runs: int, scale: float
) -> list[dict[str, Any]]:
    """A row for each engine and query, with whether its answer is right."""
    rows = []
    beside = sum(len(FLOORS.get(query, ())) for query in queries)
    with progress("spatialbench", (len(runners) * len(queries) + beside) * (runs + 1)) as step:
        for query in queries:
            asked = {
                name: Asked(runner, query)
                for name, runner in runners.items()
                if (name, query) not in peers.CANNOT
            }
            floors = {name: Asked(runners[OURS], name) for name in FLOORS.get(query, ())}
            todo: dict[str, Case] = {**asked, **floors}
            truth = asked[OURS]
            for row in interleave(todo, runs=runs, step=step):
                if row["case"] in floors:
                    rows.append(row | {"query": query, "scale": scale, "floor": row["case"]})
                    continue
                answer = asked[row["case"]].rows
                published = PUBLISHED[query] if scale == 1 else answer[:3]
                rows.append(
                    row
                    | {"query": query, "scale": scale, "engine": row["case"]}
                    | {"is_published": same(answer[: len(published)], published)}
                    | {"agrees": same(answer, truth.rows)}
                )
    return rows


def main() -> None:
    """Ask all engines all queries; leave ``spatialbench``."""
    names = [OURS, *peers.ENVIRONMENTS]
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="a hundredth of the trips: a smoke test"
    )
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--engines", nargs="*", choices=names, default=names)
    parser.add_argument("--queries", nargs="*", choices=QUERIES, default=[*QUERIES])
    given = parser.parse_args()
    scale = 0.01 if given.quick else 1.0
    try:
        data = folder(scale, peers.GENERATOR.make().python)
    except PeerUnavailable as why:
        print(f"skipped: the generator cannot be had: {why}")
        return
    with ExitStack() as stack:
        runners = engines(data, given.engines, stack)
        rows = measured(runners, given.queries, 1 if given.quick else given.runs, scale)
    versions = peers.GENERATOR.versions
    for name in runners:
        versions |= peers.ENVIRONMENTS[name].versions if name != OURS else {}
    about = {"data": f"SpatialBench, scale factor {scale:g}", "quick": given.quick}
    for row in rows:
        print({name: row[name] for name in ("query", "case", "cpu_s", "wall_s")})
    print(save("spatialbench", rows, peers=versions, beside=["query"], **about))


if __name__ == "__main__":
    main()
