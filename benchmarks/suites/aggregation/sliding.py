"""Sliding windows in Spark: ours beside Spark's own, by how many windows hold a record.

Rows per CPU-second of the whole process tree, one run each after a dozen small micro-batches of the
same query (the first ten of a JVM cost several times the rest), and the growth of ours from one
core to two. The stream is disordered as the paper's Game 1; both sides wait twenty seconds and
answer from the same records. Spark copies a row for every window that holds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.harness import session
from benchmarks.harness.experiment import CACHE, arguments, progress, save
from benchmarks.harness.runner import Runner
from rivermouth.testing.disorder import GAMES, disordered

EVERY_MS = 100
RATIOS = (5, 50, 500)
#: rows of a micro-batch, small and large
SMALL, LARGE = 100_000, 500_000
#: rows of a micro-batch that Spark gets, by ratio: of each it makes so many copies
GIVEN = {5: (SMALL, LARGE), 50: (SMALL, LARGE), 500: (5_000,)}
FILES = {SMALL: 10, LARGE: 4, 5_000: 4}
#: small micro-batches before a case counts, and before a session's first
WARM, FIRST = 12, 3
WARMING = {5: 20_000, 50: 2_000, 500: 400}  #: their rows for Spark, by ratio
SEED = 2
#: as Game 1, at ten times its rate
STREAM = replace(GAMES[1], records=2_000_000, rate=10_000.0)
#: Spark's own windows run on its default store, which suits them better than ours
PEER = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    )
}


_warmed: set[int] = set()  #: processes of sessions that have run


@cache
def folder(batch: int, files: int) -> Path:
    """A folder of files of so many rows each, from the start of the stream."""
    place = CACHE / "disordered" / f"{SEED}-{batch}-in-{files}"
    if not place.exists():
        place.mkdir(parents=True)
        rows = disordered(STREAM, seed=SEED).select(["at", "sensor", "value"])
        for number in range(files):
            pq.write_table(rows.slice(number * batch, batch), place / f"part-{number:03d}.parquet")
    return place


def measured(runner: Runner, case: str, batch: int, ratio: int, **options: Any) -> dict[str, Any]:
    """One run after a warm-up."""
    options |= {"size": f"{ratio * EVERY_MS} milliseconds", "every": f"{EVERY_MS} milliseconds"}
    request = {"case": case, "options": options}
    small, files = WARMING[ratio if case == "spark_windows" else 5], FILES[batch]
    for _ in range(1 if runner.pid in _warmed else FIRST):
        runner.ask(**request, folder=str(folder(small, WARM)), files=WARM)
    _warmed.add(runner.pid)
    found = runner.measure(**request, folder=str(folder(batch, files)), files=files)
    return {
        "ratio": ratio,
        "batch": batch,
        "rows": found["rows_in"],
        "rows_out": found["rows_out"],
        "rows_per_cpu_s": found["rows_in"] / found["cpu_s"],
        "rows_per_s": found["rows_in"] / found["wall_s"],
    }


def main() -> None:
    """Leave ``sliding``."""
    given = arguments(__doc__)
    ratios: Sequence[int] = RATIOS[:1] if given.quick else RATIOS
    rows: list[dict[str, Any]] = []
    steps = [
        *(("ours", 2, ratio, batch) for ratio in ratios for batch in (SMALL, LARGE)),
        ("promised", 2, ratios[0], LARGE),
        *(("spark", 2, ratio, batch) for ratio in ratios for batch in GIVEN[ratio]),
        *(("ours", 1, ratios[0], batch) for batch in (SMALL, LARGE)),
    ]
    with (
        progress("sliding", len(steps)) as step,
        session.start(cores=2) as two,
        session.start(cores=2, conf=PEER) as peer,
        session.start(cores=1) as one,
    ):
        for name, cores, ratio, batch in steps:
            step(f"{name}, {ratio}, {batch:,} rows a batch, {cores} cores")
            if name == "spark":
                found = measured(peer, "spark_windows", batch, ratio)
            else:
                more = {"promised": True} if name == "promised" else {}
                found = measured(two if cores == 2 else one, "windows", batch, ratio, **more)
            rows.append({"case": name, "cores": cores} | found)
            print(rows[-1], flush=True)
    about = {
        "seed": SEED,
        "data": "seeded: testing.disorder, game 1, ten times its rate",
    }
    print(save("sliding", rows, quick=given.quick, **about))


if __name__ == "__main__":
    main()
