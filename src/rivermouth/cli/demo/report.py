"""What the demo leaves: a summary on the screen, the rows, a map, and a report to pass on."""

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
from rivermouth.cli.demo.story import Story
from rivermouth.cli.demo.summing import Outcome, summary
from rivermouth.errors import SessionError
from rivermouth.observe.still import still
from rivermouth.testing.city import City

#: the folder of the queries' histories
HISTORY = "history"

_TRACKS = 6  # cabs whose way is drawn


def show(outcome: Outcome, told: Story, console: Console) -> None:
    """Print what came of it."""
    said = summary(outcome, told.title)
    console.print()
    for sentence in said["words"]:
        console.print(sentence, markup=False)
    for table in said["tables"]:
        console.print()
        console.print(_printed(table))


def _printed(table: dict[str, Any]) -> Table:
    made = Table(title=table["title"], title_justify="left", title_style="bold", box=None)
    for number, name in enumerate(table["columns"]):
        made.add_column(name, justify="right" if number else "left", header_style="dim")
    for row in table["rows"]:
        made.add_row(*row)
    return made


def save(outcome: Outcome, told: Story, out: Path, console: Console) -> None:
    """Leave rows, map and report in `out`, and say so."""
    pq.write_table(outcome.placed.sort_by("at"), out / "placed.parquet")
    pq.write_table(outcome.offers.sort_by("at"), out / "offers.parquet")
    pq.write_table(outcome.earned.sort_by("window_start"), out / "earnings.parquet")
    (out / "report.html").write_text(still(out / HISTORY, summary=summary(outcome, told.title)))
    console.print(f"\nThe report: {out / 'report.html'} (opens without a network)", markup=False)
    try:
        draw(outcome.placed, told.place, told.title, out / "map.png")
    except SessionError as error:  # a demo without a picture is still a demo
        console.print(str(error), markup=False)
    else:
        console.print(f"The map:    {out / 'map.png'}", markup=False)
    console.print(
        f"The rows:   placed.parquet, offers.parquet and earnings.parquet in {out}\n"
        f"The page:   rivermouth watch {out / HISTORY}",
        markup=False,
    )


def draw(placed: pa.Table, city: City, title: str, path: Path) -> None:
    """Save a map of how many cabs the districts have at a time, and of where cabs drove."""
    counted = placed["district"].drop_null().value_counts().to_pylist()
    counts = {entry["values"]: entry["counts"] for entry in counted}
    times = placed.num_rows / len(pc.unique(placed["cab"]))  # that each cab reported
    cabs = [counts.get(name, 0) / times for name in city.names]
    labels = [f"{name}\n{count:.0f}" for name, count in zip(city.names, cabs, strict=True)]
    good = placed.filter(pc.is_finite(placed["lon"])).filter(pc.field("lon") != 0)
    rm.plot.map(
        [*city.districts, city.water],
        [*cabs, None],
        labels=[*labels, city.sea],
        points=(good["lon"].to_numpy(), good["lat"].to_numpy()),
        lines=_tracks(good),
        path=path,
        title=title,
        legend="cabs at a time",
    )


def _tracks(good: pa.Table) -> list[shapely.LineString]:
    """The ways of the first cabs."""
    first = [good.filter(pc.field("cab") == cab).sort_by("at") for cab in range(_TRACKS)]
    return [
        shapely.LineString(np.column_stack([own["lon"], own["lat"]]))
        for own in first
        if own.num_rows > 1
    ]
