"""Apache Sedona on Spark: the stream-static ST_Contains join of T-Drive with the districts.

This file is both ends: `start` makes the environment and starts the peer from a benchmark;
``python -m benchmarks.peers.sedona DISTRICTS CORES`` is the peer, in that environment.

Two forms. ``subdivided`` cuts every polygon into pieces of at most 128 vertices, which is the form
its makers advise for complex polygons: without it a polygon's bytes are copied into every joined
row. ``whole`` joins the polygons as they are. The tables are in Spark's cache before the stream
starts (cutting them anew in each micro-batch made no difference that could be told from noise).

In both the join is inner and brings one column, the cheapest that answers the question. A
point on the cut between two pieces is contained in neither, so a few rows are missing; making them
right (ST_Intersects, and each point once) would only cost more.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.harness import streams
from benchmarks.harness.runner import ROOT, Runner, serve
from benchmarks.peers.environment import Environment, PeerUnavailable

SEDONA = Environment(
    "sedona",
    packages=("pyspark==4.0.5", "apache-sedona==1.8.0"),
    jars=(
        "org.apache.sedona:sedona-spark-shaded-4.0_2.13:1.8.0",
        "org.datasyslab:geotools-wrapper:1.8.0-33.1",
    ),
)
VERTICES = 128
CONF = {
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.kryo.registrator": "org.apache.sedona.core.serde.SedonaKryoRegistrator",
    "spark.sql.extensions": "org.apache.sedona.sql.SedonaSqlExtensions",
}


def start(districts: Path, *, cores: int, make: bool = True) -> Runner:
    """The peer as a runner; its environment is made if need be, and if `make` allows it.

    Raises
    ------
    PeerUnavailable
        When there is no environment, or none can be made here.
    """
    if make:
        SEDONA.make()
    elif not SEDONA.is_made:
        raise PeerUnavailable("its environment is not made yet")
    words = (str(districts), str(cores))
    return Runner(__spec__.name, *words, name=f"sedona-{cores}", python=SEDONA.python)


def main(districts: str, cores: str) -> None:
    """The peer itself: answers ``{"case", "folder", "files", "count"}``."""
    spark = session(int(cores), streams.CONF)
    tables = {form: _table(spark, districts, form) for form in ("subdivided", "whole")}
    hello = {"pieces": {form: table.count() for form, table in tables.items()}}

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        points = streams.read(spark, request["folder"], request["files"])
        joined = _join(points, tables[request["case"]])
        if names := request.get("count"):
            joined = streams.counted(joined, "district", names)
        return streams.drain(joined, ROOT / ".cache" / "bench" / "checkpoints")

    serve(answer, hello)
    spark.stop()


def session(cores: int, conf: Mapping[str, str]) -> Any:
    """A session with Sedona's functions."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("sedona").master(f"local[{cores}]")
    jars = ",".join(str(path) for path in SEDONA.jar_paths())
    for key, value in {**conf, **CONF, "spark.jars": jars}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    # what SedonaContext.create does, without the pandas and geopandas it imports
    spark._jvm.org.apache.sedona.spark.SedonaContext.create(spark._jsparkSession, "python")
    return spark


def _table(spark: Any, districts: str, form: str) -> Any:
    features = spark.read.option("multiLine", True).json(districts)
    shapes = features.selectExpr("explode(features) AS f").selectExpr(
        "f.properties.district AS district", "ST_GeomFromGeoJSON(to_json(f.geometry)) AS shape"
    )
    if form == "subdivided":
        shapes = shapes.selectExpr("district", f"ST_SubDivideExplode(shape, {VERTICES}) AS shape")
    return shapes.cache()


def _join(events: Any, table: Any) -> Any:
    from pyspark.sql import functions as sf

    inside = sf.expr("ST_Contains(shape, ST_Point(lon, lat))")
    return events.join(sf.broadcast(table), inside, "inner").drop("shape")


if __name__ == "__main__":
    main(*sys.argv[1:])
