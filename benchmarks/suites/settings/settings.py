"""What Spark's settings cost or save: CPU, time and files of a micro-batch of each operator.

Changelog checkpointing, shuffle partitions, pipelined functions, Unix domain sockets and
asynchronous progress tracking, each alone beside a baseline, in a session of its own. All cells
take turns. The stream is Spark's ``rate-micro-batch``, the sink keeps nothing; the first
micro-batches of a query are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.harness.experiment import Case, arguments, interleave, progress, save
from benchmarks.harness.runner import Runner
from benchmarks.suites.settings import setting_run
from benchmarks.suites.settings.setting_cases import (
    OPERATORS,
    PEER,
    SETTINGS,
    SMALL,
    STATEFUL,
    Setting,
)

RUNS = 2
WARM, BATCHES = 3, 8  #: micro-batches of a query that are left out, and that count
QUICK = ("workers", "trips")  #: the operators of a smoke test
MANY = "32 partitions"  #: is left out of it
ASYNCHRONOUS = "asynchronous"


@dataclass(frozen=True)
class Cell:
    """One operator under one setting."""

    runner: Runner
    setting: str
    operator: str
    rows: int
    warm: int
    batches: int

    @property
    def name(self) -> str:
        """Tells it from the others of the run."""
        return f"{self.setting}: {self.operator}"

    def measure(self) -> dict[str, float]:
        """Run a query of its own."""
        options = dict(SETTINGS[self.setting].options)
        asked = {"operator": self.operator, "rows": self.rows, "options": options}
        self.runner.ask(do="start", batches=self.warm, **asked)
        found = self.runner.measure(do="run", batches=self.batches)
        self.runner.ask(do="stop")
        return {
            "cpu_ms": 1000 * found["cpu_s"] / found["batches"],
            **{name: found[name] for name in ("batch_ms", "files", "bytes")},
        }


def sessions(stack: ExitStack, settings: Mapping[str, Setting]) -> dict[str, Runner]:
    """A session for each setting; settings of writers share that of the baseline."""
    made: dict[tuple[tuple[str, str], ...], Runner] = {}
    found = {}
    for name, setting in settings.items():
        conf = tuple(setting.conf.items())
        if conf not in made:
            runner = setting_run.runner(setting.conf, name=name.replace(" ", "-"))
            made[conf] = stack.enter_context(runner)
        found[name] = made[conf]
    return found


def refusals(runner: Runner, operators: Sequence[str]) -> list[dict[str, Any]]:
    """What Spark says to asynchronous progress tracking of those that keep state.

    Not of `rm.exact`, which has a writer of its own.
    """
    found = []
    asked = {"rows": SMALL, "options": dict(SETTINGS[ASYNCHRONOUS].options)}
    for operator in [each for each in (*STATEFUL, PEER) if each in operators]:
        said = runner.ask(do="start", operator=operator, batches=1, refusable=True, **asked)
        runner.ask(do="stop")
        found.append({"setting": ASYNCHRONOUS, "operator": operator, **said})
    return found


def rows_of(cells: Sequence[Cell], measured: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of the result."""
    return [
        row | {"setting": cell.setting, "operator": cell.operator, "rows": cell.rows}
        for cell, row in zip(cells, measured, strict=True)
    ]


def main() -> None:
    """Run it all and leave ``settings.json``."""
    given = arguments(__doc__)
    operators = QUICK if given.quick else OPERATORS
    counts = (1, 1) if given.quick else (WARM, BATCHES)
    runs, warmup = (given.runs or 1, 0) if given.quick else (given.runs or RUNS, 1)
    settings = {name: SETTINGS[name] for name in SETTINGS if not given.quick or name != MANY}
    with ExitStack() as stack:
        runners = sessions(stack, settings)
        cells = [
            Cell(runners[name], name, operator, SMALL if given.quick else setting.rows, *counts)
            for operator in operators
            for name, setting in settings.items()
            if operator in setting.operators
        ]
        with progress("settings", len(cells) * (warmup + runs)) as step:
            for cell in cells[: warmup * len(cells)]:
                step(f"{cell.name}, a first time")
                replace(cell, warm=1, batches=2).measure()
            todo: dict[str, Case] = {cell.name: cell.measure for cell in cells}
            measured = interleave(todo, runs=runs, warmup=0, step=step, minutes=given.minutes)
        refused = refusals(runners[ASYNCHRONOUS], operators)
    about = {
        "data": "seeded: soak_cases.py", "conf": setting_run.CONF, "batches": counts[1],
        "left_out": counts[0],
        "settings": {name: {**each.conf, **each.options} for name, each in SETTINGS.items()},
    }  # fmt: skip
    print(save("settings", [*rows_of(cells, measured), *refused], quick=given.quick, **about))


if __name__ == "__main__":
    main()
