"""Taxis that enter and leave fences: ours, and the program that one writes by hand on Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import shapely

from benchmarks.harness import tdrive
from benchmarks.harness.daytime import BOX
from benchmarks.harness.experiment import CACHE, data

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame

LATENESS = "1 minute"
SIDE = 100  #: small fences along either side of the city
_EVENTS = "taxi int, ts timestamp, fence string, event string, seconds double"


def fence_table(fences: str) -> Any:
    """The districts of Beijing, or ten thousand boxes that cover a third of the city."""
    import rivermouth as rm

    return rm.tables.geojson(str(data(tdrive.DISTRICTS) if fences == "districts" else _boxes()))


def fence_events(
    taxis: DataFrame, *, fences: str, until: str, events: tuple[str, ...] = ("enter", "exit")
) -> DataFrame:
    """Ours; what happened up to a time that both forms have certainly given."""
    import rivermouth as rm

    found = rm.fence_events(
        taxis,
        fence_table(fences),
        on=rm.within(rm.point("lon", "lat"), "geometry"),
        by="taxi",
        time="ts",
        events=events,
        columns={"fence": "district"},
        lateness=LATENESS,
    )
    return found.where(f"ts <= '{until}'")


def row_by_row(taxis: DataFrame, *, fences: str, until: str) -> DataFrame:
    """The same events in order of arrival: our join, then Python for every taxi and row.

    It needs the rows in the order of time, which these files are; it does not wait for late ones.
    """
    import rivermouth as rm

    placed = rm.join_table(
        taxis,
        fence_table(fences),
        on=rm.within(rm.point("lon", "lat"), "geometry"),
        how="left",
        columns={"fence": "district"},
    )
    events = placed.groupBy("taxi").applyInPandasWithState(
        _followed, _EVENTS, "fence string, since timestamp", "append", "NoTimeout"
    )
    return events.where(f"ts <= '{until}'")


def _followed(key: tuple[int], frames: Iterator[pd.DataFrame], state: Any) -> Iterator[Any]:
    """One taxi's rows of a micro-batch, one after the other."""
    import pandas as pd

    inside, since = state.get if state.exists else (None, None)
    rows = pd.concat(frames).sort_values(["ts", "lon", "lat"], kind="stable")
    events: list[tuple[Any, ...]] = []
    for row in rows.itertuples(index=False):
        fence = row.fence if isinstance(row.fence, str) else None
        if fence == inside:
            continue
        if inside is not None:
            seconds = (row.ts - pd.Timestamp(since)).total_seconds()
            events.append((key[0], row.ts, inside, "exit", seconds))
        if fence is not None:
            events.append((key[0], row.ts, fence, "enter", None))
        inside, since = fence, row.ts
    state.update((inside, None if since is None else pd.Timestamp(since).to_pydatetime()))
    yield pd.DataFrame(events, columns=["taxi", "ts", "fence", "event", "seconds"])


def _boxes() -> Any:
    """A file of boxes, made once; a street of their own width lies between each two."""
    path = CACHE / f"boxes-{SIDE}.geojson"
    if not path.exists():
        west, south, east, north = 116.2, 39.75, 116.6, 40.05
        assert BOX[0] < west < east < BOX[2]
        wide, high = (east - west) / SIDE, (north - south) / SIDE
        features = [
            {
                "type": "Feature",
                "properties": {"district": f"box {column}-{row}"},
                "geometry": json.loads(
                    shapely.to_geojson(
                        shapely.box(x := west + column * wide, y := south + row * high,
                                    x + wide * 0.58, y + high * 0.58)
                    )
                ),
            }
            for column in range(SIDE)
            for row in range(SIDE)
        ]  # fmt: skip
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return path


CASES = {
    "fence_events": fence_events,
    "fence_events_cross": partial(fence_events, events=("enter", "exit", "cross")),
    "fences_row_by_row": row_by_row,
}
