"""The shapes of a join's table, as the page draws them: outlines on a grid of whole numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import shapely

from rivermouth.kernels.arrays import Shapes
from rivermouth.kernels.fences.sketch import label
from rivermouth.kernels.spatial.geometry import from_wkb, from_xy
from rivermouth.spark.engines import stateless
from rivermouth.spec.conditions import named

#: how fine the grid is: a page's map is smaller than that
GRID = 8_192


def of_operator(observed_as: str) -> dict[str, Any] | None:
    """The shapes of the table behind an operator, read once more from where they come from.

    None where this process did not define the operator, or its condition has no place.
    """
    join = stateless.about(observed_as)
    if join is None or join.spatial is None:
        return None
    places = named(join.spatial.right)
    rows = join.source.read(list(dict.fromkeys([*places, *join.label_columns])))
    columns = [rows.column(name).combine_chunks() for name in places]
    shapes = (from_xy(*columns) if len(places) == 2 else from_wkb(columns[0])).shapes
    values = [rows.column(name).to_pylist() for name in join.label_columns]
    named_rows = zip(*values, strict=True) if values else [()] * len(shapes)
    texts = [label(row) or None for row in named_rows]
    return {"operator": observed_as, **outlines(shapes, texts)}


def outlines(shapes: Shapes, labels: list[Any]) -> dict[str, Any]:
    """Shapes as numbers that a browser can draw.

    Returns
    -------
    dict
        ``bounds`` (west, south, east, north), ``grid`` (how many steps a side of it has),
        ``labels`` (a text or None per shape) and ``rings``: per shape its outlines and holes,
        each ``[x0, y0, x1, y1, ...]`` in steps from the south-western corner; a point is a ring
        of one place, a shape that is not there has none.

    Examples
    --------
    >>> square = outlines(np.array([shapely.box(0, 0, 4, 2), None]), ["a", None])
    >>> square["bounds"], square["rings"][0], square["labels"]
    ([0.0, 0.0, 4.0, 2.0], [[8192, 0, 8192, 4096, 0, 4096, 0, 0]], ['a', None])
    """
    there = shapes[~shapely.is_missing(shapes)]
    bounds = shapely.total_bounds(there).tolist() if len(there) else [0.0, 0.0, 1.0, 1.0]
    west, south, east, north = bounds
    step = max(east - west, north - south) / GRID or 1.0
    coarse = shapely.simplify(shapes, step, preserve_topology=False)
    kept = np.where(shapely.is_missing(coarse) | shapely.is_empty(coarse), shapes, coarse)
    return {
        "bounds": bounds,
        "grid": GRID,
        "labels": [None if label is None else str(label) for label in labels],
        "rings": [_rings(shape, west, south, step) for shape in kept],
    }


def _rings(shape: Any, west: float, south: float, step: float) -> list[list[int]]:
    if shape is None:
        return []
    lines = shapely.get_rings(shape)
    parts = lines if len(lines) else shapely.get_parts(shape)
    return [_steps(shapely.get_coordinates(part), west, south, step) for part in parts]


def _steps(xy: npt.NDArray[np.float64], west: float, south: float, step: float) -> list[int]:
    """Whole steps from the corner; the last place of a ring, which is its first, is left out."""
    if len(xy) > 1 and (xy[0] == xy[-1]).all():
        xy = xy[:-1]
    steps = ((xy - (west, south)) / step).round().astype(int)
    return [int(number) for number in steps.ravel()]
