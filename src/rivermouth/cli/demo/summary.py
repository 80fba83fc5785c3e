"""The demo's result in sentences and tables, for the terminal and for the report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import shapely

from rivermouth.cli.demo.queries import DELTA, EPS
from rivermouth.cli.demo.story import Story
from rivermouth.observe.static_report import rows

_TOP = 8  # rows of a table
_WINDOW = ("district", "window_start")

Row = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """The queries' rows, the changes of the earnings, and the metrics by query."""

    placed: pa.Table
    offers: pa.Table
    visits: pa.Table
    earnings: pa.Table
    changes: pa.Table
    metrics: dict[str, dict[str, Any]]

    def operator(self, query: str, kind: str) -> dict[str, Any]:
        """The metrics of the first operator of a query whose name begins so."""
        operators = self.metrics[query]["operators"].items()
        return next(numbers for name, numbers in operators if name.startswith(kind))

    def early(self) -> list[tuple[Row, Row]]:
        """The windows that the stream itself emitted: first and final row."""
        final = {_window(row): row for row in self.earnings.to_pylist()}
        changes = self.changes.to_pylist()
        return [(row, final[_window(row)]) for row in changes if row["revision"] == 0]


def _window(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in _WINDOW)


def summarise(outcome: Outcome, told: Story) -> dict[str, Any]:
    """Title, sentences and tables."""
    corrected = [(then, now) for then, now in outcome.early() if then["rides"] != now["rides"]]
    corrected.sort(key=lambda pair: pair[0]["earned"] - pair[1]["earned"])
    return {
        "title": told.title,
        "words": [
            _of_cabs(outcome),
            _of_offers(outcome),
            _of_visits(outcome),
            *_of_earnings(outcome, told, corrected),
        ],
        "tables": [_corrections(corrected), _districts(outcome.earnings)],
    }


def _of_cabs(outcome: Outcome) -> str:
    drivers = outcome.operator("placed", "join_table.fleet.db")
    districts = outcome.operator("placed", "join_table.districts")
    rejected = sum(districts["rejected"].values())
    return (
        f"Positions: {districts['rows_in']:,}. {drivers['matched']:,} have a known driver, "
        f"{districts['matched']:,} are in a district, {districts['unmatched'] - rejected:,} in "
        f"none, {rejected:,} were rejected (null or NaN)."
    )


def _of_offers(outcome: Outcome) -> str:
    served = len(pc.unique(outcome.offers["passenger"]))
    cabs = outcome.offers.group_by(["passenger", "cab"]).aggregate([]).num_rows
    return (
        f"Offers: {served:,} passengers had a cab within 300 m in the two minutes before they "
        f"hailed, {cabs / max(1, served):.1f} cabs each."
    )


def _of_visits(outcome: Outcome) -> str:
    counted = pc.value_counts(outcome.visits["event"]).to_pylist()
    events = {entry["values"]: entry["counts"] for entry in counted}
    return (
        f"Visits: cabs entered a district {events.get('enter', 0):,} times, left one "
        f"{events.get('exit', 0):,} times and stayed {events.get('dwell', 0):,} times for ten "
        "minutes or longer."
    )


def _of_earnings(outcome: Outcome, told: Story, corrected: list[tuple[Row, Row]]) -> list[str]:
    charges = outcome.operator("earnings", "aggregate")
    early, windows = len(outcome.early()), outcome.earnings.num_rows
    total = pc.sum(outcome.earnings["earned"]).as_py() or 0
    change = sum(now["earned"] - then["earned"] for then, now in corrected)
    off = sum(_missing(*pair) >= EPS for pair in corrected)
    equal = "equals" if is_exact(outcome.earnings, told) else "DIFFERS FROM"
    return [
        f"Earnings: {early:,} windows of five minutes were emitted early. "
        f"{charges['late'] or 0:,} of {charges['rows_in']:,} charges arrived after their window.",
        f"Corrections: {len(corrected):,} of the early windows were corrected, by {change:,.2f} "
        f"crowns in all. {off:,} ({_percent(off / max(1, early))}) had been off by "
        f"{100 * EPS:.0f} % or more, which the slack allows for {100 * DELTA:.0f} %.",
        f"At the end of the stream {windows - early:,} windows were added that had not closed.",
        f"The final table, {windows:,} windows with {total:,.2f} crowns, {equal} a recomputation "
        "of all charges without Spark.",
    ]


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _missing(then: Row, now: Row) -> float:
    """The share of a window's earnings that its first row did not have."""
    return float((now["earned"] - then["earned"]) / now["earned"])


def is_exact(earnings: pa.Table, told: Story) -> bool:
    """Whether the earnings are what shapely and Arrow compute from all charges."""
    charges = pa.concat_tables(told.charges)
    lon, lat = charges["lon"].to_numpy(), charges["lat"].to_numpy()
    district = np.full(charges.num_rows, None, dtype=object)
    for name, shape in zip(told.city.names, told.city.districts, strict=True):
        district[shapely.contains_xy(shape, lon, lat)] = name
    start = pc.floor_temporal(charges["at"], 5, unit="minute")
    table = pa.table({"district": district, "window_start": start, "fare": charges["fare"]})
    computed = table.group_by(_WINDOW).aggregate([("fare", "sum"), ("fare", "count")])
    # to the cent: Arrow rounds each addition
    wanted = {
        (*_window(row), round(row["fare_sum"], 2), row["fare_count"])
        for row in computed.to_pylist()
    }
    found = {(*_window(row), round(row["earned"], 2), row["rides"]) for row in earnings.to_pylist()}
    return wanted == found and earnings.num_rows == len(found)


def _corrections(corrected: list[tuple[Row, Row]]) -> dict[str, Any]:
    found = [
        [
            f"{now['district'] or 'no district'}, {now['window_start']:%H:%M}",
            f"{then['earned']:,.2f}",
            f"{now['earned']:,.2f}",
            f"{now['rides'] - then['rides']:,} of {now['rides']:,}",
            _percent(_missing(then, now)),
        ]
        for then, now in corrected[:_TOP]
    ]
    columns = ["window", "early", "corrected", "late charges", "was missing"]
    return rows(columns, found, title="Largest corrections")


def _districts(earnings: pa.Table) -> dict[str, Any]:
    grouped = earnings.group_by("district").aggregate([("earned", "sum"), ("rides", "sum")])
    best = grouped.sort_by([("earned_sum", "descending")]).to_pylist()[:_TOP]
    found = [
        [row["district"] or "no district", f"{row['earned_sum']:,.2f}", f"{row['rides_sum']:,}"]
        for row in best
    ]
    return rows(["district", "earned", "rides"], found, title="Highest earnings")
