"""What grows in 2,000 micro-batches of every operator that keeps state.

Each query runs in a process of its own. What is compared is the second tenth of the micro-batches
with the last: time and CPU of a micro-batch, memory, state, files, and a correction's time.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from typing import Any

import numpy as np

from benchmarks.harness.experiment import progress, save
from benchmarks.suites.reliability import soak_cases, soak_run

BATCHES, QUICK = 2000, 40
NAMES = (*soak_cases.CASES, soak_cases.EXACT)
_POINTS = 200  #: of a line in the plot


def tenths(values: Any) -> tuple[float, float]:
    """The median of the second tenth and of the last."""
    array = np.asarray(values, float)
    size = len(array) // 10
    return float(np.median(array[size : 2 * size])), float(np.median(array[len(array) - size :]))


def measured(case: str, found: dict[str, Any]) -> dict[str, Any]:
    """A row of the table, with its lines of the plot."""
    looks = {
        name: [look[name] for look in found["looks"] if name in look] for name in found["looks"][0]
    }
    cpu = np.diff(looks["cpu_s"]) / np.maximum(np.diff(looks["batch"]), 1)
    series = {
        "batch_ms": found["batch_ms"], "state_rows": found["state_rows"],
        "state_mb": found["state_mb"], "java_mb": looks["java_mb"], "heap_mb": looks["heap_mb"],
        "python_mb": looks["python_mb"], "files": looks["files"], "files_mb": looks["files_mb"],
        "store_mb": looks["store_mb"],
        "cpu_ms": (1000 * cpu).tolist(),
    }  # fmt: skip
    if made := [each["seconds"] for each in found.get("corrections", ()) if each["seconds"]]:
        series["correction_s"] = made
    return {
        "case": case,
        "batches": len(found["batch_ms"]),
        "minutes": looks["s"][-1] / 60,
        "rows_out": sum(found["rows_out"]),
        "corrections": len(found.get("corrections", ())),
        **{name: tenths(values) for name, values in series.items()},
        "series": {name: _thin(values) for name, values in series.items()},
    }


def _thin(values: Any) -> list[float]:
    """Medians of equal stretches, at most `_POINTS`."""
    parts = np.array_split(np.asarray(values, float), min(_POINTS, len(values)))
    return [float(f"{np.median(part):.4g}") for part in parts]


def main() -> None:
    """Leave ``soak``; a query that was run before stays in it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few micro-batches: a smoke test")
    parser.add_argument("--only", nargs="*", choices=NAMES, default=list(NAMES))
    parser.add_argument("--batches", type=int)
    given = parser.parse_args()
    batches = given.batches or (QUICK if given.quick else BATCHES)
    rows = []
    with progress("soak", len(given.only)) as step:
        for case in given.only:
            step(case)
            with tempfile.TemporaryDirectory(prefix=f"soak-{case}-") as folder:
                command = [sys.executable, "-m", soak_run.__name__, case, str(batches), folder]
                done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            rows.append(measured(case, json.loads(done.stdout.splitlines()[-1])))
            shown = {name: value for name, value in rows[-1].items() if name != "series"}
            print(shown, flush=True)
    about = {"data": "seeded: soak_cases.py", "batch_rows": soak_cases.ROWS, "conf": soak_run.CONF}
    print(save("soak", rows, quick=given.quick, beside=("case",), **about))


if __name__ == "__main__":
    main()
