"""SedonaDB: points joined with polygons by distance, in Rust and without Spark.

This file is both ends: `start` makes the environment and starts the peer from a benchmark;
``python -m benchmarks.peers.sedona_db`` is the peer, in that environment. Tables are Parquet files
of ``id`` and WKB ``geometry``, points folders of Parquet files of ``id``, ``x`` and ``y``.
"""

from __future__ import annotations

import time
from typing import Any

from benchmarks.harness.runner import Runner, serve
from benchmarks.peers.environment import Environment

SEDONA_DB = Environment(
    "sedona_db",
    packages=(
        "sedonadb==0.5.0",
        "pyarrow==26.0.1",
        "geopandas==1.2.0",
        "geoarrow-pyarrow==0.3.0",
    ),
)
_JOIN = """
SELECT count(*) AS pairs, sum({}) AS total
FROM points AS p JOIN (SELECT id, ST_GeomFromWKB(geometry) AS shape FROM shapes) AS t ON {}
"""
_TOTAL = {"nearest": "ST_Distance(ST_Point(p.x, p.y), t.shape)", "dwithin": "t.id"}
_ON = {
    "nearest": "ST_KNN(ST_Point(p.x, p.y), t.shape, {}, FALSE)",
    "dwithin": "ST_DWithin(ST_Point(p.x, p.y), t.shape, {!r})",
}


def start() -> Runner:
    """The peer as a runner; its environment is made if need be.

    Raises
    ------
    PeerUnavailable
        When the environment cannot be made here.
    """
    SEDONA_DB.make()
    return Runner(__spec__.name, name="sedona_db", python=SEDONA_DB.python)


def main() -> None:
    """The peer itself: answers ``{"table", "points", "form", "bound"}``."""
    import sedonadb

    engine = sedonadb.connect()

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        begin = time.perf_counter()
        engine.read_parquet(request["table"]).to_view("shapes", overwrite=True)
        engine.read_parquet(request["points"]).to_view("points", overwrite=True)
        on = _ON[request["form"]].format(request["bound"])
        (row,) = (
            engine.sql(_JOIN.format(_TOTAL[request["form"]], on)).to_pandas().to_dict("records")
        )
        return {
            "pairs": int(row["pairs"]),
            "total": float(row["total"]),
            "wall_s": time.perf_counter() - begin,
        }

    serve(answer, {"engine": "sedonadb"})


if __name__ == "__main__":
    main()
