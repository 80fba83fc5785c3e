"""T-Drive's ten daytime hours in Beijing as a stream of files, to be joined with itself."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import shapely

from benchmarks.harness.experiment import CACHE, data
from benchmarks.harness.tdrive import TDRIVE, write_parts

BOX = (115.4, 39.4, 117.6, 41.1)  #: 99 % of the points; what lies outside is garbage for the most
START, HOURS = dt.datetime(2008, 2, 3, 8), 10


@dataclass(frozen=True)
class Daytime:
    """The points of ten hours in time order, in so many files.

    `minutes` and `hour` take a part: so long, from that hour of the day on. Times are given out
    as UTC, whatever the clocks in Beijing were. With `side` there is a column ``area``, the box
    around each point whose sides have so many degrees, as WKB.
    """

    files: int
    minutes: int = HOURS * 60
    hour: int = START.hour
    side: float | None = None

    def folder(self) -> Path:
        """Where the files are, made once."""
        areas = "" if self.side is None else f"-boxes-{self.side}"
        folder = CACHE / f"daytime-{self.hour}-{self.minutes}-in-{self.files}{areas}"
        if not (folder / "_made").exists():
            table = self._table()
            if self.side is not None:
                table = table.append_column("area", _boxes(table, self.side))
            write_parts(table, folder, self.files)
        return folder

    def _table(self) -> pa.Table:
        table = pq.read_table(data(TDRIVE))
        time, lon, lat = table["ts"].cast(pa.timestamp("us")), table["lon"], table["lat"]
        start = START.replace(hour=self.hour)
        end = start + dt.timedelta(minutes=self.minutes)
        inside = [
            pc.greater_equal(time, pa.scalar(start, pa.timestamp("us"))),
            pc.less(time, pa.scalar(end, pa.timestamp("us"))),
            pc.and_(pc.greater_equal(lon, BOX[0]), pc.less_equal(lon, BOX[2])),
            pc.and_(pc.greater_equal(lat, BOX[1]), pc.less_equal(lat, BOX[3])),
        ]
        keep = inside[0]
        for one in inside[1:]:
            keep = pc.and_(keep, one)
        utc = pc.assume_timezone(time, "UTC")
        return table.set_column(table.schema.get_field_index("ts"), "ts", utc).filter(keep)


def _boxes(table: pa.Table, side: float) -> pa.Array:
    lon, lat, half = table["lon"].to_numpy(), table["lat"].to_numpy(), side / 2
    boxes = shapely.box(lon - half, lat - half, lon + half, lat + half)
    return pa.array(shapely.to_wkb(boxes), pa.binary())
