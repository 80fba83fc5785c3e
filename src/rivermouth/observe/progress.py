"""A line that says how a running query is doing."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from rivermouth.observe.metrics import metrics

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_PAUSE = 0.5  # seconds between two looks: a person reads no faster


def follow(
    query: StreamingQuery,
    *,
    until: Callable[[dict[str, Any]], bool] | None = None,
    console: Console | None = None,
) -> dict[str, Any]:
    """Show one live line for a query until it ends, and give its last metrics.

    Where the console is no terminal, only the last state of the line is written, once.

    Parameters
    ----------
    query
        A running query. One that fails raises its error here.
    until
        Given the metrics, says whether to look no further although the query runs on.
    console
        Where to write; None: the standard output.
    """
    enough = None if until is None else lambda numbers: until(numbers[""])
    return follow_all({"": query}, until=enough, console=console)[""]


def follow_all(
    queries: Mapping[str, StreamingQuery],
    *,
    until: Callable[[dict[str, dict[str, Any]]], bool] | None = None,
    console: Console | None = None,
) -> dict[str, dict[str, Any]]:
    """Show a live line for each of several queries until all end; as `follow`, by their names.

    When one fails, the others are not waited for.
    """
    console = console or Console()
    with Live(console=console, auto_refresh=False, transient=True) as live:
        while True:
            # asked before the numbers, so that the last are seen
            running = [query for query in queries.values() if query.isActive]
            numbers = {name: metrics(query) for name, query in queries.items()}
            live.update(Text(_lines(numbers), overflow="ellipsis", no_wrap=True), refresh=True)
            failed = [query for query in queries.values() if _failure(query, running) is not None]
            if not running or failed or (until is not None and until(numbers)):
                break
            time.sleep(_PAUSE)
    for query in failed:
        failure = query.exception()
        assert failure is not None
        raise failure
    console.print(_lines(numbers), highlight=False, soft_wrap=True, markup=False)
    return numbers


def _failure(query: StreamingQuery, running: Sequence[StreamingQuery]) -> Exception | None:
    return None if query in running else query.exception()


def _lines(numbers: Mapping[str, dict[str, Any]]) -> str:
    wide = max(map(len, numbers))
    return "\n".join(f"{name:<{wide}}  {line(of)}".lstrip() for name, of in numbers.items())


def line(numbers: dict[str, Any]) -> str:
    """The metrics in one line.

    Examples
    --------
    >>> line({"batches": 3, "rows": 1200, "rows_per_second": 650.4, "operators": {
    ...     "join_table.zones": {"rows_in": 1200, "matched": 1140, "rejected": {"null": 7},
    ...                          "late": None, "cache": None, "table": {"age_seconds": 12.3}}}})
    '3 batches · 1,200 rows · 650 rows/s · 95.0 % matched · 7 rejected · table 12 s old'
    >>> line({"batches": 0, "rows": 0, "rows_per_second": None, "operators": {}})
    'waiting for the first batch'
    """
    if not numbers["batches"]:
        return "waiting for the first batch"
    rate = numbers["rows_per_second"]
    batches = "1 batch" if numbers["batches"] == 1 else f"{numbers['batches']:,} batches"
    parts = [batches, f"{numbers['rows']:,} rows"]
    if rate is not None:
        parts.append(f"{rate:,.0f} rows/s")
    if corrections := numbers.get("corrections"):
        parts.append(f"{corrections['results']:,} results by corrections")
    several = len(numbers["operators"]) > 1
    for name, operator in numbers["operators"].items():
        parts += _operator(operator, f"{name}: " if several else "")
    return " · ".join(parts)


def _operator(operator: dict[str, Any], prefix: str) -> list[str]:
    rows = operator["rows_in"]
    if not rows:
        return []
    parts = []
    if operator["matched"] is not None:
        parts.append(f"{100 * operator['matched'] / rows:.1f} % matched")
    if late := operator["late"]:
        parts.append(f"{late:,} late")
    if rejected := sum(operator["rejected"].values()):
        parts.append(f"{rejected:,} rejected")
    if cache := operator["cache"]:
        parts.append(f"{100 * (cache['hit_ratio'] or 0):.1f} % from cache")
    if table := operator["table"]:
        parts.append(f"table {table['age_seconds']:.0f} s old")
    if prefix:
        parts[:1] = [f"{prefix}{parts[0] if parts else f'{rows:,} rows'}"]
    return parts
