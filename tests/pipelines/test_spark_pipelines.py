"""The operators inside Spark's own declarative pipelines, by its own program."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely

from rivermouth.spark.runtime.session import ROCKSDB, launch_environment

PROGRAM = Path(sys.executable).with_name("spark-pipelines")
SPEC = f"""
name: taxis
storage: file://{{folder}}/storage
libraries: [{{{{glob: {{{{include: transformations/**}}}}}}}}]
configuration:
  spark.sql.streaming.stateStore.providerClass: {ROCKSDB}
  spark.sql.shuffle.partitions: "2"
"""
INSIDE = """
@dp.materialized_view
def inside():
    return rm.join_table(spark.read.parquet(f"{folder}/in"), districts, on=on)
"""
REGISTERED = """
rm.register(spark, "district_of", districts, on=on, cache=cache)
"""
TRANSFORMATIONS = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

import rivermouth as rm

folder = {folder!r}
spark = SparkSession.active()
districts = rm.tables.geojson(f"{{folder}}/districts.geojson")
on = rm.within(rm.point("lon", "lat"), "geometry")
cache = rm.full(path=f"{{folder}}/snapshots")
batch = spark.read.parquet(f"{{folder}}/in")
stream = spark.readStream.schema(batch.schema).parquet(f"{{folder}}/in")
joined = rm.join_table(batch, districts, on=on, how="left", cache=cache)
joined_stream = rm.join_table(stream, districts, on=on, how="left", cache=cache)
minutes = rm.summary(by="district", time="at", window=rm.tumbling("1 minute"), n=rm.count())
counted = rm.aggregate(joined_stream, minutes, slack=rm.fixed("1 second"))


@dp.materialized_view
def placed():
    return joined


@dp.table
def placed_stream():
    return joined_stream


@dp.table
def by_minute():
    return counted
"""


@pytest.fixture
def folder(tmp_path):
    for package in ("grpc", "pyspark.pipelines"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    for name in ("in", "transformations"):
        (tmp_path / name).mkdir()
    times = pa.array([0, 1_000_000, 120_000_000], pa.timestamp("us", "UTC"))
    taxis = {"taxi": ["a", "b", "c"], "lon": [0.5, 1.5, 9.0], "lat": [0.5, 0.5, 9.0], "at": times}
    pq.write_table(pa.table(taxis), tmp_path / "in" / "1.parquet")
    features = [
        {"type": "Feature", "properties": {"district": name},
         "geometry": shapely.geometry.mapping(shapely.box(x, 0, x + 1, 1))}
        for x, name in enumerate(["west", "east"])
    ]  # fmt: skip
    collection = {"type": "FeatureCollection", "features": features}
    (tmp_path / "districts.geojson").write_text(json.dumps(collection))
    (tmp_path / "spark-pipeline.yml").write_text(SPEC.format(folder=tmp_path))
    return tmp_path


def ran(folder, transformations):
    (folder / "transformations" / "taxis.py").write_text(transformations)
    with launch_environment():
        return subprocess.run(
            [PROGRAM, "run", "--spec", "spark-pipeline.yml"], cwd=folder, env=dict(os.environ),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=500,
        )  # fmt: skip


def rows(folder, name):
    found = pq.read_table(folder / "spark-warehouse" / name).to_pylist()
    return sorted(found, key=str)


@pytest.mark.slow
@pytest.mark.spark
def test_operators_defined_outside_of_query_functions_run_there(folder):
    run = ran(folder, TRANSFORMATIONS.format(folder=str(folder)))
    assert run.returncode == 0, run.stdout
    for name in ("placed", "placed_stream"):
        districts = {row["taxi"]: row["district"] for row in rows(folder, name)}
        assert districts == {"a": "west", "b": "east", "c": None}
    counted = {(row["district"], row["n"]) for row in rows(folder, "by_minute")}
    assert counted == {("west", 1), ("east", 1)}


@pytest.mark.slow
@pytest.mark.spark
def test_inside_of_a_query_function_spark_refuses_them(folder):
    run = ran(folder, TRANSFORMATIONS.format(folder=str(folder)) + INSIDE)
    assert run.returncode != 0
    assert "ATTEMPT_ANALYSIS_IN_PIPELINE_QUERY_FUNCTION" in run.stdout


@pytest.mark.slow
@pytest.mark.spark
def test_spark_refuses_a_function_in_sql_there(folder):
    run = ran(folder, TRANSFORMATIONS.format(folder=str(folder)) + REGISTERED)
    assert run.returncode != 0
    assert "spark.udf.register" in run.stdout
