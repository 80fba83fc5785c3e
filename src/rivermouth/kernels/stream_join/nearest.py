"""The nearest rows among those whose times may meet.

Points are sought in a k-d tree that passes over rows of other times and other keys; shapes by
circles that grow until enough rows of the right time lie in them. Of rows equally far the older
comes first, and of those as old the one whose columns come first in their order: the answer
does not depend on the order in which rows arrived.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import shapely

from rivermouth.kernels.keys import key_index
from rivermouth.kernels.spatial.geometry import Floats, Shapes
from rivermouth.kernels.spatial.kdtree import Among
from rivermouth.kernels.spatial.strtree import nearest_of
from rivermouth.kernels.stream_join.row_block import Run, joined
from rivermouth.kernels.stream_join.times import Span
from rivermouth.spec.conditions import Nearest

Ints = npt.NDArray[np.int64]
Groups = npt.NDArray[np.int32]


class Found(NamedTuple):
    """The nearest rows: who asked, what was found, and how far away it is."""

    asking: Ints
    held: Ints
    distance: Floats


def nearest(asking: Run, held: Run, span: Span) -> Found:
    """The nearest of `held`, which `ordered` has put in order, to each row that asks."""
    place = asking.meeting.place
    assert isinstance(place, Nearest)
    if not len(asking) or not len(held):
        return Found(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))
    if asking.places.are_points and held.places.are_points:
        return _of_points(asking, held, place, span)
    return _of_shapes(asking, held, place, span)


def ordered(runs: Sequence[Run]) -> Run:
    """Runs of one side as one, older rows first, those as old by their columns' values."""
    run = joined(runs)
    columns = {f"{number}": column for number, column in enumerate(run.rows.columns)}
    by = {"time": pa.array(run.times)} | {
        name: column for name, column in columns.items() if _can_be_sorted(column.type)
    }
    order = pc.sort_indices(pa.table(by), sort_keys=[(name, "ascending") for name in by])
    return run.take(order.to_numpy().astype(np.int64))


def _can_be_sorted(kind: pa.DataType) -> bool:
    return not pa.types.is_nested(kind) and not pa.types.is_null(kind)


def _groups(asking: Run, held: Run) -> tuple[Groups, Groups]:
    """A number for the keys of each row: rows of equal keys, and only they, have the same."""
    if not asking.keys:
        return np.zeros(len(asking), np.int32), np.zeros(len(held), np.int32)
    known = key_index.build(held.keys)
    return known.lookup(asking.keys), known.group


def _of_points(asking: Run, held: Run, place: Nearest, span: Span) -> Found:
    groups = _groups(asking, held)
    among = Among(asking.times, groups[0], held.times, groups[1], *span)
    return Found(*held.kd.nearest_among(*asking.places.xy, place.k, place.limit, among))


def _of_shapes(asking: Run, held: Run, place: Nearest, span: Span) -> Found:
    """Circles around each row, twice as wide in each round, until enough rows lie in them."""
    shapes, others = asking.places.as_shapes, held.places.as_shapes
    tree = shapely.STRtree(others)
    groups = _groups(asking, held)
    farthest = _extent(shapes, others) if place.limit is None else place.limit
    reach = farthest if place.limit is not None else farthest / len(held)
    open_rows, found = np.arange(len(asking)), []
    while len(open_rows):
        li, ri = tree.query(shapes[open_rows], predicate="dwithin", distance=reach)
        li = open_rows[li]
        keep = span.allows(asking.times[li], held.times[ri]) & (groups[0][li] == groups[1][ri])
        li, ri = li[keep & (groups[0][li] >= 0)], ri[keep & (groups[0][li] >= 0)]
        done = (np.bincount(li, minlength=len(asking)) >= place.k) | (reach >= farthest)
        found.append((li[done[li]], ri[done[li]]))
        open_rows, reach = open_rows[~done[open_rows]], max(reach * 2, farthest * 1e-9)
    li, ri = (np.concatenate(part) for part in zip(*found, strict=True))
    far = shapely.distance(shapes[li], others[ri])
    keep, far = nearest_of(li, ri, far, place.k, place.limit)
    return Found(li[keep], ri[keep], far)


def _extent(*shapes: Shapes) -> float:
    """A distance that is larger than any between these shapes."""
    low_x, low_y, high_x, high_y = shapely.total_bounds(np.concatenate(shapes))
    return float(np.hypot(high_x - low_x, high_y - low_y)) * (1.0 + 1e-9) + 1e-300
