"""T-Drive x the 16 districts of Beijing as a stream: its floor, ours, the paper's ways, Sedona.

CPU seconds per million rows and throughput, on two cores and on one. All cases take turns in one
run; each first runs once with its rows counted by district against shapely's counts, which also
warms its JVM by ten micro-batches or more.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from benchmarks import events, ours, streams
from benchmarks.harness import SEED, Case, arguments, interleave, progress, save
from benchmarks.peers import sedona
from benchmarks.peers.environment import PeerUnavailable
from benchmarks.runner import Runner

RUNS = 5
#: files a run reads; slow cases read fewer, as their figures are per row
ALL, HALF, FEW, ONE = events.FILES, events.FILES // 2, 2, 1

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
    files: int
    gives: str = "every row with its district"

    @property
    def name(self) -> str:
        """Tells it from the others of the run."""
        return f"{self.case}, {self.cores} cores"

    def check(self) -> int:
        """Run once, rows counted by district; how many rows are not where shapely has them.

        Ours may not differ. A peer's difference is reported beside its figure.
        """
        truth = events.expected(self.files)
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
        }

    def _run(self, how: Callable[..., dict[str, Any]], **more: Any) -> dict[str, Any]:
        folder = str(events.tdrive_files())
        found = how(case=self.case, folder=folder, files=self.files, **more)
        self._agree("rows in", found["rows_in"], events.rows(self.files))
        if "every row" in self.gives:
            self._agree("rows out", found["rows_out"], events.rows(self.files))
        return found

    def _agree(self, what: str, found: object, truth: object) -> None:
        if found != truth:
            raise AssertionError(f"{self.name}: {what} are {found}, the truth is {truth}")


def our_lines(one: Runner, two: Runner) -> list[Line]:
    """The floor, our plans, and the paper's ways, on two cores and on one."""
    return [
        *(Line(case, two, 2, ALL, "every row") for case in ("scan", "identity")),
        Line("identity_with_district", two, 2, ALL, "every row"),
        *(Line(case, two, 2, ALL) for case in ("workers", "native")),
        *(Line(case, one, 1, HALF) for case in ("workers", "native")),
        *(Line("rtree", *where, HALF) for where in ((two, 2), (one, 1))),
        *(Line("loop_over_batch", *where, FEW) for where in ((two, 2), (one, 1))),
        *(Line("loop_over_records", *where, ONE) for where in ((two, 2), (one, 1))),
    ]


def peer_lines(stack: ExitStack) -> list[Line]:
    """Sedona's two forms, or none, with a word, where it cannot be had."""
    try:
        peer = stack.enter_context(sedona.start(events.data(events.DISTRICTS), cores=2))
    except PeerUnavailable as reason:
        print(f"without Sedona: {reason}")
        return []
    gives = "rows inside, with their district"
    return [Line("subdivided", peer, 2, HALF, gives), Line("whole", peer, 2, FEW, gives)]


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
        | {"rows": events.rows(line.files), "batches": line.files, "astray": astray[line.name]}
        for line, row in zip(lines, rows, strict=True)
    ]


def main() -> None:
    """Run it all and leave ``stream_table.json``."""
    given = arguments(__doc__)
    with ExitStack() as stack:
        one, two = (stack.enter_context(ours.start(cores=cores)) for cores in (1, 2))
        lines = [*our_lines(one, two), *peer_lines(stack)]
        if given.quick:
            lines = [Line(line.case, line.runner, line.cores, ONE, line.gives) for line in lines]
        runs = given.runs or (1 if given.quick else RUNS)
        rows = measure(lines, runs=runs, warmup=0 if given.quick else 1)
    path = save(
        "stream_table",
        [*rows, *PAPER],
        quick=given.quick,
        data=f"{events.TDRIVE} in {events.FILES} files, {events.DISTRICTS}",
        seed=SEED,
        conf=streams.CONF,
        peers={f"peer {name}": pin for name, pin in sedona.SEDONA.versions.items()},
    )
    print(path)


if __name__ == "__main__":
    main()
