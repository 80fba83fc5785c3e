"""What is asked of tables of shapes: the condition, the table, the points, and shapely's way."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import shapely

import rivermouth as rm
from benchmarks.harness import seeded, tdrive
from benchmarks.harness.experiment import CACHE, DATA, data
from benchmarks.suites.table_join import library
from rivermouth.spec.conditions import Spatial

Shapes = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]

FILES = 4
ZONES = "nyc_taxi_zones.geojson"
SPOT = rm.point("x", "y")


@dataclass(frozen=True)
class Question:
    """One condition over one table."""

    name: str
    place: Spatial
    rows: int
    shapes: Callable[[], Shapes]
    points: Callable[[int], tuple[Floats, Floats]]
    library: Callable[[Shapes], library.Ask] | None
    vertices: int | None = None  #: of each shape, where that is the axis

    @property
    def title(self) -> str:
        """Tells it from the others: what is asked, of how many rows or vertices."""
        size = f"{self.vertices:,} vertices each" if self.vertices else f"{self.rows:,} rows"
        return f"{self.name}, {size}"

    def table(self) -> Path:
        """The table as a Parquet file of ``id`` and WKB ``geometry``, made once."""
        path = CACHE / "tables" / f"{self._slug}.parquet"
        if not path.exists():
            shapes = self.shapes()
            path.parent.mkdir(parents=True, exist_ok=True)
            columns = {"id": np.arange(len(shapes)), "geometry": shapely.to_wkb(shapes)}
            pq.write_table(pa.table(columns), path)
        return path

    def stream(self, points: int) -> Path:
        """So many points as a folder of `FILES` Parquet files of id, x and y, made once."""
        folder = CACHE / "points" / f"{self._slug}-{points}"
        if not (folder / "_made").exists():
            x, y = self.points(points)
            tdrive.write_parts(pa.table({"id": np.arange(points), "x": x, "y": y}), folder, FILES)
        return folder

    @property
    def _slug(self) -> str:
        return "-".join(re.findall(r"\w+", self.title))


def headline(million: int = 1_000_000) -> list[Question]:
    """The questions of the README; `million` makes the largest tables smaller for a smoke test.

    Where the shared data is absent there are no taxi zones.
    """
    city = Question("taxi zones", WITHIN, 263, zones, points_of_the_city, library.within)
    return [
        *([city] if (DATA / ZONES).exists() else []),
        polygons(10_000),
        polygons(million),
        near(million),
        near_on_earth(million),
        nearest(million, k=1),
        nearest(million, k=5),
        nearest_on_earth(million),
    ]


def growth(sizes: list[int]) -> list[Question]:
    """The same conditions over tables of so many rows, and polygons of so many vertices."""
    return [
        make(size)
        for make in (polygons, near, partial(nearest, k=1), complex_polygons)
        for size in sizes
    ]


WITHIN = rm.within(SPOT, "geometry")


def polygons(rows: int) -> Question:
    """The polygons, of so many small ones, that a point lies in."""
    make = partial(seeded.small_polygons, rows)
    return Question("small polygons", WITHIN, rows, make, unit_points, library.within)


def complex_polygons(vertices: int) -> Question:
    """The polygons, of four with so many vertices each, that a point lies in."""
    make = partial(seeded.wiggly_polygons, vertices)
    return Question("complex polygons", WITHIN, 4, make, unit_points, library.within, vertices)


def near(rows: int) -> Question:
    """The points, of so many, no farther off than two are on average."""
    distance = float(np.sqrt(2 / (np.pi * rows)))
    place = rm.dwithin(SPOT, "geometry", distance=distance)
    ask = partial(library.dwithin, distance=distance)
    return Question("dwithin", place, rows, partial(_places, rows), unit_points, ask)


def near_on_earth(rows: int) -> Question:
    """The same in metres: 21,400 square kilometres hold so many points."""
    meters = float(np.sqrt(2 * 21.4e9 / (np.pi * rows)))
    place = rm.dwithin(SPOT, "geometry", meters=meters)
    ask = partial(library.dwithin_meters, meters=meters)
    make = partial(_places_on_earth, rows)
    return Question("dwithin, meters", place, rows, make, earth_points, ask)


def nearest(rows: int, *, k: int) -> Question:
    """The k points, of so many, that are nearest; shapely has an answer for k = 1."""
    place = rm.nearest(SPOT, "geometry", k=k)
    ask = library.nearest if k == 1 else None
    return Question(f"nearest, k={k}", place, rows, partial(_places, rows), unit_points, ask)


def nearest_on_earth(rows: int) -> Question:
    """The point, of so many, that is nearest on the sphere."""
    place = rm.nearest(SPOT, "geometry", metric="sphere")
    make = partial(_places_on_earth, rows)
    return Question("nearest, k=1, sphere", place, rows, make, earth_points, None)


def zones() -> Shapes:
    """The city's taxi zones."""
    features = json.loads(data(ZONES).read_text())["features"]
    return shapely.from_geojson([json.dumps(feature["geometry"]) for feature in features])


def unit_points(count: int) -> tuple[Floats, Floats]:
    """Points spread over the unit square."""
    return seeded.places(count, stream=0)


def earth_points(count: int) -> tuple[Floats, Floats]:
    """The same in longitude and latitude."""
    return seeded.on_earth(*unit_points(count))


def points_of_the_city(count: int) -> tuple[Floats, Floats]:
    """Points spread over the box around the taxi zones: about a third fall in one."""
    west, south, east, north = shapely.total_bounds(zones())
    x, y = unit_points(count)
    return west + x * (east - west), south + y * (north - south)


def _places(rows: int) -> Shapes:
    return shapely.points(*seeded.places(rows, stream=1))


def _places_on_earth(rows: int) -> Shapes:
    return shapely.points(*seeded.on_earth(*seeded.places(rows, stream=1)))
