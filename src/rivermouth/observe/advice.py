"""What is wrong with a run, and what to do about it: plain rules over its metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, Literal

Metrics = Mapping[str, Any]

_SKEWED = 0.5  # load CV above which one task does much more than the others
_ROWS = 1_000  # of a batch, below which a skew costs nothing
_LATE, _REJECTED = 0.01, 0.05  # shares of rows
_COLD_ROWS = 10_000  # until then a cache is still filling
_POOR = 0.5  # share of lookups that a cache should answer
_OVERDUE = 3.0  # refresh times after which a table is stale
_SLOWING = 2.0  # newest batches to those of the whole run
_FEW = 10  # batches, below which nothing is said of trends
_OVER_BUCKETS = (
    "Have skewed cells salted, grid=rm.grid(skew_path=folder), or make cells smaller (cell=)."
)
_BY_HOTSPOT = (
    'The next rule evens them out, once a cycle= has ended. What weight="cost", split=False or '
    "events that are alike in every column leave uneven stays so."
)
_BUCKETS = "Events go to the bucket of their rows: other buckets=, or none if the table fits."
#: what spreads the rows of an operator, by its name
_SPREAD = {
    "join_table": "If they are joined where they are read, the source's partitions are uneven: "
    "events.repartition(n). If routing=rm.by_hash() sent them there, rm.by_hotspot() divides them.",
    "join_interval": _OVER_BUCKETS,
    "join_window": _OVER_BUCKETS,
    "aggregate": "One group has most of them: a finer by=, or shorter windows summed afterwards.",
}


#: level, what is wrong, and what to do
_Found = tuple[Literal["warning", "notice"], str, str]


def advice(numbers: Metrics) -> list[dict[str, str]]:
    """What is wrong by these `metrics`, warnings first: ``level``, ``where``, ``what``, ``todo``.

    Examples
    --------
    >>> advice({"batches": 0, "operators": {}})
    []
    """
    found = [*_of_query(numbers)]
    for name, operator in numbers["operators"].items():
        found += [(level, name, *more) for level, *more in _of_operator(name, operator)]
    found.sort(key=lambda one: one[0] != "warning")
    return [dict(zip(("level", "where", "what", "todo"), one, strict=True)) for one in found]


def _of_query(numbers: Metrics) -> Iterator[tuple[str, ...]]:
    if numbers["batches"] < _FEW:
        return
    last, usual = numbers["last_batch_seconds"], numbers["median_batch_seconds"]
    if last > _SLOWING * numbers["p95_batch_seconds"] and last > 1:
        what = f"the newest took {last:.1f} s, half of them take {usual:.1f} s or less"
        todo = "Look at its rows: a burst passes; a growing state or a slow sink does not."
        yield "notice", "batches", what, todo
    if numbers["backlog"] and numbers["backlog"] > numbers["rows"] / numbers["batches"]:
        what = f"{numbers['backlog']:,} rows wait, more than a batch takes"
        todo = "Rows come faster than they are read: more cores, or fewer columns."
        yield "warning", "source", what, todo


def _of_operator(name: str, operator: Metrics) -> Iterator[_Found]:
    rows = operator["rows_in"]
    if not rows:
        return
    late, future = operator["late"] or 0, operator["future"] or 0
    if late > _LATE * rows:
        todo = 'Wait longer (lateness=, slack=), or get them with late="rows" and rm.rejected.'
        yield "warning", f"{late:,} rows ({100 * late / rows:.1f} %) came late", todo
    if future:
        todo = "A clock is wrong, or the time column is not in UTC."
        yield "warning", f"{future:,} rows lie in the future", todo
    if (rejected := sum(operator["rejected"].values())) > _REJECTED * rows:
        reasons: Counter[str] = Counter(operator["rejected"])
        why = ", ".join(f"{count:,} {reason}" for reason, count in reasons.most_common(3))
        what = f"{rejected:,} rows ({100 * rejected / rows:.1f} %) could not take part: {why}"
        todo = "They are in the result of left and anti joins. Look at their source."
        yield "warning", what, todo
    if operator["matched"] == 0 and rows >= _ROWS:
        todo = "Are x and y swapped, or the two sides in different reference systems?"
        yield "warning", "nothing matched", todo
    loads, load_cv = operator["rows_per_task"], operator["load_cv"]
    if load_cv is not None and load_cv > _SKEWED and sum(loads) >= _ROWS:
        share = f"{100 * max(loads) / sum(loads):.0f} % of the rows (load CV {load_cv:.2f})"
        yield "warning", f"one of {len(loads)} partitions has {share}", _spread(name, operator)
    yield from _of_table(operator["table"] or {}, operator["cache"] or {})
    gauges = operator["gauges"] or {}
    coverage, required = (
        gauges.get(of, {}).get("mean") for of in ("settled_coverage", "required_coverage")
    )
    yield from _of_promise({name: of["mean"] for name, of in gauges.items()})
    if coverage and required and coverage < required - 0.02:
        what = f"windows close with {100 * coverage:.1f} % of their rows"
        todo = "The buffer K is growing; if it lasts, delays have changed for good."
        yield "notice", f"{what}, {100 * required:.1f} % are required", todo


def _spread(name: str, operator: Metrics) -> str:
    """What to do about uneven rows of an operator; by hash or not routed, none of them tells."""
    if operator["routing"]:  # which only those that are routed by hotspots report
        return _BY_HOTSPOT
    if "buckets" in (operator["table"] or {}):
        return _BUCKETS
    return _SPREAD.get(name.partition(".")[0], "Look at what its rows are divided by.")


def _of_promise(means: Metrics) -> Iterator[_Found]:
    if (left := means.get("windows_to_learn")) is not None and left > 0:
        what = f"too few windows have settled for the promise: about {left:,.0f} more are needed"
        yield "notice", what, "Until then windows wait for the largest delay seen."
    low, promised = means.get("missed_low"), means.get("missed_promised")
    if low is not None and promised is not None and low > promised:
        what = f"{100 * means['missed_share']:.1f} % of the early results missed eps"
        todo = "Delays have grown, or links were down for longer than before; K follows."
        yield "warning", f"{what}, {100 * promised:g} % are promised", todo


def _of_table(table: Metrics, cache: Metrics) -> Iterator[_Found]:
    refresh, age = table.get("refresh_seconds"), table.get("age_seconds", 0)
    if refresh is not None and age > _OVERDUE * refresh:
        what = f"the table is {age:,.0f} s old, and should be read anew every {refresh:,.0f} s"
        todo = "Its store does not answer: failure.json in the snapshot's folder says why."
        yield "warning", what, todo
    lookups = sum(cache.get(name, 0) for name in ("hits", "negative_hits", "misses"))
    if lookups > _COLD_ROWS and cache["hit_ratio"] < _POOR:
        what = f"the cache answers {100 * cache['hit_ratio']:.0f} % of the lookups"
        todo = "A larger one (rows=, bytes=), a longer ttl=, or rm.full() if the table fits."
        yield "notice", what, todo
