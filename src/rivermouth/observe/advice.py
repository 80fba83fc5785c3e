"""What is wrong with a run, and what to do about it: plain rules over its metrics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
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
#: what spreads the rows of an operator, by its name
_SPREAD = {
    "join_table": "Spread them: routing=rm.by_hotspot() by key, or events.repartition(n).",
    "join_interval": _OVER_BUCKETS,
    "join_window": _OVER_BUCKETS,
    "aggregate": "One group has most of them: a finer by=, or shorter windows summed afterwards.",
}


@dataclass(frozen=True)
class Advice:
    """One thing that is wrong: how bad, where, what, and what to do."""

    level: Literal["warning", "notice"]
    where: str
    what: str
    todo: str


def advice(numbers: Metrics) -> list[dict[str, str]]:
    """What `metrics` gives cause to say, warnings first.

    Examples
    --------
    >>> advice({"batches": 0, "operators": {}})
    []
    """
    found = [*_of_query(numbers)]
    for name, operator in numbers["operators"].items():
        found += _of_operator(name, operator)
    return [asdict(one) for one in sorted(found, key=lambda one: one.level != "warning")]


def _of_query(numbers: Metrics) -> Iterator[Advice]:
    if numbers["batches"] < _FEW:
        return
    last, usual = numbers["last_batch_seconds"], numbers["median_batch_seconds"]
    if last > _SLOWING * numbers["p95_batch_seconds"] and last > 1:
        yield Advice(
            "notice",
            "batches",
            f"the newest took {last:.1f} s, half of them take {usual:.1f} s or less",
            "Look at its rows: a burst passes; a growing state or a slow sink does not.",
        )
    if numbers["backlog"] and numbers["backlog"] > numbers["rows"] / numbers["batches"]:
        yield Advice(
            "warning",
            "source",
            f"{numbers['backlog']:,} rows wait, more than a batch takes",
            "Rows come faster than they are read: more cores, or fewer columns.",
        )


def _of_operator(name: str, operator: Metrics) -> Iterator[Advice]:
    rows = operator["rows_in"] or 0
    if not rows:
        return
    yield from _late(name, operator, rows)
    yield from _rejected(name, operator, rows)
    yield from _hot(name, operator["rows_per_task"], operator["load_cv"])
    if operator["table"]:
        yield from _stale(name, operator["table"])
    if operator["cache"]:
        yield from _cold(name, operator["cache"])
    yield from _uncovered(name, operator["gauges"] or {})


def _late(name: str, operator: Metrics, rows: int) -> Iterator[Advice]:
    late, future = operator["late"] or 0, operator["future"] or 0
    if late > _LATE * rows:
        yield Advice(
            "warning",
            name,
            f"{late:,} rows ({100 * late / rows:.1f} %) came late",
            'Wait longer (lateness=, slack=), or get them with late="rows" and rm.rejected.',
        )
    if future:
        yield Advice(
            "warning",
            name,
            f"{future:,} rows lie in the future",
            "A clock is wrong, or the time column is not in UTC.",
        )


def _rejected(name: str, operator: Metrics, rows: int) -> Iterator[Advice]:
    reasons: Mapping[str, int] = operator["rejected"]
    rejected = sum(reasons.values())
    if rejected > _REJECTED * rows:
        why = ", ".join(f"{count:,} {reason}" for reason, count in _largest(reasons))
        yield Advice(
            "warning",
            name,
            f"{rejected:,} rows ({100 * rejected / rows:.1f} %) could not take part: {why}",
            "They are in the result of left and anti joins. Look at their source.",
        )
    if operator["matched"] == 0 and rows >= _ROWS:
        yield Advice(
            "warning",
            name,
            "nothing matched",
            "Are x and y swapped, or the two sides in different reference systems?",
        )


def _largest(reasons: Mapping[str, int]) -> Iterable[tuple[str, int]]:
    return sorted(reasons.items(), key=lambda reason: -reason[1])[:3]


def _hot(name: str, loads: Sequence[int], load_cv: float | None) -> Iterator[Advice]:
    if load_cv is not None and load_cv > _SKEWED and sum(loads) >= _ROWS:
        share = 100 * max(loads) / sum(loads)
        yield Advice(
            "warning",
            name,
            f"one of {len(loads)} partitions has {share:.0f} % of the rows (load CV {load_cv:.2f})",
            _SPREAD.get(name.partition(".")[0], "Look at what its rows are divided by."),
        )


def _stale(name: str, table: Metrics) -> Iterator[Advice]:
    refresh, age = table.get("refresh_seconds"), table["age_seconds"]
    if refresh is not None and age > _OVERDUE * refresh:
        yield Advice(
            "warning",
            name,
            f"the table is {age:,.0f} s old, and should be read anew every {refresh:,.0f} s",
            "Its store does not answer: failure.json in the snapshot's folder says why.",
        )


def _cold(name: str, cache: Metrics) -> Iterator[Advice]:
    asked = sum(cache.get(kind, 0) for kind in ("hits", "negative_hits", "misses"))
    if asked > _COLD_ROWS and cache["hit_ratio"] < _POOR:
        yield Advice(
            "notice",
            name,
            f"the cache answers {100 * cache['hit_ratio']:.0f} % of the lookups",
            "A larger one (rows=, bytes=), a longer ttl=, or rm.full() if the table fits.",
        )


def _uncovered(name: str, gauges: Metrics) -> Iterator[Advice]:
    coverage, wanted = gauges.get("settled_coverage"), gauges.get("wanted")
    if coverage and wanted and coverage["mean"] < wanted["mean"] - 0.02:
        yield Advice(
            "notice",
            name,
            f"windows close with {100 * coverage['mean']:.1f} % of their rows, "
            f"{100 * wanted['mean']:.1f} % are promised",
            "The buffer K is growing; if it lasts, delays have changed for good.",
        )
