"""Each plan of join_table by batch size, width of the events and condition.

CPU seconds of a stream from files, one a micro-batch, and of batch frames, all files at once, to a
sink that keeps nothing: Spark's own work is in it. All plans of all cells take turns in one
session. `plan_floors` has what rows cost that only pass through.
"""

from __future__ import annotations

from collections.abc import Iterator
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
    table_bytes,
    tables,
)

RUNS = 2
STREAMS = ((2_000, 6), (50_000, 4), (450_000, 3))  #: rows a micro-batch, micro-batches
FRAMES = ((50_000, 2), (450_000, 3))  #: of a batch frame: rows a file, files


@dataclass(frozen=True)
class Cell:
    """One way of one join."""

    runner: Runner
    events: Events
    condition: str
    plan: str
    is_stream: bool = True

    @property
    def rows(self) -> int:
        """The rows of a micro-batch, or of the batch frame."""
        return self.events.rows * (1 if self.is_stream else self.events.files)

    @property
    def kind(self) -> str:
        """What the events are."""
        return "stream" if self.is_stream else "batch"

    @property
    def name(self) -> str:
        """Tells it from the others of the run."""
        where = f"{self.kind}, {self.events.width} columns, {self.rows} rows"
        return f"{self.condition}, {where}, {self.plan}"

    def measure(self) -> dict[str, float]:
        """Run once."""
        is_join = self.plan in PLANS
        found = self.runner.measure(
            case=f"plan_{self.plan}" if is_join else self.plan,
            options={"condition": self.condition} if is_join else {},
            folder=str(self.events.folder()),
            files=self.events.files,
            whole=not self.is_stream,
        )
        return {
            "cpu_s_per_million": found["cpu_s"] / (self.rows * found["batches"]) * 1e6,
            "cpu_ms_per_batch": found["cpu_s"] / found["batches"] * 1e3,
            "batches": found["batches"],
            "wall_s": found["wall_s"],
            "rows_out": found["rows_out"],
        }


def cells(runner: Runner, *, quick: bool) -> list[Cell]:
    """All that is measured."""
    files = ((500, 2), (2_000, 1)) if quick else STREAMS
    wholes = ((500, 2),) if quick else FRAMES
    return [
        cell
        for sizes, is_stream in ((files, True), (wholes, False))
        for rows, count in sizes
        for width in (WIDTHS if (rows, count) == sizes[-1] else (WIDTHS[0], WIDTHS[-1]))
        for cell in _plans(runner, Events(rows, count, width), is_stream)
    ]


def _plans(runner: Runner, events: Events, is_stream: bool) -> Iterator[Cell]:
    for condition in CONDITIONS:
        for plan in PLANS:
            if (condition, plan) != ("nearest", "native"):  # has no form in Spark SQL
                yield Cell(runner, events, condition, plan, is_stream)


def rows_of(found: list[Cell], measured: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of the result; all plans of a join must have given as many rows."""
    out: dict[tuple[Any, ...], set[float]] = {}
    for cell, row in zip(found, measured, strict=True):
        if cell.plan in PLANS:
            key = (cell.events, cell.condition, cell.is_stream)
            out.setdefault(key, set()).add(row["rows_out"])
    if wrong := {key: given for key, given in out.items() if len(given) != 1}:
        raise AssertionError(f"the plans give different numbers of rows: {wrong}")
    return [
        row
        | {"condition": cell.condition, "width": cell.events.width, "rows": cell.rows}
        | {"plan": cell.plan, "kind": cell.kind}
        | ({"table_bytes": table_bytes(cell.condition)} if cell.plan in PLANS else {})
        for cell, row in zip(found, measured, strict=True)
    ]


def main() -> None:
    """Run it all and leave ``plans.json``."""
    given = arguments(__doc__)
    data(tdrive.TDRIVE)
    tables()
    runs, warmup = (given.runs or 1, 0) if given.quick else (given.runs or RUNS, 1)
    with session.start(cores=2) as runner:
        found = cells(runner, quick=given.quick)
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
