"""Which rows belong together: a condition, a table's columns and an index give pairs of rows.

An index is made once (`prepare`), kept as named arrays, and opened by each worker (`Matcher`).
Which one is made depends on what is in the table:

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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import shapely

from rivermouth.errors import PlanError, TableInvalid
from rivermouth.kernels import cells, kdtree, keys, rtree
from rivermouth.kernels.geometry import Floats, Places, from_wkb, from_xy, only
from rivermouth.kernels.sphere import great_circle, is_on_sphere
from rivermouth.kernels.tree import ShapeTree, may_be_disjoint, nearest_of
from rivermouth.spec.conditions import Equal, Geometry, Near, Nearest, Place, Point, Topology

Ints = npt.NDArray[np.int64]
Arrays = Mapping[str, npt.NDArray[np.generic]]
Columns = Mapping[str, pa.Array]

INDEXES = ("cells", "rtree", "kd", "tree")

#: mean rows per key up to which pairs of equal keys are made first and tested one by one
_FEW = 16
#: edges looked at per point beyond which a tree is better than cells (very uneven tables)
_CROWDED = 400


@dataclass(frozen=True)
class Pairs:
    """Matched rows: left row numbers in order, table row numbers, distances where asked for."""

    left: Ints
    right: Ints
    distance: Floats | None = None
    troubles: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Index:
    """An index as it is kept: its kind and its arrays (none for a tree)."""

    kind: str
    arrays: Arrays


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
    place: Place | None, columns: Columns, *, where: str, index: str | None = None
) -> Index:
    """Make the index for `place` over the table's `columns`; `index` overrides the choice."""
    if place is None:
        return Index("keys", {})
    places = table_places(columns, place.right, where=where)
    possible = _possible(place, places)
    if isinstance(place, (Near, Nearest)) and place.metric == "sphere" and "kd" not in possible:
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


def _possible(place: Place, places: Places) -> tuple[str, ...]:
    """The indexes that can serve `place` on such a table, best first."""
    if isinstance(place, (Near, Nearest)):
        on_sphere = place.metric == "sphere"
        if places.are_points or not places.ok.any():
            return ("kd",) if on_sphere else ("kd", "tree")
        return () if on_sphere else ("tree",)
    if place.predicate not in cells.ANSWERS or places.shapes is None or places.are_points:
        return ("tree",)
    return ("cells", "tree", "rtree") if cells.can_index(places.as_shapes) else ("tree",)


def _make(kind: str, place: Place, places: Places, *, chosen: bool) -> Index:
    if kind == "cells":
        made = cells.build(places.as_shapes)
        if not chosen and made.crowding() > _CROWDED:
            return Index("tree", {})
        return Index(kind, made.arrays())
    if kind == "rtree":
        return Index(kind, rtree.build(places.as_shapes).arrays())
    if kind == "kd":
        assert isinstance(place, (Near, Nearest))
        on_sphere = place.metric == "sphere"
        return Index(kind, _kd(_on_sphere(places) if on_sphere else places, on_sphere).arrays())
    return Index("tree", {})


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


class Matcher:
    """A condition over one table, ready to be asked batch by batch.

    Parameters
    ----------
    equal, place
        The condition's two parts, at least one of them given.
    table
        The table's columns that the condition names.
    index
        What `prepare` made.
    srid
        The table's reference system, 0 where it is not known.
    """

    def __init__(
        self,
        equal: Equal | None,
        place: Place | None,
        table: Columns,
        index: Index,
        *,
        srid: int = 0,
    ) -> None:
        self._equal, self._place, self._table, self._index = equal, place, table, index
        self._srid = srid
        self._groups: dict[int, Matcher] = {}

    def match(self, left: Columns) -> Pairs:
        """The pairs that satisfy the condition, by left row, then table row (nearest: distance)."""
        with np.errstate(over="ignore", invalid="ignore"):  # far, however far
            return self._match(left)

    def _match(self, left: Columns) -> Pairs:
        if self._place is None:
            group = self._lookup(left)
            missing = _null_keys(left, self._equal)
            return Pairs(*self._keys.expand(group), troubles=missing)
        places = _asked(self._place, left, self._srid)
        if self._equal is None:
            return replace(self._by_place(places), troubles=places.troubles)
        troubles = _null_keys(left, self._equal) | places.troubles
        return replace(self._by_both(places, self._lookup(left)), troubles=troubles)

    # -- places alone

    def _by_place(self, left: Places) -> Pairs:
        """Records of the kind the index is made for are answered by it, others by the tree."""
        if self._index.kind == "tree":
            return self._by_tree(left)
        if left.are_points:
            rows = np.flatnonzero(left.ok)
            return _of_rows(self._by_index(*left.xy, rows), rows)
        is_point = left.ok & (shapely.get_type_id(left.as_shapes) == 0)
        points, shapes = np.flatnonzero(is_point), np.flatnonzero(left.ok & ~is_point)
        x, y = shapely.get_x(left.as_shapes), shapely.get_y(left.as_shapes)
        return _merged(
            _of_rows(self._by_index(x, y, points), points),
            _of_rows(self._by_tree(left.take(shapes)), shapes),
        )

    def _by_index(self, x: Floats, y: Floats, rows: Ints) -> Pairs:
        """Pairs of the points in `rows`, numbered within `rows`."""
        if len(rows) < len(x):
            x, y = x[rows], y[rows]
        match self._place:
            case Topology(predicate):
                return Pairs(*self._arrays_index.match(x, y, predicate))
            case Near(limit=limit):
                return Pairs(*self._arrays_index.within(x, y, limit))
            case Nearest(k=k, limit=limit):
                return Pairs(*self._arrays_index.nearest(x, y, k, limit))
        raise AssertionError(self._place)

    def _by_tree(self, left: Places) -> Pairs:
        match self._place:
            case Topology(predicate, _, _, pattern):
                return Pairs(*self._tree.match(left, predicate, pattern))
            case Near(limit=limit):
                return Pairs(*self._tree.within(left, limit))
            case Nearest(k=k, limit=limit):
                return Pairs(*self._tree.nearest(left, k, limit))
        raise AssertionError(self._place)

    # -- places and keys

    def _by_both(self, left: Places, group: Ints) -> Pairs:
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

    def _equal_pairs(self, left: Places, group: Ints) -> tuple[Ints, Ints]:
        li, ri = self._keys.expand(np.where(left.ok, group, keys.NONE))
        usable = self._places.ok[ri]
        return li[usable], ri[usable]

    def _nearest_of_equal(self, left: Places, group: Ints) -> Pairs:
        assert isinstance(self._place, Nearest)
        li, ri = self._equal_pairs(left, group)
        distance = _distances(self._place.metric, left, li, self._places, ri)
        keep, distance = nearest_of(li, ri, distance, self._place.k, self._place.limit)
        return Pairs(li[keep], ri[keep], distance)

    def _nearest_by_group(self, left: Places, group: Ints) -> Pairs:
        """An index per key, made when the key is first asked for."""
        found = [Pairs(*(np.empty(0, np.int64),) * 2, np.empty(0))]
        for key in np.unique(group[(group >= 0) & left.ok]):
            rows = np.flatnonzero((group == key) & left.ok)
            members = self._keys.rows[self._keys.start[key] : self._keys.start[key + 1]]
            pairs = _of_rows(self._group(int(key), members)._by_place(left.take(rows)), rows)
            found.append(replace(pairs, right=members[pairs.right]))
        return _merged(*found)

    def _group(self, key: int, members: Ints) -> Matcher:
        if key not in self._groups:
            place = self._place
            assert place is not None
            named = (
                (place.right.x, place.right.y) if isinstance(place.right, Point) else (place.right,)
            )
            part = {name: self._table[name].take(pa.array(members)) for name in named}
            index = prepare(place, part, where="nearest")
            self._groups[key] = Matcher(None, place, part, index)
        return self._groups[key]

    # -- what is opened when it is first needed

    def _lookup(self, left: Columns) -> Ints:
        assert self._equal is not None
        return self._keys.lookup([left[name] for name, _ in self._equal.pairs])

    @cached_property
    def _keys(self) -> keys.KeyIndex:
        assert self._equal is not None
        return keys.build([self._table[name] for _, name in self._equal.pairs])

    @cached_property
    def _places(self) -> Places:
        assert self._place is not None
        places = places_of(self._table, self._place.right)
        on_sphere = isinstance(self._place, (Near, Nearest)) and self._place.metric == "sphere"
        return _on_sphere(places) if on_sphere else places

    @cached_property
    def _tree(self) -> ShapeTree:
        return ShapeTree(self._places.as_shapes)

    @cached_property
    def _arrays_index(self) -> Any:
        made = {"cells": cells.Cells, "rtree": rtree.TwoLevelRTree, "kd": kdtree.KdTree}
        return made[self._index.kind](**self._index.arrays)


def _matches_apart(place: Place | None) -> bool:
    """Whether shapes that do not meet can satisfy `place`, so that an index is of no use."""
    match place:
        case Topology("disjoint"):
            return True
        case Topology("relate", _, _, pattern):
            return pattern is not None and may_be_disjoint(pattern)
    return False


def _holds(place: Place | None, left: Places, li: Ints, right: Places, ri: Ints) -> Any:
    """Whether each pair satisfies `place`, tested one by one."""
    match place:
        case Topology("relate", _, _, pattern):
            return shapely.relate_pattern(left.as_shapes[li], right.as_shapes[ri], pattern)
        case Topology(predicate):
            return getattr(shapely, predicate)(left.as_shapes[li], right.as_shapes[ri])
        case Near(limit=limit, metric=metric):
            return _distances(metric, left, li, right, ri) <= limit
    raise AssertionError(place)


def _distances(metric: str, left: Places, li: Ints, right: Places, ri: Ints) -> Floats:
    if metric == "sphere":
        (x, y), (other_x, other_y) = left.xy, right.xy
        pairs = zip(x[li], y[li], other_x[ri], other_y[ri], strict=True)
        return np.fromiter((great_circle(*pair) for pair in pairs), float, len(li))
    distances: Floats = shapely.distance(left.as_shapes[li], right.as_shapes[ri])
    return distances


def set_aside(
    equal: Equal | None, place: Place | None, left: Columns, *, srid: int
) -> dict[str, int]:
    """How many records cannot match, by reason, where another than a `Matcher` answers."""
    troubles = _null_keys(left, equal) if equal else {}
    return troubles if place is None else troubles | _asked(place, left, srid).troubles


def _asked(place: Place, left: Columns, srid: int) -> Places:
    """The records' places, as `place` needs them."""
    places = places_of(left, place.left, srid=srid)
    on_sphere = isinstance(place, (Near, Nearest)) and place.metric == "sphere"
    return _on_sphere(places) if on_sphere else places


def _null_keys(left: Columns, equal: Equal | None) -> dict[str, int]:
    """How many records have a key that is null or NaN."""
    assert equal is not None
    count = int(np.count_nonzero(keys.missing([left[name] for name, _ in equal.pairs])))
    return {"null_key": count} if count else {}


def _of_rows(pairs: Pairs, rows: Ints) -> Pairs:
    """Pairs numbered within `rows`, numbered as the batch is."""
    return replace(pairs, left=rows[pairs.left])


def _merged(*parts: Pairs) -> Pairs:
    """Parts that share no left row, in the order of the left rows."""
    left = np.concatenate([part.left for part in parts])
    order = np.argsort(left, kind="stable")
    distances: Sequence[Floats] = [part.distance for part in parts if part.distance is not None]
    return Pairs(
        left[order],
        np.concatenate([part.right for part in parts])[order],
        np.concatenate(distances)[order] if distances else None,
    )
