"""The process that runs queries in a session of one setting: ``python -m ...setting_run CONF``."""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness import streams
from benchmarks.harness.experiment import CACHE
from benchmarks.harness.runner import Runner, serve
from benchmarks.suites.settings.setting_cases import start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: RocksDB and its changelog are on in any `local_session`
CONF = streams.CONF | {"spark.driver.memory": "1g"}
_PAUSE = 0.1  # seconds between looks at a query: each costs CPU, the same in all settings


def runner(conf: Mapping[str, str], *, name: str) -> Runner:
    """A session with these settings as a runner."""
    return Runner(__spec__.name, json.dumps(conf), name=f"settings-{name}")


class Running:
    """A query under way: ``start`` it, ``run`` so many micro-batches more, ``stop`` it.

    What ``run`` tells is of the micro-batches that it has waited for.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._query: Any = None
        self._stop: Callable[[], None] = lambda: None
        self._folder = Path()
        self._done = 0

    def start(self, operator: str, rows: int, options: dict[str, str], batches: int) -> None:
        """Start a query and wait until so many micro-batches are over."""
        scratch = CACHE / "checkpoints"
        scratch.mkdir(parents=True, exist_ok=True)
        self._folder = Path(tempfile.mkdtemp(dir=scratch))
        self._query, self._stop = start(
            self._spark, operator, rows=rows, options=options, folder=self._folder
        )
        self._done = 0
        self._wait(batches)

    def run(self, batches: int) -> dict[str, float]:
        """Medians of the next micro-batches, and what they have left in the checkpoint."""
        before, first = _written(self._folder / "store"), self._done
        self._wait(batches)
        after, count = _written(self._folder / "store"), self._done - first
        found = [batch for batch in self._query.recentProgress if batch.batchId >= first]
        return {
            "batches": count,
            "batch_ms": statistics.median(each.durationMs["triggerExecution"] for each in found),
            "files": (after[0] - before[0]) / count,
            "bytes": (after[1] - before[1]) / count,
        }

    def stop(self) -> None:
        """Stop the query and forget what it wrote."""
        self._stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _wait(self, batches: int) -> None:
        end = self._done + batches
        while self._done < end:
            time.sleep(_PAUSE)
            if not self._query.isActive:
                raise RuntimeError(str(self._query.exception()))
            if last := self._query.lastProgress:
                self._done = last.batchId + 1


def _written(folder: Path) -> tuple[int, int]:
    """Files under a folder, and their bytes."""
    sizes = []
    for path in folder.rglob("*"):
        try:
            if path.is_file():
                sizes.append(path.stat().st_size)
        except FileNotFoundError:  # renamed since the listing
            continue
    return len(sizes), sum(sizes)


def main(conf: str) -> None:
    """The process itself: answers ``{"do": "start", ...}``, ``{"do": "run"}``, ``{"do": "stop"}``.

    A query that Spark refuses is an answer ``{"refused": why}``.
    """
    from rivermouth.spark.runtime.session import local_session

    spark = local_session("settings", cores=2, conf=CONF | json.loads(conf))
    running = Running(spark)

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        do, refusable = request.pop("do"), request.pop("refusable", False)
        try:
            return getattr(running, do)(**request) or {}
        except Exception as error:
            if not refusable:
                raise
            return {"refused": str(error).strip()}

    serve(answer, {"spark": spark.version})
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
