"""One vocabulary for all operators: what one of them did in a batch, and over all batches.

Operators report in one of two forms. A stateless one has a report per task, whose fields are the
vocabulary's own. A stateful one has a report per bucket: ``counts`` that are summed over buckets
and batches, a ``state`` that is summed over the buckets of the newest batch, the bucket's
``clock``, ``seconds``, and gauges, numbers beside these of which the smallest, mean and largest
are kept. A count whose name is in the vocabulary takes its place there.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rivermouth.kernels.skew.hotspots import load_cv as kernel_load_cv
from rivermouth.kernels.table_join.map_sketch import PLACES, packed, unpacked
from rivermouth.tables.cache.incremental import HELD

Report = Mapping[str, Any]
Moment = dict[str, Any]

#: counts that every operator has a place for
COUNTS = ("rows_in", "rows_out", "matched", "late", "future")
_OWN = frozenset({"bucket", "counts", "state", "clock", "seconds"})


def moment(tasks: Sequence[Report]) -> Moment:
    """What an operator did in one batch, from the reports of its tasks.

    Returns
    -------
    dict
        ``counts`` (each of `COUNTS` that is known, and the operator's own), ``rejected`` by
        reason, ``seconds``, ``loads`` (rows per task or bucket), ``table``, ``cache``, ``sketch``
        (as `kernels.table_join.map_sketch` packs it), ``routing``, ``state``, ``clock`` and
        ``gauges``; the last seven None where there is nothing of the kind.
    """
    buckets = [bucket for task in tasks if "buckets" in task for bucket in task["buckets"]]
    plain = [task for task in tasks if "buckets" not in task]
    return {
        "counts": _counts(plain, buckets),
        "rejected": _summed(report.get("rejected", {}) for report in (*plain, *buckets)),
        "seconds": sum(report.get("seconds", 0.0) for report in (*plain, *buckets)),
        "loads": _loads(plain, buckets),
        "table": _table(plain),
        "cache": _cache(plain),
        "sketch": _sketch(plain),
        "routing": _routing(plain),
        "state": _summed(bucket.get("state") or {} for bucket in buckets) if buckets else None,
        "clock": _clock(buckets),
        "gauges": _gauges(buckets),
    }


def total(moments: Sequence[Moment]) -> dict[str, Any]:
    """What an operator did over these batches, which are in order; `metrics` says what it holds."""
    counts = _summed(one["counts"] for one in moments)
    loads: list[int] = next((one["loads"] for one in reversed(moments) if one["loads"]), [])
    known = {name: counts.pop(name, None) for name in COUNTS}
    rows_in, matched = known["rows_in"], known["matched"]
    return {
        **known,
        "unmatched": None if rows_in is None or matched is None else rows_in - matched,
        "rejected": _summed(one["rejected"] for one in moments),
        "seconds": sum(one["seconds"] for one in moments),
        "rows_per_task": sorted(loads, reverse=True),
        "load_cv": load_cv(loads),
        "table": _newest(moments, "table"),
        "cache": cache_of(moments),
        "per_row": _per_row(moments),
        "routing": _newest(moments, "routing"),
        "state": _newest(moments, "state"),
        "clock": _newest(moments, "clock"),
        "gauges": _latest(one["gauges"] for one in moments),
        "counts": counts,
    }


def load_cv(loads: Sequence[float]) -> float | None:
    """The coefficient of variation of a load; None where there are fewer than two, or nothing."""
    return kernel_load_cv(loads) if len(loads) > 1 and any(loads) else None


def cache_of(moments: Iterable[Moment]) -> dict[str, Any] | None:
    """What the workers' caches did in these batches, and what they hold after them."""
    caches = [one["cache"] for one in moments if one["cache"]]
    if not caches:
        return None
    done = _summed(cache["done"] for cache in caches)
    newest: dict[str, Mapping[str, int]] = {}
    for cache in caches:
        newest.update(cache["held"])
    held = {name: sum(one[name] for one in newest.values()) for name in HELD}
    # a history that was written before does not know who did what
    by_worker = [cache["done_by"] for cache in caches if "done_by" in cache]
    each = {
        worker: {**last, "hit_ratio": _hit_ratio(_summed(one.get(worker, {}) for one in by_worker))}
        for worker, last in newest.items()
    }
    return {
        **done, **held, "workers": len(newest), "hit_ratio": _hit_ratio(done), "per_worker": each
    }  # fmt: skip


def _hit_ratio(done: Mapping[str, int]) -> float | None:
    hits = done.get("hits", 0) + done.get("negative_hits", 0)
    asked = hits + done.get("misses", 0)
    return hits / asked if asked else None


def _counts(plain: Sequence[Report], buckets: Sequence[Report]) -> dict[str, Any]:
    own = [{name: task[name] for name in COUNTS if name in task} for task in plain]
    return _summed([*own, *(bucket.get("counts", {}) for bucket in buckets)])


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
    return {**newest, "rows_per_partition": rows, "load_cv": load_cv(rows)}


def _cache(tasks: Sequence[Report]) -> dict[str, Any] | None:
    """What was done, by all and by each worker, and what each held when its last task ended."""
    caches = [task["cache"] for task in tasks if "cache" in task]
    if not caches:
        return None
    done: dict[str, dict[str, Any]] = {}
    for cache in caches:
        counts = {name: cache[name] for name in cache.keys() - {"worker", *HELD}}
        done[cache["worker"]] = _summed([done.get(cache["worker"], {}), counts])
    held = {cache["worker"]: {name: cache[name] for name in HELD} for cache in caches}
    return {"done": _summed(done.values()), "done_by": done, "held": held}


def _sketch(tasks: Sequence[Report]) -> dict[str, Any] | None:
    """The tasks' counts per row together, and some places of each."""
    found = [task["sketch"] for task in tasks if "sketch" in task]
    counts = added([sketch["counts"] for sketch in found])
    if counts is None:
        return None
    each = max(1, PLACES // len(found))
    places = [place for sketch in found for place in sketch["places"][:each]]
    return {"counts": packed(counts), "places": places}


def _per_row(moments: Sequence[Moment]) -> list[int] | None:
    """Matches per row of the table, since it last changed its number of rows."""
    counts = added([one["sketch"]["counts"] for one in moments if one["sketch"]])
    return None if counts is None else counts.tolist()


def added(texts: Sequence[str]) -> npt.NDArray[np.int64] | None:
    """The sum of packed counts, of those that are as many as the last."""
    total: npt.NDArray[np.int64] | None = None
    for text in reversed(texts):
        counts = unpacked(text)
        if total is None:
            total = counts
        elif len(counts) == len(total):
            total += counts
        else:
            break
    return total


def _clock(buckets: Iterable[Report]) -> int | None:
    """The slowest bucket's: what all of them have passed."""
    clocks = [bucket["clock"] for bucket in buckets if bucket.get("clock") is not None]
    return min(clocks, default=None)


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


def _newest(moments: Sequence[Moment], name: str) -> Any:
    return next((one[name] for one in reversed(moments) if one[name] is not None), None)


def _latest(gauges: Iterable[Mapping[str, Any] | None]) -> dict[str, Any] | None:
    """The newest of each: an operator need not have news of all in every batch."""
    found: dict[str, Any] = {}
    for one in gauges:
        found.update(one or {})
    return found or None


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
