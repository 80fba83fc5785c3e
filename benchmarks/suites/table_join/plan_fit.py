"""The costs behind ``rm.cheapest``, fitted to a run of the benchmark of plans.

That run is ``plan_costs.json``, an earlier one than ``plans.json``, whose cells are thus predicted:
how well is in the docs. ``python -m`` this prints the costs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import numpy as np

from benchmarks.harness.experiment import RESULTS
from rivermouth.spark.engines.plan_costs import Condition, Cost
from rivermouth.spec.plans import Plan

Row = Mapping[str, Any]

#: by what the costs are told apart: the benchmark's conditions, which differ in their tables
GROUPS: dict[Condition, tuple[str, ...]] = {
    "keys": ("keys", "many_keys"),
    "range": ("range",),
    "place": ("within", "many_within", "nearest"),
}
#: the plans that there is a choice of: of places, `native` might meet others than it can join
CHOICE: dict[Condition, tuple[Plan, ...]] = {
    "keys": get_args(Plan),
    "range": get_args(Plan),
    "place": ("workers", "udf"),
}
RUN = RESULTS / "plan_costs.json"
_BYTES = 3  # of what a cell's cost is made of


def fitted(rows: Sequence[Row]) -> dict[Condition, dict[Plan, Cost]]:
    """By condition and plan what each cell's cost is made of."""
    return {
        group: {
            plan: _fit([r for r in rows if r["condition"] in names and r["plan"] == plan])
            for plan in CHOICE[group]
        }
        for group, names in GROUPS.items()
    }


def _fit(rows: list[Row]) -> Cost:
    """The least sum of squared relative errors; a part that would be negative is nothing."""
    costs = np.array([1000 * row["cpu_ms_per_batch"] for row in rows])
    parts = np.array(
        [
            [
                row["kind"] == "stream", row["kind"] == "batch",
                (row["kind"] == "batch") * row["width"],
                row["table_bytes"] if row["plan"] == "native" else 0,
                row["rows"], row["rows"] * row["width"],
            ]
            for row in rows
        ],
        float,
    )  # fmt: skip
    weighted = parts / costs[:, None]
    kept = np.ones(parts.shape[1], bool)
    kept[_BYTES] = np.ptp(parts[:, _BYTES]) > 0  # tables of one size have no axis
    while True:
        found, *_ = np.linalg.lstsq(weighted[:, kept], np.ones(len(rows)), rcond=None)
        if (found >= 0).all():
            break
        kept[np.flatnonzero(kept)[np.argmin(found)]] = False
    figures = np.zeros(len(kept))
    figures[kept] = found
    return Cost(*(float(f"{figure:.3g}") for figure in figures))


def main() -> None:
    """Print the figures as `plan_costs` has them."""
    rows = json.loads(RUN.read_text())["rows"]
    for condition, plans in fitted(rows).items():
        print(f'    "{condition}": {{')
        for plan, cost in plans.items():
            print(f'        "{plan}": {cost},')
        print("    },")


if __name__ == "__main__":
    main()
