"""The tables of kernels over shapes: a result -> cells."""

from __future__ import annotations

from typing import Any

from benchmarks.harness.formatting import Cells, Document, number, only

NEAR = {
    "edgetree": "**rivermouth**",
    "strtree": "shapely's STRtree, as before",
    "sedonadb": "SedonaDB",
}


def shapes(result: Document) -> Cells:
    """Kernels beside shapely: rates, building, size."""
    return [
        ["points/s, one core", "rivermouth", "shapely", "index", "built in", "size"],
        *(
            [
                ours["title"],
                number(ours["points_per_s"]),
                number(theirs["points_per_s"]) if theirs else "no such query",
                ours["index"],
                f"{ours['build_s']:.2f} s",
                f"{ours['index_mb']:.1f} MB",
            ]
            for ours, theirs in _beside(result)
        ),
    ]


def large_tables(result: Document) -> Cells:
    """Each table in buckets and whole: its size, memory of the fullest host, cost of a point."""
    limit = result["limit_bytes"] / 1e6
    head = ["polygons", "cache", "snapshot, MB", f"a host's memory, MB (limit {limit:,.0f})",
            "first query, CPU-s", "second, CPU-s", "a further million points, CPU-s",
            "rows"]  # fmt: skip
    caches = {"buckets": f"`rm.full(buckets={result['buckets']})`", "whole": "`rm.full()`"}
    return [
        head,
        *(
            [
                number(row["rows"]),
                caches[row["case"]],
                f"{row['snapshot_bytes'] / 1e6:,.0f}",
                f"{_most_memory(row) / 1e6:,.0f}",
                f"{row['first_cpu_s']:.0f}",
                f"{row['again_cpu_s']:.0f}",
                f"{row['cpu_s_per_million']:.1f}",
                f"{row['rows_out']:,}",
            ]
            for row in result["rows"]
        ),
    ]


def _most_memory(row: dict[str, Any]) -> float:
    """Of the fullest host, in any query."""
    return max(max(hosts) for key, hosts in row.items() if key.endswith("_memory"))


def grids(result: Document) -> Cells:
    """By table: the time of a point and the index's size, with so many cells an edge."""
    names = dict.fromkeys(row["table"] for row in result["rows"])
    cases = dict.fromkeys(row["case"] for row in result["rows"])
    lines = []
    for name in names:
        rows = [only(result["rows"], table=name, case=case) for case in cases]
        times = [f"{row['ns_per_point']:.0f}, {row['bytes'] / 1e6:.1f}" for row in rows]
        lines.append([f"{name}, {number(rows[0]['edges'])} edges", *times])
    heads = [case if case == "chosen" else f"{case} an edge" for case in cases]
    return [["ns a point, MB of the index", *heads], *lines]


def near_shapes(result: Document) -> Cells:
    """CPU time to find the polygons near a point, and how that is to SedonaDB's."""
    cells = [
        ["CPU-s per million points, one process", *NEAR.values(), "to SedonaDB", "pairs a point"]
    ]
    for form, title in (
        ("nearest", "five nearest polygons"),
        ("dwithin", "polygons within a distance"),
    ):
        rows = {name: only(result["rows"], form=form, case=name) for name in NEAR}
        cost = {name: row["cpu_s_per_million"] for name, row in rows.items()}
        cells.append(
            [
                title,
                *(f"{cost[name]:.1f}" for name in NEAR),
                f"{cost['edgetree'] / cost['sedonadb']:.2f}",
                f"{rows['edgetree']['pairs_per_point']:.1f}",
            ]
        )
    return cells


def growth(result: Document) -> Cells:
    """Rates against the size of the table and of its polygons, ours / shapely's."""
    lines: dict[str, dict[int, str]] = {}
    for ours, theirs in _beside(result):
        rates = f"{number(ours['points_per_s'])} / {number(theirs and theirs['points_per_s'])}"
        name = f"{ours['question']}, {'vertices' if ours['vertices'] else 'rows'}"
        lines.setdefault(name, {})[ours["vertices"] or ours["rows"]] = rates
    sizes = sorted({size for line in lines.values() for size in line})
    return [
        ["points/s, ours / shapely's", *(f"{size:,}" for size in sizes)],
        *([name, *(line.get(size, "") for size in sizes)] for name, line in lines.items()),
    ]


def _beside(result: Document) -> list[tuple[dict[str, Any], dict[str, Any] | None]]:
    """Our rows, each with shapely's of the same question."""
    theirs = {row["title"]: row for row in result["rows"] if row["case"] == "shapely"}
    ours = [row for row in result["rows"] if row["case"] == "rivermouth"]
    return [(row, theirs.get(row["title"])) for row in ours]
