"""Routing and caches on hosts of their own: six of a quarter core, and a store 2 ms away.

A stream of Zipf keys over ten million meets a table in a PostgreSQL by an incremental cache of 1 %
a host, on the hosts of the cluster lab (``tests/cluster``; Linux, root). Every query warms up with
all cores; then each worker has a quarter of one and the driver a half. The first is not counted.

``skews``: no routing, a hash, paper A's Algorithm 2 and ours at four skews (its Figures 11 and 12),
and at two of them ours by cost, partial key grouping and W-Choices; rows per second at full speed,
then latency from a record's arrival to its row at half the rate that a hash reached. ``bar``: the
ways that the bar is about, at its two skews, several times in turn, and what a micro-batch waits
for. ``moves``: the hot keys move while the query runs. ``binding``: partitions that stay with their
executor, and more of them than there are hosts.
"""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tests.cluster.lab import ALL_WORKERS, SHARED, Driver, Lab, lab

from benchmarks.harness import hosts_feed
from benchmarks.harness.experiment import SEED, interleave, progress, save
from benchmarks.harness.limited_hosts import (
    DELAY_MS,
    DRIVER_CORES,
    WORKER_CORES,
    account_for,
    far,
    running,
    unlimited,
    used,
    why_not,
)
from benchmarks.harness.zipf import Ints, Zipf
from benchmarks.suites.cache.cache import SKEWS
from benchmarks.suites.keys import keyed
from benchmarks.suites.routing import hosts_measures

FILES_OF_A_HOST = 4  #: of a micro-batch
TIMED = 5.0  #: seconds of arriving records before those whose latency counts
SHARE = 0.5  #: of the rate of a hash, at which latency is taken
FOUR = ("hash", "none", "algorithm2", "ours")  #: the hash first: its rate is the others', too
ALL = (*FOUR, "cost", "pkg", "wchoices")
MOVING = ("none", "hash", "algorithm2", "ours", "wchoices")
BAR_RUNS, BAR_SKEWS = 3, (1.10, 1.16)
#: what the bar compares: a way, and what keeps its partitions with their executors
BAR = {
    "hash": ("hash", ""), "none": ("none", ""), "ours": ("ours", ""), "cost": ("cost", ""),
    "stay": ("ours", "cache"),
}  # fmt: skip
BAR_MEASURES = (
    "rows_per_s", "batch_s", "load_cv", "load_cv_of_seconds", "hit_ratio", "driver_s",
    "longest_tasks_s", "mean_tasks_s", "load_s", "even_gain", "cached_rows", "p50_ms", "p99_ms",
    "p99_to_end_ms",
)  # fmt: skip
CONF = {
    # equal files, which together make one task a host
    "spark.sql.files.openCostInBytes": "4096",
    "spark.sql.files.maxPartitionBytes": "134217728",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.ui.enabled": "true",  # which tells how long tasks took
}
_PROGRAM = "benchmarks.suites.routing.hosts_driver"
_QUERY = "benchmarks.harness.hosts_query"


@dataclass(frozen=True)
class Size:
    """How much is measured.

    Parameters
    ----------
    hosts
        How many workers.
    keys, batch
        Of the table, and records of a micro-batch, which is a cycle.
    warm, measured
        Micro-batches with all cores, and those that count.
    live
        Seconds in which records arrive at a rate.
    skews
        The Zipf exponents, by what is measured there.
    stays
        Micro-batches before the hot keys move, and after.
    """

    hosts: int
    keys: int
    batch: int
    warm: int
    measured: int
    live: float
    skews: dict[float, tuple[str, ...]]
    stays: tuple[int, int]

    @property
    def workers(self) -> tuple[str, ...]:
        """Their names."""
        return ALL_WORKERS[: self.hosts]

    @property
    def files(self) -> int:
        """Files of a micro-batch."""
        return FILES_OF_A_HOST * self.hosts


WHOLE = Size(
    6, 10_000_000, 600_000, 6, 4, 20.0, {z: ALL if z >= 1.1 else FOUR for z in SKEWS}, (5, 8)
)
QUICK = Size(2, 100_000, 40_000, 2, 2, 8.0, {1.10: ALL}, (3, 4))


@dataclass(frozen=True)
class Run:
    """A query that is measured: its way of routing, and what its name, table and files are told by.

    Parameters
    ----------
    way
        As `hosts_driver.routed` knows it.
    name
        Tells runs apart; each has a name of its own for the table, since one process has one
        cache for one table.
    partitions
        Into how many it is routed.
    bound
        What keeps them with their executors, if anything does: ``state`` or ``cache``.
    """

    way: str
    name: str
    partitions: int
    bound: str = ""


class Bench:
    """The lab with its store and a driver, and the queries that run there."""

    def __init__(self, opened: Lab, driver: Driver, size: Size, url: str) -> None:
        self._lab, self._driver, self.size, self._url = opened, driver, size, url
        self._folder = opened.shared / "runs"

    @contextmanager
    def running(self, run: Run, warm: Path) -> Iterator[Path]:
        """A query that has joined the files of `warm`; gives the folder that it reads.

        From then on the hosts are limited.
        """
        size, folder = self.size, self._folder / run.name
        (folder / "in").mkdir(parents=True)
        self.publish(warm, folder / "in" / "warm")
        keyed.view_in(self._lab.postgres.url, "items", run.name)
        options = {
            "way": run.way, "url": self._url, "relation": run.name, "held": size.keys // 100,
            "partitions": run.partitions, "cycle": size.batch, "bound": run.bound,
            "path": f"{SHARED}/runs/{run.name}/routing",
        }  # fmt: skip
        rows = size.batch * (len(list(warm.iterdir())) // size.files)
        with running(
            self._lab, self._driver, size.workers, _PROGRAM, folder,
            folder=f"{SHARED}/runs/{run.name}", files=size.files, options=options, rows=rows,
        ):  # fmt: skip
            yield folder / "in"

    def publish(self, files: Path, folder: Path) -> None:
        """Let a query find these files, all at once."""
        staged = hosts_feed.staging(folder)
        shutil.copytree(files, staged, copy_function=os.link)
        staged.rename(folder)

    def joined(self, rows: int) -> list[dict[str, Any]]:
        """All micro-batches of the query, once it has joined so many rows."""
        found: list[dict[str, Any]] = self._driver.call(f"{_QUERY}:progress", rows=rows)
        hosts_measures.check(found)
        return found

    def stages(self, *, since: float) -> list[dict[str, Any]]:
        """What Spark tells of the stages that began after `since`."""
        found: list[dict[str, Any]] = self._driver.call(f"{_QUERY}:stages", since=since)
        return found

    def used(self) -> npt.NDArray[np.float64]:
        """CPU seconds of each worker, of the driver and of the store's host."""
        store = self._lab.host("postgres").used()
        return np.append(used(self._lab, self.size.workers), store)


@contextmanager
def bench(size: Size) -> Iterator[tuple[Bench, dict[str, Any]]]:
    """Hosts, store and driver; and what was found about the store's distance."""
    with lab() as opened:
        account_for(opened, "postgres")
        _say(f"a table of {size.keys:,} rows")
        keyed.items_in(opened.postgres.url, size.keys)
        url, distance = far(opened, "postgres")
        _say(f"the store answers after {distance:.2f} ms")
        unlimited(opened, size.workers)
        opened.cluster(size.workers)
        settings = CONF | {"spark.sql.shuffle.partitions": str(size.hosts)}
        with opened.driver(**settings) as driver:
            yield Bench(opened, driver, size, url), {"round_trip_ms": distance}


_zipf = cache(Zipf)


def keys_of(size: Size, z: float, records: int, *, stream: int, moved: bool = False) -> Ints:
    """Keys of a stream; once they have `moved`, others are the frequent ones."""
    drawn = _zipf(z, size.keys).draw(records, stream=stream)
    return (drawn + size.keys // 2 * moved) % size.keys * keyed.GAP


def write(folder: Path, size: Size, z: float, streams: range, *, moved: int = 1 << 30) -> Path:
    """The micro-batches of these numbers as files, made where they are missing.

    From number `moved` on the hot keys are others.
    """
    if not folder.exists():
        batches = [
            hosts_feed.table(
                keys_of(size, z, size.batch, stream=number, moved=number >= moved),
                first=number * size.batch,
            )
            for number in streams
        ]
        hosts_feed.write_batches(batches, folder, size.files)
    return folder


def skews(size: Size) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Figures 11 and 12 on hosts of their own, with the ways of others beside."""
    found = []
    with bench(size) as (made, about):
        for z, ways in size.skews.items():
            warm, fast = _streams(made, z)
            if not found:
                _warm_up(made, warm, fast)
            rate = None
            for way in ways:
                run = Run(way, f"{way}_{round(100 * z)}", size.hosts)
                row = _measured(made, run, z, warm, fast, rate)
                rate = row["rate"]
                found.append(row | {"z": z, "case": way})
                _tell(found[-1])
            for folder in (warm, fast):
                shutil.rmtree(folder)
    return found, about


def _streams(made: Bench, z: float) -> tuple[Path, Path]:
    """Files to warm up by, and files that are measured."""
    size, folder = made.size, made._lab.shared / "streams"
    numbers = range(size.warm), range(size.warm, size.warm + size.measured)
    names = (f"warm-{z}", f"fast-{z}")
    warm, fast = (
        write(folder / name, size, z, part) for name, part in zip(names, numbers, strict=True)
    )
    return warm, fast


def _warm_up(made: Bench, warm: Path, fast: Path) -> None:
    """A query that is not counted: what a JVM runs first, it compiles."""
    run = Run("ours", "first", made.size.hosts)
    with made.running(run, warm) as folder:
        _at_full_speed(made, run, fast, folder)


def _measured(
    made: Bench, run: Run, z: float, warm: Path, fast: Path, rate: float | None
) -> dict[str, Any]:
    """A run at full speed, then at a rate: this one's own share, where none is given."""
    size = made.size
    with made.running(run, warm) as folder:
        row = _at_full_speed(made, run, fast, folder)
        rate = rate or SHARE * row["rows_per_s"]
        began, done = time.time(), size.batch * (size.warm + size.measured)
        fed = hosts_feed.feed(
            lambda first, count, arrival: hosts_feed.table(
                keys_of(size, z, count, stream=10_000 + first // count),
                first=done + first, arrival=arrival,
            ),
            folder / "live", rate=rate, seconds=size.live, files=size.hosts,
        )  # fmt: skip
        batches = made.joined(done + fed.records)
        late = hosts_measures.latencies(batches, since=began + TIMED)
    return row | {"rate": rate, "overdue_s": fed.overdue, **late}


def _at_full_speed(made: Bench, run: Run, fast: Path, folder: Path) -> dict[str, Any]:
    size, before, began = made.size, made.used(), time.monotonic()
    made.publish(fast, folder / "fast")
    batches = made.joined(size.batch * (size.warm + size.measured))[-size.measured :]
    cores = ((made.used() - before) / (time.monotonic() - began)).round(3).tolist()
    stages = made.stages(since=batches[0]["began"])
    return {
        **hosts_measures.rates(batches),
        **hosts_measures.balance(batches, run.partitions),
        **hosts_measures.waits(batches, stages),
        **hosts_measures.caches(batches),
        "worker_cores": cores[:-2],
        "driver_cores": cores[-2],
        "store_cores": cores[-1],
    }


def bar(size: Size) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """By hotspots against a hash at the two skews of the bar, medians of runs taken in turn."""
    found = []
    with bench(size) as (made, about):
        for z in BAR_SKEWS:
            streams = _streams(made, z)
            if not found:
                _warm_up(made, *streams)
            turn = partial(_turn, made, z, streams, {}, itertools.count())
            cases = {name: partial(turn, *way) for name, way in BAR.items()}
            with progress(f"routing_hosts, z = {z}", BAR_RUNS * len(cases)) as step:
                rows = interleave(cases, runs=BAR_RUNS, warmup=0, step=step)
            found += [row | {"z": z} for row in rows]
    return found, about


def _turn(
    made: Bench,
    z: float,
    streams: tuple[Path, Path],
    rate: dict[str, float],
    numbers: Iterator[int],
    way: str,
    bound: str,
) -> dict[str, float]:
    """One run of a way; the first of all sets the rate at which latency is taken."""
    run = Run(way, f"bar_{round(100 * z)}_{next(numbers)}", made.size.hosts, bound)
    row = _measured(made, run, z, *streams, rate.get("rate"))
    rate.setdefault("rate", row["rate"])
    _tell(row | {"z": z, "case": way, "bound": bound})
    kept = {name: row[name] for name in BAR_MEASURES}
    return kept | {"rate": row["rate"], "worker_cores": float(np.mean(row["worker_cores"]))}


def moves(size: Size) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Each micro-batch of a stream whose hot keys move once."""
    found, z = [], 1.10
    with bench(size) as (made, about):
        folder = made._lab.shared / "streams"
        stay = size.warm + size.stays[0]
        warm = write(folder / "warm", size, z, range(size.warm))
        after = write(folder / "after", size, z, range(size.warm, stay + size.stays[1]), moved=stay)
        for way in MOVING:
            run = Run(way, f"moves_{way}", size.hosts)
            with made.running(run, warm) as query:
                made.publish(after, query / "after")
                batches = made.joined(size.batch * (stay + size.stays[1]))[size.warm :]
            lines = hosts_measures.series(batches, size.hosts)
            found.append({"case": way, "z": z, "moved": size.stays[0], "series": lines})
            _say(f"{way}: load CV {[round(one['load_cv'], 3) for one in lines]}")
    return found, about


def binding(size: Size) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Hits, loads and rates of partitions that move between executors and of those that stay."""
    found, z = [], 1.10
    with bench(size) as (made, about):
        warm, fast = _streams(made, z)
        _warm_up(made, warm, fast)
        for way, times, bound in (
            ("none", 1, ""),
            ("hash", 1, ""),
            ("packed_hash", 1, ""),
            ("packed_hash", 1, "state"),
            ("packed_hash", 1, "cache"),
            ("ours", 1, ""),
            ("ours", 1, "state"),
            ("ours", 1, "cache"),
            ("ours", 2, ""),
            ("cost", 1, "cache"),
        ):
            name = "_".join(filter(None, ("binding", way, str(times), bound)))
            run = Run(way, name, times * size.hosts, bound)
            with made.running(run, warm) as folder:
                row = _at_full_speed(made, run, fast, folder)
            found.append(row | {"z": z, "case": way, "bound": bound, "partitions": run.partitions})
            _tell(found[-1])
    return found, about


PARTS = {"skews": skews, "bar": bar, "moves": moves, "binding": binding}


def _tell(row: dict[str, Any]) -> None:
    shown = (
        "rows_per_s", "load_cv", "hit_ratio", "cached_rows", "even_gain", "driver_s",
        "longest_tasks_s", "mean_tasks_s", "p50_ms", "p99_ms", "store_cores",
    )  # fmt: skip
    said = {name: round(row[name], 3) for name in shown if name in row}
    _say(f"z {row['z']}, {row['case']} {row.get('bound', '')}: {said}")


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def main(words: Sequence[str] | None = None) -> None:
    """Leave the parts that are named, or all, as ``routing_hosts_PART``."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, default=[*PARTS], help="which parts")
    parser.add_argument("--quick", action="store_true", help="two hosts, small: a smoke test")
    parser.add_argument("--ways", nargs="+", choices=ALL, help="of skews; the first sets the rate")
    given = parser.parse_args(words)
    if (reason := why_not()) is not None:
        print(f"skipped: {reason}", file=sys.stderr)
        return
    size = QUICK if given.quick else WHOLE
    if given.ways:
        size = replace(size, skews={z: tuple(given.ways) for z in size.skews})
    for part in given.only:
        rows, found = PARTS[part](size)
        about = {
            "seed": SEED,
            "data": f"seeded: Zipf over {size.keys:,} keys",
            "batch_rows": size.batch,
            "hosts": size.hosts,
            "cores": {"worker": WORKER_CORES, "driver": DRIVER_CORES},
            "delay_ms_each_way": DELAY_MS,
            "conf": CONF,
        }
        # with some of the ways alone, it is a trial
        trial = given.quick or bool(given.ways)
        print(save(f"routing_hosts_{part}", rows, quick=trial, **about, **found), flush=True)


if __name__ == "__main__":
    main()
