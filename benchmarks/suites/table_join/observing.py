"""What it costs to know: the same join without reports, with them, and with a page that watches.

T-Drive x the 16 districts of Beijing, in CPU seconds per million rows of the process tree. The
reports are part of every join, so the case without them takes them out by force. All cases take
turns in one session.
"""

from __future__ import annotations

from typing import Any

from benchmarks.harness import session, streams, tdrive
from benchmarks.harness.experiment import SEED, Case, arguments, data, interleave, progress, save
from benchmarks.harness.runner import Runner
from benchmarks.harness.tdrive import Taxis

RUNS, WARM = 7, 2
QUICK_ROWS = 60_000


def cases(runner: Runner, taxis: Taxis) -> dict[str, Case]:
    """The cases by name."""

    def case(name: str, **more: Any) -> Case:
        def once() -> dict[str, float]:
            asked = {"case": name, "folder": str(taxis.folder()), "files": taxis.files}
            found = runner.measure(**asked, **more)
            return {
                "cpu_s_per_million": found["cpu_s"] / found["rows_in"] * 1e6,
                "points_per_s": found["rows_in"] / found["wall_s"],
            }

        return once

    return {
        "unobserved": case("unobserved"),
        "observed": case("workers"),
        "watched": case("workers", watch=True),
    }


def main() -> None:
    """Leave ``observing``."""
    given = arguments(__doc__)
    data(tdrive.TDRIVE)
    taxis = Taxis(limit=QUICK_ROWS if given.quick else None)
    runs, warmup = (given.runs or 1, 0) if given.quick else (given.runs or RUNS, WARM)
    with session.start(cores=2) as runner:
        lines = cases(runner, taxis)
        with progress("observing", len(lines) * (warmup + runs)) as step:
            rows = interleave(lines, runs=runs, warmup=warmup, step=step)
    about = {"quick": given.quick, "seed": SEED, "data": f"{tdrive.TDRIVE}, {tdrive.DISTRICTS}"}
    print(save("observing", rows, **about, conf=streams.CONF))


if __name__ == "__main__":
    main()
