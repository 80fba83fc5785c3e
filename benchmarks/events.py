"""The inputs: T-Drive cut into files for a stream, the districts, and what the join must give."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import shapely

from benchmarks.harness import CACHE, data

TDRIVE = "tdrive_2008-02-03_04.parquet"
DISTRICTS = "beijing_districts_wgs84.geojson"
FILES = 12
GROUPS = 4  #: row groups a file, so that it can be read by several tasks


def tdrive_files() -> Path:
    """The folder with T-Drive as `FILES` Parquet files of equal size, in time order, made once."""
    folder = CACHE / f"tdrive-{FILES}"
    if not (folder / "_made").exists():
        write_parts(pq.read_table(data(TDRIVE)), folder, FILES)
    return folder


def write_parts(table: pa.Table, folder: Path, files: int) -> None:
    """Cut `table` into so many Parquet files, marked as complete by a file ``_made``."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, part in enumerate(parts(table, files)):
        rows = -(-part.num_rows // GROUPS)
        pq.write_table(part, folder / f"part-{number:03d}.parquet", row_group_size=rows)
    (folder / "_made").touch()


def parts(table: pa.Table, count: int) -> Iterator[pa.Table]:
    """`table` in so many pieces whose sizes differ by one row at most."""
    cuts = np.linspace(0, table.num_rows, count + 1).astype(int)
    for start, stop in pairwise(cuts):
        yield table.slice(start, stop - start).combine_chunks()


def districts() -> tuple[list[str], list[Any]]:
    """Names and polygons of the districts."""
    features = json.loads(data(DISTRICTS).read_text())["features"]
    shapes = [shapely.from_geojson(json.dumps(feature["geometry"])) for feature in features]
    return [feature["properties"]["district"] for feature in features], shapes


def truth() -> list[dict[str, int]]:
    """For each file, how many of its points lie within each district, as shapely has it."""
    known = CACHE / f"truth-{FILES}-shapely-{shapely.__version__}.json"
    if not known.exists():
        known.parent.mkdir(parents=True, exist_ok=True)
        tdrive = pq.read_table(data(TDRIVE))
        known.write_text(json.dumps([_within(part) for part in parts(tdrive, FILES)]))
    found: list[dict[str, int]] = json.loads(known.read_text())
    return found


def expected(files: int) -> dict[str, int]:
    """How many points of the first `files` files lie within each district."""
    names, _ = districts()
    return {name: sum(part[name] for part in truth()[:files]) for name in names}


def rows(files: int) -> int:
    """How many rows the first `files` files hold."""
    paths = sorted(tdrive_files().glob("part-*.parquet"))[:files]
    return sum(pq.read_metadata(path).num_rows for path in paths)


def _within(part: pa.Table) -> dict[str, int]:
    lon, lat = part["lon"].to_numpy(), part["lat"].to_numpy()
    names, shapes = districts()
    shapely.prepare(shapes)
    return {
        name: int(shapely.contains_xy(shape, lon, lat).sum())
        for name, shape in zip(names, shapes, strict=True)
    }
