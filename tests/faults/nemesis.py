"""What breaks the lab's hosts: a plan of faults from a seed, and how each is done and undone."""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.hosts import Host
from tests.cluster.lab import WORKERS, Lab
from tests.faults.inputs import publish, table

EXECUTOR = "CoarseGrainedExecutorBackend"
PYTHON_WORKER = r"pyspark[./](daemon|worker)"
DRIVER = "programs.driver|SparkSubmit"
_WATCHED = 30.0  # seconds in which a named point must come

#: what breaks every query that runs
COMMON = (
    "executor_kill", "worker_kill", "host_kill", "pause", "link_down", "disk_full", "driver_kill",
)  # fmt: skip
_STATEFUL = ("interval", "window", "aggregate", "spark_aggregate", "exact")
WORKLOADS = ("refresh", "hotspots", *_STATEFUL)
#: what is aimed at one query, and at which it can be
AIMED = {
    "kill_after_offsets": WORKLOADS,
    "kill_before_commit": WORKLOADS,
    "kill_in_state_commit": _STATEFUL,
    "kill_in_publication": ("refresh",),
    "table_refresh": ("refresh",),
    "database_restart": ("hotspots",),
}
#: what an aimed fault is for the other queries; nothing, if it is not here
BESIDE = {
    "kill_after_offsets": "driver_kill",
    "kill_before_commit": "driver_kill",
    "kill_in_state_commit": "driver_kill",
    "kill_in_publication": "executor_kill",
}
#: shortest and longest time that a fault lasts, in seconds
LASTING = {
    "host_kill": (1, 10),
    "pause": (2, 20),
    "link_down": (5, 60),
    "disk_full": (2, 10),
    "database_restart": (1, 8),
}


@dataclass(frozen=True)
class Fault:
    """One fault: its kind, the host that it is for, how long it lasts, and when it begins.

    `workload` is the query that it is aimed at; None: at all.
    """

    kind: str
    host: str
    seconds: float
    after: float
    workload: str | None = None

    def kind_for(self, workload: str) -> str | None:
        """What it is for a query; None: it does not concern it."""
        if self.kind == "worker_kill" and workload == "spark_aggregate":
            return None  # it has no Python
        return self.kind if self.workload in (None, workload) else BESIDE.get(self.kind)


def plan(workloads: Sequence[str], seed: int, count: int, longest: float = 60) -> list[Fault]:
    """The faults of a campaign: every kind about as often, in an order that the seed gives."""
    rng = random.Random(f"{' '.join(workloads)} {seed}")
    aims = {kind: [each for each in of if each in workloads] for kind, of in AIMED.items()}
    kinds = [*COMMON, *(kind for kind, of in aims.items() if of)]
    chosen = [kinds[at % len(kinds)] for at in range(count)]
    rng.shuffle(chosen)
    made = []
    for kind in chosen:
        low, high = LASTING.get(kind, (0, 0))
        seconds = rng.uniform(low, max(low, min(high, longest)))
        aim = rng.choice(aims[kind]) if kind in aims else None
        host, after = rng.choice(WORKERS), round(rng.random(), 2)
        made.append(Fault(kind, host, round(seconds, 1), after, aim))
    return made


@dataclass(frozen=True)
class Place:
    """Where a query's files are, as this process sees them."""

    workload: str
    folder: Path

    @property
    def checkpoint(self) -> Path:
        """Where Spark's logs and state are."""
        inside = "store/checkpoint" if self.workload == "exact" else "checkpoint"
        return self.folder / inside

    @property
    def sink_log(self) -> Path:
        """Where the sink notes the batches that it has."""
        return self.folder / (
            "store/batches" if self.workload == "exact" else "out/_spark_metadata"
        )

    def committed(self) -> int:
        """How many batches the query has committed."""
        return newest(self.checkpoint / "commits") + 1


@dataclass
class Nemesis:
    """Applies faults.

    Parameters
    ----------
    lab
        The hosts.
    places
        The queries' files, by workload.
    """

    lab: Lab
    places: dict[str, Place]
    version: int = 0

    def apply(self, fault: Fault) -> bool:
        """Do it, and undo it; whether it came about."""
        time.sleep(fault.after)
        act: Callable[[Fault], bool | None] = getattr(self, f"_{fault.kind}")
        return act(fault) is not False

    def publish_table(self) -> None:
        """The next version of the table."""
        self.version += 1
        publish(table(self.version), self.places["refresh"].folder / "table.parquet")

    def _executor_kill(self, fault: Fault) -> bool:
        return self._host(fault).signal(EXECUTOR, signal.SIGKILL) > 0

    def _worker_kill(self, fault: Fault) -> bool:
        return self._host(fault).signal(PYTHON_WORKER, signal.SIGKILL) > 0

    def _host_kill(self, fault: Fault) -> None:
        self._host(fault).kill()
        time.sleep(fault.seconds)
        self.lab.network.host(fault.host)
        self.lab.start_worker(fault.host)

    def _pause(self, fault: Fault) -> None:
        host = self._host(fault)
        host.pause()
        time.sleep(fault.seconds)
        host.resume()

    def _link_down(self, fault: Fault) -> None:
        host = self._host(fault)
        host.link_down()
        time.sleep(fault.seconds)
        host.link_up()

    def _disk_full(self, fault: Fault) -> None:
        """No byte more fits into the host's temporary folder, where shuffle and state files are."""
        host = self._host(fault)
        used = host.run(["df", "--output=used", "-B1", "/tmp"], env={}).stdout.split()[1]
        host.run(["mount", "-o", f"remount,size={max(int(used), 4096)}", "/tmp"], env={})
        time.sleep(fault.seconds)
        host.run(["mount", "-o", "remount,size=8g", "/tmp"], env={})

    def _driver_kill(self, fault: Fault) -> bool:
        return self.lab.host("driver").signal(DRIVER, signal.SIGKILL) > 0

    def _database_restart(self, fault: Fault) -> None:
        self.lab.postgres.stop()
        time.sleep(fault.seconds)
        self.lab.postgres.start()

    def _table_refresh(self, fault: Fault) -> None:
        self.publish_table()

    def _kill_after_offsets(self, fault: Fault) -> bool:
        """Between the log that a batch begins with and all that follows."""
        at = self._aim(fault)
        return self._when(lambda: _has_begun(at)) and self._driver_kill(fault)

    def _kill_before_commit(self, fault: Fault) -> bool:
        """Between the sink's log and the query's."""
        at = self._aim(fault)
        return self._when(lambda: _is_in_sink(at)) and self._driver_kill(fault)

    def _kill_in_state_commit(self, fault: Fault) -> bool:
        """While the tasks write a batch's state: executors and driver at once."""
        at = self._aim(fault)
        before = _state_files(at)
        if not self._when(lambda: _state_files(at) > before):
            return False
        for name in WORKERS:
            self.lab.host(name).signal(EXECUTOR, signal.SIGKILL)
        return self._driver_kill(fault)

    def _kill_in_publication(self, fault: Fault) -> bool:
        """While a worker writes a snapshot, or has written it and not published it."""
        self.publish_table()
        if not self._when(lambda: _is_staged(self._aim(fault))):
            return False
        for name in WORKERS:
            self.lab.host(name).signal(f"{EXECUTOR}|{PYTHON_WORKER}", signal.SIGKILL)
        return True

    def _host(self, fault: Fault) -> Host:
        return self.lab.host(fault.host)

    def _aim(self, fault: Fault) -> Place:
        assert fault.workload is not None
        return self.places[fault.workload]

    def _when(self, holds: Callable[[], bool]) -> bool:
        """Whether a point comes in time; looks as often as it can."""
        deadline = time.monotonic() + _WATCHED
        while time.monotonic() < deadline:
            if holds():
                return True
            time.sleep(0.0005)
        return False


def _has_begun(at: Place) -> bool:
    return newest(at.checkpoint / "offsets") > newest(at.checkpoint / "commits")


def _is_in_sink(at: Place) -> bool:
    return newest(at.sink_log) > newest(at.checkpoint / "commits")


def _state_files(at: Place) -> int:
    return sum(1 for _ in (at.checkpoint / "state").glob("0/*/*"))


def _is_staged(at: Place) -> bool:
    with contextlib.suppress(OSError):  # folders come and go
        return any("staging" in path.name for path in (at.folder / "snapshots").rglob("*"))
    return False


def newest(log: Path) -> int:
    """The number of the newest entry of a log, Spark's or a store's; -1 without one."""
    with contextlib.suppress(FileNotFoundError):
        names = (file.name.partition(".")[0] for file in log.iterdir())
        return max((int(name) for name in names if name.isdigit()), default=-1)
    return -1
