"""What the driver of `workload_hosts` starts: a workload, by our joins or by a query per record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from examples import product_recall, traffic

from benchmarks.harness import hosts_query
from benchmarks.papers import workload_cases

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMAS = {
    "recall": "customer bigint, number bigint, arrival bigint",
    "traffic": "road bigint, turn bigint, left_at timestamp, took_s double",
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
    events = hosts_query.read(spark, folder, schema=SCHEMAS[workload], files=files)
    joined = _ours(workload, events, **where) if form == "ours" else _plain(workload, events, where)
    hosts_query.run(_told(workload, joined), folder=folder, rows=rows, every=1)


def _ours(workload: str, events: DataFrame, *, tables: str, snapshots: str) -> DataFrame:
    """The example as it stands, on full caches."""
    import rivermouth as rm

    example, joined = {
        "recall": (product_recall, product_recall.recalled),
        "traffic": (traffic, traffic.delayed),
    }[workload]
    sources = {name: rm.tables.parquet(f"{tables}/{name}.parquet") for name in example.TABLES}
    return joined(events, sources, rm.full(path=snapshots))


def _plain(workload: str, events: DataFrame, where: dict[str, Any]) -> DataFrame:
    return workload_cases.CASES[f"{workload}_by_record"](events, **where)


def _told(workload: str, joined: DataFrame) -> DataFrame:
    """The rows with when their record arrived; a report arrives when its car left the turn."""
    from pyspark.sql import functions as sf

    if workload == "recall":
        return joined
    return joined.withColumns({"number": sf.col("turn"), "arrival": sf.unix_micros("left_at")})
