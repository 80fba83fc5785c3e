"""Histories of runs that never were, for the tests of what reads them."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import shapely

from rivermouth.kernels.table_join.map_sketch import packed
from rivermouth.observe import shapes
from rivermouth.observe.history import Writer
from rivermouth.observe.log import Log
from rivermouth.observe.metrics import summarise

PLACED = "rivermouth.join_table.districts.geojson.1"
ENRICHED = "rivermouth.join_table.drivers.2"
EARNED = "rivermouth.aggregate.3"
FENCES = "rivermouth.fence_events.4"
BEGIN = 1_800_000_000  # seconds since 1970

SQUARES = np.array([shapely.box(x, 0, x + 1, 1) for x in range(3)], dtype=object)
NAMES = ["Harbour", "<script>alert(1)</script>", "Old Town"]


def operator(**more: Any) -> dict[str, Any]:
    """What an operator did in a batch."""
    kinds = ("table", "cache", "sketch", "events", "routing", "state", "watermark", "gauges")
    nothing = dict.fromkeys(kinds)
    return {"counts": {}, "rejected": {}, "seconds": 0.1, "loads": [], **nothing, **more}


def placed(rows: int, counts: list[int], **more: Any) -> dict[str, Any]:
    """A join with places: `counts` are the matches of each shape."""
    table = {"rows": len(counts), "version": 1, "age_seconds": 7.0, "load_seconds": 0.5}
    return operator(
        counts={"rows_in": rows, "rows_out": rows, "matched": sum(counts)},
        rejected={"null": rows - sum(counts)},
        loads=[rows // 2, rows - rows // 2],
        table={**table, "refresh_seconds": None, "index": "cells"},
        sketch={"counts": packed(np.array(counts)), "places": [[0.5, 0.5], [1.5, 0.5]]},
        **more,
    )


def enriched(rows: int, hits: int) -> dict[str, Any]:
    """A join through an incremental cache."""
    counts = {"hits": hits, "negative_hits": 0, "misses": rows - hits}
    held = {"entries": 9, "rows": 9, "bytes": 900}
    return operator(
        counts={"rows_in": rows, "rows_out": rows, "matched": rows},
        loads=[rows],
        cache={"counts": counts, "workers": {"host:1": {"counts": counts, "held": held}}},
    )


def earned(rows: int, late: int) -> dict[str, Any]:
    """An aggregate with its quality."""
    even = {"min": 0.9, "mean": 0.94, "max": 0.98}
    return operator(
        counts={"rows_in": rows, "rows_out": 3, "late": late, "future": 0},
        loads=[rows // 4] * 4,
        state={"rows": 40, "bytes": 4_000},
        watermark=BEGIN * 1_000_000,
        gauges={
            "settled_coverage": even,
            "required_coverage": dict.fromkeys(even, 0.97),
            "slack": even,
            "missed_share": dict.fromkeys(even, 0.03),
            "missed_low": dict.fromkeys(even, 0.02),
            "missed_high": dict.fromkeys(even, 0.045),
            "missed_promised": dict.fromkeys(even, 0.05),
        },
    )


def fenced(number: int) -> dict[str, Any]:
    """Fence events: one a batch, in the first square, in the third every third time."""
    fence, kind, x = ("Old Town", "exit", 2.5) if number % 3 == 2 else ("Harbour", "enter", 0.5)
    at = {"at": float(BEGIN + number), "object": f"<b>{number}</b>", "x": x, "y": 0.5}
    newest = [{**at, "event": kind, "fence": fence}]
    return operator(
        counts={"rows_in": 10, "rows_out": 1, kind: 1},
        state={"positions": 4, "objects": 2},
        events={"per_fence": {fence: 1}, "newest": newest},
    )


def batch(number: int, rows: int = 100, **more: Any) -> dict[str, Any]:
    """A batch of the story's three operators, one a second."""
    return {
        "batch": number,
        "at": datetime.fromtimestamp(BEGIN + number, UTC).isoformat(),
        "seconds": 0.25,
        "rows": rows,
        "source_rows": rows,
        "backlog": None,
        "state": {"rows": 40, "bytes": 5_000_000},
        "operators": {
            PLACED: placed(rows, [rows // 2, rows // 4, 0]),
            ENRICHED: enriched(rows, rows * 9 // 10),
            EARNED: earned(rows, rows // 20),
        },
        **more,
    }


def numbers(*batches: dict[str, Any]) -> dict[str, Any]:
    """The metrics of these batches."""
    return summarise(Log(batches))


def begin(path: Path, *, name: str | None = "cabs") -> Writer:
    """A history of a run that has begun, with the shapes of its table."""
    writer = Writer(path, run=path.stem, query=f"id of {name}", name=name)
    writer.shapes({"operator": PLACED, **shapes.outlines(SQUARES, list(NAMES))})
    return writer


def whole(path: Path, batches: int = 12, **more: Any) -> Path:
    """A history of a run that is over."""
    writer = begin(path, **more)
    for number in range(batches):
        writer.batch(batch(number))
    writer.end(None)
    return path
