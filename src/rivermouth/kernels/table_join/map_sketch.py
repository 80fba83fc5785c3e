"""What a map of a join shows: how often each row of a small table was met, and where records were.

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

from rivermouth.kernels.spatial.geometry import Places, from_wkb, from_xy
from rivermouth.kernels.table_join.pairs import Pairs
from rivermouth.spec.conditions import Geometry, Point

#: tables with more rows are not counted by row: nobody can look at so many shapes
MOST_ROWS = 20_000
#: how many of a task's records are shown
PLACES = 24

_COUNT = np.dtype("<u4")


class Sketch:
    """Counts per row of the table, and a few places of records, over the batches of a task.

    Parameters
    ----------
    place
        What the condition calls the records' place.
    rows
        How many rows the table has.
    """

    def __init__(self, place: Geometry, rows: int) -> None:
        self._place = place
        self._counts = np.zeros(rows, dtype=np.int64)
        self._left: Mapping[str, pa.Array] = {}

    def add(self, left: Mapping[str, pa.Array], pairs: Pairs) -> None:
        """Count a batch's pairs; `left` holds the columns of its records."""
        self._counts += np.bincount(pairs.right, minlength=len(self._counts))
        self._left = left

    def report(self) -> dict[str, Any]:
        """``counts``, packed, and ``places``: x and y of some records of the last batch."""
        return {"counts": packed(self._counts), "places": _some_places(self._place, self._left)}


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


def _some_places(place: Geometry, left: Mapping[str, pa.Array]) -> list[list[float]]:
    """The places of a few records, evenly chosen; of shapes, a point on each."""
    rows = len(next(iter(left.values()), ()))
    chosen = pa.array(np.unique(np.linspace(0, rows - 1, min(rows, PLACES)).astype(np.int64)))
    places = _places(place, {name: column.take(chosen) for name, column in left.items()})
    points = shapely.point_on_surface(places.as_shapes[places.ok])
    xy = np.column_stack([shapely.get_x(points), shapely.get_y(points)])
    return [[float(x), float(y)] for x, y in xy.round(6)]


def _places(place: Geometry, left: Mapping[str, pa.Array]) -> Places:
    if not left:
        return Places(np.zeros(0, dtype=bool), np.zeros(0), np.zeros(0))
    if isinstance(place, Point):
        return from_xy(left[place.x], left[place.y])
    column = left[place]
    return from_wkb(column.field("wkb") if pa.types.is_struct(column.type) else column)
