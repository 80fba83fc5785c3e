"""The tables of plans: what each costs in a cell, beside the best and beside the least possible."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.harness.formatting import Cells, Document, number, only
from benchmarks.suites.table_join.plan_cases import CONDITIONS, PLANS, WIDTHS
from benchmarks.suites.table_join.plan_fit import CHOICE, GROUPS
from rivermouth.spark.engines.plan_costs import cheapest_plan
from rivermouth.spark.plan_choice import ROWS_OF_A_FRAME

Row = Mapping[str, Any]
Cell = Sequence[Row]

NEAR = 1.15  #: times the best plan's cost, which the chosen plan's is to be at most
KINDS = ("stream", "batch")
_LABELS = {
    "scan": "Spark reads, nothing else",
    "identity": "identity `mapInArrow`",
    "constant": "`arrow_udf` of two columns that gives a constant",
}


def plans(result: Document) -> Cells:
    """A line a cell: CPU time of each plan, the best, and how far what is chosen is from it."""
    head = ["condition, columns, rows at once", *(f"`{plan}`" for plan in PLANS), "best"]
    return [
        [*head, "`rm.cheapest(rows)`", "to the best", "`plan=None`, to the best"],
        *map(_line, _cells(result["rows"])),
    ]


def choice(result: Document) -> Cells:
    """In how many cells what is chosen is near the best, and how far from it at the worst."""
    cells = list(_cells(result["rows"]))
    lines = [["cells", "number", f"at most {NEAR} of the best", "the worst"]]
    lines.append(["`rm.cheapest(rows)`", *_near([_ratio(cell, _chosen(cell)) for cell in cells])])
    lines.append(["`plan=None`", *_near([_ratio(cell, _by_default(cell)) for cell in cells])])
    lines.append(['`plan="workers"`', *_near([_ratio(cell, "workers") for cell in cells])])
    return lines


def _near(ratios: Sequence[float]) -> list[str]:
    near = sum(round(ratio, 2) <= NEAR for ratio in ratios)
    return [str(len(ratios)), str(near), f"{max(ratios, default=1.0):.2f}"]


def _cells(rows: Sequence[Row]) -> Iterator[Cell]:
    for condition in CONDITIONS:
        for kind in KINDS:
            of_it = [row for row in rows if (row["condition"], row["kind"]) == (condition, kind)]
            for width in WIDTHS:
                for size in sorted({row["rows"] for row in of_it}):
                    cell = [r for r in of_it if (r["width"], r["rows"]) == (width, size)]
                    if cell:
                        yield cell


def _chosen(cell: Cell, rows: int | None = None) -> str:
    """The plan that ``rm.cheapest`` takes of a cell, for its own rows unless others are given."""
    first = cell[0]
    group = next(group for group, names in GROUPS.items() if first["condition"] in names)
    rows, width = rows or first["rows"], first["width"]
    return cheapest_plan(
        group, first["kind"], CHOICE[group],
        rows=rows, columns=width, table_bytes=first["table_bytes"],
    )  # fmt: skip


def _by_default(cell: Cell) -> str:
    return "workers" if cell[0]["kind"] == "stream" else _chosen(cell, ROWS_OF_A_FRAME)


def _ratio(cell: Cell, plan: str) -> float:
    costs = {row["plan"]: _cost(row) for row in cell}
    return costs[plan] / min(costs.values())


def floors(result: Document) -> Cells:
    """Large micro-batches of points in districts, beside rows that only pass through."""
    rows = result["rows"]
    kinds = [*(("none", floor) for floor in _LABELS), *(("within", plan) for plan in PLANS)]
    head = ["CPU-s per million rows (to identity)", *(f"{w} columns" for w in WIDTHS)]
    return [head, *(_beside_identity(rows, *kind) for kind in kinds)]


def _beside_identity(rows: Sequence[Row], condition: str, plan: str) -> list[str]:
    cells = []
    for width in WIDTHS:
        least = only(rows, condition="none", plan="identity", width=width)
        row = only(rows, condition=condition, plan=plan, width=width)
        cells.append(f"{_cost(row):.2f} ({_cost(row) / _cost(least):.2f})")
    return [_LABELS.get(plan, f'`plan="{plan}"`'), *cells]


def _line(cell: Cell) -> list[str]:
    costs = {row["plan"]: _cost(row) for row in cell}
    best = min(costs, key=lambda plan: costs[plan])
    first, chosen = cell[0], _chosen(cell)
    return [
        f"{first['condition']}, {first['kind']}, {first['width']}, {number(first['rows'])}",
        *(f"{costs[plan]:.2f}" if plan in costs else "" for plan in PLANS),
        f"`{best}`",
        f"`{chosen}`",
        f"{_ratio(cell, chosen):.2f}",
        f"{_ratio(cell, _by_default(cell)):.2f}",
    ]


def _cost(row: Row) -> float:
    return float(row["cpu_s_per_million"])
