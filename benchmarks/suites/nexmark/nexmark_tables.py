"""Nexmark as a table: a line a query and side."""

from __future__ import annotations

from benchmarks.harness.formatting import Cells, Document, number, only
from benchmarks.suites.nexmark.queries import ASKED

LABELS = {"ours": "**rivermouth**", "spark": "Spark's own", "flink": "Flink 2.3, lookup join"}
_PEER = "spark"


def table(result: Document) -> Cells:
    """Rows per CPU-second beside Spark's own, the better side of each query first.

    Memory is looked at twice a second; Flink has no micro-batches.
    """
    head = ["query", "by", "rows/CPU-s", "to Spark's own", "a micro-batch, rows",
            "and ms", "memory, GB", "answer"]  # fmt: skip
    lines = [head]
    for query, asks in ASKED.items():
        rows = [row for row in result["rows"] if row["query"] == query]
        for row in sorted(rows, key=lambda row: -row["rows_per_cpu_s"]):
            to_peer = row["rows_per_cpu_s"] / only(rows, case=_PEER)["rows_per_cpu_s"]
            lines.append(
                [f"{query.upper()}, {asks}", LABELS[row["case"]], number(row["rows_per_cpu_s"]),
                 f"{to_peer:.2f}", number(row.get("batch_rows")), number(row.get("batch_ms")),
                 f"{row['memory_gb']:.1f}", "right" if row["is_right"] else "wrong"]
            )  # fmt: skip
    return lines
