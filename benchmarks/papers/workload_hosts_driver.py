"""What the driver of `workload_hosts` starts: a workload, by our joins or by a query per record."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from examples import product_recall, time_slices, traffic

from benchmarks.harness import hosts_query
from benchmarks.papers import workload_cases

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

AT_LEAST = 1 << 20  #: bytes of a micro-batch: files of few records are mostly their own head
SCHEMAS = {
    "recall": "customer bigint, number bigint, arrival bigint",
    "traffic": "road bigint, turn bigint, left_at timestamp, took_s double",
    "slices": "report bigint, road bigint, second bigint, took_s double, arrival bigint",
}
EXAMPLES = {
    "recall": (product_recall, product_recall.recalled),
    "traffic": (traffic, traffic.delayed),
    "slices": (time_slices, time_slices.compared),
}


def start(
    spark: SparkSession,
    *,
    workload: str,
    form: str,
    folder: str,
    files: int,
    rows: int,
    where: dict[str, Any],
) -> None:
    """Start a workload on ``folder/in/*`` and wait until so many rows went in.

    `where` are the tables.
    """
    events = hosts_query.read(
        spark, folder, schema=SCHEMAS[workload], files=files, at_least=AT_LEAST
    )
    joined = FORMS[form](workload, events, **where)
    hosts_query.run(_told(workload, joined), folder=folder, rows=rows, every=1)


def _full(
    workload: str, events: DataFrame, *, tables: str, snapshots: str, index: Any = None
) -> DataFrame:
    """The example as it stands, on full caches, which the queries after the first find there."""
    import rivermouth as rm

    example, joined = EXAMPLES[workload]
    sources = {name: rm.tables.parquet(f"{tables}/{name}.parquet") for name in example.TABLES}
    return joined(events, sources, rm.full(index=index, path=snapshots, refresh="1 day"))


def _incremental(workload: str, events: DataFrame, *, url: str, rows: int, held: int) -> DataFrame:
    """The same on incremental caches of so many rows each."""
    import rivermouth as rm

    example, joined = EXAMPLES[workload]
    store = rm.tables.mysql if url.startswith("mysql:") else rm.tables.postgres
    sources = {name: store(url, workload_cases.name(name, rows)) for name in example.TABLES}
    return joined(events, sources, rm.incremental(rows=held))


def _by_record(workload: str, events: DataFrame, *, url: str, rows: int) -> DataFrame:
    return workload_cases.CASES[f"{workload}_by_record"](events, url=url, rows=rows)


FORMS = {
    "full": _full,
    **{index: partial(_full, index=index) for index in ("skiplist", "ideal_skiplist")},
    "incremental": _incremental,
    "by_record": _by_record,
}


def _told(workload: str, joined: DataFrame) -> DataFrame:
    """The rows with when their record arrived; a report arrives when its car left the turn."""
    from pyspark.sql import functions as sf

    if workload == "recall":
        return joined
    if workload == "slices":
        return joined.withColumnRenamed("report", "number")
    return joined.withColumns({"number": sf.col("turn"), "arrival": sf.unix_micros("left_at")})
