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
from dataclasses import asdict, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from tests.matrix.environments import ROOT, SPARKS, python
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


def run(minor: str, *arguments: str | Path) -> dict[str, Counts]:
    """The counts of some tests on a version of Spark, in one process, by module."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        command = [python(minor), "-m", "pytest", "-q", "--tb=short", f"--junitxml={report}"]
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        environment = {**os.environ, "PYTHONPATH": path}
        subprocess.run([*command, *arguments], cwd=ROOT, env=environment)
        return read_junit(report)


def _all(minor: str, files: list[Path]) -> Counts:
    """The counts of some files of tests, each in a process of its own."""
    return sum((one for file in files for one in run(minor, file).values()), Counts())


def _quick(minor: str) -> dict[str, Counts]:
    """The counts of the few tests of each operator that `make test-fast` runs, too."""
    found = run(minor, "-m", "quick", _SPARK)
    by_module = {_module(file): name for name, files in operators().items() for file in files}
    counts: dict[str, Counts] = {}
    for module, some in found.items():
        name = by_module.get(module, _OTHERS)
        counts[name] = counts.get(name, Counts()) + replace(some, is_quick=True)
    return counts


def _module(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts)


def version(minor: str, chosen: dict[str, list[Path]], asked: argparse.Namespace) -> dict[str, Any]:
    """What the chosen tests give on a version of Spark, kept operator by operator if asked for."""
    about = {
        "spark": SPARKS[minor][0],
        "packages": f"Python {sys.version.split()[0]}, pandas {metadata.version('pandas')}, "
        f"pyarrow {metadata.version('pyarrow')}",
        "date": f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
    }
    found: dict[str, Counts] = {}
    for name, files in chosen.items():
        print(f"matrix: {name} on Spark {minor}", flush=True)
        some = _quick(minor) if asked.quick else {name: _all(minor, files)}
        found |= some
        if asked.keep:
            keep(minor, about, some)
    return {**about, "operators": {name: asdict(each) for name, each in found.items()}}


def has_turn(versions: list[str]) -> bool:
    """Whether versions have their turn: at every commit whose hash is odd, if they can be had.

    The newest always runs, so what is missing here says nothing of the commit.
    """
    shown = ", ".join(versions)
    try:
        head = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=ROOT, text=True).strip()
        odd = int(head, 16) % 2 == 1
        print(f"matrix: {head} is {'odd: Spark' if odd else 'even: no turn of Spark'} {shown}")
        if odd:
            for minor in versions:
                python(minor)
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"matrix: no turn of Spark {shown}, which could not be had: {error}")
        return False
    return odd


def arguments() -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description=__doc__)
    parser.add_argument("--spark", nargs="+", choices=SPARKS, default=[*SPARKS], metavar="4.x")
    parser.add_argument("--only", nargs="+", choices=operators(), metavar="OPERATOR")
    parser.add_argument("--quick", action="store_true", help="the tests of `make test-fast` alone")
    parser.add_argument("--keep", action="store_true", help="keep the counts, for docs/versions.md")
    parser.add_argument(
        "--turn",
        action="store_true",
        help="only at commits whose hash is odd (for CI)",
    )
    return parser.parse_args()


def main() -> int:
    """Run what was asked for; 1 where a test failed."""
    asked = arguments()
    if asked.turn and not has_turn(asked.spark):
        return 0
    wanted = asked.only or [*operators()]
    chosen = {name: files for name, files in operators().items() if name in wanted}
    if asked.quick:
        chosen = {"a few tests of each operator": []}
    found = {minor: version(minor, chosen, asked) for minor in asked.spark}
    print(table(found, operators()))
    if asked.keep:
        write_page(operators())
    each = (counts for one in found.values() for counts in one["operators"].values())
    return 1 if any(counts["failed"] for counts in each) else 0


if __name__ == "__main__":
    sys.exit(main())
