"""A campaign: queries on the lab's hosts, one fault after the other, and a verdict at the end.

The queries share one application, as a fault does not ask whose host it breaks: each is hit by
every fault but those that are aimed at another one's tables. Files, records and verdict are each
query's own.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
from tests.cluster.lab import SHARED, Driver, Lab
from tests.faults import inputs
from tests.faults.checking import Fed, check
from tests.faults.nemesis import Fault, Nemesis, Place, plan

QUERIES = "tests.faults.queries"
#: what makes a lost host known within a campaign's patience, and logs that say all batches
SETTINGS = {
    "spark.network.timeout": "20s",
    "spark.network.timeoutInterval": "5s",
    "spark.executor.heartbeatInterval": "2s",
    "spark.sql.streaming.minBatchesToRetain": "100000",
    "spark.sql.streaming.fileSink.log.compactInterval": "100000",
    "spark.sql.streaming.fileSource.log.compactInterval": "100000",
}
_PATIENCE = 300.0  # seconds in which every query must be at work again


@dataclass
class Happened:
    """A fault as it went.

    Parameters
    ----------
    fault
        What was planned.
    did
        Whether there was something to break.
    recovery
        By workload: seconds from the fault's end to the next batch that was committed.
    restarts
        By workload: how often its query had to be started again, with its driver or alone.
    """

    fault: Fault
    did: bool
    recovery: dict[str, float]
    restarts: dict[str, int]


@dataclass
class Result:
    """What a query had to do, and what is wrong with it."""

    batches: int
    records: int
    rows: int
    violations: list[str]


@dataclass
class History:
    """All that happened, enough to do it again."""

    workloads: tuple[str, ...]
    seed: int
    happened: list[Happened] = field(default_factory=list)
    seconds: float = 0.0
    results: dict[str, Result] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def summary(self, workload: str) -> dict[str, Any]:
        """What a table shows of a query."""
        recovery: dict[str, list[float]] = {}
        for each in self.happened:
            kind = each.fault.kind_for(workload)
            if each.did and kind is not None:
                recovery.setdefault(kind, []).append(round(each.recovery[workload], 1))
        result = self.results[workload]
        return {
            "workload": workload, "seed": self.seed, "beside": len(self.workloads) - 1,
            "faults": sum(map(len, recovery.values())),
            "batches": result.batches, "records": result.records, "rows": result.rows,
            "violations": len(result.violations), "seconds": round(self.seconds, 1),
            "restarts": sum(each.restarts.get(workload, 0) for each in self.happened),
            "recovery": dict(sorted(recovery.items())),
        }  # fmt: skip


class Campaign:
    """Some workloads under faults.

    Parameters
    ----------
    lab
        The hosts.
    workloads
        Their names.
    seed
        What determines records and faults.
    say
        Called with a line for whoever waits.
    """

    def __init__(
        self, lab: Lab, workloads: Sequence[str], seed: int, say: Callable[[str], None]
    ) -> None:
        self._lab, self._say = lab, say
        self.history = History(tuple(workloads), seed)
        self.folder = lab.shared / f"faults-{seed}"
        self._places = {name: Place(name, self.folder / name) for name in workloads}
        self._nemesis = Nemesis(lab, self._places)
        self._feeders = {
            name: inputs.Feeder(place.folder, seed, place.committed)
            for name, place in self._places.items()
        }
        self._running = [*workloads]
        self._driver: Driver | None = None

    def run(self, count: int, longest: float = 60) -> History:
        """Break them so often, let them end, and judge."""
        history, began = self.history, time.monotonic()
        self._prepare()
        self._start()
        self._await_batches(2)
        for number, fault in enumerate(plan(history.workloads, history.seed, count, longest)):
            last = self._one(fault)
            history.happened.append(last)
            slowest = max(last.recovery.values())
            self._say(
                f"{number + 1}/{count} {fault.kind} on {fault.workload or fault.host}: "
                + (f"all recovered in {slowest:.1f} s" if last.did else "did not come about")
                + (f", {sum(last.restarts.values())} restarts" if last.restarts else "")
            )
        self._end()
        history.seconds = time.monotonic() - began
        for workload, place in self._places.items():
            history.results[workload] = self._judged(place)
        return history

    def keep(self, place: Path) -> None:
        """Copy all that the queries left and the history to where it can be looked at."""
        shutil.copytree(self.folder, place, dirs_exist_ok=True)
        said = asdict(self.history)
        (place / "history.json").write_text(json.dumps(said, indent=1))

    def _prepare(self) -> None:
        self.folder.mkdir()
        if "hotspots" in self._places:
            with psycopg.connect(self._lab.postgres.url) as connection:
                connection.execute("DROP TABLE IF EXISTS names")
                connection.execute("CREATE TABLE names (key bigint, name text)")
                rows = inputs.table(0).select(["key", "name"]).to_pylist()
                with connection.cursor() as cursor:
                    cursor.executemany("INSERT INTO names VALUES (%(key)s, %(name)s)", rows)
        if "refresh" in self._places:
            self._nemesis.publish_table()
        for feeder in self._feeders.values():
            feeder.start()
        self._lab.cluster()

    def _start(self) -> None:
        """Start a driver, and the queries on it that have not ended."""
        self._driver = self._lab.driver(**SETTINGS)
        for workload in self._running:
            self._start_query(workload)

    def _start_query(self, workload: str) -> None:
        postgres = self._lab.postgres.url if workload == "hotspots" else None
        self._call("start", workload=workload, folder=self._inside(workload), postgres=postgres)

    def _call(self, function: str, **arguments: Any) -> Any:
        assert self._driver is not None
        return self._driver.call(f"{QUERIES}:{function}", **arguments)

    def _inside(self, workload: str) -> str:
        """A query's folder, as the hosts see it."""
        return f"{SHARED}/{self.folder.name}/{workload}"

    def _one(self, fault: Fault) -> Happened:
        did = self._nemesis.apply(fault)
        recovery, restarts = self._await_batches(1)
        return Happened(fault, did, recovery, restarts)

    def _await_batches(self, count: int) -> tuple[dict[str, float], dict[str, int]]:
        """Wait for so many more batches of each; start again what has ended.

        Gives the seconds that each took, and how often each was started again.
        """
        began = time.monotonic()
        target = {name: place.committed() + count for name, place in self._places.items()}
        took: dict[str, float] = {}
        restarts: dict[str, int] = {}
        while len(took) < len(target):
            for name, place in self._places.items():
                if name not in took and place.committed() >= target[name]:
                    took[name] = time.monotonic() - began
            if time.monotonic() > began + _PATIENCE:
                raise TimeoutError(f"{sorted({*target} - {*took})} do not go on")
            for name in self._supervise():
                restarts[name] = restarts.get(name, 0) + 1
            time.sleep(0.05)
        return took, restarts

    def _supervise(self) -> list[str]:
        """Start the driver or queries again that have ended, as a service manager would."""
        try:
            found = self._call("failures")
            for workload, failure in found.items():
                self.history.failures.append(f"{workload}: {failure[:2000]}")
                self._start_query(workload)
            return list(found)
        except (RuntimeError, BrokenPipeError, ValueError) as ended:
            self.history.failures.append(str(ended)[-2000:])
            assert self._driver is not None
            self._driver.process.kill()
            self._start()
            return [*self._running]

    def _end(self) -> None:
        """No more faults: process what is there, and stop."""
        for feeder in self._feeders.values():
            feeder.stop()
        for workload in self._places:
            self._finish(workload)
        assert self._driver is not None
        self._driver.close()

    def _finish(self, workload: str) -> None:
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                self._call("finish", workload=workload, folder=self._inside(workload))
                self._running.remove(workload)
                return
            except (RuntimeError, BrokenPipeError):
                if time.monotonic() > deadline:
                    raise
                self._supervise()

    def _judged(self, place: Place) -> Result:
        feeder = self._feeders[place.workload]
        fed = Fed(*(pa.concat_tables(feeder.fed(stream)) for stream in inputs.STREAMS))
        verdict = check(place.workload, place.folder, fed)
        return Result(place.committed(), fed.events.num_rows, verdict.rows, verdict.violations)
