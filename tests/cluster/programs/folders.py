"""What operators say of folders, on a cluster."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

import rivermouth as rm
from rivermouth.testing import replay


def said(spark: SparkSession, *, name: str, path: str, table: str) -> Any:
    """What an operator gives with its files in a folder, or the error as text."""
    calls = spark.range(40).selectExpr("id uid", "timestamp_seconds(id) at").repartition(4)
    users = rm.tables.parquet(table)
    summary = rm.summary(time="at", window=rm.tumbling("1 minute"), n=rm.count())

    def full() -> Any:
        return rm.join_table(calls, users, on=rm.keys("uid"), cache=rm.full(path=path)).count()

    def exact() -> Any:
        stream = replay(calls, path=f"{table}-events")
        job = rm.exact(stream, summary, store=path, slack=rm.fixed("0 seconds"))
        return job.start(availableNow=True).awaitTermination()

    def snapshot() -> Any:
        return rm.snapshot(calls, path).read(["uid"]).num_rows

    try:
        return {"full": full, "exact": exact, "snapshot": snapshot}[name]()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
