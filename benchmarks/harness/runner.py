"""A Spark session in a process of its own, which does what it is told and is measured from outside.

Cases that need different sessions (one core, two cores, another Spark) live in one process tree
each, stay warm side by side, and can so be run alternately and have their CPU time told apart.
Standard library only: peers import this in their own environments.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.harness.accounting import Meter, Sampler, adopt_orphans, tree_memory

ROOT = Path(__file__).resolve().parents[2]
LOGS = ROOT / ".cache" / "bench" / "logs"


class RunnerFailed(RuntimeError):
    """A runner's process raised or ended; carries what it said."""


class Runner:
    """The caller's end: starts ``python -m module words...`` and sends it requests.

    Parameters
    ----------
    module
        A module whose ``main`` calls `serve`.
    words
        Its command line.
    python
        The interpreter of its environment.
    name
        Names its log file, under ``.cache/bench/logs``.
    """

    def __init__(
        self, module: str, *words: str, name: str, python: Path | str = sys.executable
    ) -> None:
        LOGS.mkdir(parents=True, exist_ok=True)
        self.log = LOGS / f"{name}.log"
        paths = [str(ROOT), os.environ.get("PYTHONPATH", ""), str(ROOT / "src")]
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                [str(python), "-m", module, *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=ROOT,
                env=os.environ
                | {
                    "PYTHONPATH": os.pathsep.join(filter(None, paths)),
                    "PYSPARK_PYTHON": str(python),
                },
            )
        self.pid = self._process.pid
        self._meter = Meter(self.pid)
        self.hello: dict[str, Any] | None = None  #: what it said when it was ready

    def ready(self) -> Runner:
        """Wait until the process can answer; itself. Until then several can start side by side."""
        if self.hello is None:
            self.hello = self._receive()
        return self

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send one request and wait for its answer."""
        stdin = self.ready()._process.stdin
        assert stdin is not None
        stdin.write(json.dumps(request) + "\n")
        stdin.flush()
        return self._receive()

    def measure(self, **request: Any) -> dict[str, Any]:
        """`ask`, with the CPU time that the whole tree used meanwhile as ``cpu_s``.

        The most memory that it was seen to hold is ``memory_gb``.
        """
        before = self.ready()._meter.seconds()
        with Sampler(lambda: tree_memory(self.pid)) as held:
            answer = self.ask(**request)
        used = self._meter.seconds() - before
        most = max([*held.samples, tree_memory(self.pid)])
        return answer | {"cpu_s": used, "memory_gb": most / 1e9}

    def close(self) -> None:
        """End the process; its own children end with it."""
        try:
            self._process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _receive(self) -> dict[str, Any]:
        stdout = self._process.stdout
        assert stdout is not None
        line = stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"error": "it ended"}
        if "error" in answer:
            tail = "".join(self.log.read_text().splitlines(keepends=True)[-30:])
            raise RunnerFailed(f"{self.log.stem}: {answer['error']}; its log ends:\n{tail}")
        return answer


def serve(answer: Callable[[dict[str, Any]], Mapping[str, Any]], hello: Mapping[str, Any]) -> None:
    """The process's end: greet, then answer requests until there are no more.

    Answers go out on a private copy of standard output; standard output itself joins the log, so
    that nothing Spark or a library prints can get between them.
    """
    adopt_orphans()
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def send(message: Mapping[str, Any]) -> None:
        channel.write(json.dumps(message) + "\n")
        channel.flush()

    send(hello)
    for line in sys.stdin:
        try:
            send(answer(json.loads(line)))
        except Exception as error:
            send({"error": f"{type(error).__name__}: {error}"})
            raise
