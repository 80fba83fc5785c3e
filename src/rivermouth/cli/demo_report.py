"""What the demo leaves: a summary on the screen, the placed rows, and a map."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import shapely
from rich.console import Console
from rich.table import Table

import rivermouth as rm
from rivermouth.errors import SessionError
from rivermouth.testing.city import City

_TRACKS = 6  # taxis whose way is drawn
_TOP = 8  # districts in the summary
_BAR = 24  # characters


def show(placed: pa.Table, numbers: dict[str, Any], console: Console) -> None:
    """Print what became of the rows, by the query's own metrics, and the busiest districts."""
    (join,) = numbers["operators"].values()
    aside = sum(join["set_aside"].values())
    reasons = ", ".join(f"{count:,} {reason}" for reason, count in join["set_aside"].items())
    lines = [
        ("rows in", join["rows_in"], f"{numbers['rows_per_second']:,.0f} per second of work"),
        ("matched", join["matched"], "in a district"),
        ("unmatched", join["unmatched"], f"{join['unmatched'] - aside:,} on a bridge or far away"),
        ("set aside", aside, f"of the unmatched, without a place: {reasons or 'none'}"),
    ]
    console.print()
    for name, count, words in lines:
        console.print(f"{name:<10}{count:>9,}  {words}")
    console.print()
    console.print(_busiest(placed))


def _busiest(placed: pa.Table) -> Table:
    counts = sorted(_counts(placed).items(), key=lambda entry: -entry[1])[:_TOP]
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("district")
    table.add_column("positions", justify="right")
    table.add_column("taxis", justify="right")
    table.add_column("", style="blue")
    for name, count in counts:
        taxis = len(pc.unique(placed.filter(pc.field("district") == name)["taxi"]))
        bar = "█" * max(1, round(_BAR * count / counts[0][1]))
        table.add_row(name, f"{count:,}", f"{taxis:,}", bar)
    return table


def _counts(placed: pa.Table) -> dict[str, int]:
    """How many positions each district has."""
    counted = placed["district"].drop_null().value_counts().to_pylist()
    return {entry["values"]: entry["counts"] for entry in counted}


def save(placed: pa.Table, city: City, out: Path, console: Console) -> None:
    """Leave the placed rows and their map in `out`, and say so."""
    pq.write_table(placed.sort_by("at"), out / "placed.parquet")
    try:
        draw(placed, city, out / "map.png")
    except SessionError as error:  # a demo without a picture is still a demo
        console.print(f"\n{error}", markup=False)
    else:
        console.print(f"\nThe map:   {out / 'map.png'}", markup=False)
    console.print(
        f"The rows:  {out / 'placed.parquet'}\nThe table: {out / 'districts.geojson'}", markup=False
    )


def draw(placed: pa.Table, city: City, path: Path) -> None:
    """Save a map of how many taxis the districts have at a time, and of where taxis drove."""
    counts = _counts(placed)
    times = placed.num_rows / len(pc.unique(placed["taxi"]))  # that each taxi reported
    taxis = [counts.get(name, 0) / times for name in city.names]
    labels = [f"{name}\n{count:.0f}" for name, count in zip(city.names, taxis, strict=True)]
    good = placed.filter(pc.is_finite(placed["lon"])).filter(pc.field("lon") != 0)
    rm.plot.map(
        [*city.districts, city.water],
        [*taxis, None],
        labels=[*labels, city.sea],
        points=(good["lon"].to_numpy(), good["lat"].to_numpy()),
        lines=_tracks(good),
        path=path,
        title=f"Taxis in the districts of Merewick, {hours(placed)}",
        legend="taxis at a time",
    )


def _tracks(good: pa.Table) -> list[shapely.LineString]:
    """The ways of the first taxis."""
    first = [good.filter(pc.field("taxi") == taxi).sort_by("at") for taxi in range(_TRACKS)]
    return [
        shapely.LineString(np.column_stack([own["lon"], own["lat"]]))
        for own in first
        if own.num_rows > 1
    ]


def hours(table: pa.Table) -> str:
    """From when to when these positions are.

    Examples
    --------
    >>> from datetime import datetime
    >>> hours(pa.table({"at": [datetime(2025, 5, 1, 9, 30), datetime(2025, 5, 1, 10)]}))
    '09:30 to 10:00'
    """
    first, last = pc.min_max(table["at"]).as_py().values()
    return f"{first:%H:%M} to {last:%H:%M}"
