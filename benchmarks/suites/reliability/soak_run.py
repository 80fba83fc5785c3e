"""The process that runs one query of the soak: ``python -m ...soak_run CASE BATCHES FOLDER``.

Its last line is what it found, as JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rivermouth as rm
from benchmarks.harness import streams
from benchmarks.harness.accounting import cpu_seconds, memory, tree
from benchmarks.suites.reliability import soak_cases
from rivermouth.spark.runtime.session import local_session

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

LOOKS = 200  #: at memory and files, evenly over the run
CONF = streams.CONF | {
    "spark.driver.memory": "1g",
    "spark.sql.streaming.numRecentProgressUpdates": "100000",
}


def run(case: str, batches: int, folder: Path) -> dict[str, Any]:
    """Run a query for so many micro-batches; one list a measure, in the order of time."""
    spark = local_session(f"soak {case}", cores=2, conf=CONF)
    events, others = soak_cases.stream(spark), soak_cases.others(spark)
    running = None
    if case == soak_cases.EXACT:
        window = rm.sliding("60 seconds", every="20 seconds")
        job = rm.exact(events, soak_cases.summary("sent", window), store=folder / "store")
        running = job.start()
        query = running.query
    else:
        frame = soak_cases.CASES[case](events, others, folder)
        writer = frame.writeStream.format("noop")
        query = writer.option("checkpointLocation", str(folder / "store")).start()
    looks = _watch(query, batches, folder / "store")
    found: dict[str, Any] = {"looks": looks, **_batches(query)}
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


def _watch(query: StreamingQuery, batches: int, folder: Path) -> list[dict[str, float]]:
    """Look at the processes and the files until there were so many micro-batches."""
    looks: list[dict[str, float]] = []
    began, done = time.monotonic(), 0
    while done < batches:
        time.sleep(0.2)
        if not query.isActive:
            raise RuntimeError(str(query.exception()))
        last = query.lastProgress
        done = 0 if last is None else last["batchId"] + 1
        if done >= batches * (len(looks) + 1) // LOOKS:
            looks.append({"batch": done, "s": time.monotonic() - began, **_look(folder)})
    return looks


def _look(folder: Path) -> dict[str, float]:
    held = {"java": 0, "python": 0}
    for process in tree(os.getpid()):
        kind = "java" if process.name.startswith("java") else "python"
        try:
            held[kind] += memory(process.pid)["pss"]
        except (FileNotFoundError, ProcessLookupError, KeyError):  # it has ended
            continue
    files = size = 0
    for here, _, names in os.walk(folder):
        for name in names:
            try:
                size += (Path(here) / name).stat().st_size
                files += 1
            except FileNotFoundError:  # it was deleted since the listing
                continue
    return {
        "java_mb": held["java"] / 1e6, "python_mb": held["python"] / 1e6,
        "files": files, "files_mb": size / 1e6, "cpu_s": cpu_seconds(os.getpid()),
    }  # fmt: skip


def _batches(query: StreamingQuery) -> dict[str, list[float]]:
    """What Spark tells of each micro-batch."""
    found = [batch for batch in query.recentProgress if batch.numInputRows]
    states = [batch.stateOperators for batch in found]
    return {
        "batch_ms": [batch.durationMs["triggerExecution"] for batch in found],
        "state_rows": [sum(each.numRowsTotal for each in of) for of in states],
        "state_mb": [sum(each.memoryUsedBytes for each in of) / 1e6 for of in states],
        "rows_out": [max(batch.sink.numOutputRows, 0) for batch in found],
    }


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))))
