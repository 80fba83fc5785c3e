"""Pairs by place: which index serves a table, how it is made, and how it is asked.

========  ===========================================================  =======================
index     for                                                          kept as
========  ===========================================================  =======================
cells     points against polygons                                      arrays, memory-mapped
rtree     the same, paper C's two-level R-tree; only if asked for      arrays, memory-mapped
kd        distances between points, plane and sphere                   arrays, memory-mapped
tree      everything else                                              built by each worker
========  ===========================================================  =======================

A kept index answers for the records it is made for; records of another kind (a polygon among
points) are answered by the tree, in the same call.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import shapely

from rivermouth.errors import PlanError, TableInvalid
from rivermouth.kernels.keys import key_index
from rivermouth.kernels.papers import rtree
from rivermouth.kernels.spatial import cells, kdtree
from rivermouth.kernels.spatial.geometry import Floats, Places, from_wkb, from_xy, only
from rivermouth.kernels.spatial.sphere import great_circle, is_on_sphere
from rivermouth.kernels.spatial.strtree import ShapeTree, may_be_disjoint, nearest_of
from rivermouth.kernels.table_join.pairs import Arrays, Columns, Pairs, merged, of_rows
from rivermouth.spec.conditions import DWithin, Geometry, Nearest, Point, Spatial, Topology

Codes = npt.NDArray[np.int32]
Ints = npt.NDArray[np.int64]

#: mean rows per key up to which pairs of equal keys are made first and tested one by one
_FEW = 16
#: edges looked at per point beyond which a tree is better than cells (very uneven tables)
_CROWDED = 400


def places_of(columns: Columns, geometry: Geometry, *, srid: int = 0) -> Places:
    """The places that `geometry` names: two number columns, WKB, or Spark's struct of both."""
    if isinstance(geometry, Point):
        return from_xy(columns[geometry.x], columns[geometry.y])
    column = columns[geometry]
    if pa.types.is_struct(column.type):
        wkb, srids = pc.struct_field(column, "wkb"), pc.struct_field(column, "srid")
        return from_wkb(wkb, srid=srid, srids=srids)
    return from_wkb(column, srid=srid)


def table_places(columns: Columns, geometry: Geometry, *, where: str) -> Places:
    """The table's places; unreadable and invalid shapes are an error that names them."""
    places = places_of(columns, geometry)
    if broken := places.troubles.get("unreadable", 0) + places.troubles.get("invalid", 0):
        raise TableInvalid(
            where,
            f"{broken} geometries of column {geometry!r} are not valid",
            there=_first_fault(columns, geometry),
            todo="Repair them (shapely.make_valid, ST_MakeValid) or leave them out.",
        )
    return places


def _first_fault(columns: Columns, geometry: Geometry) -> str:
    assert isinstance(geometry, str)
    shapes = shapely.from_wkb(columns[geometry].to_numpy(zero_copy_only=False), on_invalid="ignore")
    null = columns[geometry].is_null().to_numpy(zero_copy_only=False)
    row = int(np.flatnonzero((shapely.is_missing(shapes) | ~shapely.is_valid(shapes)) & ~null)[0])
    reason = "not WKB" if shapes[row] is None else shapely.is_valid_reason(shapes[row])
    return f"the first is row {row}: {reason}"


def prepare(
    place: Spatial, columns: Columns, *, where: str, index: str | None = None
) -> tuple[str, Arrays]:
    """The kind and the arrays of the index for `place`; `index` overrides the choice."""
    places = table_places(columns, place.right, where=where)
    possible = _possible(place, places)
    if isinstance(place, (DWithin, Nearest)) and place.metric == "sphere" and "kd" not in possible:
        raise TableInvalid(
            where,
            f"column {place.right!r} holds shapes that are not points, but great circles are "
            "measured between points",
            todo="Use a column of points, or distance= in a projected plane.",
        )
    if index is not None and index not in possible:
        raise PlanError(
            where,
            f"index={index!r} cannot serve this condition and table",
            there=f"{place} on {'points' if places.are_points else 'shapes'}",
            todo=f"Leave index out, or use one of {list(possible)}.",
        )
    return _make(index or possible[0], place, places, chosen=index is not None)


def _possible(place: Spatial, places: Places) -> tuple[str, ...]:
    """The indexes that can serve `place` on such a table, best first."""
    if isinstance(place, (DWithin, Nearest)):
        on_sphere = place.metric == "sphere"
        if places.are_points or not places.ok.any():
            return ("kd",) if on_sphere else ("kd", "tree")
        return () if on_sphere else ("tree",)
    if place.predicate not in cells.ANSWERS or places.shapes is None or places.are_points:
        return ("tree",)
    return ("cells", "tree", "rtree") if cells.can_index(places.as_shapes) else ("tree",)


def _make(kind: str, place: Spatial, places: Places, *, chosen: bool) -> tuple[str, Arrays]:
    if kind == "cells":
        made = cells.build(places.as_shapes)
        if not chosen and made.crowding() > _CROWDED:
            return "tree", {}
        return kind, made.arrays()
    if kind == "rtree":
        return kind, rtree.build(places.as_shapes).arrays()
    if kind == "kd":
        assert isinstance(place, (DWithin, Nearest))
        on_sphere = place.metric == "sphere"
        return kind, _kd(_on_sphere(places) if on_sphere else places, on_sphere).arrays()
    return "tree", {}


def _kd(places: Places, sphere: bool) -> kdtree.KdTree:
    rows = np.flatnonzero(places.ok)
    if not len(rows):
        return kdtree.build(np.empty(0), np.empty(0), rows, sphere=sphere)
    x, y = places.xy
    return kdtree.build(x[rows], y[rows], rows, sphere=sphere)


def _on_sphere(places: Places) -> Places:
    """The same places, those that are not points of the sphere no longer usable, and counted."""
    if not places.are_points:
        is_point = shapely.get_type_id(places.as_shapes) == 0
        shapes = only(places.as_shapes, is_point)
        strays = int(np.count_nonzero(places.ok & ~is_point))
        places = Places(
            places.ok & is_point, shapely.get_x(shapes), shapely.get_y(shapes), shapes,
            {**places.troubles, **({"not_a_point": strays} if strays else {})},
        )  # fmt: skip
    ok = places.ok & is_on_sphere(places.xy[1])
    beyond = int(np.count_nonzero(places.ok & ~ok))
    troubles = {**places.troubles, **({"out_of_range": beyond} if beyond else {})}
    return replace(places, ok=ok, troubles=troubles)


class PlaceMatcher:
    """A place over one table, ready to be asked batch by batch.

    Parameters
    ----------
    place
        The condition's place.
    table
        The table's columns that it names.
    kind, arrays
        What `prepare` made.
    known
        The table's keys, where the condition has an `equal` beside the place.
    srid
        The table's reference system, 0 where it is not known.
    """

    def __init__(
        self,
        place: Spatial,
        table: Columns,
        kind: str,
        arrays: Arrays,
        *,
        known: key_index.KeyIndex | None = None,
        srid: int = 0,
    ) -> None:
        self._place, self._table, self._kind, self._arrays = place, table, kind, arrays
        self._known, self._srid = known, srid
        self._groups: dict[int, PlaceMatcher] = {}

    def match(self, left: Columns, group: Codes | None) -> Pairs:
        """The pairs of equal `group`, if there are any, by left row, then table row or distance."""
        places = asked(self._place, left, self._srid)
        pairs = self._by_place(places) if group is None else self._by_both(places, group)
        return replace(pairs, troubles=places.troubles)

    # -- places alone

    def _by_place(self, left: Places) -> Pairs:
        """Records of the kind the index is made for are answered by it, others by the tree."""
        if self._kind == "tree":
            return self._by_tree(left)
        if left.are_points:
            rows = np.flatnonzero(left.ok)
            return of_rows(self._by_index(*left.xy, rows), rows)
        is_point = left.ok & (shapely.get_type_id(left.as_shapes) == 0)
        points, shapes = np.flatnonzero(is_point), np.flatnonzero(left.ok & ~is_point)
        x, y = shapely.get_x(left.as_shapes), shapely.get_y(left.as_shapes)
        return merged(
            of_rows(self._by_index(x, y, points), points),
            of_rows(self._by_tree(left.take(shapes)), shapes),
        )

    def _by_index(self, x: Floats, y: Floats, rows: Ints) -> Pairs:
        """Pairs of the points in `rows`, numbered within `rows`."""
        if len(rows) < len(x):
            x, y = x[rows], y[rows]
        match self._place:
            case Topology(predicate):
                return Pairs(*self._arrays_index.match(x, y, predicate))
            case DWithin(limit=limit):
                return Pairs(*self._arrays_index.within(x, y, limit))
            case Nearest(k=k, limit=limit):
                return Pairs(*self._arrays_index.nearest(x, y, k, limit))
        raise AssertionError(self._place)

    def _by_tree(self, left: Places) -> Pairs:
        match self._place:
            case Topology(predicate, _, _, pattern):
                return Pairs(*self._tree.match(left, predicate, pattern))
            case DWithin(limit=limit):
                return Pairs(*self._tree.within(left, limit))
            case Nearest(k=k, limit=limit):
                return Pairs(*self._tree.nearest(left, k, limit))
        raise AssertionError(self._place)

    # -- places and keys

    def _by_both(self, left: Places, group: Codes) -> Pairs:
        """Few rows per key: pairs of equal keys, tested; many: places first, keys compared."""
        many = len(self._keys.rows) > _FEW * max(1, self._keys.count)
        if isinstance(self._place, Nearest):
            return (
                self._nearest_by_group(left, group) if many else self._nearest_of_equal(left, group)
            )
        if many and not _matches_apart(self._place):
            pairs = self._by_place(left)
            same = (group[pairs.left] >= 0) & (group[pairs.left] == self._keys.group[pairs.right])
            return Pairs(pairs.left[same], pairs.right[same])
        li, ri = self._equal_pairs(left, group)
        keep = _holds(self._place, left, li, self._places, ri)
        return Pairs(li[keep], ri[keep])

    def _equal_pairs(self, left: Places, group: Codes) -> tuple[Ints, Ints]:
        li, ri = self._keys.expand(np.where(left.ok, group, key_index.NONE))
        usable = self._places.ok[ri]
        return li[usable], ri[usable]

    def _nearest_of_equal(self, left: Places, group: Codes) -> Pairs:
        assert isinstance(self._place, Nearest)
        li, ri = self._equal_pairs(left, group)
        distance = _distances(self._place.metric, left, li, self._places, ri)
        keep, distance = nearest_of(li, ri, distance, self._place.k, self._place.limit)
        return Pairs(li[keep], ri[keep], distance)

    def _nearest_by_group(self, left: Places, group: Codes) -> Pairs:
        """An index per key, made when the key is first asked for."""
        found = [Pairs(*(np.empty(0, np.int64),) * 2, np.empty(0))]
        for key in np.unique(group[(group >= 0) & left.ok]):
            rows = np.flatnonzero((group == key) & left.ok)
            own = slice(self._keys.start[key], self._keys.start[key + 1])
            members = self._keys.rows[own].astype(np.int64)
            pairs = of_rows(self._group(int(key), members)._by_place(left.take(rows)), rows)
            found.append(replace(pairs, right=members[pairs.right]))
        return merged(*found)

    def _group(self, key: int, members: Ints) -> PlaceMatcher:
        if key not in self._groups:
            right = self._place.right
            named = (right.x, right.y) if isinstance(right, Point) else (right,)
            part = {name: self._table[name].take(pa.array(members)) for name in named}
            made = prepare(self._place, part, where="nearest")
            self._groups[key] = PlaceMatcher(self._place, part, *made)
        return self._groups[key]

    # -- what is opened when it is first needed

    @property
    def _keys(self) -> key_index.KeyIndex:
        assert self._known is not None
        return self._known

    @cached_property
    def _places(self) -> Places:
        places = places_of(self._table, self._place.right)
        on_sphere = isinstance(self._place, (DWithin, Nearest)) and self._place.metric == "sphere"
        return _on_sphere(places) if on_sphere else places

    @cached_property
    def _tree(self) -> ShapeTree:
        return ShapeTree(self._places.as_shapes)

    @cached_property
    def _arrays_index(self) -> Any:
        made = {"cells": cells.Cells, "rtree": rtree.TwoLevelRTree, "kd": kdtree.KdTree}
        return made[self._kind](**self._arrays)


def _matches_apart(place: Spatial) -> bool:
    """Whether shapes that do not meet can satisfy `place`, so that an index is of no use."""
    match place:
        case Topology("disjoint"):
            return True
        case Topology("relate", _, _, pattern):
            return pattern is not None and may_be_disjoint(pattern)
    return False


def _holds(place: Spatial, left: Places, li: Ints, right: Places, ri: Ints) -> Any:
    """Whether each pair satisfies `place`, tested one by one."""
    match place:
        case Topology("relate", _, _, pattern):
            return shapely.relate_pattern(left.as_shapes[li], right.as_shapes[ri], pattern)
        case Topology(predicate):
            return getattr(shapely, predicate)(left.as_shapes[li], right.as_shapes[ri])
        case DWithin(limit=limit, metric=metric):
            return _distances(metric, left, li, right, ri) <= limit
    raise AssertionError(place)


def _distances(metric: str, left: Places, li: Ints, right: Places, ri: Ints) -> Floats:
    if metric == "sphere":
        (x, y), (other_x, other_y) = left.xy, right.xy
        pairs = zip(x[li], y[li], other_x[ri], other_y[ri], strict=True)
        return np.fromiter((great_circle(*pair) for pair in pairs), float, len(li))
    distances: Floats = shapely.distance(left.as_shapes[li], right.as_shapes[ri])
    return distances


def asked(place: Spatial, left: Columns, srid: int) -> Places:
    """The records' places, as `place` needs them."""
    return needed(place, left, place.left, srid)


def needed(place: Spatial, columns: Columns, geometry: Geometry, srid: int) -> Places:
    """The places that `geometry` names, as `place` needs them of either side."""
    places = places_of(columns, geometry, srid=srid)
    on_sphere = isinstance(place, (DWithin, Nearest)) and place.metric == "sphere"
    return _on_sphere(places) if on_sphere else places
