"""Hosts of the cluster lab (``tests/cluster``) that have a part of a core each.

A query starts and warms up while they have more, as a Python worker must start within ten seconds;
then they are `limited`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from tests.cluster import hosts
from tests.cluster.lab import Lab

WORKER_CORES, DRIVER_CORES = 0.25, 0.5
FULL = 2.0  #: cores while a query starts and warms up


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


def used(lab: Lab, workers: Sequence[str]) -> npt.NDArray[np.float64]:
    """CPU seconds of the programs on each worker so far, and last of those on the driver's host."""
    return np.array([lab.host(name).used() for name in (*workers, "driver")])


def _limit(lab: Lab, workers: Sequence[str], worker: float, driver: float) -> None:
    for name in workers:
        lab.host(name).limit(cores=worker)
    lab.host("driver").limit(cores=driver)
