"""Boxes around geometries, in the plane or around unit vectors: low corner, then high corner."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import shapely

from rivermouth.kernels.arrays import Floats
from rivermouth.kernels.spatial import edge_tree
from rivermouth.kernels.spatial.distance import SLACK, TINY
from rivermouth.kernels.spatial.geometry import Geometries, from_xy, wkb_of
from rivermouth.kernels.spatial.sphere import unit_vectors
from rivermouth.spec.conditions import Geometry, Point

_ROUNDING = 1e-15  # share of a coordinate that a sum may be off by


def boxes_of(column: Geometries, *, sphere: bool = False) -> Floats:
    """The box of each geometry; what is not valid may have any, NaN included.

    On the sphere the geometries are those of `Geometries.shapes_on_sphere`, and a box holds all
    that lies in a polygon, too.
    """
    if column.is_points:
        x, y = column.xy
        corner = unit_vectors(x, y) if sphere else np.column_stack([x, y])
        return np.column_stack([corner, corner])
    if not sphere:
        return np.asarray(shapely.bounds(column.shapes))
    tree = edge_tree.build(column.shapes, sphere=True)
    boxes = np.repeat([[np.inf, -np.inf]], 3, axis=1).repeat(len(column), axis=0)
    np.minimum.at(boxes[:, :3], tree.row, tree.part_box[:, :3])
    np.maximum.at(boxes[:, 3:], tree.row, tree.part_box[:, 3:])
    return boxes


def written_boxes(columns: Mapping[str, pa.Array], geometry: Geometry) -> Floats:
    """The box in the plane of each geometry as it is written, NaN where there is none.

    Whether a geometry is valid is not looked at, which is most of what decoding it costs.
    """
    if isinstance(geometry, Point):
        return boxes_of(from_xy(columns[geometry.x], columns[geometry.y]))
    points, shapes = wkb_of(columns[geometry])
    if points is not None:
        return np.column_stack([*points, *points])
    return np.asarray(shapely.bounds(shapes))


def grown(boxes: Floats, reach: float) -> Floats:
    """Boxes that reach farther on all sides, by a little more than `reach` rather than less."""
    axes = boxes.shape[1] // 2
    slack = np.abs(boxes) * _ROUNDING + (reach * (1.0 + SLACK) + TINY)
    return np.concatenate([boxes[:, :axes] - slack[:, :axes], boxes[:, axes:] + slack[:, axes:]], 1)
