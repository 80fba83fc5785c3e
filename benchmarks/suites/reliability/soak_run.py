"""The process that runs one query of the soak: ``python -m ...soak_run CASE BATCHES FOLDER``.

Its last line is what it found, as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness import streams
from benchmarks.harness.accounting import cpu_seconds, memory, tree
from benchmarks.suites.reliability import soak_cases
from rivermouth.spark.exact import store
from rivermouth.spark.runtime.session import local_session

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

LOOKS = 200  #: at memory and files, evenly over the run
COLLECTED = 5  #: looks from one garbage collection to the next
CONF = streams.CONF | {
    # the heap has its size from the start, so that what the JVM grows by is outside of it
    "spark.driver.memory": "1g",
    "spark.driver.defaultJavaOptions": "-Xms1g -XX:+AlwaysPreTouch",
    "spark.sql.streaming.numRecentProgressUpdates": "64",
}


def run(case: str, batches: int, folder: Path) -> dict[str, Any]:
    """Run a query for so many micro-batches; one list a measure, in the order of time."""
    spark = local_session(f"soak {case}", cores=2, conf=CONF)
    events, others = soak_cases.stream(spark), soak_cases.others(spark)
    running = None
    if case == soak_cases.EXACT:
        # event time goes by some twenty times as fast as the clock, by which files are deleted
        store.GRACE = 30.0
        running = soak_cases.exact(events, folder / "store").start()
        query = running.query
    else:
        frame = soak_cases.CASES[case](events, others, folder)
        writer = frame.writeStream.format("noop")
        query = writer.option("checkpointLocation", str(folder / "store")).start()
    looks, told = _watch(query, batches, folder / "store")
    found: dict[str, Any] = {"looks": looks}
    found |= {name: [batch[name] for batch in told] for name in told[0]}
    if running is None:
        query.stop()
    else:
        found["corrections"] = [
            {"seconds": made.seconds, "rows": made.rows, "upto": made.upto}
            for made in running.corrections()
        ]
        running.stop()
    spark.stop()
    return found


def _watch(
    query: StreamingQuery, batches: int, folder: Path
) -> tuple[list[dict[str, float]], list[dict[str, float]]]:
    """Look at the processes and the files until there were so many micro-batches.

    Gives the looks, and what Spark told of each micro-batch, of which it keeps the newest only.
    Not all that it told: this process is looked at, too.
    """
    looks: list[dict[str, float]] = []
    told: dict[int, dict[str, float]] = {}
    began = time.monotonic()
    while (done := max(told, default=-1) + 1) < batches:
        time.sleep(2)  # in which Spark keeps all that it tells
        if not query.isActive:
            raise RuntimeError(str(query.exception()))
        told |= {each.batchId: _batch(each) for each in query.recentProgress if each.numInputRows}
        if done >= batches * (len(looks) + 1) // LOOKS:
            collect = len(looks) % COLLECTED == 0
            looks.append(
                {"batch": done, "s": time.monotonic() - began, **_look(folder, collect=collect)}
            )
    return looks, [told[number] for number in sorted(told)]


def _look(folder: Path, *, collect: bool) -> dict[str, float]:
    held, heap = {"java": 0, "python": 0}, {}
    for process in tree(os.getpid()):
        kind = "java" if process.name.startswith("java") else "python"
        if collect and kind == "java":
            heap = {"heap_mb": _live_heap(process.pid)}
        try:
            held[kind] += memory(process.pid)["pss"]
        except (FileNotFoundError, ProcessLookupError, KeyError):  # it has ended
            continue
    files, size = _files(folder / "checkpoint" if (folder / "checkpoint").exists() else folder)
    return {
        "java_mb": held["java"] / 1e6, "python_mb": held["python"] / 1e6,
        "files": files, "files_mb": size / 1e6, "store_mb": _files(folder)[1] / 1e6,
        "cpu_s": cpu_seconds(os.getpid()), **heap,
    }  # fmt: skip


def _files(folder: Path) -> tuple[int, int]:
    """How many files a folder has, and their bytes."""
    files = size = 0
    for here, _, names in os.walk(folder):
        for name in names:
            try:
                size += (Path(here) / name).stat().st_size
                files += 1
            except FileNotFoundError:  # it was deleted since the listing
                continue
    return files, size


def _live_heap(pid: int) -> float:
    """What a JVM's heap holds after a garbage collection, in MB."""
    subprocess.run(["jcmd", str(pid), "GC.run"], check=True, stdout=subprocess.DEVNULL)
    told = subprocess.run(["jstat", "-gc", str(pid)], check=True, stdout=subprocess.PIPE, text=True)
    names, values = (line.split() for line in told.stdout.splitlines())
    used = dict(zip(names, values, strict=True))
    return sum(float(used[name]) for name in ("S0U", "S1U", "EU", "OU")) * 1024 / 1e6


def _batch(told: Any) -> dict[str, float]:
    """What is kept of what Spark told of a micro-batch."""
    return {
        "batch_ms": told.durationMs["triggerExecution"],
        "state_rows": sum(each.numRowsTotal for each in told.stateOperators),
        "state_mb": sum(each.memoryUsedBytes for each in told.stateOperators) / 1e6,
        "rows_out": max(told.sink.numOutputRows, 0),
    }


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))))
