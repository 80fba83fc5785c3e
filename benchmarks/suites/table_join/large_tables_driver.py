"""What the driver of `large_tables` runs: points within the polygons of a table in Parquet."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def join(
    spark: SparkSession, *, table: str, points: str, buckets: int | None, snapshots: str,
    output: str,
) -> None:  # fmt: skip
    """Join, and write which point is in which polygon."""
    import rivermouth as rm

    joined = rm.join_table(
        spark.read.parquet(points),
        rm.tables.parquet(table, geometry="shape"),
        on=rm.within(rm.point("x", "y"), "shape"),
        columns=["polygon"],
        cache=rm.full(buckets=buckets, path=snapshots),
    )
    joined.select("point", "polygon").write.parquet(output)
