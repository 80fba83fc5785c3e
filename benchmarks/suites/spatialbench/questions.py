"""The queries of SpatialBench that join by place, their published answers, and its data.

Standard library only: peers import this in their own environments.
"""

from __future__ import annotations

import math
import subprocess
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness.runner import ROOT

REACH = 0.0045  #: degrees, about 500 m
K = 5
ROWS = 100  #: of every answer
QUERIES = {
    "q8": "how many trips start within 500 m of each building",
    "q9": "which buildings overlap, and how much",
    "q12": "which trips start farthest from their five nearest buildings",
}
#: by query: the first rows of the answers that its makers print for scale factor 1
PUBLISHED: dict[str, list[list[object]]] = {
    "q8": [[3779, "linen", 42], [19135, "misty", 36], [4416, "sienna", 26]],
    "q9": [
        [7562, 18534, 0.8415764980401906],
        [2285, 15719, 0.7022218100645453],
        [13658, 15719, 0.7019832720541139],
    ],
    "q12": [
        [1397637, 82.40977530183955],
        [4166482, 82.38756120900636],
        [2976679, 82.36270091818895],
    ],
}
#: what SQL engines with PostGIS's names are asked; tables: trip and building
SQL = {
    "q8": f"""
        SELECT b_buildingkey, b_name, count(*) AS pickups
        FROM trip JOIN building
          ON ST_DWithin(ST_GeomFromWKB(t_pickuploc), ST_GeomFromWKB(b_boundary), {REACH})
        GROUP BY b_buildingkey, b_name
        ORDER BY pickups DESC, b_buildingkey LIMIT {ROWS}
    """,
    "q9": f"""
        WITH shaped AS (
            SELECT b_buildingkey AS id, ST_GeomFromWKB(b_boundary) AS shape FROM building
        ), pairs AS (
            SELECT a.id AS one, b.id AS other, ST_Area(a.shape) + ST_Area(b.shape) AS areas,
                   ST_Area(ST_Intersection(a.shape, b.shape)) AS common
            FROM shaped a JOIN shaped b ON ST_Intersects(a.shape, b.shape) AND a.id < b.id
        )
        SELECT one, other, common / (areas - common) AS iou FROM pairs
        ORDER BY iou DESC, one, other LIMIT {ROWS}
    """,
    "q12": f"""
        WITH trips AS (SELECT t_tripkey, ST_GeomFromWKB(t_pickuploc) AS spot FROM trip),
        shaped AS (SELECT ST_GeomFromWKB(b_boundary) AS shape FROM building)
        SELECT t_tripkey, avg(ST_Distance(spot, shape)) AS mean
        FROM trips JOIN shaped ON ST_KNN(spot, shape, {K}, FALSE)
        GROUP BY t_tripkey ORDER BY mean DESC, t_tripkey LIMIT {ROWS}
    """,
}
_GENERATOR = "spatialbench-cli"


def folder(scale: float, python: Path) -> Path:
    """Where the tables are, made once by the generator of an environment.

    The scale factor is that of the trips. The buildings are always those of scale factor 1: the
    generator makes none for a smaller one.
    """
    made = ROOT / ".cache" / "bench" / "spatialbench" / f"sf{scale:g}"
    for name, size in (("trip", scale), ("building", 1)):
        if not (made / f"{name}.parquet").exists():
            made.mkdir(parents=True, exist_ok=True)
            words = [python.parent / _GENERATOR, "-s", f"{size:g}", "-T", name, "-o", made]
            subprocess.run(list(map(str, words)), check=True, capture_output=True)
    return made


def same(rows: Sequence[Sequence[object]], others: Sequence[Sequence[object]]) -> bool:
    """Whether answers agree: keys exactly, floats to 1e-9.

    Examples
    --------
    >>> same([[1, 0.5]], [[1, 0.5 + 1e-12]]), same([[1, 0.5]], [[2, 0.5]]), same([], [[1]])
    (True, False, False)
    """
    return len(rows) == len(others) and all(
        len(row) == len(other) and all(map(_equal, row, other))
        for row, other in zip(rows, others, strict=True)
    )


def _equal(one: object, other: object) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9)
    return one == other
