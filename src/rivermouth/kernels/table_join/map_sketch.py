"""What a map of a join shows: how often each row of a small table matched, and where records were.

Counts travel as one short text, since a table of 10,000 shapes has 10,000 of them per task.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import shapely

from rivermouth.kernels.spatial.geometry import geometries_of
from rivermouth.kernels.table_join.pairs import Pairs
from rivermouth.spec.conditions import Geometry

#: tables with more rows are not counted by row: nobody can look at so many shapes
MOST_ROWS = 20_000

#: how many of a task's records are shown
SAMPLE = 24
_COUNT = np.dtype("<u4")


class Sketch:
    """Counts per row of the table, and a few points of records, over the batches of a task.

    Parameters
    ----------
    geometry
        What the condition calls the records' geometry.
    rows
        How many rows the table has.
    """

    def __init__(self, geometry: Geometry, rows: int) -> None:
        self._geometry = geometry
        self._counts = np.zeros(rows, dtype=np.int64)
        self._left: Mapping[str, pa.Array] = {}

    def add(self, left: Mapping[str, pa.Array], pairs: Pairs) -> None:
        """Count a batch's pairs; `left` holds the columns of its records."""
        self._counts += np.bincount(pairs.right, minlength=len(self._counts))
        self._left = left

    def report(self) -> dict[str, Any]:
        """``counts``, packed, and ``places``: x and y of some records of the last batch."""
        return {"counts": packed(self._counts), "places": _sample(self._geometry, self._left)}


def packed(counts: npt.NDArray[np.integer[Any]]) -> str:
    """Counts as a short text; beyond 4,294,967,295 they stay there.

    Examples
    --------
    >>> unpacked(packed(np.array([0, 3, 70000]))).tolist()
    [0, 3, 70000]
    """
    whole = np.minimum(counts, np.iinfo(_COUNT).max).astype(_COUNT)
    return base64.b64encode(zlib.compress(whole.tobytes(), 1)).decode()


def unpacked(text: str) -> npt.NDArray[np.int64]:
    """The counts that `packed` made a text of."""
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), dtype=_COUNT).astype(np.int64)


def _sample(geometry: Geometry, left: Mapping[str, pa.Array]) -> list[list[float]]:
    """A point of each of a few records, evenly chosen."""
    if not left:
        return []
    rows = len(next(iter(left.values())))
    chosen = pa.array(np.unique(np.linspace(0, rows - 1, min(rows, SAMPLE)).astype(np.int64)))
    sampled = {name: column.take(chosen) for name, column in left.items()}
    return points_of(geometry, sampled)


def points_of(geometry: Geometry, columns: Mapping[str, pa.Array]) -> list[list[float]]:
    """X and y of a point of each record that has a valid geometry."""
    column = geometries_of(columns, geometry)
    points = shapely.point_on_surface(column.shapes[column.valid])
    xy = np.column_stack([shapely.get_x(points), shapely.get_y(points)])
    return [[float(x), float(y)] for x, y in xy.round(6)]
