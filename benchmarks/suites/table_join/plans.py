"""Each plan of join_table by batch size, width of the events and condition.

CPU seconds of a stream from files, one a micro-batch, to a sink that keeps nothing: Spark's own
work is in it. All plans of all cells take turns in one session. At the largest size the rows also
pass through an identity ``mapInArrow``, the least that any join of whole rows in Python costs, and
through a function that gives a constant, the least that one of two columns does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks.harness import session, streams, tdrive
from benchmarks.harness.experiment import SEED, Case, arguments, data, interleave, progress, save
from benchmarks.harness.runner import Runner
from benchmarks.suites.table_join.plan_cases import (
    CONDITIONS,
    PLANS,
    WIDTHS,
    Events,
    tables,
)

RUNS = 2
FLOORS = ("scan", "identity", "constant")  #: what passes rows on, at the largest size
SIZES = ((2_000, 6), (50_000, 4), (450_000, 3))  #: rows a micro-batch, micro-batches


@dataclass(frozen=True)
class Cell:
    """One way of one join."""

    runner: Runner
    events: Events
    condition: str
    plan: str

    @property
    def name(self) -> str:
        """Tells it from the others of the run."""
        return (
            f"{self.condition}, {self.events.width} columns, {self.events.rows} rows, {self.plan}"
        )

    def measure(self) -> dict[str, float]:
        """Run once."""
        is_join = self.plan in PLANS
        found = self.runner.measure(
            case=f"plan_{self.plan}" if is_join else self.plan,
            options={"condition": self.condition} if is_join else {},
            folder=str(self.events.folder()),
            files=self.events.files,
        )
        return {
            "cpu_s_per_million": found["cpu_s"] / found["rows_in"] * 1e6,
            "cpu_ms_per_batch": found["cpu_s"] / found["batches"] * 1e3,
            "wall_s": found["wall_s"],
            "rows_out": found["rows_out"],
        }


def cells(runner: Runner, sizes: tuple[tuple[int, int], ...]) -> list[Cell]:
    """All that is measured."""
    made = []
    for rows, files in sizes:
        for width in WIDTHS:
            events = Events(rows, files, width)
            made += [
                Cell(runner, events, condition, plan)
                for condition in CONDITIONS
                for plan in PLANS
                if (condition, plan) != ("nearest", "native")  # has no form in Spark SQL
            ]
            if rows == sizes[-1][0]:
                made += [Cell(runner, events, "none", plan) for plan in FLOORS]
    return made


def rows_of(found: list[Cell], measured: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of the result; all plans of a join must have given as many rows."""
    out: dict[tuple[Any, ...], set[float]] = {}
    for cell, row in zip(found, measured, strict=True):
        if cell.plan in PLANS:
            out.setdefault((cell.events, cell.condition), set()).add(row["rows_out"])
    if wrong := {key: given for key, given in out.items() if len(given) != 1}:
        raise AssertionError(f"the plans give different numbers of rows: {wrong}")
    return [
        row
        | {"condition": cell.condition, "width": cell.events.width, "rows": cell.events.rows}
        | {"plan": cell.plan, "batches": cell.events.files}
        for cell, row in zip(found, measured, strict=True)
    ]


def main() -> None:
    """Run it all and leave ``plans.json``."""
    given = arguments(__doc__)
    data(tdrive.TDRIVE)
    tables()
    sizes = ((500, 2), (2_000, 1)) if given.quick else SIZES
    runs, warmup = (given.runs or 1, 0) if given.quick else (given.runs or RUNS, 1)
    with session.start(cores=2) as runner:
        found = cells(runner, sizes)
        with progress("plans", len(found) * (warmup + runs)) as step:
            todo: dict[str, Case] = {cell.name: cell.measure for cell in found}
            measured = interleave(todo, runs=runs, warmup=warmup, step=step, minutes=given.minutes)
    print(
        save(
            "plans",
            rows_of(found, measured),
            quick=given.quick,
            data=f"{tdrive.TDRIVE}, {tdrive.DISTRICTS}, tables of names",
            seed=SEED,
            conf=streams.CONF,
        )
    )


if __name__ == "__main__":
    main()
