"""Sliding windows in Spark: ours beside Spark's own, by how many windows hold a record.

Rows per CPU-second of the whole process tree, one run each after a warm-up, and the growth of ours
from one core to two. The stream is disordered as the paper's Game 1; both sides wait twenty
seconds and answer from the same records. Spark copies a row for every window that holds it, so it
is given fewer rows where there are many: its rate does not depend on how many.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks import ours
from benchmarks.harness import CACHE, arguments, progress, save
from benchmarks.runner import Runner
from rivermouth.testing.disorder import GAMES, disordered

EVERY_MS = 100
RATIOS = (5, 50, 500)
#: rows of a micro-batch, and how many there are: a micro-batch costs both sides one to three
#: CPU-seconds by itself, which would hide what the rows cost
BATCH, FILES, WARM = 500_000, 4, 2
#: rows of a micro-batch that Spark gets, by ratio
GIVEN = {5: 500_000, 50: 50_000, 500: 5_000}
SEED = 2
#: as Game 1, at ten times its rate
STREAM = replace(GAMES[1], records=BATCH * FILES, rate=10_000.0)
#: Spark's own windows run on its default store, which suits them better than ours
PEER = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    )
}


@cache
def folder(batch: int) -> Path:
    """A folder of files of so many rows each, from the start of the stream."""
    place = CACHE / "disordered" / f"{SEED}-{batch}"
    if not place.exists():
        place.mkdir(parents=True)
        rows = disordered(STREAM, seed=SEED).select(["at", "sensor", "value"])
        for number in range(FILES):
            pq.write_table(rows.slice(number * batch, batch), place / f"part-{number:03d}.parquet")
    return place


def measured(runner: Runner, case: str, batch: int, ratio: int, **options: Any) -> dict[str, Any]:
    """One run after a warm-up."""
    options |= {"size": f"{ratio * EVERY_MS} milliseconds", "every": f"{EVERY_MS} milliseconds"}
    request = {"case": case, "folder": str(folder(batch)), "options": options}
    runner.ask(**request, files=WARM)
    found = runner.measure(**request, files=FILES)
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
    with progress("sliding", 3 * len(ratios) + 1) as step:
        for cores in (2, 1):
            with ours.start(cores=cores) as runner:
                for ratio in ratios if cores == 2 else ratios[:1]:
                    step(f"ours, {ratio}, {cores} cores")
                    found = measured(runner, "windows", BATCH, ratio)
                    rows.append({"case": "ours", "cores": cores} | found)
                if cores == 2:
                    step("ours, promised")
                    found = measured(runner, "windows", BATCH, ratios[0], promised=True)
                    rows.append({"case": "promised", "cores": cores} | found)
        with ours.start(cores=2, conf=PEER) as runner:
            for ratio in ratios:
                step(f"Spark, {ratio}")
                found = measured(runner, "spark_windows", GIVEN[ratio], ratio)
                rows.append({"case": "spark", "cores": 2} | found)
    about = {
        "seed": SEED,
        "data": "seeded: testing.disorder, game 1, ten times its rate",
    }
    print(save("sliding", rows, quick=given.quick, **about))


if __name__ == "__main__":
    main()
