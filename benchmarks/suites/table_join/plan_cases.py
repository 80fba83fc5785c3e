"""Joins by each plan, on T-Drive rows of few and of many columns; the tables are seeded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import shapely

from benchmarks.harness import tdrive
from benchmarks.harness.experiment import CACHE, SEED, data

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WIDTHS = (4, 12, 24)  #: columns
CONDITIONS = ("keys", "many_keys", "range", "within", "many_within", "nearest")
PLANS = ("workers", "udf", "native")
_HOME = CACHE / "plans"
_MANY = 1_000_000  # keys
_STARS, _CORNERS = 3_000, 100  # polygons and the corners of each
_PLACES = 1_000  # that are looked for by nearest
_SLOT = np.timedelta64(5, "m")


@dataclass(frozen=True)
class Events:
    """The first rows of T-Drive in files of `rows` rows, with columns added up to `width`."""

    rows: int
    files: int
    width: int

    def folder(self) -> Path:
        """Where the files are, made once."""
        folder = _HOME / f"{self.rows}x{self.files}-{self.width}"
        if not (folder / "_made").exists():
            table = pq.read_table(data(tdrive.TDRIVE)).slice(0, self.rows * self.files)
            tdrive.write_parts(_widened(table, self.width), folder, self.files)
        return folder


def _widened(table: pa.Table, width: int) -> pa.Table:
    """Further columns in turn: a double, a long, a text of about ten characters, a double."""
    rng = np.random.default_rng(SEED)
    for number in range(width - table.num_columns):
        whole = rng.integers(0, 1_000_000, table.num_rows)
        match number % 4:
            case 1:
                column = pa.array(whole)
            case 2:
                column = pa.array(whole.astype("U6")).cast(pa.string())
                column = pc.binary_join_element_wise("key-", column, "")
            case _:
                column = pa.array(whole / 7)
        table = table.append_column(f"c{number:02d}", column)
    return table


def tables() -> dict[str, Path]:
    """The tables that are joined, made once."""
    _HOME.mkdir(parents=True, exist_ok=True)
    taxis = pq.read_table(data(tdrive.TDRIVE))
    begin, end = (taxis["ts"].to_numpy()[row] for row in (0, -1))
    slots = np.arange(begin - _SLOT, end + _SLOT, _SLOT).astype("datetime64[us]")
    rng = np.random.default_rng(SEED)
    made = {
        "keys": {"taxi": pa.array(np.arange(12_000, dtype=np.int32)), "name": _names(12_000)},
        "many_keys": {"taxi": pa.array(np.arange(_MANY, dtype=np.int32)), "name": _names(_MANY)},
        "range": {"slot": pa.array(slots), "name": _names(len(slots))},
        "many_within": {"shape": _stars(rng), "name": _names(_STARS)},
        "nearest": {
            "x": rng.uniform(116.0, 116.8, _PLACES),
            "y": rng.uniform(39.6, 40.2, _PLACES),
            "name": _names(_PLACES),
        },
    }
    paths = {name: _HOME / f"{name}.parquet" for name in made}
    for name, columns in made.items():
        if not paths[name].exists():
            pq.write_table(pa.table(columns), paths[name])
    return paths


def _names(count: int) -> pa.Array:
    return pa.array([f"name {number}" for number in range(count)])


def _stars(rng: np.random.Generator) -> npt.NDArray[np.object_]:
    """Polygons of uneven outline over the city, as WKB."""
    middle = np.stack([rng.uniform(116.0, 116.8, _STARS), rng.uniform(39.6, 40.2, _STARS)], axis=1)
    turn = np.linspace(0, 2 * np.pi, _CORNERS, endpoint=False)
    around = np.stack([np.cos(turn), np.sin(turn)], axis=1)
    far = rng.uniform(0.003, 0.006, (_STARS, _CORNERS, 1))
    return np.asarray(shapely.to_wkb(shapely.polygons(middle[:, None] + far * around)))


def table_bytes(condition: str) -> int:
    """How large the table's file is."""
    return (
        data(tdrive.DISTRICTS) if condition == "within" else _HOME / f"{condition}.parquet"
    ).stat().st_size  # fmt: skip


def asked(condition: str) -> dict[str, Any]:
    """The arguments of join_table besides events and plan."""
    import rivermouth as rm

    here = rm.point("lon", "lat")
    if condition == "within":
        table = rm.tables.geojson(str(data(tdrive.DISTRICTS)))
        return {"table": table, "on": rm.within(here, "geometry"), "columns": ["district"]}
    on = {
        "keys": rm.keys("taxi"),
        "many_keys": rm.keys("taxi"),
        "many_within": rm.within(here, "shape"),
        "range": rm.between("ts", "slot", lower="-5 minutes", upper="0 seconds"),
        "nearest": rm.nearest(here, rm.point("x", "y")),
    }
    shapes = {"geometry": "shape"} if condition == "many_within" else {}
    table = rm.tables.parquet(str(_HOME / f"{condition}.parquet"), **shapes)
    return {"table": table, "on": on[condition], "columns": ["name"]}


def joined(points: DataFrame, *, condition: str, plan: str) -> DataFrame:
    """A left join by one plan."""
    import rivermouth as rm

    question = asked(condition)
    return rm.join_table(points, question.pop("table"), how="left", plan=plan, **question)


def constant(points: DataFrame) -> DataFrame:
    """A function over Arrow arrays that gives the same text for every point.

    The least that any function of two columns costs, with nothing found and nothing unfolded.
    """
    from pyspark.sql import functions as sf

    def same(lon: pa.Array, lat: pa.Array) -> pa.Array:
        return pa.repeat("district", len(lon))

    same.__annotations__ = {"lon": pa.Array, "lat": pa.Array, "return": pa.Array}
    found = getattr(sf, "arrow_udf")(same, "string")  # noqa: B009  (PySpark's types leave it out)
    return points.select("*", found("lon", "lat").alias("district"))


Frame = Callable[..., "DataFrame"]
CASES: dict[str, Frame] = {
    "constant": constant,
    **{f"plan_{name}": partial(joined, plan=name) for name in PLANS},
}
