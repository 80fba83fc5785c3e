"""One vocabulary for all operators: what one of them did in a batch, and over many batches.

Operators report in one of two forms. A stateless one has a report per task, whose fields are the
vocabulary's own, and ``counts`` besides. A stateful one has a report per bucket: ``counts`` that
are summed over buckets and batches, a ``state`` that is summed over the buckets of the newest
batch, the bucket's ``watermark``, ``seconds``, and gauges: other numbers, by smallest, mean and
largest. A count whose name is in the vocabulary takes its place there.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rivermouth.kernels.skew.hotspots import load_cv
from rivermouth.kernels.table_join.map_sketch import SAMPLE, packed, unpacked
from rivermouth.tables.cache.incremental import GAUGES

Report = Mapping[str, Any]
Record = dict[str, Any]

#: counts that every operator has an entry for
COUNTS = ("rows_in", "rows_out", "matched", "late", "future")
_OWN = frozenset({"bucket", "counts", "state", "watermark", "seconds", "events", "tables"})
_NEWEST = 40  # events that are listed
_QUIET = 100  # batches after which a worker that was not heard of is taken to be gone


def record(tasks: Sequence[Report]) -> Record:
    """What an operator did in one batch, from the reports of its tasks.

    Returns
    -------
    dict
        ``counts`` (each of `COUNTS` that is known, and the operator's own), ``rejected`` by
        reason, ``seconds``, ``loads`` (rows per task or bucket), ``table``, ``cache``, ``sketch``
        (as `map_sketch` packs it), ``events`` (as `fences.sketch` counts them), ``routing``,
        ``state``, ``watermark`` and ``gauges``; the last eight None where there is nothing of the
        kind.
    """
    buckets = [bucket for task in tasks if "buckets" in task for bucket in task["buckets"]]
    plain = [task for task in tasks if "buckets" not in task]
    known = (
        {name: task[name] for name in COUNTS if name in task} | task.get("counts", {})
        for task in plain
    )
    watermarks = [bucket["watermark"] for bucket in buckets if bucket.get("watermark") is not None]
    timed = [report["seconds"] for report in (*plain, *buckets) if "seconds" in report]
    return {
        "counts": _summed([*known, *(bucket.get("counts", {}) for bucket in buckets)]),
        "rejected": _summed(report.get("rejected", {}) for report in (*plain, *buckets)),
        "seconds": sum(timed) if timed else None,
        "loads": _loads(plain, buckets),
        "table": _table(
            [*plain, *({"table": one} for b in buckets for one in b.get("tables", ()))]
        ),
        "cache": _cache(plain),
        "sketch": _sketch(plain),
        "events": _events([bucket["events"] for bucket in buckets if bucket.get("events")]),
        "routing": _routing(plain),
        "state": _summed(bucket.get("state") or {} for bucket in buckets) if buckets else None,
        "watermark": min(watermarks, default=None),  # what all buckets have passed
        "gauges": _gauges(buckets),
    }


def merged(total: Record | None, new: Record, batch: int) -> Record:
    """The record of all batches so far and of `batch`, the one after them."""
    if total is None:
        total = dict.fromkeys(new) | {"counts": {}, "rejected": {}}
    newest = {name: total[name] if value is None else value for name, value in new.items()}
    return newest | {
        "counts": _summed([total["counts"], new["counts"]]),
        "rejected": _summed([total["rejected"], new["rejected"]]),
        "seconds": newest["seconds"]
        if total["seconds"] is None or new["seconds"] is None
        else total["seconds"] + new["seconds"],
        "loads": new["loads"] or total["loads"] or [],
        "cache": _merged_cache(total["cache"], new["cache"], batch),
        "sketch": _merged_sketch(total["sketch"], new["sketch"]),
        "events": _events([one["events"] for one in (new, total) if one.get("events")]),
        "gauges": {**(total["gauges"] or {}), **(new["gauges"] or {})} or None,
    }


def summary(total: Record) -> dict[str, Any]:
    """A merged record in the words of `rm.metrics`, which says what it holds."""
    counts = dict(total["counts"])
    known = {name: counts.pop(name, None) for name in COUNTS}
    rows_in, matched = known["rows_in"], known["matched"]
    sketch = total["sketch"]
    return {
        **known,
        "unmatched": None if rows_in is None or matched is None else rows_in - matched,
        "rejected": total["rejected"],
        "seconds": total["seconds"],
        "rows_per_task": sorted(total["loads"], reverse=True),
        "load_cv": known_load_cv(total["loads"]),
        "table": total["table"],
        "cache": cache_summary(total["cache"]),
        "per_row": None if sketch is None else unpacked(sketch["counts"]).tolist(),
        "routing": total["routing"],
        "state": total["state"],
        "watermark": total["watermark"],
        "gauges": total["gauges"],
        "counts": counts,
    }


def known_load_cv(loads: Sequence[float]) -> float | None:
    """The coefficient of variation of a load; None where there are fewer than two, or nothing."""
    return load_cv(loads) if len(loads) > 1 and any(loads) else None


def cache_summary(cache: Record | None) -> dict[str, Any] | None:
    """What the workers' caches did, and what they hold."""
    if cache is None:
        return None
    workers = cache["workers"].items()
    return {
        **cache["counts"],
        **{name: sum(one["held"][name] for _, one in workers) for name in GAUGES},
        "workers": len(workers),
        "hit_ratio": _hit_ratio(cache["counts"]),
        "per_worker": {
            worker: {**one["held"], "hit_ratio": _hit_ratio(one["counts"])}
            for worker, one in workers
        },
    }


def _hit_ratio(counts: Mapping[str, int]) -> float | None:
    hits = counts.get("hits", 0) + counts.get("negative_hits", 0)
    lookups = hits + counts.get("misses", 0)
    return hits / lookups if lookups else None


def _loads(plain: Sequence[Report], buckets: Sequence[Report]) -> list[int]:
    """Rows per task; of a stateful operator rows per bucket, in the buckets' order."""
    if buckets:
        ordered = sorted(buckets, key=lambda bucket: int(bucket.get("bucket", 0)))
        return [bucket.get("counts", {}).get("rows_in", 0) for bucket in ordered]
    return [task["rows_in"] for task in plain if "rows_in" in task]


def _table(tasks: Sequence[Report]) -> dict[str, Any] | None:
    """The newest version that these tasks used, as the last of them saw it."""
    tables = [task["table"] for task in tasks if "table" in task]
    if not tables:
        return None
    newest = dict(max(tables, key=lambda table: (table["version"], table["age_seconds"])))
    if "buckets" in newest:
        newest["rows"] = sum(table["rows"] for table in tables)
        newest["buckets"] = sorted(bucket for table in tables for bucket in table["buckets"])
    return newest


def _routing(tasks: Sequence[Report]) -> dict[str, Any] | None:
    """The rule that these tasks were routed by, the cycle before, and their rows by partition."""
    routed = [task for task in tasks if "routing" in task]
    if not routed:
        return None
    newest = dict(max((task["routing"] for task in routed), key=lambda one: one["cycle"]))
    rows = [0] * newest["partitions"]
    for task in routed:
        rows[task["routing"]["partition"]] += task["rows_in"]
    del newest["partition"]
    return {**newest, "rows_per_partition": rows, "load_cv": known_load_cv(rows)}


def _cache(tasks: Sequence[Report]) -> Record | None:
    """Counts of all workers and of each, and what each held when its last task ended."""
    caches = [task["cache"] for task in tasks if "cache" in task]
    if not caches:
        return None
    workers: dict[str, Any] = {}
    for cache in caches:
        before = workers.get(cache["worker"], {"counts": {}})["counts"]
        counts = {name: cache[name] for name in cache.keys() - {"worker", *GAUGES}}
        held = {name: cache[name] for name in GAUGES}
        workers[cache["worker"]] = {"counts": _summed([before, counts]), "held": held}
    return {"counts": _summed(one["counts"] for one in workers.values()), "workers": workers}


def _merged_cache(total: Record | None, new: Record | None, batch: int) -> Record | None:
    old = total or {"counts": {}, "workers": {}}
    if new is None:
        return total
    workers = {name: one for name, one in old["workers"].items() if batch - one["batch"] < _QUIET}
    for name, one in new["workers"].items():
        before = workers.get(name, {"counts": {}})["counts"]
        workers[name] = {**one, "counts": _summed([before, one["counts"]]), "batch": batch}
    return {"counts": _summed([old["counts"], new["counts"]]), "workers": workers}


def _sketch(tasks: Sequence[Report]) -> Record | None:
    """The tasks' counts per row together, and some places of each."""
    found = [task["sketch"] for task in tasks if "sketch" in task]
    if not found:
        return None
    each = max(1, SAMPLE // len(found))
    places = [place for sketch in found for place in sketch["places"][:each]]
    return {"counts": _added([sketch["counts"] for sketch in found]), "places": places}


def _merged_sketch(total: Record | None, new: Record | None) -> Record | None:
    """Matches per row of the table, since it last changed its number of rows."""
    if total is None or new is None:
        return new or total
    return {**new, "counts": _added([total["counts"], new["counts"]])}


def _events(found: Sequence[Report]) -> Record | None:
    """Events per fence together, and the newest of all."""
    if not found:
        return None
    newest = [event for one in found for event in one["newest"]]
    return {
        "per_fence": _summed(one["per_fence"] for one in found),
        "newest": sorted(newest, key=lambda event: -event["at"])[:_NEWEST],
    }


def _added(texts: Sequence[str]) -> str:
    """The sum of packed counts, of those that are as many as the last."""
    counts: list[npt.NDArray[np.int64]] = [unpacked(text) for text in texts]
    return packed(np.sum([one for one in counts if len(one) == len(counts[-1])], axis=0))


def _gauges(buckets: Iterable[Report]) -> dict[str, dict[str, float]] | None:
    found: dict[str, list[float]] = {}
    for bucket in buckets:
        for name, value in bucket.items():
            if name not in _OWN and isinstance(value, int | float) and value is not True:
                found.setdefault(name, []).append(value)
    gauges = {
        name: {"min": min(of), "mean": statistics.fmean(of), "max": max(of)}
        for name, of in found.items()
    }
    return gauges or None


def _summed(counts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The sum of each name; a name with the sum 0 stays.

    Examples
    --------
    >>> _summed([{"a": 1, "b": 0}, {"a": 2}])
    {'a': 3, 'b': 0}
    """
    sums: Counter[str] = Counter()
    for one in counts:
        sums.update(one)
    return dict(sums)
