"""The table of fence events."""

from __future__ import annotations

from benchmarks.harness.formatting import Cells, Document, number

FENCES = {"districts": "16 districts", "boxes": "10,000 boxes"}
LABELS = {
    "fence_events": "**rivermouth**, `fence_events`",
    "fence_events_cross": "**rivermouth**, with `cross`",
    "fences_row_by_row": "our join, then `applyInPandasWithState` row by row",
}


def table(result: Document) -> Cells:
    """Rows per CPU-second, and how many times the other program's that is."""
    rows = result["rows"]
    base = {row["fences"]: row for row in rows if row["case"] == "fences_row_by_row"}
    return [
        ["T-Drive through fences, 2 cores", "rows", "events", "CPU-s per million rows", "rows/s",
         "times row by row"],
        *(
            [
                f"{FENCES[row['fences']]}, {LABELS[row['case']]}",
                number(row["rows"]),
                number(row["events"]),
                f"{row['cpu_s_per_million']:.2f}",
                number(row["rows_per_s"]),
                f"{row['rows_per_cpu_s'] / base[row['fences']]['rows_per_cpu_s']:.1f}",
            ]
            for row in rows
        ),
    ]  # fmt: skip


def state(result: Document) -> Cells:
    """Time and state by part of the run."""
    return [
        [
            "micro-batches",
            "objects",
            "that move",
            "CPU-ms, median",
            "largest",
            "events",
            "state, MB",
        ],
        *(
            [
                row["case"],
                number(row["objects"]),
                number(row["moved"]),
                number(row["cpu_ms"]),
                number(row["cpu_ms_most"]),
                number(row["events"]),
                number(row["state_mb"]),
            ]
            for row in result["rows"]
        ),
    ]
