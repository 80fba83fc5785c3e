"""What the demo writes: rows, a map, and a report in one file."""

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
from rivermouth.cli.demo.summary import Outcome, summarise
from rivermouth.errors import SessionError
from rivermouth.observe.static_report import static_report
from rivermouth.testing.city import City

HISTORY = "history"  # the folder of the queries' histories
_TRACKS = 6  # cabs whose way is drawn


def report(outcome: Outcome, told: Story, out: Path, console: Console) -> None:
    """Print the summary, and write rows, report and map to `out`."""
    summary = summarise(outcome, told)
    console.print("\n" + "\n".join(summary["words"]))
    for table in summary["tables"]:
        console.print()
        console.print(_printed(table))
    for name in ("placed", "offers", "visits"):
        pq.write_table(getattr(outcome, name).sort_by("at"), out / f"{name}.parquet")
    pq.write_table(outcome.earnings.sort_by("window_start"), out / "earnings.parquet")
    (out / "report.html").write_text(static_report(out / HISTORY, summary=summary))
    console.print(f"\nReport: {out / 'report.html'} (opens without a network)")
    try:
        draw(outcome.placed, told.city, told.title, out / "map.png")
        console.print(f"Map:    {out / 'map.png'}")
    except SessionError as error:  # matplotlib is not installed
        console.print(str(error))
    console.print(
        f"Rows:   placed, offers, visits and earnings.parquet in {out}\n"
        f"Page:   rivermouth watch {out / HISTORY}"
    )


def _printed(table: dict[str, Any]) -> Table:
    made = Table(title=table["title"], title_justify="left", title_style="bold", box=None)
    for number, name in enumerate(table["columns"]):
        made.add_column(name, justify="right" if number else "left", header_style="dim")
    for row in table["rows"]:
        made.add_row(*row)
    return made


def draw(placed: pa.Table, city: City, title: str, path: Path) -> None:
    """Save a map of the mean number of cabs in each district, and of the ways of some cabs."""
    counted = placed["district"].drop_null().value_counts().to_pylist()
    counts = {entry["values"]: entry["counts"] for entry in counted}
    times = placed.num_rows / len(pc.unique(placed["cab"]))  # that each cab reported
    cabs = [counts.get(name, 0) / times for name in city.names]
    labels = [f"{name}\n{count:.0f}" for name, count in zip(city.names, cabs, strict=True)]
    good = placed.filter(pc.is_finite(placed["lon"])).filter(pc.field("lon") != 0)
    tracks = [good.filter(pc.field("cab") == cab).sort_by("at") for cab in range(_TRACKS)]
    rm.plot.map(
        [*city.districts, city.water],
        [*cabs, None],
        labels=[*labels, city.sea],
        points=(good["lon"].to_numpy(), good["lat"].to_numpy()),
        lines=[
            shapely.LineString(np.column_stack([track["lon"], track["lat"]]))
            for track in tracks
            if track.num_rows > 1
        ],
        path=path,
        title=title,
        legend="cabs at a time",
    )
