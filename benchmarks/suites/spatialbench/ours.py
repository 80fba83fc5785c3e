"""The process that answers SpatialBench's queries with rivermouth, in one Spark session."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import shapely

import rivermouth as rm
from benchmarks.harness.runner import Runner, serve
from benchmarks.suites.spatialbench.questions import REACH, ROWS, K

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CONF = {"spark.driver.memory": "3g", "spark.sql.shuffle.partitions": "4"}


def start(data: Path) -> Runner:
    """A session as a runner."""
    return Runner(__spec__.name, str(data), name="spatialbench-ours")


def q8(spark: SparkSession, trips: DataFrame, buildings: Any) -> DataFrame:
    """A distance join from points to polygons, then a count."""
    near = rm.join_table(
        trips.select("t_pickuploc"), buildings,
        on=rm.dwithin("t_pickuploc", "b_boundary", distance=REACH),
        columns=["b_buildingkey", "b_name"],
    )  # fmt: skip
    counts = near.groupBy("b_buildingkey", "b_name").count()
    return counts.orderBy("count", "b_buildingkey", ascending=[False, True])


def q9(spark: SparkSession, trips: DataFrame, buildings: Any) -> DataFrame:
    """A table joined with itself; what overlaps is computed by shapely."""
    from pyspark.sql import functions as sf

    @sf.pandas_udf("double")  # type: ignore[call-overload]
    def iou(one: pd.Series, other: pd.Series) -> pd.Series:
        a, b = shapely.from_wkb(one.to_numpy()), shapely.from_wkb(other.to_numpy())
        common = shapely.area(shapely.intersection(a, b))
        return pd.Series(common / (shapely.area(a) + shapely.area(b) - common))

    shapes = spark.read.parquet(buildings.path).drop("b_name")
    pairs = rm.join_table(
        shapes, buildings, on=rm.intersects("b_boundary", "b_boundary"),
        columns={"other": "b_buildingkey", "boundary": "b_boundary"},
    ).where("b_buildingkey < other")  # fmt: skip
    found = pairs.select("b_buildingkey", "other", iou("b_boundary", "boundary").alias("iou"))
    return found.orderBy("iou", "b_buildingkey", "other", ascending=[False, True, True])


def q12(spark: SparkSession, trips: DataFrame, buildings: Any) -> DataFrame:
    """The nearest rows of each trip as a function in SQL: nothing is shuffled."""
    rm.register(
        spark, "nearest_buildings", buildings, columns=[],
        on=rm.nearest("t_pickuploc", "b_boundary", k=K),
    )  # fmt: skip
    mean = f"aggregate(nearest_buildings(t_pickuploc), 0D, (sum, b) -> sum + b.distance) / {K}"
    found = trips.selectExpr("t_tripkey", f"{mean} AS mean")
    return found.orderBy("mean", "t_tripkey", ascending=[False, True])


def q8_read(spark: SparkSession, trips: DataFrame, buildings: Any) -> DataFrame:
    """Every trip's place is read, and nothing is done with it."""
    from pyspark.sql import functions as sf

    return trips.select(sf.sum(sf.length("t_pickuploc")))


def q8_into_python(spark: SparkSession, trips: DataFrame, buildings: Any) -> DataFrame:
    """Every trip's place goes to Python, and nothing comes back."""

    def none(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.slice(0, 0)

    return trips.select("t_pickuploc").mapInArrow(none, "t_pickuploc binary")


QUERIES: dict[str, Callable[..., DataFrame]] = {
    "q8": q8, "q9": q9, "q12": q12, "q8_read": q8_read, "q8_into_python": q8_into_python,
}  # fmt: skip


def main(data: str) -> None:
    """The process itself: answers ``{"query"}``."""
    from rivermouth.spark.runtime.session import local_session

    spark = local_session("spatialbench", cores=2, conf=CONF)

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        begin = time.perf_counter()
        trips = spark.read.parquet(f"{data}/trip.parquet")
        buildings = rm.tables.parquet(f"{data}/building.parquet", geometry="b_boundary")
        rows = QUERIES[request["query"]](spark, trips, buildings).limit(ROWS).collect()
        return {"rows": [list(row) for row in rows], "wall_s": time.perf_counter() - begin}

    serve(answer, {"spark": spark.version})
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
