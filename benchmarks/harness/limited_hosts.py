"""Hosts of the cluster lab (``tests/cluster``) that have a part of a core each.

A query starts and warms up while they have more, as a Python worker must start within ten seconds;
then they are `limited`.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import psycopg
import pymysql
from tests.cluster import hosts
from tests.cluster.lab import Driver, Lab

from benchmarks.harness.stores import Ask, asking

WORKER_CORES, DRIVER_CORES = 0.25, 0.5
FULL = 2.0  #: cores while a query starts and warms up
DELAY_MS = 1.0  #: each way to a store that is far
_PORTS = {"postgres": (5432, 5433), "mariadb": (3306, 3307)}  # a store's own, and its proxy's


def why_not() -> str | None:
    """Why this machine cannot be several hosts of a quarter core; None where it can."""
    if (reason := hosts.why_not()) is not None:
        return reason
    return None if hosts.can_limit() else "there are no control groups of version 1"


def unlimited(lab: Lab, workers: Sequence[str]) -> None:
    """Let the workers and the driver have all cores."""
    _limit(lab, workers, FULL, FULL)


def limited(lab: Lab, workers: Sequence[str]) -> None:
    """Give each worker a quarter of a core, and the driver a half."""
    _limit(lab, workers, WORKER_CORES, DRIVER_CORES)


@contextmanager
def running(
    lab: Lab, driver: Driver, workers: Sequence[str], program: str, folder: Path, /, **options: Any
) -> Iterator[None]:
    """A query that `program` starts, on hosts that are limited once it has warmed up.

    `folder` holds what it reads and writes, and is removed in the end.
    """
    unlimited(lab, workers)
    driver.call(f"{program}:start", **options)
    limited(lab, workers)
    try:
        yield
    finally:
        unlimited(lab, workers)
        driver.call("benchmarks.harness.hosts_query:stop")
        shutil.rmtree(folder, ignore_errors=True)


def used(lab: Lab, workers: Sequence[str]) -> npt.NDArray[np.float64]:
    """CPU seconds of the programs on each worker so far, and last of those on the driver's host."""
    return np.array([lab.host(name).used() for name in (*workers, "driver")])


def account_for(lab: Lab, name: str) -> None:
    """Have the CPU time of what starts on a host from now on counted; it may have all cores."""
    lab.host(name).limit(cores=FULL)


def far(lab: Lab, store: str) -> tuple[str, float]:
    """The lab's ``postgres`` or ``mariadb`` `DELAY_MS` away each way, by a proxy on its host.

    Gives its URL and the time of an empty statement from outside of the hosts, in ms.
    """
    address, near = lab.host(store).address, getattr(lab, store).url
    port, proxy_port = _PORTS[store]
    addresses = ["--listen", f"{address}:{proxy_port}", "--target", f"{address}:{port}"]
    proxy = [sys.executable, "-m", "benchmarks.harness.delay_proxy", *addresses]
    lab.spawn(store, [*proxy, "--delay-ms", str(DELAY_MS)], env=lab.python)
    url = near.replace(f":{port}/", f":{proxy_port}/")
    return url, _round_trip(url)


def _round_trip(url: str) -> float:
    deadline = time.monotonic() + 60
    while True:
        try:
            ask = asking(url)
            return statistics.median(_timed(ask) for _ in range(101))
        except (psycopg.OperationalError, pymysql.OperationalError):  # no proxy listens yet
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def _timed(ask: Ask) -> float:
    began = time.perf_counter()
    ask("SELECT 1", ())
    return 1000 * (time.perf_counter() - began)


def _limit(lab: Lab, workers: Sequence[str], worker: float, driver: float) -> None:
    for name in workers:
        lab.host(name).limit(cores=worker)
    lab.host("driver").limit(cores=driver)
