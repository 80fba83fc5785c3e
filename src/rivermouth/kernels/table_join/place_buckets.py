"""A table in buckets by place: which rows are in which, and what an event finds in several.

A table row's box is grown by the condition's distance, and the row is in each bucket that this box
meets; an event's box is not grown. A point, then, finds all its rows in one bucket. A shape that
meets several buckets looks into each of them, and a pair counts in the bucket that owns it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rivermouth.kernels.arrays import Floats, Ints
from rivermouth.kernels.spatial.boxes import boxes_of, grown, written_boxes
from rivermouth.kernels.spatial.distance import chord
from rivermouth.kernels.spatial.geometry import geometries_of
from rivermouth.kernels.spatial.space_cut import SpaceCut
from rivermouth.kernels.table_join.by_geometry import (
    drawn_on_sphere,
    geometries_for,
    holds_for_disjoint,
    table_geometries,
)
from rivermouth.kernels.table_join.matching import Matcher
from rivermouth.kernels.table_join.pairs import Columns, Pairs, merged, of_rows, selected
from rivermouth.spec.conditions import DWithin, Nearest, Spatial, is_on_sphere, named


def is_local(spatial: Spatial) -> bool:
    """Whether an event's partners lie no farther away than a distance known beforehand."""
    return not (isinstance(spatial, Nearest) or holds_for_disjoint(spatial))


def table_boxes(
    spatial: Spatial, columns: Columns, *, where: str, first_row: int = 0
) -> tuple[Ints, Floats]:
    """The rows that can match something, and their grown boxes.

    Raises
    ------
    TableInvalid
        For geometries that no index is made of; `first_row` is the number of the first row here.
    """
    sphere = is_on_sphere(spatial)
    column = table_geometries(columns, spatial.right, where=where, first_row=first_row)
    if sphere:
        column = drawn_on_sphere(column, spatial, where=where)
    rows = np.flatnonzero(column.valid)
    return rows, _grown(spatial, boxes_of(column, sphere=sphere)[rows])


def event_boxes(spatial: Spatial, columns: Columns) -> Floats:
    """The boxes of events, NaN where there is no place; invalid ones may have any box."""
    if is_on_sphere(spatial):
        return boxes_of(geometries_for(spatial, columns, spatial.left), sphere=True)
    return written_boxes(columns, spatial.left)


def _grown(spatial: Spatial, boxes: Floats) -> Floats:
    reach = 0.0
    if isinstance(spatial, DWithin):
        reach = chord(spatial.limit, boxes.shape[1] // 2)
    with np.errstate(over="ignore"):  # a box may be without end
        return grown(boxes, reach)


@dataclass(frozen=True)
class OpenBucket:
    """A bucket of the table: the condition over its rows, and their columns."""

    matcher: Matcher
    columns: Columns


class CrossingMatcher:
    """A spatial condition over all buckets, for events that may meet several of them.

    Parameters
    ----------
    spatial
        The condition, one that `is_local`.
    cut
        Where the buckets lie.
    open_bucket
        Gives a bucket; each is asked for once per call of `match`.
    brought
        The columns that are brought from the table, with their types.
    """

    def __init__(
        self,
        spatial: Spatial,
        cut: SpaceCut,
        open_bucket: Callable[[int], OpenBucket],
        brought: Sequence[pa.Field],
    ) -> None:
        self._spatial, self._cut, self._open, self._brought = spatial, cut, open_bucket, brought
        self.replicated_rows = 0  #: events that were looked up in further buckets, for each

    def match(self, left: Columns, boxes: Floats) -> tuple[Pairs, dict[str, pa.Array]]:
        """The pairs by left row, numbered among the table rows that were found, and these rows."""
        found = [Pairs(np.empty(0, np.int64), np.empty(0, np.int64))]
        taken: dict[str, list[pa.Array]] = {
            field.name: [pa.array([], field.type)] for field in self._brought
        }
        first, looked_up = 0, 0
        for bucket, rows in self._cut.parts(boxes):
            opened, index = self._open(bucket), pa.array(rows)
            pairs = opened.matcher.match({name: one.take(index) for name, one in left.items()})
            pairs = self._owned(bucket, of_rows(pairs, rows), boxes, opened.columns)
            count, chosen = len(pairs.right), pa.array(pairs.right)
            found.append(Pairs(pairs.left, first + np.arange(count)))
            for field in self._brought:
                # a bucket's long columns may have wider offsets
                taken[field.name].append(opened.columns[field.name].take(chosen).cast(field.type))
            first += count
            looked_up += len(rows)
        self.replicated_rows += looked_up - len(boxes)
        return merged(*found), {name: pa.concat_arrays(parts) for name, parts in taken.items()}

    def _owned(self, bucket: int, pairs: Pairs, boxes: Floats, columns: Columns) -> Pairs:
        """The pairs that this bucket owns; others own the rest, and have it, too."""
        rows, of = np.unique(pairs.right, return_inverse=True)
        index, names = pa.array(rows), named(self._spatial.right)
        there = geometries_of(
            {name: columns[name].take(index) for name in names}, self._spatial.right
        )
        table = _grown(self._spatial, boxes_of(there))[of]
        return selected(pairs, self._cut.owns(bucket, boxes[pairs.left], table))
