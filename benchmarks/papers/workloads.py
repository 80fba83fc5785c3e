"""Paper A's two equality workloads as streams, at one core and two: Tables 1 to 4, Figures 9, 10.

``python -m benchmarks workloads recall`` or ``traffic``: results per second at full speed, the time
of a micro-batch of 10,000 records, the speed-up of a second core, and how both change as the tables
grow; by the example's own joins on full caches, and by a query per record and table to a PostgreSQL
on the same cores. Loading is not part of it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from examples import product_recall, traffic
from tests.support.servers import Server, postgres_server

from benchmarks.harness import session, stores, streams
from benchmarks.harness.experiment import CACHE, SEED, Case, interleave, progress, save
from benchmarks.harness.runner import Runner
from benchmarks.papers import workload_cases
from benchmarks.suites.keys import keyed

RUNS = 3
CORES = (1, 2)
SIZES = (100_000, 1_000_000, 10_000_000)  #: rows of each table; cores are compared at the second
#: records of a micro-batch and how many there are: at full speed, and as the paper takes latency
FAST, SLOW, PLAIN = (200_000, 3), (10_000, 12), (10_000, 2)

#: paper A's Tables 1 to 4, of its own method and of Flink 1.12.2: by workers
PAPER = {
    "recall": {
        "paper": {"out_per_s": {1: 3267, 2: 6281}, "batch_ms": {1: 3.81, 2: 4.21}},
        "paper_flink": {"out_per_s": {1: 1769, 2: 2858}, "batch_ms": {1: 7.12, 2: 6.45}},
    },
    "traffic": {
        "paper": {"out_per_s": {1: 30104, 2: 52890}, "batch_ms": {1: 33.97, 2: 39.04}},
        "paper_flink": {"out_per_s": {1: 28122, 2: 51505}, "batch_ms": {1: 35.84, 2: 39.38}},
    },
}


@dataclass(frozen=True)
class Workload:
    """An example, the records that it is sent, and how many rows these give."""

    name: str
    example: ModuleType
    records: Callable[[Path, int, int, int], pa.Table]
    out: Callable[[Path, pa.Table], int]

    def tables(self, rows: int) -> Path:
        """The folder of its tables of so many rows, made where it is missing."""
        folder = CACHE / "tables" / f"{self.name}-{rows}"
        if not all((folder / f"{table}.parquet").exists() for table in self.example.TABLES):
            self.example.make(folder, rows)
        return folder

    def store(self, server: Server, rows: int) -> None:
        """The same tables in a PostgreSQL or a MariaDB."""
        for table, indexed in self.example.TABLES.items():
            path = self.tables(rows) / f"{table}.parquet"
            stores.copied(server.url, workload_cases.name(table, rows), path, indexed=indexed)

    def stream(self, rows: int, batch: int, files: int) -> keyed.Stream:
        """Files of so many records each."""
        folder = self.tables(rows)
        parts = [self.records(folder, rows, batch, number) for number in range(files)]
        out = [self.out(folder, part) for part in parts]
        return keyed.written(f"{self.name}-{rows}-{batch}-{files}", parts, out)


def _customers(folder: Path, _: int, count: int, stream: int) -> pa.Table:
    return product_recall.customers_of(folder, count, stream=stream)


def _clicks(folder: Path, ids: pa.Table) -> int:
    clicks = pq.read_table(folder / "clicks.parquet", columns=["customer"])["customer"].to_numpy()
    return int(np.bincount(clicks)[ids["customer"].to_numpy()].sum())


def _reports(_: Path, rows: int, count: int, stream: int) -> pa.Table:
    return traffic.reports_of(rows, count, stream=stream)


WORKLOADS = {
    "recall": Workload("recall", product_recall, _customers, _clicks),
    "traffic": Workload("traffic", traffic, _reports, lambda _, reports: reports.num_rows),
}

Line = tuple[str, str, int, int]  #: the form, how it is fed, cores, rows of a table


def cases(
    workload: Workload, runner: Runner, server: Server, cores: int, sizes: Sequence[int], scale: int
) -> dict[Line, Case]:
    """Both forms by the size of the tables."""
    made: dict[Line, Case] = {}
    for rows in sizes:
        case = partial(_case, workload, runner, server, rows)
        for feed, (batch, files) in {"latency": SLOW, "full speed": FAST}.items():
            made["ours", feed, cores, rows] = case("", batch // scale, files)
        batch, files = PLAIN
        made["by_record", "full speed", cores, rows] = case("_by_record", batch // scale, files)
    return made


def _case(
    workload: Workload, runner: Runner, server: Server, rows: int, form: str, batch: int, files: int
) -> Case:
    where = {"url": server.url, "rows": rows} if form else {"folder": str(workload.tables(rows))}
    return workload.stream(rows, batch, files).case(
        runner, workload.name + form, files=files, store=server.pid if form else None, **where
    )


def _measured(workload: Workload, lines: dict[Line, Case], runs: int) -> list[dict[str, Any]]:
    named = {", ".join(map(str, line)): run for line, run in lines.items()}
    with progress(workload.name, len(lines) * (1 + runs)) as step:
        found = interleave(named, runs=runs, step=step)
    parts = ("case", "feed", "cores", "table_rows")
    return [
        row | dict(zip(parts, line, strict=True)) for line, row in zip(lines, found, strict=True)
    ]


def main() -> None:
    """Leave ``recall`` or ``traffic``."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--quick", action="store_true", help="small inputs, one run: a smoke test")
    given = parser.parse_args()
    workload = WORKLOADS[given.workload]
    sizes, scale, runs = ((1_000, 2_000, 4_000), 50, 1) if given.quick else (SIZES, 1, RUNS)
    measured: list[dict[str, Any]] = []
    with postgres_server() as server:
        for rows in sizes:
            workload.store(server, rows)
        # one session after the other: Spark ends Python workers that wait for a minute
        for cores in CORES:
            wanted = sizes if cores == CORES[-1] else sizes[1:2]
            with session.start(cores=cores) as runner:
                lines = cases(workload, runner, server, cores, wanted, scale)
                measured += _measured(workload, lines, runs)
    about = {"quick": given.quick, "seed": SEED, "data": "seeded", "paper": PAPER[workload.name]}
    print(save(workload.name, measured, **about, conf=streams.CONF))


if __name__ == "__main__":
    main()
