"""What is made of the micro-batches of a query on several hosts: loads, hits, rates, latencies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rivermouth.kernels.skew.hotspots import load_cv

Batch = Mapping[str, Any]


def rates(batches: Sequence[Batch]) -> dict[str, Any]:
    """Rows per second of wall time, over all and at its slowest and fastest."""
    each = [one["rows"] / one["seconds"] for one in batches]
    rows, seconds = (sum(one[name] for one in batches) for name in ("rows", "seconds"))
    return {
        "batches": len(batches),
        "rows": rows,
        "rows_per_s": rows / seconds,
        "spread": {"rows_per_s": [min(each), max(each)]},
        "batch_s": seconds / len(batches),
    }


def loads(batch: Batch, partitions: int) -> list[int]:
    """Records of each partition; one that has none reports nothing."""
    found = [task["rows_in"] for task in batch["tasks"]]
    return found + [0] * (partitions - len(found))


def balance(batches: Sequence[Batch], partitions: int) -> dict[str, Any]:
    """Load CV (the paper's DS) of the records and of the seconds of work, medians of batches."""
    records = [loads(one, partitions) for one in batches]
    work = [[_seconds(task) for task in one["tasks"]] for one in batches]
    return {
        "load_cv": float(np.median([load_cv(one) for one in records])),
        "load_cv_of_seconds": float(np.median([load_cv(one) for one in work])),
        "largest_load": float(np.median([max(one) / sum(one) for one in records])),
    }


def waits(batches: Sequence[Batch], stages: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """What a micro-batch waits for, medians in seconds, and what even tasks could gain.

    Of the driver, before and after its stages; of the longest task of each stage; and how long
    these tasks are in the mean. Where all tasks of a stage took the mean, a micro-batch would be
    shorter by the difference: `even_gain` is how many times as fast it would be.
    """
    whole = np.array([one["seconds"] for one in batches])
    tasks = [
        [stage["seconds"] for stage in stages if 0 <= stage["began"] - one["began"] < seconds]
        for one, seconds in zip(batches, whole, strict=True)
    ]
    longest = np.array([sum(map(max, one)) for one in tasks])
    mean = np.array([sum(map(np.mean, one)) for one in tasks])
    return {
        "driver_s": float(np.median([one["driver_seconds"] for one in batches])),
        "longest_tasks_s": float(np.median(longest)),
        "mean_tasks_s": float(np.median(mean)),
        "load_s": float(np.median([_load_seconds(one["tasks"]) for one in batches])),
        "even_gain": float(np.median(whole / (whole - longest + mean))),
    }


def caches(batches: Sequence[Batch]) -> dict[str, Any]:
    """Hits, keys loaded and statements per record, and what each host has done and holds."""
    hosts: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    held: dict[str, dict[str, int]] = defaultdict(dict)
    for batch in batches:
        for task in batch["tasks"]:
            cache = task["cache"]
            host, _, worker = cache["worker"].partition(":")
            for name in ("hits", "negative_hits", "misses", "loads", "load_seconds"):
                hosts[host][name] += cache[name]
            hosts[host]["records"] += task["rows_in"]
            held[host][worker] = cache["rows"]
    total: dict[str, float] = defaultdict(float)
    for counts in hosts.values():
        for name, value in counts.items():
            total[name] += value
    names = sorted(hosts)
    return {
        "hit_ratio": hit_ratio(total),
        "missed_per_record": total["misses"] / total["records"],
        "loads_per_million": 1e6 * total["loads"] / total["records"],
        "load_ms": 1000 * total["load_seconds"] / max(total["loads"], 1),
        "cached_rows": sum(sum(workers.values()) for workers in held.values()),
        "host_load_cv": load_cv([hosts[name]["records"] for name in names]),
        "hosts": {
            name: {
                "records": int(hosts[name]["records"]),
                "hit_ratio": hit_ratio(hosts[name]),
                "cached_rows": sum(held[name].values()),
                "workers": len(held[name]),
            }
            for name in names
        },
    }


def hit_ratio(counts: Mapping[str, float]) -> float:
    """Hits of both kinds to all lookups; 0 where there was none."""
    hits = counts.get("hits", 0) + counts.get("negative_hits", 0)
    return hits / max(hits + counts.get("misses", 0), 1)


def latencies(batches: Sequence[Batch], *, since: float) -> dict[str, Any]:
    """Percentiles in ms of the records that arrived after `since`, in seconds since 1970.

    From a record's arrival until its row left the join, and until its micro-batch had ended.
    """
    to_row, to_end = [], []
    for one in batches:
        ended = one["began"] + one["seconds"]
        for arrival, left in one["left"]:
            if arrival >= since * 1e6:
                to_row.append((left - arrival) / 1000)
                to_end.append(ended * 1000 - arrival / 1000)
    if not to_row:
        raise ValueError("no record arrived after the time that counts")
    return {
        "records_timed": len(to_row),
        **{f"p{q}_ms": float(np.percentile(to_row, q)) for q in (50, 99)},
        **{f"p{q}_to_end_ms": float(np.percentile(to_end, q)) for q in (50, 99)},
    }


def series(batches: Sequence[Batch], partitions: int) -> list[dict[str, Any]]:
    """Load CV, rate and hit ratio, batch by batch."""
    return [
        {
            "load_cv": load_cv(loads(one, partitions)),
            "rows_per_s": one["rows"] / one["seconds"],
            "hit_ratio": caches([one])["hit_ratio"],
        }
        for one in batches
    ]


def check(batches: Sequence[Batch]) -> None:
    """Fail unless every record has its one row: all keys are in the table."""
    for one in batches:
        if one["rows"] != one["rows_out"]:
            raise AssertionError(f"{one['rows_out']} rows of {one['rows']} records")


def _load_seconds(tasks: Sequence[Mapping[str, Any]]) -> float:
    """Seconds that a task's statements take together, in the mean, from their keys to their rows.

    The store's work and the worker's own: sending, reading and decoding; part of it while the task
    finishes the batch before.
    """
    return float(np.mean([task["cache"]["load_seconds"] for task in tasks]))


def _seconds(task: Mapping[str, Any]) -> float:
    return float(task["seconds"] + task["cache"]["load_seconds"])
