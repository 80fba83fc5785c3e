"""T-Drive x the 16 districts of Beijing as a stream: ours, its floor, the paper's ways, Sedona.

Writes two results. ``stream_table``: CPU seconds per million rows on two cores. ``figure11``:
throughput on one core and on two, beside the paper's own figures. All cases take turns in one run;
each first runs once with its rows counted by district against shapely's count, which also warms
its JVM by more than ten micro-batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from benchmarks import events, ours, streams
from benchmarks.harness import SEED, Case, arguments, interleave, progress, save
from benchmarks.peers import sedona
from benchmarks.peers.environment import PeerUnavailable
from benchmarks.runner import Runner

RUNS = 5
#: files a run reads: slow cases read fewer, their figures being per row
ALL, SEDONA_FILES, SLOW = events.FILES, 10, 2

#: what paper C reports of its Figure 11, on a Xeon Gold 6240 with Flink 1.13
PAPER = [
    {"case": "paper C, two-level R-tree on Flink", "cores": 1, "points_per_s": 60_000},
    {"case": "paper C, plain loop on Flink", "cores": 1, "points_per_s": 60_000 / 9},
]


@dataclass(frozen=True)
class Measured:
    """One line of a table: a case, the process that runs it, how much it reads, what it keeps."""

    case: str
    runner: Runner
    cores: int
    files: int
    table: str
    keeps_all: bool = True  #: a left join, as against an inner one
    counts: bool = True  #: brings the district

    @property
    def name(self) -> str:
        """Tells it from the others of the run."""
        return f"{self.case}, {self.cores} cores"

    def measure(self) -> dict[str, float]:
        """One run, with its counts of rows checked."""
        folder = str(events.tdrive_files())
        found = self.runner.measure(case=self.case, folder=folder, files=self.files)
        _agree(self, "rows in", found["rows_in"], events.rows(self.files))
        if self.keeps_all:
            _agree(self, "rows out", found["rows_out"], events.rows(self.files))
        return {
            "cpu_s_per_million": found["cpu_s"] / found["rows_in"] * 1e6,
            "points_per_s": found["rows_in"] / found["wall_s"],
            "wall_s": found["wall_s"],
        }

    def check(self) -> int:
        """One run whose rows are counted by district; how many differ from the truth.

        Ours may not differ. A peer's difference is reported beside its figure.
        """
        truth = events.expected(self.files)
        names = list(truth) if self.counts else None
        folder = str(events.tdrive_files())
        found = self.runner.ask(case=self.case, folder=folder, files=self.files, count=names)
        if not self.counts:
            return 0
        if self.keeps_all:
            _agree(self, "rows by district", found["counts"], truth)
        return sum(abs(found["counts"][name] - truth[name]) for name in truth)


def _agree(line: Measured, what: str, found: object, truth: object) -> None:
    if found != truth:
        raise AssertionError(f"{line.name}: {what} are {found}, the truth is {truth}")


def lines(ours_1: Runner, ours_2: Runner, files: Callable[[int], int]) -> list[Measured]:
    """Our own cases and the plain ones."""
    floor = [
        Measured("scan", ours_2, 2, files(ALL), "stream_table", counts=False),
        Measured("identity", ours_2, 2, files(ALL), "stream_table", counts=False),
        Measured("identity_with_district", ours_2, 2, files(ALL), "stream_table", counts=False),
    ]
    joins = [
        Measured(case, runner, cores, files(amount), "both")
        for runner, cores, amount in ((ours_2, 2, ALL), (ours_1, 1, ALL // 2))
        for case in ("workers", "native")
    ]
    papers = [
        Measured(case, runner, cores, files(amount), "figure11")
        for runner, cores in ((ours_2, 2), (ours_1, 1))
        for case, amount in (
            ("rtree", ALL // 2),
            ("loop_over_batch", SLOW),
            ("loop_over_records", SLOW // 2),
        )
    ]
    return [*floor, *joins, *papers]


def peers(stack: ExitStack, files: Callable[[int], int]) -> list[Measured]:
    """Sedona's cases, or none, with a word, where it cannot be had."""
    try:
        runner = stack.enter_context(sedona.start(events.data(events.DISTRICTS), cores=2))
    except PeerUnavailable as reason:
        print(f"without Sedona: {reason}")
        return []
    return [
        Measured("subdivided", runner, 2, files(SEDONA_FILES), "stream_table", keeps_all=False),
        Measured("whole", runner, 2, files(SLOW), "stream_table", keeps_all=False),
    ]


def measure(all_lines: list[Measured], runs: int, warmup: int) -> list[dict[str, Any]]:
    """Check every line, then let them take turns; one row each."""
    with progress("stream x table", len(all_lines) * (1 + warmup + runs)) as step:
        differ = {}
        for line in all_lines:
            step(f"checking {line.name}")
            differ[line.name] = line.check()
        cases: dict[str, Case] = {line.name: line.measure for line in all_lines}
        rows = interleave(cases, runs=runs, warmup=warmup, step=step)
    return [
        row
        | {
            "case": line.case,
            "cores": line.cores,
            "rows": events.rows(line.files),
            "batches": line.files,
            "rows_that_differ": differ[line.name],
            "table": line.table,
        }
        for line, row in zip(all_lines, rows, strict=True)
    ]


def of_table(rows: Iterable[dict[str, Any]], *tables: str) -> list[dict[str, Any]]:
    """The rows that belong to one of `tables`, without that mark."""
    return [
        {key: value for key, value in row.items() if key != "table"}
        for row in rows
        if row["table"] in tables
    ]


def main() -> None:
    """Run it all and leave two JSONs."""
    given = arguments(__doc__)
    runs = given.runs or (1 if given.quick else RUNS)

    def files(wanted: int) -> int:
        return min(wanted, 2) if given.quick else wanted

    with ExitStack() as stack:
        ours_1, ours_2 = (stack.enter_context(ours.start(cores=cores)) for cores in (1, 2))
        all_lines = [*lines(ours_1, ours_2, files), *peers(stack, files)]
        rows = measure(all_lines, runs, warmup=0 if given.quick else 1)
    meta = {
        "quick": given.quick,
        "data": f"{events.TDRIVE} in {events.FILES} files, {events.DISTRICTS}",
        "seed": SEED,
        "conf": streams.CONF,
        "peers": {f"sedona's {name}": pin for name, pin in sedona.SEDONA.versions.items()},
    }
    print(save("stream_table", of_table(rows, "stream_table", "both"), **meta))
    print(save("figure11", [*of_table(rows, "figure11", "both"), *PAPER], **meta))


if __name__ == "__main__":
    main()
