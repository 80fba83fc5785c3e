"""The table of places as rows to broadcast: one per key, with the index in arrays.

key0, key1, ...   what the event's columns must equal
space             the numbers that the cell of a place is computed from
cells             array: cell -> list
lists             array: list -> candidates, see `rivermouth.kernels.spatial.sql_grid`
rows              array: table row -> what is brought from it
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import shapely

from rivermouth.errors import TableInvalid
from rivermouth.kernels.arrays import Floats, Ints, Shapes
from rivermouth.kernels.spatial import cells, sql_grid
from rivermouth.kernels.spatial.geometry import Geometries
from rivermouth.kernels.table_join.by_geometry import table_geometries
from rivermouth.kernels.table_join.matching import Columns, Index
from rivermouth.spark.engines.native.rows import (
    Groups,
    KeyedRows,
    groups_of,
    list_array,
    list_of,
    sure,
)
from rivermouth.spec.conditions import DWithin, Point, Topology

SPACE, CELLS, LISTS = "space", "cells", "lists"

_GRID = ("x0", "y0", "width", "height", "across", "along", "x1", "y1")
_EDGE = pa.struct([sure(end, pa.float64()) for end in ("ax", "ay", "bx", "by")])
_POLYGON = pa.struct(
    [
        pa.field("row", pa.int32()),
        pa.field("edges", list_of(_EDGE)),
    ]
)
_POINT = pa.struct([pa.field("row", pa.int32()), sure("x", pa.float64()), sure("y", pa.float64())])

#: edges of a key's polygons up to which they are put into one cell
_FEW_EDGES = 64


@dataclass(frozen=True)
class PlaceRows(KeyedRows):
    """Rows for a place.

    Parameters
    ----------
    place
        The place.
    none
        Whether events that match nothing come out beside those that do (a left join).
    """

    place: Topology | DWithin
    none: bool

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        candidate = _POINT if isinstance(self.place, DWithin) else _POLYGON
        return pa.schema(
            [
                *self.key_fields,
                sure(SPACE, pa.struct([sure(n, pa.float64()) for n in space_of(self.place)])),
                sure(CELLS, list_of(pa.int32())),
                sure(LISTS, list_of(list_of(candidate))),
                *self.row_fields,
            ]
        )

    def make(self, table: Columns, index: Index | None = None) -> pa.RecordBatch:
        """The rows, as `KeyedRows.make` gives them."""
        groups = groups_of(table, self.equal)
        if not groups.count:
            return pa.RecordBatch.from_pylist([], self.schema)
        parts = [
            *self.keys_of(table, groups.rows[groups.start[:-1]]),
            *self._index(table, groups, index),
            *self.rows_of(table, groups),
        ]
        return pa.RecordBatch.from_arrays(parts, schema=self.schema)

    def _index(self, table: Columns, groups: Groups, index: Index | None) -> list[pa.Array]:
        if isinstance(self.place, DWithin):
            points = _points(self.place, table, groups, none=self.none, where=self.table)
            self._check_lists(table, points.lists)
            return _points_arrow(self.place, points, groups.count)
        polygons = _polygons(self.place, table, groups, index, none=self.none, where=self.table)
        self._check_lists(table, polygons.lists, len(polygons.ends))
        return _polygons_arrow(polygons)

    def _check_lists(self, table: Columns, found: sql_grid.Lists, edges: int = 0) -> None:
        # lists and candidates are an array and a struct of two or three fields, edges one of four
        size = 4 * len(found.cell) + 24 * len(found.start) + 64 * len(found.row) + 48 * edges
        self.check_size(table, size)


def space_of(place: Topology | DWithin) -> tuple[str, ...]:
    """The names of the numbers that a cell is computed from."""
    if not isinstance(place, DWithin):
        return _GRID
    axes = range(3 if place.metric == "sphere" else 2)
    return ("side", *(f"{end}{axis}" for end in ("low", "high") for axis in axes))


# -- polygons


def _polygons(
    place: Topology, table: Columns, groups: Groups, index: Index | None, *, none: bool, where: str
) -> sql_grid.Polygons:
    inside, boundary = cells.PREDICATES[place.predicate]
    shapes = _only_polygons(place, table, where)
    if not (inside or boundary):  # nothing is listed, and nothing is found
        shapes = np.full(len(shapes), None, dtype=object)
    elif groups.count == 1 and index is not None and index.kind == "cells":
        made = cells.Cells(**index.part("spatial"))  # type: ignore[arg-type]
        return sql_grid.of_cells(made, full=inside, none=none)
    return sql_grid.stack(
        [
            sql_grid.of_cells(_cells(shapes[groups.rows[low:high]]), full=inside, none=none)
            for low, high in zip(groups.start[:-1], groups.start[1:], strict=True)
        ]
    )


def _cells(shapes: Shapes) -> cells.Cells:
    few = shapely.get_num_coordinates(shapes).sum() <= _FEW_EDGES
    return sql_grid.one_cell(shapes) if few else cells.build(shapes)


def _only_polygons(place: Topology, table: Columns, where: str) -> Shapes:
    places = table_geometries(table, place.right, where=where)
    shapes = places.shapes
    if not cells.can_index(shapes):
        strange = next(s for s in shapes if s is not None and not cells.can_index(np.array([s])))
        raise TableInvalid(
            where,
            f"column {place.right!r} holds a {strange.geom_type}",
            there="plan='native' knows points in polygons only",
            todo="Use plan='workers', which knows every geometry.",
        )
    return shapes


def _polygons_arrow(made: sql_grid.Polygons) -> list[pa.Array]:
    grid = _numbers(dict(zip(_GRID, made.grid.T.copy(), strict=True)))
    edges = _numbers(dict(zip(_EDGE.names, made.ends.T.copy(), strict=True)))
    count = np.diff(made.edge_start)
    candidates = pa.StructArray.from_arrays(
        [
            _row(made.lists.row),
            list_array(made.edge_start, edges, mask=count == 0),
        ],
        fields=list(_POLYGON.fields),
    )
    return [grid, *_lists_arrow(made.lists, candidates)]


# -- points


def _points(
    place: DWithin, table: Columns, groups: Groups, *, none: bool, where: str
) -> sql_grid.Points:
    places = _only_points(place, table, where)
    group, number = groups.of_rows(len(places))
    sphere = place.metric == "sphere"
    usable = places.valid & (group >= 0)
    if not usable.any():
        x, y = np.empty(0), np.empty(0)
    else:
        places = places.on_sphere() if sphere else places
        usable &= places.valid
        x, y = (axis[usable] for axis in places.xy)
    return sql_grid.of_points(
        x, y, number[usable], group[usable], groups.count,
        limit=place.limit, sphere=sphere, none=none,
    )  # fmt: skip


def _only_points(place: DWithin, table: Columns, where: str) -> Geometries:
    places = table_geometries(table, place.right, where=where)
    if places.valid.any() and not places.is_points:
        assert not isinstance(place.right, Point)
        kinds = shapely.get_type_id(places.shapes)
        strange = places.shapes[np.flatnonzero(kinds > 0)[0]]
        raise TableInvalid(
            where,
            f"column {place.right!r} holds a {strange.geom_type}",
            there="plan='native' measures between points only",
            todo="Use plan='workers'"
            + (", which measures to every geometry." if place.metric == "planar" else "."),
        )
    return places


def _points_arrow(place: DWithin, made: sql_grid.Points, groups: int) -> list[pa.Array]:
    numbers = zip(space_of(place), (made.side, *made.low, *made.high), strict=True)
    space = _numbers({name: np.full(groups, number) for name, number in numbers})
    candidates = pa.StructArray.from_arrays(
        [_row(made.lists.row), pa.array(made.x), pa.array(made.y)], fields=list(_POINT.fields)
    )
    return [space, *_lists_arrow(made.lists, candidates)]


# -- arrays into Arrow


def _lists_arrow(made: sql_grid.Lists, candidates: pa.StructArray) -> list[pa.Array]:
    cell = list_array(made.cell_start, pa.array(made.cell.astype(np.int32)))
    return [cell, list_array(made.list_start, list_array(made.start, candidates))]


def _numbers(columns: dict[str, Floats]) -> pa.StructArray:
    fields = [sure(name, pa.float64()) for name in columns]
    return pa.StructArray.from_arrays([pa.array(c) for c in columns.values()], fields=fields)


def _row(row: Ints) -> pa.Array:
    return pa.array(row.astype(np.int32), mask=row == sql_grid.NONE)
