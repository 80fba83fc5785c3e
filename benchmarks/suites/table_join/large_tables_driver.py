"""What the driver of `large_tables` runs: points within the polygons of a table in Parquet."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def join(
    spark: SparkSession, *, table: str, points: str, buckets: int | None, snapshots: str,
    output: str, times: int,
) -> None:  # fmt: skip
    """Join so many times the points, and write which point is in which polygon."""
    from pyspark.sql import functions as F  # noqa: N812  (as everybody writes it)

    import rivermouth as rm

    turn = F.explode(F.sequence(F.lit(1), F.lit(times)))
    joined = rm.join_table(
        spark.read.parquet(points).withColumn("turn", turn),
        rm.tables.parquet(table, geometry="shape"),
        on=rm.within(rm.point("x", "y"), "shape"),
        columns=["polygon"],
        cache=rm.full(buckets=buckets, path=snapshots, refresh="1 day"),
    )
    joined.select("point", "polygon").write.parquet(output)
