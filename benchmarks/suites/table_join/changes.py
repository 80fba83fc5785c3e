"""A join with 1,000,000 polygons of which 1,000 change every second, beside one that stays.

Points are joined as fast as two cores can, in micro-batches of one file. Four phases over the same
points: the table as it is, the table with its changes followed (``rm.full(changes=...)``), the
table as it is once more, and the table read anew whenever it has been read
(``rm.full(refresh=...)``), which is what following changes replaces. A process of its own writes
the changes, 200 at a time: moved polygons, and now and then one that is removed or new.

Freshness is how long after a change was made the micro-batch that joins it has ended; of a table
that is read anew, how old its rows are then. ``--minutes`` says how long changes are followed.
"""

from __future__ import annotations

import math
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import shapely

from benchmarks.harness import accounting, streams
from benchmarks.harness.accounting import Sampler
from benchmarks.harness.experiment import CACHE, SEED, arguments, progress, save
from benchmarks.suites.table_join.memory import worker_pids
from benchmarks.suites.table_join.questions import Question, polygons

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PER_SECOND = 1_000
PER_FILE = 200
POINTS = 500_000  # of a micro-batch
LINKS = 4_000  # micro-batches that a phase may have; each is a link to one of a few files
MEMORY_S = 2.0  # between two looks at the workers' memory


def write_changes(folder: Path, table: Path, per_second: float, seconds: float) -> None:
    """Write files of changes at a steady rate: a process of its own."""
    rng = np.random.default_rng(SEED)
    shapes = shapely.from_wkb(pq.read_table(table)["geometry"].to_numpy())
    count, sequence, began = len(shapes), 0, time.time()
    new = count
    while (now := time.time()) < began + seconds:
        due = began + sequence / per_second
        if now < due:
            time.sleep(due - now)
        ids = rng.integers(0, count, PER_FILE)
        moved = shapely.transform(shapes[ids], lambda xy: xy + rng.normal(0, 1e-4, 2))
        op = np.full(PER_FILE, "update", dtype=object)
        op[:5], op[5:10] = "delete", "insert"
        ids[5:10] = np.arange(new, new + 5)
        new += 5
        made = np.full(PER_FILE, int(time.time() * 1e6)).astype("datetime64[us]")
        columns = {
            "sequence": np.arange(sequence + 1, sequence + PER_FILE + 1), "op": op, "id": ids,
            "geometry": shapely.to_wkb(moved), "made": pa.array(made, pa.timestamp("us", "UTC")),
        }  # fmt: skip
        pq.write_table(pa.table(columns), folder / ".new")
        os.replace(folder / ".new", folder / f"{sequence:012d}.parquet")
        sequence += PER_FILE


def linked(question: Question, points: int, scratch: Path) -> Path:
    """A folder of `LINKS` files of so many points each, as a stream that does not end soon."""
    made = sorted(question.stream(4 * points).glob("part-*.parquet"))
    folder = scratch / "points"
    folder.mkdir(parents=True)
    for number in range(LINKS):
        os.link(made[number % len(made)], folder / f"{number:06d}.parquet")
    return folder


def _workers_mb() -> float:
    """What the workers hold together."""
    return sum(each["pss"] for each in accounting.memories(worker_pids(os.getpid()))) / 1e6


def run(frame: DataFrame, seconds: float, scratch: Path) -> dict[str, Any]:
    """One phase: the stream for so long after its first micro-batch, which loads the table."""
    import rivermouth as rm

    checkpoint = scratch / f"checkpoint-{time.monotonic_ns()}"
    query = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()
    batches: list[dict[str, Any]] = []
    tables: list[dict[str, Any]] = []
    try:
        while not query.recentProgress:
            if query.exception() is not None:
                raise query.exception()  # type: ignore[misc]
            time.sleep(0.2)
        first = query.recentProgress[-1]["batchId"]
        with Sampler(_workers_mb, pause=MEMORY_S) as memory:
            end, cpu = time.monotonic() + seconds, accounting.cpu_seconds(os.getpid())
            while time.monotonic() < end and query.isActive:
                time.sleep(0.5)
                _gather(query, first, batches, tables)
            cpu = accounting.cpu_seconds(os.getpid()) - cpu
        numbers = rm.metrics(query)["operators"]
    finally:
        query.stop()
    if query.exception() is not None:
        raise query.exception()  # type: ignore[misc]
    return _row(batches, tables, memory.samples, cpu, next(iter(numbers.values())))


def _gather(
    query: Any, first: int, batches: list[dict[str, Any]], tables: list[dict[str, Any]]
) -> None:
    """Add what has been reported since."""
    import json

    for report in query.recentProgress:
        done = batches[-1]["batchId"] if batches else first
        if report["batchId"] <= done or not report["numInputRows"]:
            continue
        batches.append(report)
        (observed,) = report["observedMetrics"].values()
        newest = max(
            (json.loads(task)["table"] for task in observed["tasks"]),
            key=lambda table: table["version"],
        )
        tables.append(newest)


def _row(
    batches: list[dict[str, Any]],
    tables: list[dict[str, Any]],
    memory: list[float],
    cpu: float,
    numbers: dict[str, Any],
) -> dict[str, Any]:
    seconds = [batch["durationMs"]["triggerExecution"] / 1e3 for batch in batches]
    rows = sum(batch["numInputRows"] for batch in batches)
    each = [_freshness(took, table) for took, table in zip(seconds, tables, strict=True)]
    fresh = [value for value in each if value is not None]
    part = max(1, len(memory) // 4)
    return {
        "batches": len(batches),
        "rows_per_s": rows / sum(seconds),
        "cpu_s_per_million": cpu / rows * 1e6,
        "batch_s": statistics.median(seconds),
        "longest_batch_s": max(seconds),
        "freshness_s": statistics.median(fresh) if fresh else None,
        "freshness_p95_s": float(np.quantile(fresh, 0.95)) if fresh else None,
        "memory_first_mb": statistics.median(memory[:part]),
        "memory_last_mb": statistics.median(memory[-part:]),
        "memory_most_mb": max(memory),
        "versions": len({table["version"] for table in tables}),
        "table": numbers["table"],
        "series": {
            "batch_s": [round(took, 3) for took in seconds],
            "freshness_s": [None if value is None else round(value, 3) for value in each],
            "memory_mb": [round(value) for value in memory],
            "memory_every_s": MEMORY_S,
        },
    }


def _freshness(took: float, table: dict[str, Any]) -> float | None:
    """How old the changes, or the rows, that a micro-batch joined were when it ended."""
    if (changes := table.get("changes")) is None:
        return float(table["age_seconds"])
    seen = changes["freshness_seconds"]
    return None if seen is None else float(seen) + took


def phases(
    spark: SparkSession, table: Path, points: Path, scratch: Path, lengths: dict[str, float]
) -> dict[str, Callable[[], dict[str, Any]]]:
    """What is measured, by name."""
    import rivermouth as rm

    source = rm.tables.parquet(table, geometry="geometry")
    schema = spark.read.parquet(str(points)).schema
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(points))
    folder = scratch / "changes"
    folder.mkdir()

    def joined(folder: str = "snapshots", **given: Any) -> DataFrame:
        on = rm.within(rm.point("x", "y"), "geometry")
        cache = rm.full(path=scratch / folder, **given)
        return rm.join_table(stream, source, on=on, columns={"polygon": "id"}, cache=cache)

    still = joined()
    followed = joined(changes=rm.changes.files(folder, key="id", made="made"))
    reread = joined("reread", refresh="1 second")  # not with what the other phases left

    def follow() -> dict[str, Any]:
        command = [sys.executable, "-m", __spec__.name, "--write", str(folder), str(table)]
        seconds = lengths["follows changes"]
        writer = subprocess.Popen([*command, str(PER_SECOND), str(seconds + 600)])
        try:
            return run(followed, seconds, scratch)
        finally:
            writer.terminate()
            writer.wait()

    return {
        "stays": lambda: run(still, lengths["stays"], scratch),
        "follows changes": follow,
        "stays, once more": lambda: run(still, lengths["stays"], scratch),
        "read anew": lambda: run(reread, lengths["read anew"], scratch),
    }


def main() -> None:
    """Run the phases and leave ``changes.json``."""
    if sys.argv[1:2] == ["--write"]:
        folder, table, per_second, seconds = sys.argv[2:]
        write_changes(Path(folder), Path(table), float(per_second), float(seconds))
        return
    from rivermouth.spark.runtime.session import local_session

    given = arguments(__doc__)
    minutes = 10.0 if math.isinf(given.minutes) else given.minutes
    lengths = {"stays": 40.0, "follows changes": 60 * minutes, "read anew": 180.0}
    if given.quick:
        lengths = {"stays": 8.0, "follows changes": 30.0, "read anew": 8.0}
    question = polygons(20_000 if given.quick else 1_000_000)
    scratch = CACHE / "changes"
    shutil.rmtree(scratch, ignore_errors=True)
    count = POINTS // 10 if given.quick else POINTS
    points = linked(question, count, scratch)
    spark = local_session("changes", cores=2, conf=streams.CONF)
    rows = []
    wanted = phases(spark, question.table(), points, scratch, lengths)
    with progress("changes", len(wanted)) as step:
        for name, phase in wanted.items():
            step(name)
            rows.append({"case": name, "table_rows": question.rows, **phase()})
            print({key: value for key, value in rows[-1].items() if key != "series"}, flush=True)
    spark.stop()
    shutil.rmtree(scratch, ignore_errors=True)
    about = {"per_second": PER_SECOND, "batch_rows": count, "conf": streams.CONF}
    print(save("changes", rows, quick=given.quick, seed=SEED, data="seeded", **about))


if __name__ == "__main__":
    main()
