"""metrics: what a streaming query has done, as a plain dict.

The numbers are those of the query's own progress reports: asking for them runs no job.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rivermouth.observe import operators, reports
from rivermouth.observe.latency import latency
from rivermouth.observe.log import Log
from rivermouth.observe.recorder import recorder_of
from rivermouth.spark.engines.stateless import PREFIX

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

    from rivermouth.spark.exact.job import Running


def metrics(query: StreamingQuery | Running) -> dict[str, Any]:
    """What a streaming query has done since it was started.

    Spark keeps the newest 100 progress reports of a query, one per micro-batch. The first call
    for a query (or `rm.watch`) counts those, and starts a thread that looks for new ones twice a
    second until the query ends, so that later calls count all batches since. ``since_batch`` and
    ``missed_batches`` say what is not counted.

    Parameters
    ----------
    query
        Running or ended, of Spark or of Spark Connect; or what ``rm.exact(...).start()`` returned.

    Returns
    -------
    dict
        Numbers, texts, lists and dicts only, so that it can be written as JSON:

        batches, since_batch, missed_batches
            How many micro-batches are counted; the number of the first (0 for the query's first,
            more if it was first asked after it, or continues a checkpoint; None before the
            first); and how many after it are not counted, as their reports were gone.
        rows, rows_per_second
            Input rows, and how many went through per second of the batches' time. Rows are
            counted where they come into the first operators, after filters and each once. Time
            in which the query waited for rows does not count; None before the first batch.
        source_rows
            Input rows as Spark's sources count them (``numInputRows``): before filters; rows of
            a task that ran twice, or of a source that the plan reads twice, count twice.
        last_batch_seconds, median_batch_seconds, p95_batch_seconds
            How long a batch took from end to end, of the newest 2,000; None before the first.
        latency
            p50, p95 and p99 of the seconds from a row's arrival at the source to the end of its
            batch, of the newest 2,000, rows taken to arrive evenly between two batches; None
            before the first row.
        backlog
            Rows that the source held back in the newest batch; None where it does not say.
        state
            The state's rows and bytes in the newest batch, as Spark counts them; None without.
        corrections
            Of an exact aggregation: how many corrections there were (`count`), how many `results`
            they wrote (put right, or given first), and when the newest was made (`at`, in seconds
            since 1970, None before the first). None of any other query.
        operators
            For each of our operators, by its name and its table's
            (``"join_table.districts.geojson"``; a second one of that name gets a ``#2``). All
            have the same entries, None where an operator has nothing of the kind:

            rows_in, rows_out, matched, unmatched
                `matched` and `unmatched` count input rows, and add up to `rows_in`.
            late, future
                Rows behind the watermark of a join, or with a window that has closed; and rows too
                far ahead of the wall clock.
            rejected
                The rows that could not take part, by reason: ``{"null": 3}``.
            seconds
                Time in our own code, summed over tasks; None of the native plan.
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
            watermark
                The slowest bucket's watermark, in microseconds since 1970.
            gauges
                Other numbers, each as it was heard last, with its min, mean and max over buckets.
            counts
                Other counts of the operator, summed.
    """
    recorder = recorder_of(reports.query_of(query, where="metrics"))
    with recorder.lock:
        recorder.look()
        return summarise(recorder.log, reports.corrections_of(query))


def summarise(log: Log, corrections: Sequence[dict[str, Any]] | None = None) -> dict[str, Any]:
    """The metrics of a run's log and corrections."""
    totals, recent = log.totals, list(log.recent)
    seconds = [batch["seconds"] for batch in recent]
    made = None
    if corrections is not None:
        results = sum(one["rows"] for one in corrections)
        at = corrections[-1]["at"] if corrections else None
        made = {"count": len(corrections), "results": results, "at": at}
    return {
        "batches": totals.batches,
        "since_batch": totals.since if totals.batches else None,
        "missed_batches": totals.missed,
        "rows": totals.rows,
        "source_rows": totals.source_rows,
        "rows_per_second": totals.rows / totals.seconds if totals.seconds else None,
        "last_batch_seconds": seconds[-1] if seconds else None,
        "median_batch_seconds": statistics.median(seconds) if seconds else None,
        "p95_batch_seconds": float(np.percentile(seconds, 95)) if seconds else None,
        "latency": latency(recent),
        "backlog": totals.backlog,
        "state": totals.state,
        "corrections": made,
        "operators": {
            key: operators.summary(totals.operators[name])
            for name, key in keys(totals.operators).items()
        },
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
