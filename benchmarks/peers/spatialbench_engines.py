"""Engines that answer SpatialBench's queries: SedonaDB, DuckDB, Sedona on Spark, GeoPandas.

This file is both ends: `start` makes an engine's environment and starts it from a benchmark;
``python -m benchmarks.peers.spatialbench_engines ENGINE FOLDER`` is the engine, in its environment.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.harness.runner import Runner, serve
from benchmarks.peers.environment import Environment
from benchmarks.peers.sedona import SEDONA, session
from benchmarks.peers.sedona_db import SEDONA_DB
from benchmarks.suites.spatialbench.questions import REACH, ROWS, SQL

DUCKDB = Environment("duckdb", packages=("duckdb==1.5.5", "duckdb-extension-spatial==1.5.5"))
GEOPANDAS = Environment("geopandas", packages=("geopandas==1.2.0", "pyarrow==26.0.1"))
GENERATOR = Environment("spatialbench", packages=("spatialbench-cli==0.2.0",))
ENVIRONMENTS = {
    "sedonadb": SEDONA_DB, "duckdb": DUCKDB, "sedona": SEDONA, "geopandas": GEOPANDAS,
}  # fmt: skip
#: what an engine cannot be asked: DuckDB has no join by nearness but a loop over all pairs, and
#: that of GeoPandas gives one row, not five
CANNOT = {("duckdb", "q12"), ("geopandas", "q12")}
_TABLES = ("trip", "building")

Rows = list[list[Any]]
Ask = Callable[[str], Rows]  #: the answer to a query of that name


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

    return lambda query: _plain(engine.sql(SQL[query]).to_pandas())


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
    return lambda query: [list(row) for row in engine.execute(SQL[query]).fetchall()]


def sedona(data: str) -> Ask:
    """Apache Sedona on Spark."""
    conf = {"spark.driver.memory": "3g", "spark.sql.shuffle.partitions": "4"}
    spark = session(2, conf)
    for name in _TABLES:
        spark.read.parquet(f"{data}/{name}.parquet").createOrReplaceTempView(name)
    return lambda query: [list(row) for row in spark.sql(SQL[query]).collect()]


def geopandas(data: str) -> Ask:
    """GeoPandas, all in memory."""
    import geopandas as gpd
    import pandas as pd

    def shaped(name: str, geometry: str, *columns: str) -> Any:
        table = pd.read_parquet(f"{data}/{name}.parquet", columns=[geometry, *columns])
        shapes = gpd.GeoSeries.from_wkb(table[geometry])
        return gpd.GeoDataFrame(table[list(columns)], geometry=shapes)

    def q8() -> Any:
        buildings = shaped("building", "b_boundary", "b_buildingkey", "b_name")
        trips = shaped("trip", "t_pickuploc")
        near = trips.sjoin(buildings, predicate="dwithin", distance=REACH)
        counts = near.groupby(["b_buildingkey", "b_name"]).size().reset_index(name="pickups")
        return counts.sort_values(["pickups", "b_buildingkey"], ascending=[False, True])

    def q9() -> Any:
        one = shaped("building", "b_boundary", "b_buildingkey").rename(
            columns={"b_buildingkey": "one"}
        )
        other = one.rename(columns={"one": "other"})
        other["shape"] = other.geometry
        pairs = one.sjoin(other, predicate="intersects").query("one < other")
        common = pairs.geometry.intersection(pairs["shape"]).area
        pairs["iou"] = common / (pairs.geometry.area + gpd.GeoSeries(pairs["shape"]).area - common)
        found = pairs[["one", "other", "iou"]]
        return found.sort_values(["iou", "one", "other"], ascending=[False, True, True])

    queries = {"q8": q8, "q9": q9}
    return lambda query: _plain(queries[query]().head(ROWS))


def _plain(frame: Any) -> Rows:
    return [list(row) for row in frame.astype(object).itertuples(index=False)]


def main(engine: str, data: str) -> None:
    """The engine itself: answers ``{"query"}``."""
    engines: dict[str, Callable[[str], Ask]] = {
        "sedonadb": sedonadb, "duckdb": duckdb, "sedona": sedona, "geopandas": geopandas,
    }  # fmt: skip
    ask = engines[engine](data)

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        begin = time.perf_counter()
        rows = ask(request["query"])
        return {"rows": rows, "wall_s": time.perf_counter() - begin}

    serve(answer, {"engine": engine})


if __name__ == "__main__":
    main(*sys.argv[1:])
