"""Pairs by geometry: which index serves a table, how it is built, and how it is probed.

========  ===========================================================  =======================
index     for                                                          stored as
========  ===========================================================  =======================
cells     points against polygons                                      arrays, memory-mapped
rtree     the same, paper C's two-level R-tree; only by name           arrays, memory-mapped
kdtree    distances between points, plane and sphere                   arrays, memory-mapped
edgetree  distances to lines and polygons, plane and sphere            arrays, memory-mapped
strtree   everything else                                              built by each worker
========  ===========================================================  =======================

A stored index serves the probes it is made for; others (a polygon among points) go to the STRtree,
in the same call.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import shapely

from rivermouth.errors import PlanError, TableInvalid
from rivermouth.kernels.arrays import Bytes, Codes, Floats, Ints, has_bit, packed_bits
from rivermouth.kernels.keys import key_index
from rivermouth.kernels.papers import rtree
from rivermouth.kernels.spatial import cells, edge_tree, kdtree
from rivermouth.kernels.spatial.geometry import Geometries, geometries_of
from rivermouth.kernels.spatial.sphere import great_circles
from rivermouth.kernels.spatial.strtree import StrTree, may_be_disjoint, nearest_of, within
from rivermouth.kernels.table_join.pairs import (
    Arrays,
    Columns,
    Pairs,
    merged,
    of_rows,
    selected,
    without,
)
from rivermouth.spec.conditions import (
    DWithin,
    Geometry,
    Nearest,
    Spatial,
    Topology,
    is_on_sphere,
    named,
)

#: mean rows per key up to which pairs of equal keys are made first and tested one by one
_FEW = 16
#: edges tested per point, in the mean, beyond which an STRtree is better than cells
_MOST_EDGES = 400
#: the indexes that are kept as arrays
_TYPES: dict[str, Any] = {
    "cells": cells.Cells,
    "rtree": rtree.TwoLevelRTree,
    "kdtree": kdtree.KdTree,
    "edgetree": edge_tree.EdgeTree,
}


def geometries_for(
    spatial: Spatial, columns: Columns, geometry: Geometry, srid: int = 0
) -> Geometries:
    """The geometries that `geometry` names, as `spatial` needs them of either side."""
    column = geometries_of(columns, geometry, srid=srid)
    return column.on_sphere() if is_on_sphere(spatial) else column


def table_geometries(
    columns: Columns, geometry: Geometry, *, where: str, first_row: int = 0
) -> Geometries:
    """The table's geometries; unreadable and invalid ones are an error that names them.

    `first_row` is the number of the first row, where others came before these.
    """
    column = geometries_of(columns, geometry)
    counts = column.reject_counts
    if broken := counts.get("unreadable", 0) + counts.get("invalid", 0):
        assert isinstance(geometry, str)
        assert column.parsed is not None
        shapes, null = column.parsed, columns[geometry].is_null().to_numpy(zero_copy_only=False)
        row = np.flatnonzero((shapely.is_missing(shapes) | ~shapely.is_valid(shapes)) & ~null)[0]
        reason = "not WKB" if shapes[row] is None else shapely.is_valid_reason(shapes[row])
        raise TableInvalid(
            where,
            f"{broken} geometries of column {geometry!r} are not valid",
            there=f"the first is row {first_row + row}: {reason}",
            todo="Repair them (shapely.make_valid, ST_MakeValid) or leave them out.",
        )
    return column


def prepare(
    spatial: Spatial, columns: Columns, *, where: str, index: str | None = None
) -> tuple[str, Arrays]:
    """The kind and the arrays of the index for `spatial`; `index` overrides the choice."""
    column = table_geometries(columns, spatial.right, where=where)
    kinds, sphere = _kinds(spatial, column), is_on_sphere(spatial)
    if sphere:
        column = drawn_on_sphere(column, spatial, where=where)
    if index is not None and index not in kinds:
        raise PlanError(
            where,
            f"index={index!r} cannot serve this condition and table",
            there=f"{spatial} on {'points' if column.is_points else 'shapes'}",
            todo=f"Leave index out, or use one of {list(kinds)}.",
        )
    kind = index or kinds[0]
    if kind == "cells":
        built = cells.build(column.shapes)
        if index is None and built.mean_edges_tested() > _MOST_EDGES:
            return "strtree", {}
        return kind, vars(built)
    if kind == "edgetree":
        if not (sphere or edge_tree.can_index(column.shapes)):
            return "strtree", {}
        return kind, vars(edge_tree.build(column.shapes, sphere=sphere))
    if kind == "rtree":
        return kind, vars(rtree.build(column.shapes))
    if kind == "kdtree":
        rows = np.flatnonzero(column.valid)
        x, y = column.xy if len(rows) else (np.empty(0), np.empty(0))
        return kind, vars(kdtree.build(x[rows], y[rows], rows, sphere=sphere))
    return kind, {}


def drawn_on_sphere(column: Geometries, spatial: Spatial, *, where: str) -> Geometries:
    """The table's geometries on the sphere.

    Edges of which it is not known along which great circle they run are an error.
    """
    drawn = column.shapes_on_sphere()
    if not (count := drawn.reject_counts.get("ambiguous", 0)):
        return drawn
    raise TableInvalid(
        where,
        f"{count} shapes of column {spatial.right!r} have an edge between opposite points of the "
        "sphere, or around all of it",
        there="an edge is the shorter arc of a great circle, and there is none",
        todo="Add vertices along the edge.",
    )


def _kinds(spatial: Spatial, column: Geometries) -> tuple[str, ...]:
    """The indexes that can serve `spatial` on such a table, best first."""
    if isinstance(spatial, (DWithin, Nearest)):
        is_points = column.is_points or not column.valid.any()
        kind = "kdtree" if is_points else "edgetree"
        return (kind,) if is_on_sphere(spatial) else (kind, "strtree")
    if spatial.predicate not in cells.PREDICATES or column.is_points:
        return ("strtree",)
    return ("cells", "strtree", "rtree") if cells.can_index(column.shapes) else ("strtree",)


class SpatialMatcher:
    """A spatial condition over one table, to be probed batch by batch.

    Parameters
    ----------
    spatial
        The spatial condition.
    table
        The table's columns that it names.
    kind, arrays
        What `prepare` made.
    keys
        The table's keys, where the condition has keys besides.
    srid
        The table's reference system, 0 where it is not known.
    """

    def __init__(
        self,
        spatial: Spatial,
        table: Columns,
        kind: str,
        arrays: Arrays,
        *,
        keys: key_index.KeyIndex | None = None,
        srid: int = 0,
    ) -> None:
        self._spatial, self._table, self._kind, self._arrays = spatial, table, kind, arrays
        self._known, self._srid = keys, srid
        self._groups: dict[int, SpatialMatcher] = {}

    def match(self, left: Columns, group: Codes | None, gone: Bytes | None = None) -> Pairs:
        """The pairs of equal `group`, if there are any, by left row, then table row or distance.

        Table rows in the set `gone` are not there.
        """
        probe = geometries_for(self._spatial, left, self._spatial.left, self._srid)
        pairs = self._live(probe, gone) if group is None else self._by_both(probe, group, gone)
        return replace(pairs, reject_counts=probe.reject_counts)

    # -- geometries alone

    def _live(self, probe: Geometries, gone: Bytes | None) -> Pairs:
        """The pairs with rows that are not gone; the k nearest of these, however many are."""
        if gone is None or not isinstance(self._spatial, Nearest):
            return without(self._by_geometry(probe), gone)
        wanted = asked = self._spatial.k
        rows = np.arange(len(probe.valid))
        found = [Pairs(*(np.empty(0, np.int64),) * 2, np.empty(0))]
        while len(rows):  # those that lack rows are asked again for more
            pairs = self._by_geometry(probe.take(rows), asked)
            live = without(pairs, gone)
            count = np.bincount(live.left, minlength=len(rows))
            done = (count >= wanted) | (np.bincount(pairs.left, minlength=len(rows)) < asked)
            rank = np.arange(len(live.left)) - np.searchsorted(live.left, live.left)
            found.append(of_rows(selected(live, done[live.left] & (rank < wanted)), rows))
            rows, asked = rows[~done], 2 * asked
        return merged(*found)

    def _by_geometry(self, probe: Geometries, k: int | None = None) -> Pairs:
        """Points are looked up in the stored index, other geometries in the STRtree.

        For `nearest` the `k` nearest rows, None: as many as the condition says.
        """
        if self._kind == "strtree":
            return self._search(k, self._tree, probe)
        points = self._indexable(probe)
        rows = np.flatnonzero(points.valid)
        x, y = points.xy
        if len(rows) < len(x):
            x, y = x[rows], y[rows]
        pairs = of_rows(self._search(k, self._index, x, y), rows)
        others = np.flatnonzero(probe.valid & ~points.valid)
        if not len(others):
            return pairs
        return merged(pairs, of_rows(self._search(k, self._tree, probe.take(others)), others))

    def _indexable(self, probe: Geometries) -> Geometries:
        """The points that the stored index can be probed with."""
        points = probe.only_points()
        if self._kind == "edgetree":
            x, y = points.xy
            small = (np.abs(x) < edge_tree.LARGE) & (np.abs(y) < edge_tree.LARGE)
            if not small[points.valid].all():
                return replace(points, valid=points.valid & small)
        return points

    def _search(self, more: int | None, index: Any, *probe: Any) -> Pairs:
        """Pairs of points (x, y) from a stored index, or of a geometry column from the STRtree."""
        match self._spatial:
            case Topology(predicate, pattern=None):
                return Pairs(*index.match(*probe, predicate))
            case Topology(predicate, pattern=pattern):
                return Pairs(*index.match(*probe, predicate, pattern))
            case DWithin(limit=limit):
                return Pairs(*index.within(*probe, limit))
            case Nearest(k=k, limit=limit):
                return Pairs(*index.nearest(*probe, more or k, limit))

    # -- geometries and keys

    def _by_both(self, probe: Geometries, group: Codes, gone: Bytes | None) -> Pairs:
        """Few rows per key: pairs of equal keys, tested; many: geometries first, keys compared."""
        many = len(self._keys.rows) > _FEW * max(1, self._keys.count)
        if many and isinstance(self._spatial, Nearest):
            return self._nearest_by_group(probe, group, gone)
        if many and not holds_for_disjoint(self._spatial):
            pairs = self._live(probe, gone)
            same = (group[pairs.left] >= 0) & (group[pairs.left] == self._keys.group[pairs.right])
            return Pairs(pairs.left[same], pairs.right[same])
        li, ri = self._keys.expand(np.where(probe.valid, group, key_index.NONE))
        valid = self._geometries.valid[ri]
        if gone is not None:
            valid &= ~has_bit(gone, ri)
        li, ri = li[valid], ri[valid]
        if isinstance(self._spatial, Nearest):
            distance = self._distances(probe, li, ri)
            keep, distance = nearest_of(li, ri, distance, self._spatial.k, self._spatial.limit)
            return Pairs(li[keep], ri[keep], distance)
        keep = self._holds(self._spatial, probe, li, ri)
        return Pairs(li[keep], ri[keep])

    def _holds(self, spatial: Topology | DWithin, probe: Geometries, li: Ints, ri: Ints) -> Any:
        """Whether each pair satisfies `spatial`, tested one by one."""
        if isinstance(spatial, DWithin) and is_on_sphere(spatial):
            return self._distances(probe, li, ri) <= spatial.limit
        left, right = probe.shapes[li], self._geometries.shapes[ri]
        if isinstance(spatial, DWithin):
            return within(left, right, spatial.limit)
        if spatial.pattern is not None:
            return shapely.relate_pattern(left, right, spatial.pattern)
        return getattr(shapely, spatial.predicate)(left, right)

    def _distances(self, probe: Geometries, li: Ints, ri: Ints) -> Floats:
        """How far the two of each pair are apart."""
        if is_on_sphere(self._spatial):
            x, y = probe.xy
            if not self._geometries.is_points:
                return self._index.distances(x[li], y[li], ri)  # type: ignore[no-any-return]
            other_x, other_y = self._geometries.xy
            return great_circles(x[li], y[li], other_x[ri], other_y[ri])
        distances: Floats = shapely.distance(probe.shapes[li], self._geometries.shapes[ri])
        return distances

    def _nearest_by_group(self, probe: Geometries, group: Codes, gone: Bytes | None) -> Pairs:
        """An index per key, built when the key is first probed."""
        found = [Pairs(*(np.empty(0, np.int64),) * 2, np.empty(0))]
        for key in np.unique(group[(group >= 0) & probe.valid]):
            rows = np.flatnonzero((group == key) & probe.valid)
            members = self._keys.rows[self._keys.start[key] : self._keys.start[key + 1]]
            lost = None if gone is None else packed_bits(has_bit(gone, members))
            pairs = self._group(int(key), members)._live(probe.take(rows), lost)
            found.append(replace(of_rows(pairs, rows), right=members.astype(np.int64)[pairs.right]))
        return merged(*found)

    def _group(self, key: int, members: npt.NDArray[np.integer]) -> SpatialMatcher:
        if key not in self._groups:
            rows = pa.array(members)
            part = {name: self._table[name].take(rows) for name in named(self._spatial.right)}
            built = prepare(self._spatial, part, where="nearest")
            self._groups[key] = SpatialMatcher(self._spatial, part, *built)
        return self._groups[key]

    # -- what is opened when it is first needed

    @property
    def _keys(self) -> key_index.KeyIndex:
        assert self._known is not None
        return self._known

    @cached_property
    def _geometries(self) -> Geometries:
        column = geometries_of(self._table, self._spatial.right)
        return column.shapes_on_sphere() if is_on_sphere(self._spatial) else column

    @cached_property
    def _tree(self) -> StrTree:
        return StrTree(self._geometries.shapes)

    @cached_property
    def _index(self) -> Any:
        return _TYPES[self._kind](**self._arrays)


def holds_for_disjoint(spatial: Spatial) -> bool:
    """Whether geometries without a common point can satisfy `spatial`: no index helps then."""
    return isinstance(spatial, Topology) and (
        spatial.predicate == "disjoint"
        or (spatial.pattern is not None and may_be_disjoint(spatial.pattern))
    )
