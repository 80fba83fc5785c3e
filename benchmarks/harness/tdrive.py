"""The inputs: T-Drive cut into files for a stream, the districts, and what the join must give."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import shapely

from benchmarks.harness.experiment import CACHE, data

TDRIVE = "tdrive_2008-02-03_04.parquet"
DISTRICTS = "beijing_districts_wgs84.geojson"
FILES = 12  #: of the stream: one more than the ten micro-batches a JVM needs to warm up, and some
GROUPS = 4  #: row groups a file, so that it can be read by several tasks


@dataclass(frozen=True)
class Taxis:
    """T-Drive as a stream of files of equal size, in time order.

    Parameters
    ----------
    limit
        Take only so many rows, spread over the whole; None: all.
    files
        How many files.
    """

    limit: int | None = None
    files: int = FILES

    def folder(self) -> Path:
        """Where the files are, made once."""
        folder = self._home / "files"
        if not (folder / "_made").exists():
            write_parts(self._table(), folder, self.files)
        return folder

    def rows(self, files: int) -> int:
        """How many rows the first `files` files hold."""
        return sum(part["rows"] for part in self._truth()[:files])

    def expected(self, files: int) -> dict[str, int]:
        """How many points of the first `files` files lie within each district."""
        parts = self._truth()[:files]
        return {name: sum(part["within"][name] for part in parts) for name in parts[0]["within"]}

    def _truth(self) -> list[dict[str, Any]]:
        """For each file what shapely says of it, asked once."""
        known = self._home / f"truth-shapely-{shapely.__version__}.json"
        if not known.exists():
            known.parent.mkdir(parents=True, exist_ok=True)
            judged = [_judge(part) for part in parts(self._table(), self.files)]
            known.write_text(json.dumps(judged))
        found: list[dict[str, Any]] = json.loads(known.read_text())
        return found

    def _table(self) -> pa.Table:
        table = pq.read_table(data(TDRIVE))
        if self.limit is None:
            return table
        return table.take(np.linspace(0, table.num_rows - 1, self.limit).astype(np.int64))

    @property
    def _home(self) -> Path:
        return CACHE / f"tdrive-{self.limit or 'all'}-in-{self.files}"


def districts() -> tuple[list[str], list[Any]]:
    """Names and polygons of the districts."""
    features = json.loads(data(DISTRICTS).read_text())["features"]
    shapes = [shapely.from_geojson(json.dumps(feature["geometry"])) for feature in features]
    return [feature["properties"]["district"] for feature in features], shapes


def write_parts(table: pa.Table, folder: Path, files: int) -> None:
    """Cut `table` into so many Parquet files, marked as complete by a file ``_made``."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, part in enumerate(parts(table, files)):
        rows = -(-part.num_rows // GROUPS)
        path = folder / f"part-{number:03d}.parquet"
        pq.write_table(part, path, row_group_size=rows)
        os.utime(path, (number, number))  # Spark reads files by age, not by name
    (folder / "_made").touch()


def parts(table: pa.Table, count: int) -> Iterator[pa.Table]:
    """`table` in so many pieces whose sizes differ by one row at most."""
    cuts = np.linspace(0, table.num_rows, count + 1).astype(int)
    for start, stop in pairwise(cuts):
        yield table.slice(start, stop - start).combine_chunks()


def _judge(part: pa.Table) -> dict[str, Any]:
    lon, lat = part["lon"].to_numpy(), part["lat"].to_numpy()
    names, shapes = districts()
    shapely.prepare(shapes)
    inside = [int(shapely.contains_xy(shape, lon, lat).sum()) for shape in shapes]
    return {"rows": part.num_rows, "within": dict(zip(names, inside, strict=True))}
