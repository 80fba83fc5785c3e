"""Run the Spark tests on every version of Spark and show a table of versions by operators.

A file of tests at a time, in a process of its own. The newest version runs in the environment of
this process, the others in one each under ``.venvs``, made where it is missing.
"""

from __future__ import annotations

import argparse
import datetime
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from tests.matrix.environments import OLDEST, ROOT, SPARKS, python
from tests.matrix.results import Counts, keep, read_junit, table, write_page

_SPARK = ROOT / "tests" / "spark"
_FILES = {
    "join_table": ["test_join_table.py", "test_ranges.py"],
    "join_table, native plan": ["engines/test_native.py", "test_frames.py"],
    "caches": ["test_caches.py", "test_buckets.py", "test_batch_versions.py"],
    "routing": ["test_routing.py"],
    "join_interval, join_window": ["test_join_streams.py"],
    "aggregate": ["test_aggregate.py", "test_aggregate_kernel.py"],
    "correct, exact": ["exact/test_exact.py"],
    "fence_events": ["test_fence_events.py", "test_early_fence_events.py"],
    "trips": ["test_trips.py"],
    "state written by older versions of rivermouth": ["test_persisted.py"],
    "killed and started again": [
        "exact/test_exact_killed.py", "test_fences_killed.py", "test_killed.py",
        "test_streams_killed.py", "test_trips_killed.py",
    ],
}  # fmt: skip
_OTHERS = "all other tests of Spark, and of the testing helpers"


def operators() -> dict[str, list[Path]]:
    """The files of tests of each operator; one that no operator names is among the others."""
    named = {name: [_SPARK / file for file in files] for name, files in _FILES.items()}
    taken = {file for files in named.values() for file in files}
    rest = sorted({*_SPARK.rglob("test_*.py")} - taken)
    return {**named, _OTHERS: [*rest, *sorted((ROOT / "tests" / "testing").glob("test_*.py"))]}


def run(minor: str, files: list[Path], options: list[str]) -> Counts:
    """The counts of some files of tests on a version of Spark."""
    total, program = Counts(), python(minor)
    for file in files:
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder, "report.xml")
            command = [program, "-m", "pytest", "-q", "--tb=short", f"--junitxml={report}"]
            path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
            subprocess.run(
                [*command, *options, file], cwd=ROOT, env={**os.environ, "PYTHONPATH": path}
            )
            total += read_junit(report)
    return total


def version(minor: str, chosen: dict[str, list[Path]], asked: argparse.Namespace) -> dict[str, Any]:
    """What the chosen tests give on a version of Spark, kept operator by operator if asked for."""
    about = {
        "spark": SPARKS[minor][0],
        "packages": f"Python {sys.version.split()[0]}, pandas {metadata.version('pandas')}, "
        f"pyarrow {metadata.version('pyarrow')}",
        "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
    }
    found = {}
    for name, files in chosen.items():
        print(f"matrix: {name} on Spark {minor}", flush=True)
        counts = run(minor, files, ["-m", "quick"] if asked.quick else [])
        found[name] = asdict(counts)
        if asked.keep and not asked.quick:
            keep(minor, about, {name: counts})
    return {**about, "operators": found}


def is_turn() -> bool:
    """Whether the oldest version has its turn: at every commit whose hash is odd."""
    head = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=ROOT, text=True).strip()
    odd = int(head, 16) % 2 == 1
    print(f"matrix: {head} is {'odd: Spark' if odd else 'even: no turn of Spark'} {OLDEST}")
    return odd


def arguments() -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description=__doc__)
    parser.add_argument("--spark", nargs="+", choices=SPARKS, default=[*SPARKS], metavar="4.x")
    parser.add_argument("--only", nargs="+", choices=operators(), metavar="OPERATOR")
    parser.add_argument("--quick", action="store_true", help="the tests of `make test-fast` alone")
    parser.add_argument("--keep", action="store_true", help="keep the counts, for docs/versions.md")
    parser.add_argument(
        "--turn", action="store_true", help="only where this commit's hash is odd (for CI)"
    )
    return parser.parse_args()


def main() -> int:
    """Run what was asked for; 1 where a test failed."""
    asked = arguments()
    if asked.turn and not is_turn():
        return 0
    wanted = asked.only or [*operators()]
    chosen = {name: files for name, files in operators().items() if name in wanted}
    if asked.quick:
        chosen = {"quick tests": [_SPARK]}
    found = {minor: version(minor, chosen, asked) for minor in asked.spark}
    print(table(found, chosen))
    if asked.keep and not asked.quick:
        write_page(operators())
    each = (counts for one in found.values() for counts in one["operators"].values())
    return 1 if any(counts["failed"] for counts in each) else 0


if __name__ == "__main__":
    sys.exit(main())
