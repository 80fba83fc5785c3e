"""A campaign: a query on the lab's hosts, one fault after the other, and a verdict at the end."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
from tests.cluster.lab import SHARED, Driver, Lab
from tests.faults import inputs
from tests.faults.checking import Fed, check
from tests.faults.nemesis import Fault, Nemesis, newest, plan

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
_PATIENCE = 300.0  # seconds in which a query must be at work again


@dataclass
class Happened:
    """A fault as it went: whether it came about, and how long the query took to go on.

    Parameters
    ----------
    fault
        What was planned.
    did
        Whether there was something to break.
    recovery
        Seconds from the fault's end to the next batch that was committed.
    restarts
        How often the query, or the driver, had to be started again.
    """

    fault: Fault
    did: bool
    recovery: float
    restarts: int


@dataclass
class History:
    """All that happened, enough to do it again."""

    workload: str
    seed: int
    happened: list[Happened] = field(default_factory=list)
    batches: int = 0
    records: int = 0
    rows: int = 0
    seconds: float = 0.0
    violations: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def by_kind(self) -> dict[str, list[float]]:
        """The recovery times of the faults that came about."""
        found: dict[str, list[float]] = {}
        for each in self.happened:
            if each.did:
                found.setdefault(each.fault.kind, []).append(each.recovery)
        return found

    def summary(self) -> dict[str, Any]:
        """What a table shows of it."""
        return {
            "workload": self.workload, "seed": self.seed,
            "faults": sum(each.did for each in self.happened),
            "batches": self.batches, "records": self.records, "rows": self.rows,
            "violations": len(self.violations), "seconds": round(self.seconds, 1),
            "restarts": sum(each.restarts for each in self.happened),
            "recovery": {
                kind: [round(each, 1) for each in found]
                for kind, found in sorted(self.by_kind().items())
            },
        }  # fmt: skip


class Campaign:
    """One workload under faults.

    Parameters
    ----------
    lab
        The hosts.
    workload
        Its name.
    seed
        What determines records and faults.
    say
        Called with a line for whoever waits.
    """

    def __init__(self, lab: Lab, workload: str, seed: int, say: Callable[[str], None]) -> None:
        self._lab, self._say = lab, say
        self.history = History(workload, seed)
        self.folder = lab.shared / f"faults-{workload}-{seed}"
        store = "store/checkpoint" if workload == "exact" else "checkpoint"
        self._checkpoint = self.folder / store
        sink_log = self.folder / ("store/batches" if workload == "exact" else "out/_spark_metadata")
        self._nemesis = Nemesis(lab, self.folder, self._checkpoint, sink_log)
        self._feeder = inputs.Feeder(self.folder, seed, self.committed)
        self._driver: Driver | None = None

    def run(self, count: int, longest: float = 60) -> History:
        """Break it so often, let it end, and judge."""
        history, began = self.history, time.monotonic()
        self._prepare()
        self._start()
        self._await_batches(2)
        for number, fault in enumerate(plan(history.workload, history.seed, count, longest)):
            history.happened.append(self._one(fault))
            last = history.happened[-1]
            self._say(
                f"{history.workload} {number + 1}/{count} {fault.kind} on {fault.host}: "
                + (f"recovered in {last.recovery:.1f} s" if last.did else "did not come about")
                + (f", {last.restarts} restarts" if last.restarts else "")
            )
        self._end()
        history.seconds = time.monotonic() - began
        self._judge()
        return history

    def committed(self) -> int:
        """How many batches the query has committed."""
        return newest(self._checkpoint / "commits") + 1

    def keep(self, place: Path) -> None:
        """Copy all that the query left and the history to where it can be looked at."""
        shutil.copytree(self.folder, place, dirs_exist_ok=True)
        said = asdict(self.history)
        (place / "history.json").write_text(json.dumps(said, indent=1))

    def _prepare(self) -> None:
        self.folder.mkdir()
        if self.history.workload == "hotspots":
            with psycopg.connect(self._lab.postgres.url) as connection:
                connection.execute("DROP TABLE IF EXISTS names")
                connection.execute("CREATE TABLE names (key bigint, name text)")
                rows = inputs.table(0).select(["key", "name"]).to_pylist()
                with connection.cursor() as cursor:
                    cursor.executemany("INSERT INTO names VALUES (%(key)s, %(name)s)", rows)
        self._nemesis.publish_table()
        self._feeder.start()
        self._lab.cluster()

    def _start(self) -> None:
        """Start a driver, and the query on it."""
        self._driver = self._lab.driver(**SETTINGS)
        self._start_query()

    def _start_query(self) -> None:
        postgres = self._lab.postgres.url if self.history.workload == "hotspots" else None
        assert self._driver is not None
        self._driver.call(
            f"{QUERIES}:start", workload=self.history.workload,
            folder=f"{SHARED}/{self.folder.name}", postgres=postgres,
        )  # fmt: skip

    def _one(self, fault: Fault) -> Happened:
        did = self._nemesis.apply(fault)
        began = time.monotonic()
        restarts = self._await_batches(1)
        return Happened(fault, did, time.monotonic() - began, restarts)

    def _await_batches(self, count: int) -> int:
        """Wait for so many more batches; start again what has ended. How often that was."""
        target, restarts = self.committed() + count, 0
        deadline = time.monotonic() + _PATIENCE
        while self.committed() < target:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.history.workload} does not go on")
            restarts += self._supervise()
            time.sleep(0.05)
        return restarts

    def _supervise(self) -> int:
        """Start the driver or the query again if it has ended, as a service manager would."""
        assert self._driver is not None
        try:
            failure = self._driver.call(f"{QUERIES}:failure")
            if failure is None:
                return 0
            self.history.failures.append(failure[:2000])
            self._start_query()
        except (RuntimeError, BrokenPipeError, ValueError) as ended:
            self.history.failures.append(str(ended)[-2000:])
            self._driver.process.kill()
            self._start()
        return 1

    def _end(self) -> None:
        """No more faults: process what is there, and stop."""
        self._feeder.stop()
        deadline = time.monotonic() + _PATIENCE
        while True:
            assert self._driver is not None
            try:
                self._driver.call(
                    f"{QUERIES}:finish", workload=self.history.workload,
                    folder=f"{SHARED}/{self.folder.name}",
                )  # fmt: skip
                self._driver.close()
                return
            except (RuntimeError, BrokenPipeError):
                if time.monotonic() > deadline:
                    raise
                self._supervise()

    def _judge(self) -> None:
        fed = Fed(*(pa.concat_tables(self._feeder.fed(stream)) for stream in inputs.STREAMS))
        verdict = check(self.history.workload, self.folder, fed)
        self.history.batches, self.history.rows = self.committed(), verdict.rows
        self.history.records = fed.events.num_rows
        self.history.violations = verdict.violations
