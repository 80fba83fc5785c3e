"""The process that runs `cases` in one Spark session: ``python -m benchmarks.ours CORES``."""

from __future__ import annotations

import sys
from typing import Any

from benchmarks import streams
from benchmarks.cases import CASES
from benchmarks.harness import CACHE
from benchmarks.runner import Runner, serve


def start(*, cores: int) -> Runner:
    """A session of so many cores as a runner."""
    return Runner(__spec__.name, str(cores), name=f"ours-{cores}")


def main(cores: str) -> None:
    """The process itself: answers ``{"case", "folder", "files", "count"}``."""
    from rivermouth.spark.session import local_session

    spark = local_session("bench", cores=int(cores), conf=streams.CONF)

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        frame = CASES[request["case"]](streams.read(spark, request["folder"], request["files"]))
        if names := request.get("count"):
            frame = streams.counted(frame, "district", names)
        return streams.drain(frame, CACHE / "checkpoints")

    serve(answer, {"spark": spark.version})
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
