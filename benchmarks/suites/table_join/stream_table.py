"""T-Drive x the 16 districts of Beijing as a stream: its floor, ours, the paper's ways, Sedona.

CPU seconds per million rows and throughput, on two cores and on one. All cases take turns in one
run; each first runs once with its rows counted by district against shapely's counts, which also
warms its JVM by ten micro-batches or more.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.harness import session, streams, tdrive
from benchmarks.harness.experiment import SEED, Case, arguments, data, interleave, progress, save
from benchmarks.harness.runner import Runner
from benchmarks.harness.tdrive import Taxis
from benchmarks.peers import sedona
from benchmarks.peers.environment import PeerUnavailable

RUNS = 5
#: files a run reads; slow cases read fewer, as their figures are per row
ALL, HALF, FEW, ONE = tdrive.FILES, tdrive.FILES // 2, 2, 1
LARGE = 2  #: files of the same stream in large micro-batches, to tell rows' cost from batches'
QUICK_ROWS, SLOW_ROWS = 60_000, 1_200_000

#: what paper C reports in its Figure 11, on a Xeon Gold 6240 with Flink 1.13 and Kafka
PAPER = [
    {"case": "paper_rtree", "cores": 1, "points_per_s": 60_000, "latency_ms": 90},
    {"case": "paper_loop", "cores": 1, "points_per_s": 60_000 / 9, "latency_ms": 110},
]


@dataclass(frozen=True)
class Line:
    """One line of the table: a case, the process that runs it, how much it reads, what it gives."""

    case: str
    runner: Runner
    cores: int
    taxis: Taxis
    files: int
    gives: str = "every row with its district"

    @property
    def name(self) -> str:
        """Tells it from the others of the run."""
        return f"{self.case}, {self.cores} cores, {self.taxis.files} files"

    def check(self) -> int:
        """Run once, rows counted by district; how many rows are not where shapely has them.

        Ours may not differ. A peer's difference is reported beside its figure.
        """
        truth = self.taxis.expected(self.files)
        found = self._run(self.runner.ask, count=list(truth) if "district" in self.gives else None)
        if "district" not in self.gives:
            return 0
        if "every row" in self.gives:
            self._agree("rows by district", found["counts"], truth)
        return sum(abs(found["counts"][name] - truth[name]) for name in truth)

    def measure(self) -> dict[str, float]:
        """Run once, rows in and out counted."""
        found = self._run(self.runner.measure)
        return {
            "cpu_s_per_million": found["cpu_s"] / found["rows_in"] * 1e6,
            "points_per_s": found["rows_in"] / found["wall_s"],
            "wall_s": found["wall_s"],
            "batch_ms": found["batch_ms"],
            "memory_gb": found["memory_gb"],
        }

    def _run(self, how: Callable[..., dict[str, Any]], **more: Any) -> dict[str, Any]:
        folder = str(self.taxis.folder())
        found = how(case=self.case, folder=folder, files=self.files, **more)
        self._agree("rows in", found["rows_in"], self.taxis.rows(self.files))
        if "every row" in self.gives:
            self._agree("rows out", found["rows_out"], self.taxis.rows(self.files))
        return found

    def _agree(self, what: str, found: object, truth: object) -> None:
        if found != truth:
            raise AssertionError(f"{self.name}: {what} are {found}, the truth is {truth}")


def our_lines(one: Runner, two: Runner, taxis: Taxis) -> list[Line]:
    """The floor, our plans, and the paper's ways, on two cores and on one."""
    floor = ("scan", "identity", "identity_with_district")
    plans = ("workers", "native")
    fewer = Taxis(limit=min(taxis.limit or SLOW_ROWS, SLOW_ROWS))
    paper = (
        ("rtree", taxis, HALF),
        ("loop_over_batch", taxis, ONE),
        ("loop_over_records", fewer, ONE),
    )
    large = replace(taxis, files=LARGE)
    return [
        *(Line(case, two, 2, taxis, ALL, "every row") for case in floor),
        *(Line(case, two, 2, taxis, ALL) for case in plans),
        *(Line(case, two, 2, large, LARGE, "every row") for case in floor),
        *(Line(case, two, 2, large, LARGE) for case in plans),
        *(Line(case, one, 1, taxis, HALF) for case in plans),
        *(Line(case, two, 2, *what) for case, *what in paper),
        *(Line(case, one, 1, *what) for case, *what in paper),
    ]


def peer_lines(peer: Runner, taxis: Taxis) -> list[Line]:
    """Sedona's two forms."""
    gives = "rows inside, with their district"
    return [
        Line("subdivided", peer, 2, taxis, HALF, gives),
        Line("whole", peer, 2, taxis, FEW, gives),
        Line("subdivided", peer, 2, replace(taxis, files=LARGE), LARGE, gives),
    ]


def started(stack: ExitStack, taxis: Taxis, *, make_peer: bool) -> list[Line]:
    """All lines, their sessions running; without Sedona, and with a word, where it is not had."""
    one, two = (stack.enter_context(session.start(cores=cores)) for cores in (1, 2))
    lines = our_lines(one, two, taxis)
    try:
        peer = stack.enter_context(sedona.start(data(tdrive.DISTRICTS), cores=2, make=make_peer))
    except PeerUnavailable as reason:
        print(f"without Sedona: {reason}")
        return lines
    return [*lines, *peer_lines(peer, taxis)]


def measure(lines: list[Line], *, runs: int, warmup: int) -> list[dict[str, Any]]:
    """Check every line, then let them take turns; one row each."""
    with progress("stream x table", len(lines) * (1 + warmup + runs)) as step:
        astray = {}
        for line in lines:
            step(f"checking {line.name}")
            astray[line.name] = line.check()
        cases: dict[str, Case] = {line.name: line.measure for line in lines}
        rows = interleave(cases, runs=runs, warmup=warmup, step=step)
    return [
        row
        | {"case": line.case, "cores": line.cores, "gives": line.gives}
        | {"rows": line.taxis.rows(line.files), "batches": line.files, "astray": astray[line.name]}
        for line, row in zip(lines, rows, strict=True)
    ]


def main() -> None:
    """Run it all and leave ``stream_table.json`` and ``large_batches.json``."""
    given = arguments(__doc__)
    data(tdrive.TDRIVE)
    taxis = Taxis(limit=QUICK_ROWS if given.quick else None)
    runs, warmup = (given.runs or 1, 0) if given.quick else (given.runs or RUNS, 1)
    with ExitStack() as stack:
        lines = started(stack, taxis, make_peer=not given.quick)
        if given.quick:
            lines = [replace(line, files=ONE) for line in lines]
        rows = measure(lines, runs=runs, warmup=warmup)
    is_large = [line.taxis.files == LARGE for line in lines]
    ordinary = [row for row, large in zip(rows, is_large, strict=True) if not large]
    for name, files, measured in (
        ("stream_table", tdrive.FILES, [*ordinary, *PAPER]),
        ("large_batches", LARGE, [row for row in rows if row not in ordinary]),
    ):
        path = save(
            name,
            measured,
            quick=given.quick,
            data=f"{tdrive.TDRIVE} in {files} files, {tdrive.DISTRICTS}",
            seed=SEED,
            conf=streams.CONF,
            peers=sedona.SEDONA.versions,
        )
        print(path)


if __name__ == "__main__":
    main()
