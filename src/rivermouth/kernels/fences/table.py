"""The fences: one version of the table, probed by positions and by the ways between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import shapely

from rivermouth.errors import TableInvalid
from rivermouth.kernels.arrays import Bools, Floats, Ints, Shapes
from rivermouth.kernels.fences.query import INSIDE, VERSION
from rivermouth.kernels.keys import key_index
from rivermouth.kernels.spatial import kdtree
from rivermouth.kernels.spatial.geometry import Geometries, geometries_of
from rivermouth.kernels.spatial.sphere import RADIUS, great_circles, unit_vectors
from rivermouth.kernels.spatial.strtree import StrTree
from rivermouth.kernels.state.groups import group
from rivermouth.kernels.table_join.assemble import NONE, chosen, take, take_or_null
from rivermouth.kernels.table_join.by_geometry import geometries_for
from rivermouth.kernels.table_join.matching import Columns, Matcher
from rivermouth.spec.conditions import DWithin, Keys, Spatial, Topology, is_on_sphere, key_pairs

#: the predicates of a point whose way can be asked whether one of its points satisfies them
CROSSABLE = ("within", "covered_by", "intersects")
_INTERIORS = "T********"


@dataclass(frozen=True)
class Ways:
    """Straight ways between two positions: in the plane, or along great circles.

    Parameters
    ----------
    begin, end
        Longitude and latitude, or x and y, of either end: two columns each. Ways that have a NaN
        meet nothing.
    keys
        The key columns of the condition, of the position at the end.
    """

    begin: Floats
    end: Floats
    keys: Sequence[pa.Array]

    @cached_property
    def lines(self) -> Shapes:
        """The ways as shapely's lines, None where there is none."""
        made = np.full(len(self.begin), None, dtype=object)
        usable = np.isfinite(self.begin).all(axis=1) & np.isfinite(self.end).all(axis=1)
        made[usable] = shapely.linestrings(np.stack([self.begin, self.end], axis=1)[usable])
        return made


class FenceTable:
    """One version of the table of fences.

    Two rows that are equal in all fence columns are one fence: an object is inside if it is inside
    of one of them.

    Parameters
    ----------
    keys, spatial
        The parts of the condition.
    columns
        The table's columns that the condition names.
    fences
        The columns that tell fences apart, by their names in the state.
    matcher
        The condition over the table.
    version
        The version's number, which grows from one to the next.
    """

    def __init__(
        self,
        keys: Keys | None,
        spatial: Spatial,
        columns: Columns,
        fences: pa.Table,
        matcher: Matcher,
        version: int,
    ) -> None:
        self._keys, self._spatial, self._columns = keys, spatial, columns
        self.fences, self._matcher, self.version = fences.combine_chunks(), matcher, version

    def locate(
        self, batch: pa.RecordBatch, left_columns: Sequence[str]
    ) -> tuple[pa.RecordBatch, Ints]:
        """Each position once per row of the table it is inside of, or once with nulls.

        Gives the rows, and the position that each is of.
        """
        pairs = self._matcher.match({name: batch.column(name) for name in left_columns})
        left, right, _ = chosen(pairs, batch.num_rows, "left")
        assert right is not None
        arrays = [column.combine_chunks() for column in self.fences.columns]
        columns = {
            **dict(zip(batch.schema.names, take(batch.columns, left, batch.num_rows), strict=True)),
            **dict(zip(self.fences.column_names, take_or_null(arrays, right), strict=True)),
            INSIDE: pa.array(right != NONE),
            VERSION: pa.array(np.full(len(left), self.version)),
        }
        return pa.RecordBatch.from_arrays(list(columns.values()), list(columns)), left

    def has(self, fences: pa.Table) -> Bools:
        """Whether each of these fences is in this version."""
        rows, known = fences.num_rows, self.fences.num_rows
        both = pa.concat_tables([fences.select(self.fences.column_names), self.fences])
        groups = group([column.combine_chunks() for column in both.columns], rows + known)
        return np.isin(groups.code[:rows], groups.code[rows:])

    # -- ways

    def met(self, ways: Ways) -> tuple[Ints, Ints]:
        """Pairs (way, row of the table) that may have a point in common; `through` decides."""
        if is_on_sphere(self._spatial):
            li, ri = self._met_on_sphere(ways)
        else:
            lines = Geometries(~shapely.is_missing(ways.lines), parsed=ways.lines)
            if isinstance(self._spatial, DWithin):
                li, ri = self._tree.within(lines, self._spatial.limit)
            else:
                li, ri = self._tree.match(lines, "intersects")
        if self._keys is None:
            return li, ri
        asked = self._key_groups.lookup(ways.keys)
        same = (asked[li] >= 0) & (asked[li] == self._key_groups.group[ri])
        return li[same], ri[same]

    def through(self, ways: Ways, li: Ints, ri: Ints) -> Bools:
        """Whether a point of each way satisfies the condition with the row it is paired with."""
        if isinstance(self._spatial, Topology) and self._spatial.predicate == "within":
            found: Bools = shapely.relate_pattern(
                ways.lines[li], self._geometries.shapes[ri], _INTERIORS
            )
            return found
        return np.ones(len(li), dtype=bool)

    def _met_on_sphere(self, ways: Ways) -> tuple[Ints, Ints]:
        """Points within the distance of a great circle's arc.

        They are sought around the arc's middle. Arcs are probed together with others of about
        their length, so that one long way does not make the others slow.
        """
        assert isinstance(self._spatial, DWithin)
        whole = geometries_of(self._columns, self._spatial.right)
        if whole.valid.any() and not whole.is_points:
            raise TableInvalid(
                "fence_events",
                f"column {self._spatial.right!r} holds shapes that are not points",
                there="the ways between positions are measured in metres to points only",
                todo="Leave 'cross' out of events=, or use distance= in a projected plane.",
            )
        begin, end = unit_vectors(*ways.begin.T), unit_vectors(*ways.end.T)
        chord = np.linalg.norm(end - begin, axis=1)
        middle = begin + end
        lon = np.degrees(np.arctan2(middle[:, 1], middle[:, 0]))
        lat = np.degrees(np.arctan2(middle[:, 2], np.hypot(middle[:, 0], middle[:, 1])))
        half = RADIUS * np.arcsin(np.minimum(chord / 2, 1.0))
        pairs = [(np.empty(0, np.int64), np.empty(0, np.int64))]
        usable = np.isfinite(chord)
        size = np.frexp(np.where(usable, half, 0.0))[1]
        for one in np.unique(size[usable]).tolist():
            rows = np.flatnonzero(usable & (size == one))
            reach = self._spatial.limit + float(half[rows].max()) * (1 + 1e-9) + 1e-6
            li, ri = self._points.within(lon[rows], lat[rows], reach)
            pairs.append((rows[li], ri))
        li = np.concatenate([one for one, _ in pairs])
        ri = np.concatenate([other for _, other in pairs])
        x, y = self._geometries.xy
        near = _arc_distance(ways, li, begin, end, x[ri], y[ri]) <= self._spatial.limit
        return li[near], ri[near]

    # -- what is made when it is first needed

    @cached_property
    def _geometries(self) -> Geometries:
        return geometries_for(self._spatial, self._columns, self._spatial.right)

    @cached_property
    def _tree(self) -> StrTree:
        return StrTree(self._geometries.shapes)

    @cached_property
    def _points(self) -> kdtree.KdTree:
        rows, (x, y) = np.flatnonzero(self._geometries.valid), self._geometries.xy
        return kdtree.build(x[rows], y[rows], rows, sphere=True)

    @cached_property
    def _key_groups(self) -> key_index.KeyIndex:
        return key_index.build([self._columns[name] for _, name in key_pairs(self._keys)])


def _arc_distance(
    ways: Ways, li: Ints, begin: Floats, end: Floats, lon: Floats, lat: Floats
) -> Floats:
    """The distance in metres of points from the arcs `li`."""
    a, b, p = begin[li], end[li], unit_vectors(lon, lat)
    normal = np.cross(a, b)
    length = np.linalg.norm(normal, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        normal = normal / length[:, None]
        beside = p - (normal * p).sum(axis=1)[:, None] * normal  # in the plane of the arc
        is_between = ((np.cross(a, beside) * normal).sum(axis=1) > 0) & (
            (np.cross(beside, b) * normal).sum(axis=1) > 0
        )
        across = RADIUS * np.arcsin(np.clip(np.abs((normal * p).sum(axis=1)), 0.0, 1.0))
    ends = np.minimum(
        great_circles(ways.begin[li, 0], ways.begin[li, 1], lon, lat),
        great_circles(ways.end[li, 0], ways.end[li, 1], lon, lat),
    )
    return np.where(is_between & (length > 0), across, ends)
