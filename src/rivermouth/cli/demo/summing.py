"""What came of the demo: sentences and tables for the screen and for the report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rivermouth.observe.still import rows

_TOP = 8


@dataclass(frozen=True)
class Outcome:
    """What the queries left, as tables, and their metrics by name."""

    placed: pa.Table
    offers: pa.Table
    earned: pa.Table
    changes: pa.Table
    metrics: dict[str, dict[str, Any]]


def summary(outcome: Outcome, title: str) -> dict[str, Any]:
    """Title, sentences and tables, as a report shows them."""
    return {
        "title": title,
        "words": [_of_cabs(outcome), _of_offers(outcome), _of_earnings(outcome)],
        "tables": [_districts(outcome), _corrected(outcome)],
    }


def _operator(outcome: Outcome, query: str, kind: str) -> dict[str, Any]:
    """The first operator of a query whose name begins so."""
    operators = outcome.metrics[query]["operators"].items()
    found: dict[str, Any] = next(numbers for name, numbers in operators if name.startswith(kind))
    return found


def _of_cabs(outcome: Outcome) -> str:
    place = _operator(outcome, "placed", "join_table.districts")
    drivers = _operator(outcome, "placed", "join_table.fleet.db")
    aside = sum(place["rejected"].values())
    hits = drivers["cache"]["hit_ratio"] or 0
    return (
        f"{place['rows_in']:,} positions of cabs: {drivers['matched']:,} with a known driver "
        f"({100 * hits:.0f} % from the cache), {place['matched']:,} in a district, "
        f"{place['unmatched'] - aside:,} on a bridge or far away, {aside:,} without a place."
    )


def _of_offers(outcome: Outcome) -> str:
    served = len(pc.unique(outcome.offers["passenger"]))
    cabs = outcome.offers.group_by(["passenger", "cab"]).aggregate([]).num_rows
    meeting = _operator(outcome, "offers", "join_interval")
    return (
        f"{served:,} passengers had a cab within 300 m in the two minutes before they hailed, "
        f"{cabs / max(1, served):.1f} cabs each; {meeting['late'] or 0:,} rows came too late."
    )


def _of_earnings(outcome: Outcome) -> str:
    aggregate = _operator(outcome, "earnings", "aggregate")
    total = pc.sum(outcome.earned["earned"]).as_py() or 0
    updated = pc.sum(pc.equal(outcome.changes["change"], "update")).as_py() or 0
    return (
        f"{total:,.2f} crowns in {outcome.earned.num_rows:,} windows of five minutes: answered "
        f"early, {aggregate['late'] or 0:,} charges came too late for that, and {updated:,} "
        "windows were put right. Every answer is exact now."
    )


def _districts(outcome: Outcome) -> dict[str, Any]:
    """The districts that earn most."""
    grouped = outcome.earned.group_by("district").aggregate([("earned", "sum"), ("rides", "sum")])
    best = grouped.sort_by([("earned_sum", "descending")]).to_pylist()[:_TOP]
    found = [
        [row["district"] or "no district", f"{row['earned_sum']:,.2f}", f"{row['rides_sum']:,}"]
        for row in best
    ]
    return rows(["district", "earned", "rides"], found, title="Who earns most")


def _corrected(outcome: Outcome) -> dict[str, Any]:
    """The windows whose early answer was farthest off."""
    early = {_window(row): row for row in outcome.changes.to_pylist() if row["change"] == "insert"}
    pairs = [
        (early[_window(row)], row) for row in outcome.earned.to_pylist() if _window(row) in early
    ]
    pairs.sort(key=lambda pair: -abs(pair[1]["earned"] - pair[0]["earned"]))
    found = [
        [
            f"{now['district'] or 'no district'}, {now['window_start']:%H:%M}",
            f"{then['earned']:,.2f}",
            f"{now['earned']:,.2f}",
            f"{100 * (now['earned'] - then['earned']) / now['earned']:.1f} %",
        ]
        for then, now in pairs[:_TOP]
    ]
    return rows(["window", "early", "exact", "was missing"], found, title="Early against exact")


def _window(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["district"], row["window_start"]
