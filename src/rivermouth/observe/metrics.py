"""metrics: what a streaming query has done, as a plain dict.

The numbers are those of the query's own progress reports: asking for them runs nothing.
"""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rivermouth.errors import DefinitionError
from rivermouth.spark.stateless import PREFIX, REPORTS
from rivermouth.tables.incremental import HELD

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

Progress = Mapping[str, Any]
Report = Mapping[str, Any]

_SUMS = ("rows_in", "rows_out", "matched")


def metrics(query: StreamingQuery) -> dict[str, Any]:
    """What a streaming query has done, over the progress reports that Spark still holds.

    Spark holds the newest 100, one per micro-batch, so the sums of a long query are those of its
    last 100 batches; ``spark.sql.streaming.numRecentProgressUpdates`` sets another number.

    Parameters
    ----------
    query
        Running or ended, of Spark or of Spark Connect.

    Returns
    -------
    dict
        Numbers, texts, lists and dicts only, so that it can be written as JSON:

        batches
            How many micro-batches the reports tell of.
        rows, rows_per_second
            Input rows, and how many went through per second of the batches' time. Time in which
            the query waited for rows does not count; None before the first batch.
        last_batch_seconds, median_batch_seconds
            How long a batch took from end to end; None before the first.
        operators
            For each of our operators, by its name and its table's
            (``"join_table.districts.geojson"``; a second one of that name gets a ``#2``):

            rows_in, rows_out, matched, unmatched
                `matched` and `unmatched` count input rows, and add up to `rows_in`.
            set_aside
                The unmatched rows that could not match, by reason: ``{"null": 3}``.
            seconds
                Time in our own code, summed over tasks.
            rows_per_task
                `rows_in` of each task of the newest batch, largest first: equal numbers are a
                balanced load, one large number is a skew.
            table
                The table's newest version: rows, version, age_seconds (at that batch),
                load_seconds, index. None where there is no snapshot.
            cache
                An incremental cache's hits, misses, negative_hits, loads, load_seconds and the
                like, summed; what all workers hold together (entries, rows, bytes); hit_ratio,
                hits of both kinds to lookups. None where there is no such cache.
    """
    reports = getattr(query, "recentProgress", None)
    if reports is None:
        raise DefinitionError(
            "metrics",
            f"a {type(query).__name__} has no progress reports",
            todo="Give what writeStream...start() returns.",
        )
    return summarise(reports)


def summarise(reports: Iterable[Progress]) -> dict[str, Any]:
    """The metrics of these progress reports, which are in the order of their batches."""
    batches = _batches(reports)
    seconds = [batch["batchDuration"] / 1000 for batch in batches]
    rows = sum(map(_rows, batches))
    return {
        "batches": len(batches),
        "rows": rows,
        "rows_per_second": rows / sum(seconds) if sum(seconds) else None,
        "last_batch_seconds": seconds[-1] if seconds else None,
        "median_batch_seconds": statistics.median(seconds) if seconds else None,
        "operators": _operators(batches),
    }


def _batches(reports: Iterable[Progress]) -> list[Progress]:
    """One report per batch that ran: a waiting query reports, too, under the next batch's number.

    Examples
    --------
    >>> waiting = {"batchId": 1, "sources": [], "durationMs": {"latestOffset": 2}}
    >>> ran = {"batchId": 1, "sources": [{"numInputRows": 5}], "durationMs": {"addBatch": 40}}
    >>> _batches([waiting, ran, ran]) == [ran]
    True
    """
    ran = {
        report["batchId"]: report
        for report in reports
        if _rows(report) or "addBatch" in report["durationMs"]
    }
    return list(ran.values())


def _rows(report: Progress) -> int:
    """Input rows; their sum over the sources is not in the reports of Spark Connect."""
    return sum(source["numInputRows"] for source in report["sources"])


def _operators(batches: Sequence[Progress]) -> dict[str, dict[str, Any]]:
    """Each operator's numbers, under the names that a reader knows them by."""
    observed: dict[str, list[list[Report]]] = {}
    for batch in batches:
        for name, row in batch["observedMetrics"].items():
            if name.startswith(f"{PREFIX}."):
                observed.setdefault(name, []).append(_reports(row))
    return {key: _operator(observed[name]) for name, key in _keys(observed).items()}


def _reports(row: Any) -> list[Report]:
    """The tasks' reports in an observed row: a dict, a Row, or Connect's Row of values and schema.

    Examples
    --------
    >>> _reports({"schema": {"fields": [{"name": "tasks"}]}, "values": [['{"rows_in": 3}']]})
    [{'rows_in': 3}]
    """
    fields = row if isinstance(row, Mapping) else row.asDict()
    if REPORTS not in fields:
        names = (field["name"] for field in fields["schema"]["fields"])
        fields = dict(zip(names, fields["values"], strict=True))
    return [json.loads(report) for report in fields[REPORTS] or ()]


def _keys(names: Iterable[str]) -> dict[str, str]:
    """What each observed name is called without its prefix and running number.

    Examples
    --------
    >>> _keys(["rivermouth.join_table.zones.12", "rivermouth.join_table.zones.3"])
    {'rivermouth.join_table.zones.3': 'join_table.zones',
     'rivermouth.join_table.zones.12': 'join_table.zones#2'}
    """
    keys: dict[str, str] = {}
    seen: Counter[str] = Counter()
    for name in sorted(names, key=lambda name: int(name.rpartition(".")[2])):
        key = name.removeprefix(f"{PREFIX}.").rpartition(".")[0]
        seen[key] += 1
        keys[name] = key if seen[key] == 1 else f"{key}#{seen[key]}"
    return keys


def _operator(batches: Sequence[Sequence[Report]]) -> dict[str, Any]:
    """One operator's numbers, from its tasks' reports batch by batch."""
    tasks = [task for batch in batches for task in batch]
    newest: Sequence[Report] = next((batch for batch in reversed(batches) if batch), [])
    sums = {name: sum(task[name] for task in tasks) for name in _SUMS}
    set_aside: Counter[str] = Counter()
    for task in tasks:
        set_aside.update(task["set_aside"])
    return {
        **sums,
        "unmatched": sums["rows_in"] - sums["matched"],
        "set_aside": dict(set_aside),
        "seconds": sum(task["seconds"] for task in tasks),
        "rows_per_task": sorted((task["rows_in"] for task in newest), reverse=True),
        "table": _table(newest),
        "cache": _cache(tasks),
    }


def _cache(tasks: Sequence[Report]) -> dict[str, Any] | None:
    """What the workers' caches did in these tasks, which are in order, and hold after them."""
    caches = [task["cache"] for task in tasks if "cache" in task]
    if not caches:
        return None
    done: Counter[str] = Counter()
    for cache in caches:
        done.update({name: cache[name] for name in cache.keys() - {"worker", *HELD}})
    newest = {cache["worker"]: cache for cache in caches}
    held = {name: sum(cache[name] for cache in newest.values()) for name in HELD}
    hits = done["hits"] + done["negative_hits"]
    asked = hits + done["misses"]
    return {**done, **held, "workers": len(newest), "hit_ratio": hits / asked if asked else None}


def _table(tasks: Sequence[Report]) -> dict[str, Any] | None:
    """The newest version that these tasks used, as the last of them saw it."""
    tables = [task["table"] for task in tasks if "table" in task]
    if not tables:
        return None
    return dict(max(tables, key=lambda table: (table["version"], table["age_seconds"])))
