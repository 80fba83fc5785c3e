"""T-Drive through fences: events per CPU-second, beside a program that goes row by row.

Ten daytime hours of the taxis in two micro-batches, enter and exit of the 16 districts and of
10,000 small boxes. The other program takes the fences from our join and keeps each taxi's last
fence in Spark's state (`applyInPandasWithState`), in order of arrival. Large micro-batches suit it:
it pays for every taxi in each. Both must give the same number of events up to ten minutes before
the end. Cases take turns, after two minutes of the same that do not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.harness import session, streams
from benchmarks.harness.daytime import Daytime
from benchmarks.harness.experiment import SEED, Case, arguments, data, interleave, progress, save
from benchmarks.harness.runner import Runner
from benchmarks.harness.tdrive import DISTRICTS, TDRIVE
from benchmarks.suites.fences.fence_tables import FENCES, LABELS

ALL_DAY, HOUR, MINUTES = Daytime(2), Daytime(1, 60, 14), Daytime(1, 2, 14)
#: ten minutes before the end
UNTIL = {
    ALL_DAY: "2008-02-03 17:50:00",
    HOUR: "2008-02-03 14:50:00",
    MINUTES: "2008-02-03 14:01:00",
}
#: how many of the events the two may differ by: two places of a taxi in one second, in two files
MOST_ASTRAY = 1e-4


@dataclass(frozen=True)
class Line:
    """One line of the table."""

    case: str
    fences: str
    runner: Runner
    taxis: Daytime

    @property
    def name(self) -> str:
        """Tells it from the others of the run."""
        return f"{self.case}, {FENCES[self.fences]}"

    def measure(self) -> Mapping[str, float]:
        """Run once."""
        found = self.runner.measure(
            case=self.case,
            folder=str(self.taxis.folder()),
            files=self.taxis.files,
            options={"fences": self.fences, "until": UNTIL[self.taxis]},
        )
        return {
            "rows": found["rows_in"],
            "events": found["rows_out"],
            "cpu_s_per_million": found["cpu_s"] / found["rows_in"] * 1e6,
            "rows_per_cpu_s": found["rows_in"] / found["cpu_s"],
            "rows_per_s": found["rows_in"] / found["wall_s"],
            "batch_ms": found["batch_ms"],
            "wall_s": found["wall_s"],
        }


def check(rows: list[dict[str, Any]]) -> None:
    """Whether both programs gave the same number of enters and exits."""
    for fences in FENCES:
        found = {
            row["case"]: row["events"]
            for row in rows
            if row["fences"] == fences and row["case"] != "fence_events_cross"
        }
        low, high = min(found.values()), max(found.values())
        if high - low > MOST_ASTRAY * high:
            raise AssertionError(f"{fences}: {found}")


def main() -> None:
    """Run it all and leave ``fences.json``."""
    given = arguments(__doc__)
    data(TDRIVE)
    taxis, runs = HOUR if given.quick else ALL_DAY, given.runs or 1
    with session.start(cores=2) as two:
        lines = [Line(case, fences, two, taxis) for fences in FENCES for case in LABELS]
        cases: dict[str, Case] = {line.name: line.measure for line in lines}
        with progress("fences", len(lines) * (1 + runs)) as step:
            for line in lines:
                step(f"warming {line.name}")
                replace(line, taxis=MINUTES).measure()
            measured = interleave(cases, runs=runs, warmup=0, step=step, minutes=given.minutes)
    rows = [
        row | {"case": line.case, "fences": line.fences}
        for line, row in zip(lines, measured, strict=True)
    ]
    check(rows)
    print(
        save(
            "fences", rows, quick=given.quick, data=f"{TDRIVE}, {DISTRICTS}", seed=SEED,
            conf=streams.CONF,
        )
    )  # fmt: skip


if __name__ == "__main__":
    main()
