"""The process that runs our cases in one Spark session.

``python -m benchmarks.harness.session CORES``
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import TYPE_CHECKING, Any

from benchmarks.harness import streams
from benchmarks.harness.accounting import cpu_seconds
from benchmarks.harness.experiment import CACHE
from benchmarks.harness.runner import Runner, serve
from benchmarks.papers import workload_cases
from benchmarks.suites.aggregation import window_cases
from benchmarks.suites.fences import fence_cases
from benchmarks.suites.keys import key_cases
from benchmarks.suites.stream_join import join_cases
from benchmarks.suites.table_join import cases, plan_cases

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

CASES = {
    **cases.CASES,
    **plan_cases.CASES,
    **fence_cases.CASES,
    **key_cases.CASES,
    **join_cases.CASES,
    **workload_cases.CASES,
    **window_cases.CASES,
}


def start(*, cores: int, conf: Mapping[str, str] | None = None) -> Runner:
    """A session of so many cores as a runner; `conf` goes before `streams.CONF`."""
    return Runner(__spec__.name, str(cores), json.dumps(conf or {}), name=f"ours-{cores}")


def main(cores: str, conf: str) -> None:
    """The process itself: answers ``{"case", "options", "folder", "files", "count", "watch"}``.

    With ``steady`` the answer has the CPU time after the first micro-batch, too. With ``whole`` the
    files are a batch frame.
    """
    from rivermouth.spark.runtime.session import local_session

    # local[1] alone is no single core: a task, its Python worker and the driver are processes
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(cores)])
    spark = local_session("bench", cores=int(cores), conf=streams.CONF | json.loads(conf))

    @cache  # a frame defined once loads its table once, as a stream that runs for days does
    def defined(case: str, options: str, folder: str, files: int, whole: bool = False) -> DataFrame:
        read = streams.read_whole if whole else streams.read
        return CASES[case](read(spark, folder, files), **json.loads(options))

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        options = json.dumps(request.get("options", {}))
        where = (request["folder"], request["files"])
        if request.get("whole"):
            return streams.write(defined(request["case"], options, *where, whole=True))
        frame = defined(request["case"], options, *where)
        if names := request.get("count"):
            frame = streams.counted(frame, "district", names)
        parts = request.get("options", {}).get("partitions", 0)
        began = Started()
        beside: Callable[[StreamingQuery], AbstractContextManager[Any]] = nullcontext
        if request.get("watch"):
            beside = _watched
        elif request.get("steady"):
            beside = began
        found = streams.drain(
            frame,
            CACHE / "checkpoints",
            look=lambda query: _cache(query) | _loads(query, parts),
            beside=beside,
        )
        return found | began.since()

    serve(answer, {"spark": spark.version})
    spark.stop()


class Started:
    """Looks at a query until its first micro-batch is over; tells what the process used since."""

    def __init__(self) -> None:
        self._used: float | None = None

    @contextmanager
    def __call__(self, query: StreamingQuery) -> Iterator[None]:
        """Open once the first micro-batch is over."""
        while query.isActive and not any(each.numInputRows for each in query.recentProgress):
            time.sleep(0.02)
        self._used = cpu_seconds(os.getpid())
        yield

    def since(self) -> dict[str, float]:
        """CPU seconds after the first micro-batch, if it was looked at."""
        return {} if self._used is None else {"after_s": cpu_seconds(os.getpid()) - self._used}


def _watched(query: StreamingQuery) -> AbstractContextManager[Any]:
    """The query's page and history, as a user would have them."""
    import rivermouth as rm

    return rm.watch(query, history=CACHE / "histories")


def _cache(query: StreamingQuery) -> dict[str, Any]:
    """What an incremental cache did, if there is one."""
    import rivermouth as rm

    (*_, operator) = rm.metrics(query)["operators"].values() or ({"cache": None},)
    held = operator["cache"]
    names = ("hit_ratio", "loads", "entries", "workers")
    return {"cache": {name: held[name] for name in names}} if held else {}


def _loads(query: StreamingQuery, partitions: int) -> dict[str, Any]:
    """The rows and the seconds of each partition, batch by batch; an empty one reports nothing."""
    rows, seconds = [], []
    for batch in query.recentProgress if partitions else ():
        for row in batch["observedMetrics"].values():
            tasks = [json.loads(report) for report in row["tasks"]]
            loads, costs = ([0.0] * max(partitions, len(tasks)) for _ in range(2))
            for number, task in enumerate(tasks):
                part = task.get("routing", {}).get("partition", number)
                loads[part] = task["rows_in"]
                costs[part] = task["seconds"] + task.get("cache", {}).get("load_seconds", 0.0)
            rows.append(loads)
            seconds.append(costs)
    return {"loads": rows, "seconds": seconds}


if __name__ == "__main__":
    main(*sys.argv[1:])
