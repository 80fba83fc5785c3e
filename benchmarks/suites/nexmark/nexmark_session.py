"""The process that runs Nexmark's queries in one Spark session, ours or Spark's own.

``python -m benchmarks.suites.nexmark.nexmark_session``
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import TYPE_CHECKING, Any

from benchmarks.harness import streams
from benchmarks.harness.experiment import CACHE
from benchmarks.harness.runner import Runner, serve
from benchmarks.suites.nexmark.events import Events, side_table
from benchmarks.suites.nexmark.queries import CLOSES, OURS, READS, SPARK, SQL

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

CASES = {"ours": OURS, "spark": SPARK}
CORES = 2
_ANSWER = "answer"


def start(name: str) -> Runner:
    """A session as a runner, of this name in the logs."""
    return Runner(__spec__.name, name=f"nexmark-{name}")


def stream(spark: SparkSession, case: str, query: str, events: Events) -> DataFrame:
    """A query as a stream that also digests its answer."""

    def read(entity: str) -> DataFrame:
        return streams.read(spark, str(events.folder(entity)), events.files)

    answer = CASES[case][query](read, str(side_table()))
    return final(answer, query, events).observe(_ANSWER, *_digest(answer))


def truth(spark: SparkSession, query: str, events: Events) -> dict[str, int]:
    """The digest of what plain SQL says of the same files as tables."""
    for entity in READS[query]:
        spark.read.parquet(str(events.folder(entity))).createOrReplaceTempView(entity)
    spark.read.parquet(str(side_table())).createOrReplaceTempView("side")
    answer = final(spark.sql(SQL[query]), query, events)
    (row,) = answer.agg(*_digest(answer)).collect()
    return row.asDict()


def final(answer: DataFrame, query: str, events: Events) -> DataFrame:
    """The answer, without the windows that are still open when the last file begins."""
    from pyspark.sql import functions as sf

    if (closes := CLOSES[query]) is None:
        return answer
    until = events.end_us(events.files - 2) - 4_000_000
    return answer.where(sf.col(closes) <= sf.timestamp_micros(sf.lit(until)))


def digest(query: StreamingQuery) -> dict[str, dict[str, int]]:
    """The digest of all that a query has given."""
    found = Counter[str]()
    for batch in query.recentProgress:
        if row := batch.observedMetrics.get(_ANSWER):
            found.update({name: value or 0 for name, value in row.asDict().items()})
    return {_ANSWER: dict(found)}


def _digest(answer: DataFrame) -> list[Column]:
    """Number of rows, and sums of both halves of their hashes: the same in whatever order."""
    from pyspark.sql import functions as sf

    row = sf.xxhash64(*(answer[name] for name in answer.columns))
    return [
        sf.count(sf.lit(1)).alias("rows"),
        sf.sum(sf.shiftrightunsigned(row, 33)).alias("high"),
        sf.sum(row.bitwiseAND(0x7FFFFFFF)).alias("low"),
    ]


def main() -> None:
    """The process itself: answers ``{"case", "query", "count", "files", "conf"}``.

    The case "truth" is plain SQL. `conf` is set before the query is defined.
    """
    from rivermouth.spark.runtime.session import local_session

    spark = local_session("nexmark", cores=CORES, conf=streams.CONF)

    @cache  # a frame defined once loads its table once, as a stream that runs for days does
    def defined(case: str, query: str, events: Events) -> DataFrame:
        return stream(spark, case, query, events)

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        events = Events(request["count"], request["files"])
        for name, value in request.get("conf", {}).items():
            spark.conf.set(name, value)
        if request["case"] == "truth":
            return {_ANSWER: truth(spark, request["query"], events)}
        frame = defined(request["case"], request["query"], events)
        return streams.drain(frame, CACHE / "checkpoints", look=digest)

    serve(answer, {"spark": spark.version})
    spark.stop()


if __name__ == "__main__":
    main()
