"""GeoArrow's native geometries (GeoParquet 1.1): nested lists of x and y, turned into WKB."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import shapely

#: how deep the positions of each type of geometry are nested, as in GeoJSON
NESTING = {
    "Point": (shapely.GeometryType.POINT, 0),
    "MultiPoint": (shapely.GeometryType.MULTIPOINT, 1),
    "LineString": (shapely.GeometryType.LINESTRING, 1),
    "MultiLineString": (shapely.GeometryType.MULTILINESTRING, 2),
    "Polygon": (shapely.GeometryType.POLYGON, 2),
    "MultiPolygon": (shapely.GeometryType.MULTIPOLYGON, 3),
}

#: GeoParquet writes the types' names in small letters
ENCODINGS = {name.lower(): nesting for name, nesting in NESTING.items()}


def to_wkb(column: pa.Array, encoding: str) -> pa.Array:
    """The WKB of a column in one of the native `ENCODINGS`; null stays null.

    Examples
    --------
    >>> spots = pa.array([{"x": 1.0, "y": 2.0}, None])
    >>> shapely.from_wkb(to_wkb(spots, "point").to_pylist()).tolist()
    [<POINT (1 2)>, None]
    """
    type_id, depth = ENCODINGS[encoding]
    level, offsets = column.drop_null(), []
    for _ in range(depth):
        starts = level.offsets.to_numpy()
        offsets.append(starts - starts[0])
        level = level.flatten()
    axes = [name for name in "xyz" if level.type.get_field_index(name) >= 0]
    parts = dict(zip([field.name for field in level.type], level.flatten(), strict=True))
    coordinates = np.column_stack([parts[axis].to_numpy(zero_copy_only=False) for axis in axes])
    made = np.full(len(column), None, dtype=object)
    made[column.is_valid().to_numpy(zero_copy_only=False)] = shapely.from_ragged_array(
        type_id, coordinates, tuple(offsets[::-1])
    )
    return pa.array(shapely.to_wkb(made, flavor="iso", byte_order=1), pa.binary())
