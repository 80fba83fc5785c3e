"""GeoJSON geometries as shapes: the usual ones in bulk, the others one by one.

Flattening the coordinates of all geometries of one type into arrays took a quarter of the time
of writing each geometry as text again for `shapely.from_geojson` (1,000,000 points: 1.9 s against
7.2 s; 300,000 polygons: 2.4 s against 10.8 s). What does not fit into arrays goes the slow way,
which also knows what is wrong with it.
"""

from __future__ import annotations

import json
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import shapely

from rivermouth.errors import TableInvalid
from rivermouth.kernels.arrays import Shapes
from rivermouth.tables.sources.geoarrow import NESTING

TYPES = (*NESTING, "GeometryCollection")


def shapes(geometries: list[Any], *, call: str) -> Shapes:
    """The shapes of GeoJSON geometries, None for null; altitudes are kept.

    A geometry that is none is a `TableInvalid` that names its feature.
    """
    made = np.full(len(geometries), None, dtype=object)
    rows_of: dict[str, list[int]] = {}
    for row, geometry in enumerate(geometries):
        if geometry is not None:
            kind = geometry.get("type") if isinstance(geometry, dict) else None
            rows_of.setdefault(str(kind), []).append(row)
    for kind, rows in rows_of.items():
        part = [geometries[row] for row in rows]
        bulk = _in_bulk(kind, part)
        made[rows] = list(map(partial(_shape, call), part, rows)) if bulk is None else bulk
    return made


def _in_bulk(kind: str, geometries: list[Any]) -> Shapes | None:
    """The shapes of geometries of one type, or None where they do not fit into arrays."""
    if kind not in NESTING:
        return None
    type_id, depth = NESTING[kind]
    offsets = []
    try:
        level = [geometry["coordinates"] for geometry in geometries]
        for _ in range(depth):
            sizes = np.fromiter(map(len, level), np.int64, len(level))
            offsets.append(np.concatenate([[0], np.cumsum(sizes)]))
            level = list(chain.from_iterable(level))
        positions = np.array(level)
        if not _are_positions(positions):
            return None
        coordinates = positions.astype(np.float64)
        if "Polygon" in kind and not _are_closed(coordinates, offsets[-1]):
            return None
        made: Shapes = shapely.from_ragged_array(type_id, coordinates, tuple(offsets[::-1]))
    except (KeyError, TypeError, ValueError, shapely.errors.ShapelyError):
        return None
    return made


def _are_positions(values: npt.NDArray[Any]) -> bool:
    """Whether these are finite numbers, two or three a position."""
    if values.dtype.kind not in "if" or values.ndim != 2 or values.shape[1] not in (2, 3):
        return False
    return bool(np.isfinite(values).all())


def _are_closed(coordinates: npt.NDArray[np.float64], offsets: npt.NDArray[np.int64]) -> bool:
    """Whether each ring ends where it starts; shapely would close it without a word."""
    first, last = offsets[:-1], offsets[1:] - 1
    rings = last > first
    return bool((coordinates[first[rings]] == coordinates[last[rings]]).all())


def _shape(call: str, geometry: Any, row: int) -> Any:
    text = json.dumps(geometry)
    try:
        return shapely.from_geojson(text)
    except shapely.errors.ShapelyError as error:
        raise TableInvalid(
            call,
            f"feature {row} has a geometry that cannot be read",
            there=f"{text[:80]}: {error}",
            todo="Correct it, or set it to null.",
        ) from None
