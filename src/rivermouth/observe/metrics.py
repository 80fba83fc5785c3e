"""metrics: what a streaming query has done, as a plain dict.

The numbers are those of the query's own progress reports: asking for them runs nothing.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rivermouth.observe import operators, reports
from rivermouth.observe.latency import latency
from rivermouth.observe.reports import Batch
from rivermouth.spark.engines.stateless import PREFIX

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from rivermouth.spark.exact.job import Running


def metrics(query: StreamingQuery | Running) -> dict[str, Any]:
    """What a streaming query has done, over the progress reports that Spark still holds.

    Spark holds the newest 100, one per micro-batch, so the sums of a long query are those of its
    last 100 batches; ``spark.sql.streaming.numRecentProgressUpdates`` sets another number.

    Parameters
    ----------
    query
        Running or ended, of Spark or of Spark Connect; or what ``rm.exact(...).start()`` returned.

    Returns
    -------
    dict
        Numbers, texts, lists and dicts only, so that it can be written as JSON:

        batches
            How many micro-batches the reports tell of.
        rows, rows_per_second
            Input rows, and how many went through per second of the batches' time. Time in which
            the query waited for rows does not count; None before the first batch.
        last_batch_seconds, median_batch_seconds, p95_batch_seconds
            How long a batch took from end to end; None before the first.
        latency
            p50, p95 and p99 of the seconds from a row's arrival at the source to the end of its
            batch, rows taken to arrive evenly between two batches; None before the first row.
        backlog
            Rows that the source held back in the newest batch; None where it does not say.
        state
            The state's rows and bytes in the newest batch, as Spark counts them; None without.
        corrections
            Of an exact aggregation: how many corrections there were (`count`), how many `answers`
            they wrote (put right, or given first), and when the newest was made (`at`, in seconds
            since 1970, None before the first). None of any other query.
        operators
            For each of our operators, by its name and its table's
            (``"join_table.districts.geojson"``; a second one of that name gets a ``#2``). All
            have the same entries, None where an operator has nothing of the kind:

            rows_in, rows_out, matched, unmatched
                `matched` and `unmatched` count input rows, and add up to `rows_in`.
            late, future
                Rows behind the operator's clock, and rows too far ahead of the wall clock.
            rejected
                The rows that could not take part, by reason: ``{"null": 3}``.
            seconds
                Time in our own code, summed over tasks.
            rows_per_task
                `rows_in` of each task, or bucket, of the newest batch, largest first: equal
                numbers are a balanced load, one large number is a skew.
            load_cv
                Their coefficient of variation, standard deviation over mean; None for fewer than
                two.
            table
                The table's newest version: rows, version, age_seconds (at that batch),
                load_seconds, refresh_seconds (what was asked for), index.
            routing
                Of a stream routed by hotspots: `rule` (its version), the last `cycle` (its number),
                its `cycle_load_cv`, whether hotspots `moved`, `records` and `cost` (seconds) per
                partition; of the newest batch `rows_per_partition` and their `load_cv`.
            cache
                An incremental cache's hits, misses, negative_hits, loads, load_seconds and the
                like, summed; what all workers hold together (entries, rows, bytes); hit_ratio,
                hits of both kinds to lookups; `per_worker` the last four for each of them.
            per_row
                How often each row of the table was met, in the table's order, for tables with
                places and at most 20,000 rows.
            state
                What the operator says of its state, summed over the buckets of the newest batch.
            clock
                The slowest bucket's event time, in microseconds since 1970.
            gauges
                Other numbers, each as it was heard last, with its min, mean and max over buckets.
            counts
                Other counts of the operator, summed.
    """
    found = reports.query_of(query, where="metrics").recentProgress
    return summarise(reports.batches(found), reports.corrections_of(query))


def summarise(
    batches: Sequence[Batch], corrections: Sequence[dict[str, Any]] | None = None
) -> dict[str, Any]:
    """The metrics of these batches and corrections, which are in order."""
    seconds = [batch["seconds"] for batch in batches]
    rows = sum(batch["rows"] for batch in batches)
    newest = batches[-1] if batches else {"backlog": None, "state": None}
    return {
        "batches": len(batches),
        "rows": rows,
        "rows_per_second": rows / sum(seconds) if sum(seconds) else None,
        "last_batch_seconds": seconds[-1] if seconds else None,
        "median_batch_seconds": statistics.median(seconds) if seconds else None,
        "p95_batch_seconds": float(np.percentile(seconds, 95)) if seconds else None,
        "latency": latency(batches),
        "backlog": newest["backlog"],
        "state": newest["state"],
        "corrections": None if corrections is None else _corrected(corrections),
        "operators": {
            key: operators.total([b["operators"][name] for b in batches if name in b["operators"]])
            for name, key in keys(name for batch in batches for name in batch["operators"]).items()
        },
    }


def _corrected(corrections: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {
        "count": len(corrections),
        "answers": sum(made["rows"] for made in corrections),
        "at": corrections[-1]["at"] if corrections else None,
    }


def keys(names: Iterable[str]) -> dict[str, str]:
    """What each observed name is called without its prefix and running number.

    Examples
    --------
    >>> keys(["rivermouth.join_table.zones.12", "rivermouth.join_table.zones.3"])
    {'rivermouth.join_table.zones.3': 'join_table.zones',
     'rivermouth.join_table.zones.12': 'join_table.zones#2'}
    """
    found: dict[str, str] = {}
    seen: Counter[str] = Counter()
    for name in sorted(set(names), key=lambda name: int(name.rpartition(".")[2])):
        key = name.removeprefix(f"{PREFIX}.").rpartition(".")[0]
        seen[key] += 1
        found[name] = key if seen[key] == 1 else f"{key}#{seen[key]}"
    return found
