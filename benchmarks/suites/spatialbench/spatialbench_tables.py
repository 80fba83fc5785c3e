"""SpatialBench as a table: a line a query and engine."""

from __future__ import annotations

from benchmarks.harness.formatting import Cells, Document, number, only
from benchmarks.suites.spatialbench.questions import QUERIES

LABELS = {
    "rivermouth": "rivermouth, on Spark",
    "sedona": "Sedona, on Spark",
    "sedonadb": "SedonaDB",
    "duckdb": "DuckDB spatial",
    "geopandas": "GeoPandas",
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
            if any(each["engine"] == _PEER for each in rows):
                peer = only(rows, engine=_PEER)
                to_peer = f"{row['cpu_s'] / peer['cpu_s']:.2f}"
            right = row["is_published"] and row["agrees"]
            line = [
                query.upper(), LABELS[row["engine"]], number(row["cpu_s"]), to_peer,
                number(row["wall_s"]), f"{row['memory_gb']:.1f}" if row["memory_gb"] else "",
                "as published" if right else "wrong",
            ]  # fmt: skip
            lines.append(line)
    return lines
