"""SpatialBench as a table: a line a query and engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.harness.formatting import Cells, Document, number, only
from benchmarks.suites.spatialbench.questions import QUERIES

LABELS = {
    "rivermouth": "rivermouth, on Spark",
    "sedona": "Sedona, on Spark",
    "sedonadb": "SedonaDB",
    "duckdb": "DuckDB spatial",
    "geopandas": "GeoPandas",
}
FLOORS = {
    "q8_read": "Spark reads the trips' places, no join",
    "q8_into_python": "Spark sends them to Python, no join",
}
_PEER = "sedonadb"


def table(result: Document) -> Cells:
    """What each engine took, beside SedonaDB, and whether its answer is right.

    Memory is looked at twice a second: of a query that is over before, nothing is known.
    """
    head = ["query", "engine", "CPU, s", "to SedonaDB's", "wall, s", "memory, GB", "answer"]
    lines = [head]
    for query in QUERIES:
        rows = [row for row in result["rows"] if row["query"] == query]
        for row in sorted(rows, key=lambda row: row["cpu_s"]):
            to_peer = ""
            if any(each.get("engine") == _PEER for each in rows):
                peer = only(rows, engine=_PEER)
                to_peer = f"{row['cpu_s'] / peer['cpu_s']:.2f}"
            line = [
                query.upper(), FLOORS.get(row.get("floor")) or LABELS[row["engine"]],
                number(row["cpu_s"]), to_peer,
                number(row["wall_s"]), f"{row['memory_gb']:.1f}" if row["memory_gb"] else "",
                _verdict(row),
            ]  # fmt: skip
            lines.append(line)
    return lines


def _verdict(row: Mapping[str, Any]) -> str:
    if "floor" in row:
        return ""
    return "as published" if row["is_published"] and row["agrees"] else "wrong"
