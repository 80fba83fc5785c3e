"""Throughput against hosts: rm.aggregate on 1, 2, 4 and 6 workers of a quarter core each.

The hosts are those of the cluster lab (``tests/cluster``), on this machine. A query starts and
warms up while they have a core each, as a Python worker must start within ten seconds; then each
is given a quarter of a core and the driver a half, and the micro-batches after that count. All
micro-batches have the same number of rows and files, however many hosts there are.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from tests.cluster.lab import ALL_WORKERS, SHARED, Lab, lab

from benchmarks.harness.limited_hosts import limited, unlimited, used
from benchmarks.papers.paper_b.games import GAMES, SEED
from rivermouth.testing.disorder import disordered

HOSTS = (1, 2, 4, 6)
ROWS = 9_600_000  #: of a micro-batch
WARM_ROWS = 240_000  #: of one that warms up
FILES = 12  #: of a micro-batch: one task each, and a multiple of all numbers of hosts
WARM = 4  #: micro-batches
#: micro-batches that count, not grouped and grouped
MEASURED = {False: 2, True: 1}
#: as Game 1, at ten times its rate and from more sensors
STREAM = replace(GAMES[1], rate=10_000.0, sensors=48)
_PROGRAM = "benchmarks.papers.paper_b.scale_driver"
_CONF = {
    # a file is a task: each is as large as a partition may be
    "spark.sql.files.openCostInBytes": "134217728",
    "spark.sql.files.maxPartitionBytes": "134217728",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
}


def measured(
    hosts: Sequence[int], *, rows: int, batches: Mapping[bool, int]
) -> list[dict[str, Any]]:
    """A row for each number of hosts, not grouped and grouped by sensor: the keys of `batches`."""
    found = []
    with lab() as opened:
        # a small one is under way when the limits change, a large one when the query is stopped
        sizes = [min(rows // 2, WARM_ROWS)] * (WARM + 1) + [rows] * (max(batches.values()) + 1)
        _write(opened.shared / "records", sizes)
        for count in hosts:
            found += _on(opened, ALL_WORKERS[:count], rows, batches)
            print(found[-len(batches) :], flush=True)
    return found


def _on(
    opened: Lab, workers: Sequence[str], rows: int, batches: Mapping[bool, int]
) -> list[dict[str, Any]]:
    unlimited(opened, workers)
    opened.cluster(workers)
    found = []
    settings = {**_CONF, "spark.sql.shuffle.partitions": str(len(workers))}
    with opened.driver(**settings) as driver:
        for by_sensor, count in batches.items():
            unlimited(opened, workers)
            name = f"{len(workers)}-{'grouped' if by_sensor else 'ungrouped'}"
            driver.call(
                f"{_PROGRAM}:start", records=f"{SHARED}/records", files=FILES,
                grouped=by_sensor, checkpoint=f"{SHARED}/{name}", warm=WARM,
            )  # fmt: skip
            limited(opened, workers)
            before, began = used(opened, workers), time.monotonic()
            taken = driver.call(f"{_PROGRAM}:measure", rows=rows, batches=count)
            cores = (used(opened, workers) - before) / (time.monotonic() - began)
            unlimited(opened, workers)
            driver.call(f"{_PROGRAM}:stop")
            found.append(
                {
                    "hosts": len(workers),
                    "grouped": by_sensor,
                    **_rates(taken),
                    "worker_cores": [round(part, 3) for part in cores[:-1].tolist()],
                    "driver_cores": round(float(cores[-1]), 3),
                }
            )
    return found


def _rates(taken: Sequence[dict[str, Any]]) -> dict[str, Any]:
    rates = [batch["rows"] / batch["seconds"] for batch in taken]
    rows, seconds = (sum(batch[name] for batch in taken) for name in ("rows", "seconds"))
    return {
        "batches": len(taken),
        "rows": rows,
        "rows_per_s": rows / seconds,
        "spread": {"rows_per_s": [min(rates), max(rates)]},
        "batch_s": seconds / len(taken),
    }


def _write(folder: Path, sizes: Sequence[int]) -> None:
    """Micro-batches of so many records each in the order of arrival, each in `FILES` equal files.

    They are the same records again and again, each time later.
    """
    folder.mkdir(parents=True)
    records = disordered(replace(STREAM, records=max(sizes)), seed=SEED)
    records = records.select(["at", "sensor", "value"])
    later = np.timedelta64(0, "us")
    for batch, size in enumerate(sizes):
        rows = records.slice(0, size)
        rows = rows.set_column(0, "at", pc.add(rows["at"], pa.scalar(later)))
        cuts = np.linspace(0, size, FILES + 1).astype(int).tolist()
        for number, (begin, end) in enumerate(itertools.pairwise(cuts), start=batch * FILES):
            path = folder / f"part-{number:04d}.parquet"
            pq.write_table(rows.slice(begin, end - begin), path)
        later += np.timedelta64(round(size / STREAM.rate * 1e6), "us")
