"""Paper A's three workloads on 1, 2, 4 and 6 hosts: Tables 1 to 8, Figures 9(a) and 10(a).

The examples' own joins over tables of ten million rows on the hosts of the cluster lab
(``tests/cluster``; Linux, root): on the incremental cache that the paper means, on full caches, and
by a query per record and table. Product recall and the slices of time have their tables in a
PostgreSQL, traffic in MariaDB, each on a host of its own 2 ms away. Slices have the paper's skip
lists in place of an incremental cache. Keys are skewed, as in the paper's Table 5. Results per
second at full speed, then the time from a record's arrival to its row while the stream is slow.
Queries warm up with all cores; then each worker has a quarter of one and the driver a half.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from examples import time_slices, traffic
from tests.cluster.lab import ALL_WORKERS, SHARED, Driver, Lab, lab

from benchmarks.harness import hosts_feed, limited_hosts
from benchmarks.harness.experiment import SEED, save
from benchmarks.harness.limited_hosts import unlimited, used
from benchmarks.harness.zipf import Zipf
from benchmarks.papers import workloads
from benchmarks.papers.workloads import Workload
from benchmarks.suites.routing import hosts_measures

FILES = 12  #: of a micro-batch: a multiple of all numbers of hosts
FORMS = {
    "recall": ("incremental", "full", "by_record"),
    "traffic": ("incremental", "full", "by_record"),
    "slices": ("full", "ideal_skiplist", "skiplist", "by_record"),
}
STORES = {"recall": "postgres", "traffic": "mariadb", "slices": "postgres"}
Z = 1.10  #: of the customers who show up, and of the turns that are reported
HELD = 0.01  #: of a table's rows, by each incremental cache
TIMED = 4.0  #: seconds of arriving records before those whose latency counts
CONF = {
    "spark.sql.files.openCostInBytes": "4096",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
}
#: paper A's Tables 1 to 4, of its own method and of Flink 1.12.2: by workers
PAPER = {
    "recall": {
        "paper": {"out_per_s": {1: 3267, 2: 6281, 4: 12587}, "ms": {1: 3.81, 2: 4.21, 4: 3.76}},
        "paper_flink": {
            "out_per_s": {1: 1769, 2: 2858, 4: 6289},
            "ms": {1: 7.12, 2: 6.45, 4: 6.08},
        },
    },
    "traffic": {
        "paper": {
            "out_per_s": {1: 30104, 2: 52890, 4: 97955},
            "ms": {1: 33.97, 2: 39.04, 4: 42.48},
        },
        "paper_flink": {
            "out_per_s": {1: 28122, 2: 51505, 4: 89643},
            "ms": {1: 35.84, 2: 39.38, 4: 45.75},
        },
    },
    "slices": {},  # on 8, 32 and 128 workers, and no fewer
}
_WIDTH = 2 * time_slices.DAY  # of a road in the history: the times of two are never near
_PROGRAM = "benchmarks.papers.workload_hosts_driver"
_QUERY = "benchmarks.harness.hosts_query"


@dataclass(frozen=True)
class Size:
    """How much is measured: of each form the records of a micro-batch, and per second when slow."""

    hosts: tuple[int, ...]
    tables: int
    batch: dict[str, int]
    rate: dict[str, int]
    live: float
    warm: int = 3
    measured: int = 2


def _of_forms(cached: int, by_record: int) -> dict[str, int]:
    """The same for all forms that hold rows in memory, and fewer for the plain one."""
    every = {form for forms in FORMS.values() for form in forms}
    return dict.fromkeys(every, cached) | {"by_record": by_record}


WHOLE = Size((1, 2, 4, 6), 10_000_000, _of_forms(600_000, 600), _of_forms(480, 24), 12)
QUICK = Size((1, 2), 2_000, _of_forms(24_000, 120), _of_forms(96, 24), 8)


class Bench:
    """A driver on some hosts, and the workloads that run there."""

    def __init__(
        self, opened: Lab, driver: Driver, workers: Sequence[str], size: Size, urls: dict[str, str]
    ) -> None:
        self._lab, self._driver, self._workers = opened, driver, workers
        self._size, self._urls = size, urls

    def measured(self, workload: Workload, form: str) -> dict[str, Any]:
        """Results per second, and latency while the stream is slow."""
        size, files = self._size, FILES
        batch = size.batch[form] // files * files
        rows, out = _records(workload, size.tables, batch, size.warm + size.measured)
        with self._running(workload, form, rows[: size.warm]) as folder:
            before, began = used(self._lab, self._workers), time.monotonic()
            hosts_feed.write_batches(rows[size.warm :], folder / "fast", files)
            done = batch * len(rows)
            batches = self._joined(done)
            cores = (used(self._lab, self._workers) - before) / (time.monotonic() - began)
            if (found := sum(one["rows_out"] for one in batches)) != out:
                raise AssertionError(f"{workload.name}, {form}: {found} rows, the truth is {out}")
            fast = _after(batches, batch * size.warm)
            slow = self._slow(workload, form, folder, done)
        rate = sum(one["rows_out"] for one in fast) / sum(one["seconds"] for one in fast)
        return {
            **hosts_measures.rates(fast),
            "out_per_s": rate,
            **({"hit_ratio": _hits(fast)} if form == "incremental" else {}),
            **slow,
            "worker_cores": cores[:-1].round(3).tolist(),
            "driver_cores": round(float(cores[-1]), 3),
        }

    def _slow(self, workload: Workload, form: str, folder: Path, done: int) -> dict[str, Any]:
        began, size = time.time(), self._size
        fed = hosts_feed.feed(
            lambda first, count, arrival: _arriving(workload, size.tables, first, arrival),
            folder / "slow", rate=size.rate[form], seconds=size.live, files=len(self._workers),
        )  # fmt: skip
        batches = self._joined(done + fed.records)
        late = hosts_measures.latencies(batches, since=began + TIMED)
        return {"rate": size.rate[form], "overdue_s": fed.overdue, **late}

    @contextmanager
    def _running(self, workload: Workload, form: str, warm: Sequence[pa.Table]) -> Iterator[Path]:
        name = f"{workload.name}-{form}-{len(self._workers)}"
        folder = self._lab.shared / "runs" / name
        (folder / "in").mkdir(parents=True)
        hosts_feed.write_batches(warm, folder / "in" / "warm", FILES)
        tables = self._size.tables
        where = {"url": self._urls[workload.name], "rows": tables}
        if form == "incremental":
            where["held"] = max(1, int(HELD * tables))
        elif form != "by_record":
            where = {
                "tables": f"{SHARED}/tables/{workload.name}",
                "snapshots": f"{SHARED}/snapshots/{workload.name}",
            }
        with limited_hosts.running(
            self._lab, self._driver, self._workers, _PROGRAM, folder,
            workload=workload.name, form=form, folder=f"{SHARED}/runs/{name}", files=FILES,
            rows=sum(one.num_rows for one in warm), where=where,
        ):  # fmt: skip
            yield folder / "in"

    def _joined(self, rows: int) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._driver.call(f"{_QUERY}:progress", rows=rows)
        return found


def _after(batches: Sequence[Any], rows: int) -> list[Any]:
    """The micro-batches after those that joined the first rows."""
    before = np.cumsum([0, *(one["rows"] for one in batches)])
    return [one for one, first in zip(batches, before, strict=False) if first >= rows]


def _hits(batches: Sequence[Any]) -> float:
    """Of the lookups of all tables together."""
    return float(hosts_measures.caches(batches)["hit_ratio"])


def _live(_: Path, rows: int, count: int, stream: int) -> pa.Table:
    return time_slices.live_of(rows, count, stream=stream)


def _met(folder: Path, live: pa.Table) -> int:
    """How many rows of the history are of a report's road and time of day."""
    known = _history(folder)
    at = live["road"].to_numpy() * _WIDTH + live["second"].to_numpy()
    low = np.searchsorted(known, at - time_slices.REACH)
    return int((np.searchsorted(known, at + time_slices.REACH, side="right") - low).sum())


@cache
def _history(folder: Path) -> npt.NDArray[np.int64]:
    rows = pq.read_table(folder / "history.parquet", columns=["road", "second"])
    return np.sort(rows["road"].to_numpy() * _WIDTH + rows["second"].to_numpy())


WORKLOADS = workloads.WORKLOADS | {"slices": Workload("slices", time_slices, _live, _met)}
_zipf = cache(Zipf)


def skewed(workload: Workload, tables: int, count: int, stream: int) -> pa.Table:
    """Records of a workload some of whose keys are much more frequent than others."""
    folder = workload.tables(tables)
    different = time_slices.roads_of(tables) if workload.name == "slices" else tables
    drawn = _zipf(Z, different).draw(count, stream=stream)
    if workload.name == "recall":
        return _clicks(folder).take(pa.array(drawn))
    made = workload.records(folder, tables, count, stream)
    columns = {"road": drawn}
    if workload.name == "traffic":
        columns = {"turn": drawn, "road": drawn // traffic.TURNS_OF_A_ROAD}
    for name, keys in columns.items():
        made = made.set_column(made.schema.get_field_index(name), name, pa.array(keys))
    return made


@cache
def _clicks(folder: Path) -> pa.Table:
    return pq.read_table(folder / "clicks.parquet", columns=["customer"])


def _records(workload: Workload, tables: int, batch: int, count: int) -> tuple[list[pa.Table], int]:
    """Micro-batches, and how many rows they give together."""
    folder = workload.tables(tables)
    made = [skewed(workload, tables, batch, number) for number in range(count)]
    out = sum(workload.out(folder, one) for one in made)
    return [_numbered(workload, one, np.zeros(batch, np.int64)) for one in made], out


def _arriving(workload: Workload, tables: int, first: int, arrival: hosts_feed.Ints) -> pa.Table:
    made = skewed(workload, tables, len(arrival), 1000 + first)
    return _numbered(workload, made, arrival)


def _numbered(workload: Workload, rows: pa.Table, arrival: hosts_feed.Ints) -> pa.Table:
    """The records with their arrival, where there is one: a report's is when its car left."""
    if workload.name == "recall":
        numbered = rows.append_column("number", pa.array(np.arange(rows.num_rows)))
        return numbered.append_column("arrival", pa.array(arrival))
    if workload.name == "slices":
        return rows.append_column("arrival", pa.array(arrival))
    if not arrival.any():
        return rows
    at = rows.schema.get_field_index("left_at")
    return rows.set_column(at, "left_at", pa.array(arrival, pa.timestamp("us", "UTC")))


def measured(names: Sequence[str], size: Size) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """A row for each workload, form and number of hosts."""
    found = []
    with lab() as opened:
        for name in names:
            print(time.strftime("%H:%M:%S"), f"tables of {name}, {size.tables:,} rows", flush=True)
            WORKLOADS[name].store(getattr(opened, STORES[name]), size.tables)
            tables = WORKLOADS[name].tables(size.tables)
            shutil.copytree(tables, opened.shared / "tables" / name)
        stores = {STORES[name] for name in names}
        away = {store: limited_hosts.far(opened, store) for store in sorted(stores)}
        urls = {name: away[STORES[name]][0] for name in names}
        for count in size.hosts:
            workers = ALL_WORKERS[:count]
            unlimited(opened, workers)
            opened.cluster(workers)
            with opened.driver(**CONF) as driver:
                bench = Bench(opened, driver, workers, size, urls)
                for name in names:
                    for form in FORMS[name]:
                        row = {"workload": name, "case": form, "hosts": count}
                        found.append(row | bench.measured(WORKLOADS[name], form))
                        print(time.strftime("%H:%M:%S"), found[-1], flush=True)
    return found, {"round_trip_ms": {name: away[STORES[name]][1] for name in names}}


def main() -> None:
    """Leave ``recall_hosts``, ``traffic_hosts`` and ``slices_hosts``, or some of them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=WORKLOADS, default=[*WORKLOADS])
    parser.add_argument("--quick", action="store_true", help="two hosts, small: a smoke test")
    given = parser.parse_args()
    if (reason := limited_hosts.why_not()) is not None:
        print(f"skipped: {reason}", file=sys.stderr)
        return
    size = QUICK if given.quick else WHOLE
    rows, found = measured(given.only, size)
    about = {
        "seed": SEED,
        "data": f"seeded, Zipf z = {Z}",
        "table_rows": size.tables,
        "held": HELD,
        "batch_rows": size.batch,
        "cores": {"worker": limited_hosts.WORKER_CORES, "driver": limited_hosts.DRIVER_CORES},
        "delay_ms_each_way": limited_hosts.DELAY_MS,
        "conf": CONF,
    }
    for name in given.only:
        of_it = [row for row in rows if row["workload"] == name]
        about |= {"paper": PAPER[name], "store": STORES[name]}
        print(save(f"{name}_hosts", of_it, quick=given.quick, **about, **found))


if __name__ == "__main__":
    main()
