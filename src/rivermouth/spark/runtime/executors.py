"""What the executors of a cluster have: their hosts, versions, and the folders that they see."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from threading import Event, Thread
from typing import TYPE_CHECKING

import pyarrow as pa

from rivermouth.errors import FolderError, SessionError, TableUnavailable
from rivermouth.spec.locations import Location
from rivermouth.tables.files import filesystem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FIRST = 8  # tasks of the first look
_MOST = 4096
_SETTLED = 10.0  # seconds without a new host: executors of an application come one by one
_AGAIN = 0.2  # seconds


@dataclass(frozen=True)
class Executor:
    """What Python workers on one host report.

    Parameters
    ----------
    host
        The host's name.
    python
        The version of Python.
    versions
        Of the packages that were asked for; those that are not installed are absent.
    unseen
        Of the folders that were asked for, as they are shown, those that the host cannot read and
        write, with the reason.
    """

    host: str
    python: str
    versions: dict[str, str]
    unseen: dict[str, str]


def inspect_executors(
    spark: SparkSession,
    *,
    packages: Sequence[str],
    shared: Sequence[str] = (),
    seconds: float = 120,
    settled: float = _SETTLED,
) -> list[Executor]:
    """Ask a Python worker on every host of the cluster; in the order of the hosts' names.

    Runs Spark jobs of more and more tasks until none has found a further host for some seconds:
    executors of an application come one by one. Packages need not be
    installed there, pyarrow excepted, which Spark itself needs. A file is left in each shared
    folder for that time.

    Parameters
    ----------
    packages
        Whose versions are asked for.
    shared
        Folders, or URIs that pyarrow.fs knows, that all hosts should read and write.
    seconds
        How long the cluster may take to answer.
    settled
        Seconds without a further host after which all are known.

    Raises
    ------
    SessionError
        When no answer came in time.
    FolderError
        When the driver cannot write in a shared folder.
    """
    folders = [Location.of(folder) for folder in shared]
    tokens = {folder.for_arrow: _leave(folder) for folder in folders}
    deadline = _Deadline(spark, seconds)
    try:
        with deadline:
            found = _all_hosts(spark, _looker([*packages], tokens), settled)
    except Exception as error:
        if not deadline.passed:
            raise
        raise SessionError(
            "executors",
            f"none has answered within {seconds:.0f} s",
            todo="Check that the cluster has free cores and memory, and that its hosts reach "
            "this one.",
        ) from error
    finally:
        for folder in folders:
            system, root = filesystem(folder)
            system.delete_file(f"{root}/{tokens[folder.for_arrow]}")
    return [
        replace(each, unseen={f.shown: f.redacted(each.unseen[f.for_arrow]) for f in folders
                              if f.for_arrow in each.unseen})
        for each in found
    ]  # fmt: skip


class _Deadline:
    """Interrupts the session's jobs once a block has taken so many seconds, until it ends."""

    def __init__(self, spark: SparkSession, seconds: float) -> None:
        self.passed = False
        self._spark, self._seconds, self._ended = spark, seconds, Event()
        self._thread = Thread(target=self._watch, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *failure: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        pause = self._seconds
        while not self._ended.wait(pause):
            self.passed, pause = True, _AGAIN
            self._spark.interruptAll()  # what has not begun is not interrupted: look again


def _leave(folder: Location) -> str:
    """Leave a file in a folder; its name."""
    token = f".rivermouth-{uuid.uuid4().hex}"
    try:
        system, root = filesystem(folder)
        system.create_dir(root)
        with system.open_output_stream(f"{root}/{token}") as stream:
            stream.write(token.encode())
    except SessionError:
        raise
    except TableUnavailable as error:
        raise FolderError("executors", error.what, there=error.there, todo=error.todo) from error
    except (OSError, ValueError) as error:
        raise FolderError(
            "executors",
            f"the folder {folder!r} cannot be used here",
            there=folder.redacted(str(error)).rstrip("."),
            todo="Give an absolute path or a URI that this host may write.",
        ) from error
    return token


Look = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def _all_hosts(spark: SparkSession, look: Look, settled: float) -> list[Executor]:
    found: dict[str, Executor] = {}
    tasks, until = _FIRST, time.monotonic() + settled
    while True:
        rows = spark.range(0, tasks, 1, tasks).mapInArrow(look, "report string").collect()
        reports = {each.host: each for row in rows for each in [Executor(**json.loads(row.report))]}
        if reports.keys() - found.keys():
            tasks, until = min(2 * tasks, _MOST), time.monotonic() + settled
        elif time.monotonic() >= until:
            return [found[host] for host in sorted(found)]
        found |= reports


def _looker(packages: list[str], tokens: dict[str, str]) -> Look:
    """What a task does. A closure that needs nothing of ours, which may be missing there."""

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import importlib.metadata
        import json
        import platform
        import socket
        import time

        import pyarrow
        import pyarrow.fs

        def problem(folder: str, token: str) -> str | None:
            try:
                system, root = pyarrow.fs.FileSystem.from_uri(folder)
                with system.open_input_stream(f"{root}/{token}") as stream:
                    stream.read()
                own = f"{root}/{token}-{socket.gethostname()}-{time.time_ns()}"
                with system.open_output_stream(own) as stream:
                    stream.write(b"x")
                system.delete_file(own)
            except FileNotFoundError:
                return "what was written on the driver is not there"
            except OSError as error:
                return str(error).partition("\n")[0].rstrip(".")
            return None

        versions = {}
        for package in packages:
            try:
                versions[package] = importlib.metadata.version(package)
            except importlib.metadata.PackageNotFoundError:
                continue
        problems = {folder: problem(folder, token) for folder, token in tokens.items()}
        report = {
            "host": socket.gethostname(),
            "python": platform.python_version(),
            "versions": versions,
            "unseen": {folder: why for folder, why in problems.items() if why is not None},
        }
        time.sleep(0.2)  # long enough for the other cores to take their share of the tasks
        for _ in batches:
            yield pyarrow.RecordBatch.from_pydict({"report": [json.dumps(report)]})

    return look
