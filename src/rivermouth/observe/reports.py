"""Progress reports, as Spark gives them in several forms, as one plain record per micro-batch.

A record holds numbers, texts, lists and dicts only: the history file keeps it, and `metrics`, the
page and the plots are made of nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from inspect import getattr_static
from typing import TYPE_CHECKING, Any

from rivermouth.errors import DefinitionError
from rivermouth.observe import operators
from rivermouth.observe.log import Batch
from rivermouth.spark.engines.stateless import PREFIX, REPORTS
from rivermouth.spark.exact.job import Running

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

Progress = Mapping[str, Any]

#: what Spark's sources call the rows that they know of and have not given yet
_BACKLOG = "maxOffsetsBehindLatest"


def query_of(given: Any, *, where: str) -> StreamingQuery:
    """A query, or that of an exact aggregation at work."""
    query = given.query if isinstance(given, Running) else given
    if getattr_static(query, "recentProgress", None) is None:  # itself it is a call to Spark
        raise DefinitionError(
            where,
            f"a {type(given).__name__} has no progress reports",
            todo="Give what writeStream...start() or rm.exact(...).start() returns.",
        )
    found: StreamingQuery = query
    return found


def corrections_of(given: Any) -> list[dict[str, Any]] | None:
    """The corrections of an exact aggregation so far; None of any other query."""
    if not isinstance(given, Running):
        return None
    return [asdict(made) for made in given.corrections()]


def ran(report: Progress) -> bool:
    """Whether this reports a batch: a waiting query reports, too, under the next batch's number.

    Examples
    --------
    >>> ran({"batchId": 1, "sources": [], "durationMs": {"latestOffset": 2}})
    False
    """
    return bool(_source_rows(report)) or "addBatch" in report["durationMs"]


def batch(report: Progress) -> Batch:
    """The record of a batch, from its report.

    Returns
    -------
    dict
        ``batch`` its number, ``at`` when it began (ISO 8601, UTC), ``seconds`` how long it took,
        ``source_rows`` as Spark's sources count them, ``rows`` that came in (those of the
        operator, if there is only one: sources count the rows of a task that ran twice twice),
        ``backlog`` (rows that the source still holds, None where it does not say), ``state`` as
        Spark counts it (None without any), and ``operators``: by the name in
        ``observedMetrics``, each as `operators.record` has it.
    """
    found = {
        name: operators.record(_tasks(row))
        for name, row in report["observedMetrics"].items()
        if name.startswith(f"{PREFIX}.")
    }
    source_rows = _source_rows(report)
    taken = [record["counts"].get("rows_in", 0) for record in found.values()]
    return {
        "batch": report["batchId"],
        "at": report["timestamp"],
        "seconds": report["batchDuration"] / 1000,
        "source_rows": source_rows,
        "rows": taken[0] if len(taken) == 1 else source_rows,
        "backlog": _backlog(report["sources"]),
        "state": _state(report["stateOperators"]),
        "operators": found,
    }


def _source_rows(report: Progress) -> int:
    """Input rows; their sum over the sources is not in the reports of Spark Connect."""
    return sum(source["numInputRows"] for source in report["sources"])


def _backlog(sources: Iterable[Mapping[str, Any]]) -> int | None:
    known = [source["metrics"][_BACKLOG] for source in sources if _BACKLOG in source["metrics"]]
    return sum(int(float(rows)) for rows in known) if known else None


def _state(found: Iterable[Mapping[str, Any]]) -> dict[str, int] | None:
    states = list(found)
    if not states:
        return None
    return {
        "rows": sum(state["numRowsTotal"] for state in states),
        "bytes": sum(state["memoryUsedBytes"] for state in states),
    }


def _tasks(row: Any) -> list[operators.Report]:
    """The tasks' reports in an observed row: a dict, a Row, or Connect's Row of values and schema.

    Examples
    --------
    >>> _tasks({"schema": {"fields": [{"name": "tasks"}]}, "values": [['{"rows_in": 3}']]})
    [{'rows_in': 3}]
    """
    fields = row if isinstance(row, Mapping) else row.asDict()
    if REPORTS not in fields:
        names = (field["name"] for field in fields["schema"]["fields"])
        fields = dict(zip(names, fields["values"], strict=True))
    return [json.loads(report) for report in fields[REPORTS] or ()]
