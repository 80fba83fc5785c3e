"""Records on their way through Kafka: a producer into one topic, a consumer of another."""

from __future__ import annotations

import json
import select
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any
from uuid import uuid4

from benchmarks.harness.kafka import client_python

_GLANCE = 0.2  # seconds between two looks at a query
_CLIENT = Path(__file__).with_name("kafka_client.py")


class RecordsMissing(RuntimeError):
    """A query let no record through; whoever started it knows more."""


@dataclass(frozen=True)
class Topics:
    """Where a query reads and where it writes."""

    source: str
    target: str


def create_topics(bootstrap: str) -> Topics:
    """Two fresh topics of one partition each."""
    name = uuid4().hex
    topics = Topics(f"{name}-in", f"{name}-out")
    subprocess.run(_client(bootstrap, "create", topics.source, topics.target), check=True)
    return topics


def write_bodies(path: Path, bodies: Iterable[Mapping[str, Any]]) -> Path:
    """Write what the records say, one JSON object a line; producers take them in turn."""
    path.write_text("".join(f"{json.dumps(body)}\n" for body in bodies))
    return path


class Traffic:
    """A producer and a consumer, each a process of its own, and a road between them.

    Both start at once, but only a probe is sent until `open` is called. The query between
    `topics` must let every record through under its own key: a left join, not an inner one.

    Parameters
    ----------
    bootstrap
        The broker's address.
    topics
        Sent into ``source``, awaited from ``target``; with both the same, nothing is between.
    bodies
        A file of `write_bodies`.
    rate
        Records a second.
    count
        Records in all, numbered from 0.
    folder
        Where the arrivals are noted.
    idle
        Seconds without an arrival after which the consumer gives up.
    """

    def __init__(
        self,
        bootstrap: str,
        topics: Topics,
        *,
        bodies: Path,
        rate: float,
        count: int,
        folder: Path,
        idle: float = 300,
    ) -> None:
        self._out = folder / f"{topics.target}.jsonl"
        self._consumer = subprocess.Popen(
            _client(bootstrap, "consume", topics.target, out=self._out, count=count, idle=idle),
            stdout=subprocess.PIPE,
        )
        self._producer = subprocess.Popen(
            _client(bootstrap, "produce", topics.source, bodies=bodies, count=count, rate=rate),
            stdin=subprocess.PIPE,
        )

    def open(self, *, alive: Callable[[], bool] = lambda: True) -> None:
        """Wait until the probe has come through, then let the records go.

        Raises
        ------
        RecordsMissing
            If the consumer gave up, or what is between is no longer `alive`.
        """
        assert self._consumer.stdout is not None
        assert self._producer.stdin is not None
        while not select.select([self._consumer.stdout], [], [], _GLANCE)[0]:
            _check(alive)
        if not self._consumer.stdout.readline():
            raise RecordsMissing("traffic: the first record did not come through")
        self._producer.stdin.write(b"go\n")
        self._producer.stdin.flush()

    def arrivals(self, *, alive: Callable[[], bool] = lambda: True) -> list[dict[str, Any]]:
        """Wait for the end; each arrival in its order: ``number``, ``arrived`` and the value.

        Raises
        ------
        RecordsMissing
            If what is between is no longer `alive`. Records that merely do not come are missing.
        """
        while self._consumer.poll() is None:
            _check(alive)
            time.sleep(_GLANCE)
        return [json.loads(line) for line in self._out.read_text().splitlines()]

    def __enter__(self) -> Traffic:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in (self._producer, self._consumer):
            if kind is not None:
                process.kill()
            process.communicate()


def _check(alive: Callable[[], bool]) -> None:
    if not alive():
        raise RecordsMissing("traffic: the query ended before the records had come")


def _client(bootstrap: str, verb: str, *topics: str, **options: object) -> list[str]:
    given = [f"--{name}={value}" for name, value in options.items()]
    return [str(client_python()), str(_CLIENT), bootstrap, verb, *topics, *given]
