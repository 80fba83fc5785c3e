"""The process that runs `cases` in one Spark session: ``python -m benchmarks.ours CORES``."""

from __future__ import annotations

import json
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

from benchmarks import streams
from benchmarks.cases import CASES
from benchmarks.harness import CACHE
from benchmarks.runner import Runner, serve

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def start(*, cores: int) -> Runner:
    """A session of so many cores as a runner."""
    return Runner(__spec__.name, str(cores), name=f"ours-{cores}")


def main(cores: str) -> None:
    """The process itself: answers ``{"case", "options", "folder", "files", "count"}``."""
    from rivermouth.spark.session import local_session

    spark = local_session("bench", cores=int(cores), conf=streams.CONF)

    @cache  # a frame defined once loads its table once, as a stream that runs for days does
    def defined(case: str, options: str, folder: str, files: int) -> DataFrame:
        return CASES[case](streams.read(spark, folder, files), **json.loads(options))

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        options = json.dumps(request.get("options", {}))
        frame = defined(request["case"], options, request["folder"], request["files"])
        if names := request.get("count"):
            frame = streams.counted(frame, "district", names)
        return streams.drain(frame, CACHE / "checkpoints")

    serve(answer, {"spark": spark.version})
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
