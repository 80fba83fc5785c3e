"""The tables of plans: what each costs in a cell, beside the best and beside the least possible."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.harness.formatting import Cells, Document, number, only
from benchmarks.suites.table_join.plan_cases import CONDITIONS, PLANS, WIDTHS

Row = Mapping[str, Any]

DEFAULT = "workers"  #: what plan=None takes

_LABELS = {
    "scan": "Spark reads, nothing else",
    "identity": "identity `mapInArrow`",
    "constant": "`arrow_udf` of two columns that gives a constant",
}


def plans(result: Document) -> Cells:
    """A line a cell: CPU time of each plan, and how far the default is from the best."""
    rows = result["rows"]
    cells = [
        [row for row in rows if (row["condition"], row["width"], row["rows"]) == cell]
        for condition in CONDITIONS
        for width in WIDTHS
        for cell in ((condition, width, size) for size in sorted({row["rows"] for row in rows}))
    ]
    head = ["condition, columns, rows a micro-batch", *(f"`{plan}`" for plan in PLANS)]
    return [[*head, "best", f"`{DEFAULT}` to it"], *(_line(cell) for cell in cells if cell)]


def floors(result: Document) -> Cells:
    """The largest micro-batches of points in districts, beside rows that only pass through."""
    size = max(row["rows"] for row in result["rows"])
    kinds = [*(("none", floor) for floor in _LABELS), *(("within", plan) for plan in PLANS)]
    head = ["CPU-s per million rows (to identity)", *(f"{w} columns" for w in WIDTHS)]
    return [head, *(_beside_identity(result["rows"], size, *kind) for kind in kinds)]


def _beside_identity(rows: Sequence[Row], size: int, condition: str, plan: str) -> list[str]:
    cells = []
    for width in WIDTHS:
        least = only(rows, condition="none", plan="identity", width=width, rows=size)
        row = only(rows, condition=condition, plan=plan, width=width, rows=size)
        cells.append(f"{_cost(row):.2f} ({_cost(row) / _cost(least):.2f})")
    return [_LABELS.get(plan, f'`plan="{plan}"`'), *cells]


def _line(cell: Sequence[Row]) -> list[str]:
    costs = {row["plan"]: _cost(row) for row in cell}
    best = min(costs, key=lambda plan: costs[plan])
    first = cell[0]
    return [
        f"{first['condition']}, {first['width']}, {number(first['rows'])}",
        *(f"{costs[plan]:.2f}" if plan in costs else "" for plan in PLANS),
        f"`{best}`",
        f"{costs[DEFAULT] / costs[best]:.2f}",
    ]


def _cost(row: Row) -> float:
    return float(row["cpu_s_per_million"])
