"""What breaks the lab's hosts: a plan of faults from a seed, and how each is done and undone."""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.hosts import Host
from tests.cluster.lab import WORKERS, Lab
from tests.faults.inputs import publish, table

EXECUTOR = "CoarseGrainedExecutorBackend"
PYTHON_WORKER = r"pyspark[./](daemon|worker)"
DRIVER = "programs.driver|SparkSubmit"
_WATCHED = 30.0  # seconds in which a named point must come

#: what can happen to every query
COMMON = (
    "executor_kill", "worker_kill", "host_kill", "pause", "link_down", "disk_full",
    "driver_kill", "kill_after_offsets", "kill_before_commit",
)  # fmt: skip
OWN = {
    "refresh": ("table_refresh", "kill_in_publication"),
    "hotspots": ("database_restart",),
    "interval": ("kill_in_state_commit",),
    "window": ("kill_in_state_commit",),
    "aggregate": ("kill_in_state_commit",),
    "spark_aggregate": ("kill_in_state_commit",),
    "exact": ("kill_in_state_commit",),
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
    """One fault: its kind, the host that it is for, how long it lasts, and when it begins."""

    kind: str
    host: str
    seconds: float
    after: float


def plan(workload: str, seed: int, count: int, longest: float = 60) -> list[Fault]:
    """The faults of a campaign: every kind about as often, in an order that the seed gives."""
    rng = random.Random(f"{workload} {seed}")
    kinds = [*COMMON, *OWN[workload]]
    chosen = [kinds[at % len(kinds)] for at in range(count)]
    rng.shuffle(chosen)
    made = []
    for kind in chosen:
        low, high = LASTING.get(kind, (0, 0))
        seconds = rng.uniform(low, max(low, min(high, longest)))
        made.append(Fault(kind, rng.choice(WORKERS), round(seconds, 1), round(rng.random(), 2)))
    return made


@dataclass
class Nemesis:
    """Applies faults.

    Parameters
    ----------
    lab
        The hosts.
    folder
        The query's folder, as this process sees it.
    checkpoint, sink_log
        Where the query's logs are, and where its sink's is.
    """

    lab: Lab
    folder: Path
    checkpoint: Path
    sink_log: Path
    version: int = 0

    def apply(self, fault: Fault) -> bool:
        """Do it, and undo it; whether it came about."""
        time.sleep(fault.after)
        act: Callable[[Fault], bool | None] = getattr(self, f"_{fault.kind}")
        return act(fault) is not False

    def publish_table(self) -> None:
        """The next version of the table."""
        self.version += 1
        publish(table(self.version), self.folder / "table.parquet")

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
        return self._when(self._has_begun) and self._driver_kill(fault)

    def _kill_before_commit(self, fault: Fault) -> bool:
        """Between the sink's log and the query's."""
        return self._when(self._is_in_sink) and self._driver_kill(fault)

    def _kill_in_state_commit(self, fault: Fault) -> bool:
        """While the tasks write a batch's state: executors and driver at once."""
        before = self._state_files()
        if not self._when(lambda: self._state_files() > before):
            return False
        for name in WORKERS:
            self.lab.host(name).signal(EXECUTOR, signal.SIGKILL)
        return self._driver_kill(fault)

    def _kill_in_publication(self, fault: Fault) -> bool:
        """While a worker writes a snapshot, or has written it and not published it."""
        self.publish_table()
        if not self._when(self._is_staged):
            return False
        for name in WORKERS:
            self.lab.host(name).signal(f"{EXECUTOR}|{PYTHON_WORKER}", signal.SIGKILL)
        return True

    def _host(self, fault: Fault) -> Host:
        return self.lab.host(fault.host)

    def _when(self, holds: Callable[[], bool]) -> bool:
        """Whether a point comes in time; looks as often as it can."""
        deadline = time.monotonic() + _WATCHED
        while time.monotonic() < deadline:
            if holds():
                return True
            time.sleep(0.0005)
        return False

    def _has_begun(self) -> bool:
        return newest(self.checkpoint / "offsets") > newest(self.checkpoint / "commits")

    def _is_in_sink(self) -> bool:
        return newest(self.sink_log) > newest(self.checkpoint / "commits")

    def _state_files(self) -> int:
        return sum(1 for _ in (self.checkpoint / "state").glob("0/*/*"))

    def _is_staged(self) -> bool:
        with contextlib.suppress(OSError):  # folders come and go
            return any("staging" in path.name for path in (self.folder / "snapshots").rglob("*"))
        return False


def newest(log: Path) -> int:
    """The number of the newest entry of a log, Spark's or a store's; -1 without one."""
    with contextlib.suppress(FileNotFoundError):
        names = (file.name.partition(".")[0] for file in log.iterdir())
        return max((int(name) for name in names if name.isdigit()), default=-1)
    return -1
