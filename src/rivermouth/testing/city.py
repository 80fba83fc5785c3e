"""Merewick, a city that does not exist: districts for the demo, the docs and the benchmarks.

The city is first a *plan*, in kilometres: straight coast, straight banks, convex districts, with
streets along both axes. A *warp* then bends the whole plan at once, so that every border, bank and
street winds, and those that meet in the plan still meet on the map. The warp moves the corners
and sides of the plan only along themselves: the map is again a full rectangle.

The rectangle lies in the North Sea, on the Dogger Bank, where nobody's districts are.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt
import shapely
from shapely import Polygon, box

from rivermouth.kernels.arrays import Floats

#: the plan, in kilometres, and where its south-western corner is
WIDTH, HEIGHT = 16.0, 11.0
WEST, SOUTH = 2.0, 54.60
_KM_PER_DEGREE = 6371.0087714 * np.pi / 180

#: where the coast runs, and the banks at the mouth and at the eastern edge
COAST = 2.1
_MOUTH, _SOURCE = (4.2, 6.9), (5.25, 5.75)

#: districts of either bank, from the mouth inland; the island; the enclave and what surrounds it
NORTH_BANK = (
    "Old Town",
    "Lighthouse Point",
    "Fishergate",
    "Orchard Hill",
    "Mill Bend",
    "Kilnfield",
)
SOUTH_BANK = ("Harbour", "Saltmarket", "Ropewalk", "Station", "Tannery", "Reedham")
ISLAND, ENCLAVE, AROUND = "Heron Island", "The Close", "Old Town"
_WATER = "water"

#: where the river can be crossed; the first bridge leads over the island
BRIDGES = (4.8, 7.5, 10.2, 13.2)

_STEP = 0.03  # kilometres between two vertices of a border
_GRID = 1e-6  # kilometres: corners nearer than that are one
#: the warp: how long its longest waves are (kilometres), how many lengths, how steep each is
_LONGEST, _OCTAVES, _STEEPNESS = 14.0, 9, 0.4


@dataclass(frozen=True)
class Warp:
    """A bending of the plan that cannot fold it: shears by ever shorter waves, one after another.

    Each shear moves x by a wave along y, or y by a wave along x, and none at the sides it would
    cross. For a fixed y the new x grows with x (its slope is at least 1 - 4 amplitude / width), so
    that no two points come to lie on one another.
    """

    waves: tuple[tuple[float, float, float], ...]  # number, phase, amplitude; of y and x in turn

    @classmethod
    def of(cls, rng: np.random.Generator) -> Warp:
        """A warp by chance."""
        length = _LONGEST / 1.6 ** np.repeat(np.arange(_OCTAVES), 2)
        number = 2 * np.pi / (length * rng.uniform(0.8, 1.25, len(length)))
        phase = rng.uniform(0, 2 * np.pi, len(length))
        waves = np.column_stack([number, phase, _STEEPNESS / number])
        return cls(tuple((k, shift, height) for k, shift, height in waves.tolist()))

    def __call__(self, x: Floats, y: Floats) -> tuple[Floats, Floats]:
        """Where points of the plan come to lie, still in kilometres."""
        for along_y, along_x in zip(self.waves[::2], self.waves[1::2], strict=True):
            x = x + _wave(along_y, y) * _hump(x / WIDTH)
            y = y + _wave(along_x, x) * _hump(y / HEIGHT)
        return x, y


def _wave(wave: tuple[float, float, float], along: Floats) -> Floats:
    number, phase, amplitude = wave
    return amplitude * np.sin(number * along + phase)


def _hump(share: Floats) -> Floats:
    """0 at both sides, exactly, and 1 in the middle."""
    return 4 * share * (1 - share)


@dataclass(frozen=True)
class City:
    """Districts that share their borders and, with the water, fill the extent without overlap."""

    names: tuple[str, ...]
    districts: tuple[Polygon, ...]
    water: Polygon
    centres: Floats = field(repr=False, compare=False)  # of the districts, on the plan
    warp: Warp = field(repr=False, compare=False)

    #: what the larger part of the water is called
    sea: ClassVar[str] = "Mere Bay"

    @property
    def extent(self) -> Polygon:
        """The map's rectangle, in degrees."""
        x, y = degrees(np.array([0, WIDTH]), np.array([0, HEIGHT]))
        return Polygon.from_bounds(x[0], y[0], x[1], y[1])

    def on_map(self, x: Floats, y: Floats) -> tuple[Floats, Floats]:
        """Longitude and latitude of points of the plan."""
        return degrees(*self.warp(x, y))

    def geojson(self) -> dict[str, Any]:
        """The districts as a GeoJSON FeatureCollection, with the property ``district``."""
        return {
            "type": "FeatureCollection",
            "features": [
                {
                    "type": "Feature",
                    "properties": {"district": name},
                    "geometry": shapely.geometry.mapping(shape),
                }
                for name, shape in zip(self.names, self.districts, strict=True)
            ],
        }

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the districts as a GeoJSON file."""
        Path(path).write_text(json.dumps(self.geojson()))


def city(seed: int = 7) -> City:
    """The city of a seed: 14 districts, a river, an island, an enclave.

    Examples
    --------
    >>> merewick = city()
    >>> len(merewick.names), merewick.names[0]
    (14, 'Old Town')
    >>> merewick == city()
    True
    """
    rng = np.random.default_rng(seed)
    warp = Warp.of(rng)
    plan = _plan(rng)
    faces = _faces(plan.values())
    shapes = {name: _warped(_face_of(faces, area), warp) for name, area in plan.items()}
    names = tuple(name for name in plan if name != _WATER)
    return City(
        names,
        tuple(shapes[name] for name in names),
        shapes[_WATER],
        np.array([plan[name].centroid.coords[0] for name in names]),
        warp,
    )


def degrees(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Longitude and latitude of kilometres from the south-western corner.

    A degree of longitude is as long everywhere as in the middle of the city.
    """
    latitude = SOUTH + np.asarray(y) / _KM_PER_DEGREE
    middle = np.radians(SOUTH + HEIGHT / 2 / _KM_PER_DEGREE)
    return WEST + np.asarray(x) / (_KM_PER_DEGREE * np.cos(middle)), latitude


def banks(x: float) -> tuple[float, float]:
    """The southern and the northern bank of the river at `x`, on the plan."""
    inland = (x - COAST) / (WIDTH - COAST)
    south, north = (at + inland * (to - at) for at, to in zip(_MOUTH, _SOURCE, strict=True))
    return south, north


def _plan(rng: np.random.Generator) -> dict[str, Polygon]:
    """The straight areas of the plan by name; they touch, but do not overlap."""
    (south_west, north_west), (south_east, north_east) = _MOUTH, _SOURCE
    river = Polygon(
        [(COAST, south_west), (WIDTH, south_east), (WIDTH, north_east), (COAST, north_west)]
    )
    north = Polygon([(COAST, north_west), (WIDTH, north_east), (WIDTH, HEIGHT), (COAST, HEIGHT)])
    south = Polygon([(COAST, south_west), (WIDTH, south_east), (WIDTH, 0), (COAST, 0)])
    plan = _split(north, north_west, HEIGHT, NORTH_BANK, rng)
    plan |= _split(south, 0, south_west, SOUTH_BANK, rng)
    plan[ISLAND] = _round(BRIDGES[0], sum(banks(BRIDGES[0])) / 2, 1.2, 0.5)
    plan[ENCLAVE] = _within(plan[AROUND])
    plan[AROUND] = cast(Polygon, plan[AROUND] - plan[ENCLAVE])
    water = (river | box(0, 0, COAST, HEIGHT)) - plan[ISLAND]
    return plan | {_WATER: cast(Polygon, water)}


def _split(
    bank: Polygon, low: float, high: float, names: tuple[str, ...], rng: np.random.Generator
) -> dict[str, Polygon]:
    """A bank as Voronoi cells, named by their distance from the river's mouth.

    Their centres lie in two rows between the heights `low` and `high`, each by chance somewhere
    in its part of the row: uneven, but no district is a sliver.
    """
    columns = len(names) // 2
    places = np.array([(column, row) for column in range(columns) for row in range(2)])
    share = (places + rng.uniform(0.12, 0.88, places.shape)) / (columns, 2)
    centres = np.array([COAST, low]) + share * (WIDTH - COAST, high - low)
    cells = shapely.voronoi_polygons(shapely.MultiPoint(centres), extend_to=bank)
    areas = shapely.intersection(shapely.get_parts(cells), bank)
    mouth = shapely.Point(COAST, sum(_MOUTH) / 2)
    nearest = np.argsort(shapely.distance(shapely.centroid(areas), mouth))
    return dict(zip(names, areas[nearest], strict=True))


def _round(x: float, y: float, a: float, b: float) -> Polygon:
    """An ellipse of twelve corners."""
    angle = np.linspace(0, 2 * np.pi, 12, endpoint=False)
    return Polygon(np.column_stack([x + a * np.cos(angle), y + b * np.sin(angle)]))


def _within(area: Polygon) -> Polygon:
    """A round area about the middle of another, well inside."""
    circle = shapely.maximum_inscribed_circle(area)
    (x, y), radius = circle.coords[0], circle.length
    return _round(x, y, radius * 0.5, radius * 0.42)


def _faces(areas: Iterable[Polygon]) -> npt.NDArray[np.object_]:
    """The areas with common borders: each border is one line with the same vertices for both."""
    lines = shapely.unary_union(shapely.boundary(list(areas)), grid_size=_GRID)
    fine = shapely.segmentize(shapely.get_parts(lines), _STEP)
    return np.asarray(shapely.get_parts(shapely.polygonize(fine)))


def _face_of(faces: npt.NDArray[np.object_], area: Polygon) -> Polygon:
    (found,) = faces[shapely.contains(faces, area.representative_point())]
    return cast(Polygon, found)


def _warped(shape: Polygon, warp: Warp) -> Polygon:
    def bend(xy: Floats) -> Floats:
        return np.column_stack(degrees(*warp(xy[:, 0], xy[:, 1])))

    return shapely.orient_polygons(shapely.transform(shape, bend))
