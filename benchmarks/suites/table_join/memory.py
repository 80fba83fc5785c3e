"""What two workers hold in a join with 1,000,000 polygons: one shared snapshot, or a copy each.

The memory of the Python workers is read from /proc while the stream runs. Three cases, each in a
fresh session: rows passed through (what a worker holds anyway), our join with its mapped snapshot,
and the form in which each worker reads the table and builds shapely's tree for itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarks.harness import accounting, session, streams
from benchmarks.harness.accounting import Sampler
from benchmarks.harness.experiment import SEED, arguments, progress, save
from benchmarks.suites.table_join.questions import FILES, Question, headline, polygons

POINTS = 1_000_000
PAUSE_S = 0.1
Sample = list[dict[str, int]]


def worker_pids(root: int) -> list[int]:
    """The Python workers under `root`: the children that Spark's daemon has forked."""
    found = accounting.tree(root)
    daemons = {process.pid for process in found if _is_daemon(process.pid)}
    return [process.pid for process in found if process.parent in daemons]


def _is_daemon(pid: int) -> bool:
    try:
        return b"pyspark.daemon" in (accounting.PROC / str(pid) / "cmdline").read_bytes()
    except OSError:  # it has ended
        return False


def _together(sample: Sample, kind: str) -> int:
    return sum(worker[kind] for worker in sample)


def run(case: str, question: Question, points: int, **options: Any) -> dict[str, Any]:
    """One case in a fresh session: the stream once to load, once more to be watched."""
    folder = str(question.stream(points))
    request: Mapping[str, Any] = {
        "case": case, "folder": folder, "files": FILES, "options": options
    }  # fmt: skip
    with session.start(cores=2) as runner:
        runner.ask(**request)
        with Sampler(lambda: accounting.memories(worker_pids(runner.pid)), pause=PAUSE_S) as held:
            found = runner.ask(**request)
    heaviest = max(held.samples, key=lambda sample: _together(sample, "pss"))
    return {
        "case": case,
        "workers": len(heaviest),
        "table_rows": question.rows,
        **{f"{kind}_mb": _together(heaviest, kind) / 1e6 for kind in heaviest[0]},
        "rows_out": found["rows_out"],
    }


def main() -> None:
    """Run the three cases and leave ``memory.json``."""
    given = arguments(__doc__)
    million = 20_000 if given.quick else 1_000_000
    points = 20_000 if given.quick else POINTS
    question = polygons(million)
    number = [asked.title for asked in headline(million)].index(question.title)
    cases: dict[str, dict[str, Any]] = {
        "identity": {},
        "question": {"number": number, "million": million},
        "own_copy": {"million": million},
    }
    rows = []
    with progress("memory", len(cases)) as step:
        for case, options in cases.items():
            step(case)
            rows.append(run(case, question, points, **options))
    if rows[1]["rows_out"] != rows[2]["rows_out"]:
        raise AssertionError(f"the two forms give different rows: {rows}")
    print(save("memory", rows, quick=given.quick, seed=SEED, data="seeded", conf=streams.CONF))


if __name__ == "__main__":
    main()
