"""Plans of join_table beside rows that only pass through Spark, in large micro-batches.

Points in districts as a stream. An identity ``mapInArrow`` is the least that any join of whole rows
in Python costs, a function of two columns that gives a constant the least that one of two columns
does. All take turns in one session and run often enough before they count: of what a JVM runs
seldom, much is compiling.
"""

from __future__ import annotations

from benchmarks.harness import session, streams, tdrive
from benchmarks.harness.experiment import SEED, Case, arguments, data, interleave, progress, save
from benchmarks.suites.table_join.plan_cases import PLANS, WIDTHS, Events, tables
from benchmarks.suites.table_join.plans import Cell, rows_of

RUNS, WARM = 5, 4
FLOORS = ("scan", "identity", "constant")
ROWS, FILES = 450_000, 3  #: a micro-batch, micro-batches


def main() -> None:
    """Leave ``plan_floors``."""
    given = arguments(__doc__)
    data(tdrive.TDRIVE)
    tables()
    rows, files = (2_000, 1) if given.quick else (ROWS, FILES)
    runs, warmup = (given.runs or 1, 0) if given.quick else (given.runs or RUNS, WARM)
    with session.start(cores=2) as runner:
        found = [
            Cell(runner, Events(rows, files, width), condition, plan)
            for width in WIDTHS
            for condition, plan in (
                *(("none", floor) for floor in FLOORS),
                *(("within", plan) for plan in PLANS),
            )
        ]
        with progress("plan_floors", len(found) * (warmup + runs)) as step:
            todo: dict[str, Case] = {cell.name: cell.measure for cell in found}
            measured = interleave(todo, runs=runs, warmup=warmup, step=step, minutes=given.minutes)
    print(
        save(
            "plan_floors",
            rows_of(found, measured),
            quick=given.quick,
            data=f"{tdrive.TDRIVE}, {tdrive.DISTRICTS}",
            seed=SEED,
            conf=streams.CONF,
        )
    )


if __name__ == "__main__":
    main()
