"""What a tree of processes has used, read from /proc.

Spark is a tree: the Python driver, its JVM, the JVM's Python daemon, and the workers the daemon
forks. Workers come and go; the time of one that has ended is not lost, because the kernel adds it
to its parent's *children's time* when the parent waits for it. So the time of a tree is the sum,
over those now alive, of their own time and that of the children they have waited for. A process
that has ended and is not yet waited for (a zombie) still stands in /proc with its time.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

Sample = TypeVar("Sample")

PROC = Path("/proc")
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PR_SET_CHILD_SUBREAPER = 36
_PAUSE = 0.5  # seconds


@dataclass(frozen=True)
class Process:
    """One line of /proc: who it is, whose child, and the time it has used."""

    pid: int
    parent: int
    started: int  #: in ticks since boot; with `pid` it names a process for good
    name: str
    ticks: int  #: user and system time, its own and that of the children it has waited for


def cpu_seconds(pid: int) -> float:
    """CPU time used so far by `pid` and all its descendants, the ended ones included; seconds.

    A process reaped in the middle of a look would be counted twice (it was seen, then its parent
    had its time too) or not at all (the parent was seen, then it was gone). So a look counts only
    if the one before and the one after find the same processes.

    Two ways out of the tree remain. A child whose parent ignores SIGCHLD is reaped by the kernel
    without being added to anyone: Spark's Python daemon does, and Spark has it kill its workers
    after a minute without work; `Meter` looks after those. And a child that outlives its parent
    moves to init, unless an ancestor has called `adopt_orphans`.
    """
    before, now, after = tree(pid), tree(pid), tree(pid)
    while not _names(before) == _names(now) == _names(after):
        before, now, after = now, after, tree(pid)
    return sum(process.ticks for process in now) / TICKS_PER_SECOND


class Meter:
    """The CPU time of a tree, those of its processes included that nobody waits for.

    Looks twice a second: what such a process used after the last look is lost, which is little,
    since the workers that Spark ends are those without work.
    """

    def __init__(self, pid: int) -> None:
        self._pid, self._lost = pid, 0
        self._lock = threading.Lock()
        self._known: dict[tuple[int, int], Process] = {}
        threading.Thread(target=self._watch, name=f"meter {pid}", daemon=True).start()

    def seconds(self) -> float:
        """The time so far."""
        with self._lock:
            self._look()
            return cpu_seconds(self._pid) + self._lost / TICKS_PER_SECOND

    def _watch(self) -> None:
        while PROC.joinpath(str(self._pid)).exists():
            with self._lock:
                self._look()
            time.sleep(_PAUSE)

    def _look(self) -> None:
        now = {(process.pid, process.started): process for process in tree(self._pid)}
        alive = {process.pid for process in now.values()}
        for name in self._known.keys() - now.keys():
            gone = self._known[name]
            if gone.parent in alive and _ignores_children(gone.parent):
                self._lost += gone.ticks
        self._known = now


def _ignores_children(pid: int) -> bool:
    """Whether the kernel reaps this process's children without a word to anyone."""
    try:
        status = (PROC / str(pid) / "status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    (ignored,) = (line.split()[1] for line in status.splitlines() if line.startswith("SigIgn:"))
    return bool(int(ignored, 16) >> (signal.SIGCHLD - 1) & 1)


def adopt_orphans() -> None:
    """From now on, descendants of this process whose parent ends become its own children."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def tree(pid: int) -> list[Process]:
    """`pid` and its descendants, as they stand now, parents first; empty if there is no `pid`."""
    children: dict[int, list[Process]] = {}
    found = []
    for process in _processes():
        children.setdefault(process.parent, []).append(process)
        if process.pid == pid:
            found.append(process)
    for process in found:  # grows while it is walked
        found.extend(children.get(process.pid, ()))
    return found


def memory(pid: int) -> dict[str, int]:
    """Bytes of `pid`'s memory by kind: ``rss``, ``pss``, ``private``, ``shared``.

    Pages that several processes map count in full in each one's ``rss`` and ``shared``, and
    divided by the number of sharers in ``pss``: the sum of ``pss`` is what the machine holds.
    """
    kinds: dict[str, int] = {}
    for line in (PROC / str(pid) / "smaps_rollup").read_text().splitlines()[1:]:
        kind, amount = line.split()[:2]
        kinds[kind.rstrip(":")] = int(amount) * 1024
    return {
        "rss": kinds["Rss"],
        "pss": kinds["Pss"],
        "private": kinds["Private_Clean"] + kinds["Private_Dirty"],
        "shared": kinds["Shared_Clean"] + kinds["Shared_Dirty"],
    }


def memories(pids: Iterable[int]) -> list[dict[str, int]]:
    """The memory of each of these processes that has not ended meanwhile."""
    found = []
    for pid in pids:
        try:
            found.append(memory(pid))
        except (OSError, KeyError):  # it has ended, or is just ending
            continue
    return found


def tree_memory(pid: int) -> int:
    """Bytes that `pid` and its descendants hold together."""
    return sum(each["pss"] for each in memories(process.pid for process in tree(pid)))


class Sampler(Generic[Sample]):
    """What `look` sees, every so many seconds, in a thread while a block runs."""

    def __init__(self, look: Callable[[], Sample], *, pause: float = _PAUSE) -> None:
        self._look, self._pause, self._done = look, pause, threading.Event()
        self._thread = threading.Thread(target=self._watch, name="sampler", daemon=True)
        self.samples: list[Sample] = []

    def __enter__(self) -> Sampler[Sample]:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(self._pause):
            self.samples.append(self._look())


def _processes() -> Iterable[Process]:
    for folder in PROC.iterdir():
        if folder.name.isdigit():
            try:
                yield _parse((folder / "stat").read_text())
            except (FileNotFoundError, ProcessLookupError):  # ended since the listing
                continue


def _parse(stat: str) -> Process:
    # the name stands in parentheses and may itself hold blanks and parentheses
    head, _, tail = stat.rpartition(")")
    pid, _, name = head.partition(" (")
    fields = tail.split()
    used = sum(int(ticks) for ticks in fields[11:15])  # utime stime cutime cstime
    return Process(int(pid), int(fields[1]), int(fields[19]), name, used)


def _names(processes: Iterable[Process]) -> set[tuple[int, int]]:
    return {(process.pid, process.started) for process in processes}
