"""How deep the positions of each type of geometry are nested, in GeoJSON and in GeoArrow alike."""

from __future__ import annotations

import shapely

NESTING = {
    "Point": (shapely.GeometryType.POINT, 0),
    "MultiPoint": (shapely.GeometryType.MULTIPOINT, 1),
    "LineString": (shapely.GeometryType.LINESTRING, 1),
    "MultiLineString": (shapely.GeometryType.MULTILINESTRING, 2),
    "Polygon": (shapely.GeometryType.POLYGON, 2),
    "MultiPolygon": (shapely.GeometryType.MULTIPOLYGON, 3),
}
