"""Engines with spatial SQL that answer SpatialBench's queries: SedonaDB, DuckDB, Sedona on Spark.

This file is both ends: `start` makes an engine's environment and starts it from a benchmark;
``python -m benchmarks.peers.spatial_sql ENGINE FOLDER`` is the engine, in that environment.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.harness.runner import Runner, serve
from benchmarks.peers.environment import Environment
from benchmarks.peers.sedona import CONF, SEDONA
from benchmarks.peers.sedona_db import SEDONA_DB
from benchmarks.suites.spatialbench.questions import SQL

DUCKDB = Environment("duckdb", packages=("duckdb==1.5.5", "duckdb-extension-spatial==1.5.5"))
GENERATOR = Environment("spatialbench", packages=("spatialbench-cli==0.2.0",))
ENVIRONMENTS = {"sedonadb": SEDONA_DB, "duckdb": DUCKDB, "sedona": SEDONA}
#: what an engine cannot be asked: DuckDB has no join by nearness but a loop over all pairs
CANNOT = {("duckdb", "q12")}
_TABLES = ("trip", "building")

Ask = Callable[[str], list[list[Any]]]


def start(engine: str, data: Path) -> Runner:
    """An engine as a runner; its environment is made if need be.

    Raises
    ------
    PeerUnavailable
        When the environment cannot be made here.
    """
    environment = ENVIRONMENTS[engine].make()
    words = (engine, str(data))
    return Runner(__spec__.name, *words, name=f"spatialbench-{engine}", python=environment.python)


def sedonadb(data: str) -> Ask:
    """SedonaDB."""
    import sedonadb

    engine = sedonadb.connect()
    for name in _TABLES:
        engine.read_parquet(f"{data}/{name}.parquet").to_view(name, overwrite=True)

    def ask(sql: str) -> list[list[Any]]:
        found: Any = engine.sql(sql).to_pandas()
        return [list(row) for row in found.astype(object).itertuples(index=False)]

    return ask


def duckdb(data: str) -> Ask:
    """DuckDB with its spatial extension, which comes from a package."""
    import duckdb
    import duckdb_extension_spatial

    engine = duckdb.connect()
    folder = Path(duckdb_extension_spatial.__file__).parent
    (extension,) = folder.rglob("*.duckdb_extension*")
    engine.execute(f"INSTALL '{extension}'; LOAD spatial")
    for name in _TABLES:
        engine.execute(f"CREATE VIEW {name} AS SELECT * FROM '{data}/{name}.parquet'")
    return lambda sql: [list(row) for row in engine.execute(sql).fetchall()]


def sedona(data: str) -> Ask:
    """Apache Sedona on Spark."""
    from pyspark.sql import SparkSession

    jars = ",".join(str(path) for path in SEDONA.jar_paths())
    given = {"spark.jars": jars, "spark.driver.memory": "3g", "spark.sql.shuffle.partitions": "4"}
    builder = SparkSession.builder.appName("sedona").master("local[2]")
    for key, value in (CONF | given).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark._jvm.org.apache.sedona.spark.SedonaContext.create(spark._jsparkSession, "python")
    for name in _TABLES:
        spark.read.parquet(f"{data}/{name}.parquet").createOrReplaceTempView(name)
    return lambda sql: [list(row) for row in spark.sql(sql).collect()]


def main(engine: str, data: str) -> None:
    """The engine itself: answers ``{"query"}``."""
    engines: dict[str, Callable[[str], Ask]] = {
        "sedonadb": sedonadb, "duckdb": duckdb, "sedona": sedona,
    }  # fmt: skip
    ask = engines[engine](data)

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        begin = time.perf_counter()
        rows = ask(SQL[request["query"]])
        return {"rows": rows, "wall_s": time.perf_counter() - begin}

    serve(answer, {"engine": engine})


if __name__ == "__main__":
    main(*sys.argv[1:])
