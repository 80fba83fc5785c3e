"""Sliding windows in Spark: ours beside Spark's own, by how many windows contain a record.

Rows per CPU-second of the whole process tree, grouped and not, in micro-batches of 500,000 rows.
The first micro-batch of a run does not count: a stream starts once, and runs for days. What its
start costs is left beside it. Both sides take turns, and the first round does not count. The stream
is disordered as the paper's Game 1; both sides wait twenty seconds and answer from the same
records. Spark copies a row for every window that contains it; at 500 of them it is given fewer rows
a micro-batch. ``floor`` is a bare `mapInArrow` that is given the same columns and counts rows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from benchmarks.harness import session
from benchmarks.harness.experiment import CACHE, arguments, interleave, progress, save
from benchmarks.harness.runner import Runner
from rivermouth.testing.disorder import GAMES, disordered

EVERY_MS = 100
RATIOS = (5, 50, 500)
BATCH, RUNS = 500_000, 5
FILES = {5: 3, 50: 2, 500: 2}  #: micro-batches, the first included
#: rows of a micro-batch that Spark gets where it makes so many copies of each
FEWER = {500: 5_000}
#: small micro-batches before a session's first round: its first ten cost several times the rest
WARM, WARM_ROWS = 12, 20_000
SEED = 2
#: as Game 1, at ten times its rate
STREAM = replace(GAMES[1], records=BATCH * max(FILES.values()), rate=10_000.0)
#: Spark's own windows run on its default store, which suits them better than ours
PEER = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    )
}
CASES = {"ours": "windows", "spark": "spark_windows", "floor": "python_floor"}


class Case(NamedTuple):
    """Whose windows, how many of them contain a record, and of which groups."""

    case: str
    ratio: int
    by: str

    @property
    def batch(self) -> int:
        """Rows of a micro-batch."""
        return FEWER.get(self.ratio, BATCH) if self.case == "spark" else BATCH

    def request(self, batch: int, files: int) -> dict[str, Any]:
        """What the session is asked for."""
        size, every = (f"{count * EVERY_MS} milliseconds" for count in (self.ratio, 1))
        options = {"size": size, "every": every, "by": self.by}
        place = {"folder": str(folder(batch, files)), "files": files}
        return {"case": CASES[self.case], "options": options, "steady": True, **place}


@cache
def folder(batch: int, files: int) -> Path:
    """A folder of files of so many rows each, from the start of the stream."""
    place = CACHE / "disordered" / f"{SEED}-{batch}-in-{files}"
    if not place.exists():
        place.mkdir(parents=True)
        rows = disordered(STREAM, seed=SEED).select(["at", "sensor", "value"])
        for number in range(files):
            path = place / f"part-{number:03d}.parquet"
            pq.write_table(rows.slice(number * batch, batch), path)
            os.utime(path, (number, number))  # Spark reads files by age, not by name
    return place


def timed(runner: Runner, case: Case, batch: int) -> Callable[[], Mapping[str, float]]:
    """A run of a case: rows per CPU-second after the first micro-batch, and CPU seconds until then.

    ``start_s`` is the CPU time of the query's start, the first micro-batch less one of the others.
    """
    files = FILES[case.ratio]

    def run() -> dict[str, float]:
        found = runner.measure(**case.request(batch, files))
        each = found["after_s"] / (files - 1)
        return {
            "rows": found["rows_in"],
            "rows_out": found["rows_out"],
            "rows_per_cpu_s": batch / each,
            "rows_per_cpu_s_with_start": found["rows_in"] / found["cpu_s"],
            "start_s": found["cpu_s"] - files * each,
            "batch_ms": found["batch_ms"],
            "memory_gb": found["memory_gb"],
        }

    return run


def main() -> None:
    """Leave ``sliding``."""
    given = arguments(__doc__)
    runs = given.runs or (1 if given.quick else RUNS)
    ratios = RATIOS[:1] if given.quick else RATIOS
    pair = ("ours", "spark")
    cases = [Case(case, ratio, by) for by in ("sensor", "") for ratio in ratios for case in pair]
    cases.append(Case("floor", ratios[0], ""))
    sizes = {case: case.batch // (10 if given.quick else 1) for case in cases}
    with (
        progress("sliding", len(cases) * (runs + 1)) as step,
        session.start(cores=2) as ours,
        session.start(cores=2, conf=PEER) as spark,
    ):
        runners = {"ours": ours, "spark": spark, "floor": ours}
        for name in pair:
            runners[name].ask(**Case(name, RATIOS[0], "sensor").request(WARM_ROWS, WARM))
        taken = interleave(
            {str(case): timed(runners[case.case], case, sizes[case]) for case in cases},
            runs=runs, step=step, minutes=given.minutes,
        )  # fmt: skip
    rows = [
        row | case._asdict() | {"batch": sizes[case], "cores": 2}
        for row, case in zip(taken, cases, strict=True)
    ]
    for row in rows:
        print(row, flush=True)
    about = {"seed": SEED, "data": "seeded: testing.disorder, game 1, ten times its rate"}
    print(save("sliding", rows, quick=given.quick, **about))


if __name__ == "__main__":
    main()
