"""Where a tree of processes spends its CPU time: by program, and in Python by file.

Python is looked at from outside by py-spy, in an environment of its own.
"""

from __future__ import annotations

import signal
import subprocess
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from benchmarks.harness.accounting import PROC, TICKS_PER_SECOND, tree
from benchmarks.peers.environment import Environment

T = TypeVar("T")

PY_SPY = Environment("py-spy", packages=("py-spy==0.4.1",))
_RATE = 100  # looks a second


def by_program(pid: int) -> defaultdict[str, float]:
    """CPU seconds so far of a process and its descendants, by their names."""
    found: defaultdict[str, float] = defaultdict(float)
    for process in tree(pid):
        found[process.name] += process.ticks / TICKS_PER_SECOND
    return found


#: what threads of a JVM do, by how their names begin
_THREADS = {
    "Executor task": "tasks", "C1 Compiler": "compiling", "C2 Compiler": "compiling",
    "GC Thread": "garbage collection", "G1 ": "garbage collection",
    "stream executio": "planning", "dag-scheduler-e": "planning",
}  # fmt: skip


def by_thread(pid: int) -> defaultdict[str, float]:
    """CPU seconds so far of the JVMs below a process, by what their threads are for.

    What threads that have ended used, such as those that write rows to Python, is ``others``, too.
    """
    found: defaultdict[str, float] = defaultdict(float)
    for process in tree(pid):
        if process.name == "java":
            left = process.ticks / TICKS_PER_SECOND
            for thread in (PROC / str(process.pid) / "task").iterdir():
                with suppress(FileNotFoundError, ProcessLookupError):
                    head, _, tail = (thread / "stat").read_text().rpartition(")")
                    name = head.partition(" (")[2]
                    seconds = sum(map(int, tail.split()[11:13])) / TICKS_PER_SECOND
                    what = (what for start, what in _THREADS.items() if name.startswith(start))
                    found[next(what, "others")] += seconds
                    left -= seconds
            found["others"] += left
    return found


def sampled(pid: int, work: Callable[[], T]) -> tuple[T, Counter[str]]:
    """What `work` gives, and how often each stack of Python was seen meanwhile, root first.

    Stacks are ``frame;frame;...``, a frame ``function (file:line)``; who waits is left out.
    """
    program = PY_SPY.make().python.with_name("py-spy")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "stacks"
        words = ["record", "--pid", pid, "--subprocesses", "--format", "raw", "--rate", _RATE,
                 "--duration", 3600, "--output", out]  # fmt: skip
        spy = subprocess.Popen(
            [str(program), *map(str, words)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            given = work()
        finally:
            spy.send_signal(signal.SIGINT)
            spy.wait()
        seen: Counter[str] = Counter()
        for line in out.read_text().splitlines():
            stack, _, count = line.rpartition(" ")
            seen[stack] += int(count)
    return given, seen


def by_part(stacks: Mapping[str, int], parts: Mapping[str, str], other: str) -> dict[str, float]:
    """The share of each part: that of the innermost frame whose text contains one of `parts`."""
    found: Counter[str] = Counter(dict.fromkeys((*parts.values(), other), 0))
    for stack, count in stacks.items():
        names = (
            part
            for frame in reversed(stack.split(";"))
            for piece, part in parts.items()
            if piece in frame
        )
        found[next(names, other)] += count
    total = sum(found.values()) or 1
    return {name: count / total for name, count in found.items()}
