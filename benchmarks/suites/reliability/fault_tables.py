"""What ``python -m tests.faults --save`` found: a line a query, and a line a kind of fault."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any

from benchmarks.harness.formatting import Cells, Document

LABELS = {
    "refresh": "`join_table`, a full cache that is refreshed",
    "hotspots": "`join_table`, incremental caches, `rm.by_hotspot()`",
    "interval": "`join_interval`",
    "window": "`join_window`",
    "aggregate": "`aggregate`",
    "exact": "`rm.exact`",
    "spark_aggregate": "Spark's own aggregation",
}


def queries(result: Document) -> Cells:
    """Faults, what was checked and how long a query took to go on."""
    head = ["query", "faults", "micro-batches", "records", "rows checked", "violations",
            "started again", "recovery: median", "longest"]  # fmt: skip
    lines = [head]
    for workload, label in LABELS.items():
        runs = [row for row in result["rows"] if row["workload"] == workload]
        if not runs:
            continue
        times = [each for row in runs for of in row["recovery"].values() for each in of]
        sums = {
            name: sum(row[name] for row in runs)
            for name in ("batches", "records", "rows", "violations", "restarts")
        }
        lines.append(
            [label, str(len(times)), *(f"{total:,}" for total in sums.values()), *_seconds(times)]
        )
    return lines


def kinds(result: Document) -> Cells:
    """Each kind of fault: how often, and how long ours and Spark's own took to go on."""
    ours = _by_kind(row for row in result["rows"] if row["workload"] != "spark_aggregate")
    spark = _by_kind(row for row in result["rows"] if row["workload"] == "spark_aggregate")
    head = ["fault", "ours", "recovery: median", "longest", "Spark's own", "median", "longest"]
    return [
        head,
        *(
            [
                kind.replace("_", " "),
                str(len(ours.get(kind, ()))), *_seconds(ours.get(kind, [])),
                str(len(spark.get(kind, ()))), *_seconds(spark.get(kind, [])),
            ]
            for kind in sorted({*ours, *spark})
        ),
    ]  # fmt: skip


def _by_kind(rows: Iterable[Mapping[str, Any]]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for row in rows:
        for kind, times in row["recovery"].items():
            found.setdefault(kind, []).extend(times)
    return found


def _seconds(times: list[float]) -> list[str]:
    return [f"{median(times):.1f} s", f"{max(times):.1f} s"] if times else ["", ""]
