"""The common ground of all benchmarks: where data lies, how cases alternate, what is kept."""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.harness import machine
from benchmarks.harness.accounting import cpu_seconds

__all__ = ["CACHE", "RESULTS", "arguments", "cpu_seconds", "data", "interleave", "progress", "save"]

ROOT = machine.ROOT
DATA = ROOT.parent / "shared" / "data"
CACHE = ROOT / ".cache" / "bench"
RESULTS = ROOT / "benchmarks" / "results"
SEED = 20080203

Measures = Mapping[str, float]
Case = Callable[[], Measures]


def data(name: str) -> Path:
    """The path of a shared data file; where it is absent the benchmark ends with a word."""
    path = DATA / name
    if not path.exists():
        print(f"skipped: this benchmark reads {path}, which is not there", file=sys.stderr)
        raise SystemExit(0)
    return path


def arguments(about: str | None, words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line all benchmarks share: ``--quick``, ``--runs`` and ``--minutes``."""
    parser = argparse.ArgumentParser(description=(about or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small inputs, one run: a smoke test")
    parser.add_argument("--runs", type=int, help="measured runs of each case")
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="begin no further run after so many"
    )
    return parser.parse_args(words)


def interleave(
    cases: Mapping[str, Case],
    *,
    runs: int,
    warmup: int = 1,
    step: Callable[[str], None] = lambda _: None,
    minutes: float = math.inf,
) -> list[dict[str, Any]]:
    """Run every case `runs` times in alternating order; a row of medians and spreads for each.

    A round runs each case once; every other round goes backwards, so that a machine that slows
    down over the minutes burdens all cases alike. The first `warmup` rounds are thrown away. Once
    this process is `minutes` old, no further round is begun after the first that counts.

    Returns
    -------
    One row a case, in the order given: ``case``, ``runs``, the median of each measure under its
    own name, and under ``spread`` its smallest and largest value.
    """
    taken: dict[str, list[Measures]] = {name: [] for name in cases}
    for turn in range(-warmup, runs):
        if turn > 0 and time.monotonic() - _BEGAN > 60 * minutes:
            break
        forwards = turn < 0 or turn % 2 == 0
        for name in cases if forwards else reversed(cases):
            step(name)
            measures = cases[name]()
            if turn >= 0:
                taken[name].append(measures)
    return [_row(name, measured) for name, measured in taken.items()]


def _row(name: str, measured: Sequence[Measures]) -> dict[str, Any]:
    columns = {key: [run[key] for run in measured] for key in measured[0]}
    return {
        "case": name,
        "runs": len(measured),
        **{key: statistics.median(values) for key, values in columns.items()},
        "spread": {key: [min(values), max(values)] for key, values in columns.items()},
    }


def timed(work: Callable[[], Any]) -> float:
    """Wall seconds that `work` takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


@contextmanager
def progress(title: str, total: int) -> Iterator[Callable[[str], None]]:
    """A progress line on the terminal; yields what to call with each step's name.

    Where the error output is not a terminal, each step is a line with the time of day.
    """
    console = Console(stderr=True)
    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[case]}"),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(title, total=total, case="")
        begun = itertools.count(1)

        def step(case: str) -> None:
            bar.update(task, advance=1, case=case)
            if not console.is_terminal:
                at = f"{time.strftime('%H:%M:%S')} {title} {next(begun)}/{total}"
                print(f"{at}: {case}", file=sys.stderr, flush=True)

        yield step


def save(
    name: str,
    rows: Iterable[Mapping[str, Any]],
    *,
    quick: bool = False,
    folder: Path | None = None,
    peers: Mapping[str, str] | None = None,
    beside: Sequence[str] = (),
    **meta: Any,
) -> Path:
    """Write ``NAME.json``: the rows, and all that is needed to understand and repeat them.

    Parameters
    ----------
    name
        Of the file, and of the table that `benchmarks.harness.report` makes of it.
    rows
        One mapping a line of the table.
    quick
        A smoke run: its figures mean nothing, so they go to the cache and never among the results.
    folder
        Where to write instead.
    peers
        Versions of other systems measured in the same run; where they have another of what we have
        ourselves, it is that of ``peer NAME``.
    beside
        Columns that tell parts of the benchmark apart. Rows of an earlier run stay, unless one of
        `rows` has the same values there. None: the rows take the place of all.
    meta
        What else belongs to the run: ``data``, ``seed``, ``conf``, ``truth``.
    """
    folder = folder or (CACHE / "quick" if quick else RESULTS)
    path = folder / f"{name}.json"
    made = [dict(row) for row in rows]
    document = {
        "name": name,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join(sys.orig_argv[1:]),
        "commit": machine.commit(),
        "machine": machine.machine() | {"load_before": _LOAD_BEFORE},
        "versions": _versions(peers or {}),
        **({"quick": True} if quick else {}),
        **meta,
        "rows": [*_kept(path, made, beside), *made],
    }
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    return path


def _versions(peers: Mapping[str, str]) -> dict[str, str]:
    ours = machine.versions()
    return ours | {f"peer {name}" if name in ours else name: pin for name, pin in peers.items()}


def _kept(path: Path, made: list[dict[str, Any]], beside: Sequence[str]) -> list[dict[str, Any]]:
    """The rows of an earlier run that are of other parts than those made now."""
    if not (beside and path.exists()):
        return []
    parts = {tuple(row[column] for column in beside) for row in made}
    earlier: list[dict[str, Any]] = json.loads(path.read_text())["rows"]
    return [row for row in earlier if tuple(row[column] for column in beside) not in parts]


_BEGAN = time.monotonic()
_LOAD_BEFORE = machine.machine()["load_before"]  # of the moment this process began
