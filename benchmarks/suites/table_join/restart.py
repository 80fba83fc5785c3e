"""A real-time query killed in the middle of a batch and started again: what arrives."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness.kafka_traffic import RecordsMissing, Topics, Traffic, create_topics

ROOT = Path(__file__).resolve().parents[3]
CHECKPOINT = "checkpoint"
INTERVAL = 5  # seconds between two checkpoints: the shortest that real-time mode takes


@dataclass(frozen=True)
class Outcome:
    """What came of a query that was killed and started again.

    Parameters
    ----------
    sent
        How many records were sent, numbered from 0.
    committed
        How many of them, the first ones, the checkpoint knew as done shortly before the kill.
    arrivals
        Each row that came out, as `Traffic.arrivals` has it.
    """

    sent: int
    committed: int
    arrivals: Sequence[Mapping[str, Any]]

    def counts(self) -> dict[str, int]:
        """The same in numbers.

        ``arrived`` of those ``sent``, rows that came ``repeated``, and how many of the
        ``committed`` are among them: ``redone``. The query is one that makes a row of a record.
        """
        seen = Counter(arrival["number"] for arrival in self.arrivals)
        return {
            "sent": self.sent,
            "arrived": len(seen),
            "repeated": seen.total() - len(seen),
            "committed": self.committed,
            "redone": sum(seen[number] > 1 for number in range(self.committed)),
        }


def kill_and_restart(
    bootstrap: str,
    case: str,
    *,
    table: Path,
    bodies: Path,
    folder: Path,
    rate: float = 500,
    seconds: float = 20,
) -> Outcome:
    """Kill a query's driver (``kill -9``) after a first checkpoint and start it again.

    The kill comes in the middle of a batch whose first records are out already, and while more
    are being sent. Kafka's sink promises each record at least once.

    Parameters
    ----------
    bootstrap
        The broker's address.
    case, table
        What the query does; see `kafka_query.cases`.
    bodies
        What the records say; see `kafka_traffic.write_bodies`.
    folder
        For the checkpoint and the arrivals.
    rate, seconds
        Records are sent at this rate for so long; long enough to see the query run again.
    """
    topics = create_topics(bootstrap)
    count = int(rate * seconds)
    query = partial(driver, bootstrap, topics, case, table=table, folder=folder)
    with Traffic(bootstrap, topics, bodies=bodies, rate=rate, count=count, folder=folder) as road:
        with query() as alive:
            road.open(alive=alive)
            committed = _await_commit(folder / CHECKPOINT)
            time.sleep(INTERVAL / 2)
        with query() as alive:
            return Outcome(count, committed, road.arrivals(alive=alive))


@contextmanager
def driver(
    bootstrap: str,
    topics: Topics,
    case: str,
    *,
    table: Path,
    folder: Path,
    interval: int = INTERVAL,
) -> Iterator[Callable[[], bool]]:
    """A real-time query in a process of its own, killed without a word at the block's end.

    Yields what to ask whether it is still alive.
    """
    command = [sys.executable, "-m", "benchmarks.harness.kafka_query", bootstrap]
    command += [topics.source, topics.target, f"--case={case}", f"--table={table}"]
    command += [f"--checkpoint={folder / CHECKPOINT}", f"--interval={interval}"]
    log = folder / "driver.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | {"TMPDIR": str(folder)},  # the killed do not clean up
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Python and its JVM are a group: one signal meets both
        )
    try:
        yield lambda: process.poll() is None
    except RecordsMissing as error:
        said = log.read_text(errors="replace")[-2000:]
        raise RecordsMissing(f"{error}; the driver's output ends:\n{said}") from error
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def _await_commit(checkpoint: Path, seconds: float = 300) -> int:
    """Wait until a batch with records is committed; how many of them are."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if committed := _committed(checkpoint):
            return committed
        time.sleep(0.1)
    raise RecordsMissing(f"restart: no record was committed in {seconds:.0f} s")


def _committed(checkpoint: Path) -> int:
    """How many records the checkpoint knows as done, without the probe that came first."""
    batches = [int(path.name) for path in (checkpoint / "commits").glob("[0-9]*")]
    if not batches:
        return 0
    # the last line of a batch's offsets is where its source ends: {"topic": {"partition": offset}}
    log = checkpoint / "offsets" / str(max(batches))
    ((end,),) = (topic.values() for topic in json.loads(log.read_text().splitlines()[-1]).values())
    return max(0, int(end) - 1)
