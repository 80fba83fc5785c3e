"""The table's spatial index as rows to broadcast, in arrays; of a large index several per key.

key0, key1, ...   what the event's columns must equal
space             the numbers that an event's cell is computed from
cells             array: cell -> list
lists             array: list -> candidates, see `rivermouth.kernels.spatial.sql_grid`
rows              array: table row -> its projected columns
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import shapely
from shapely.geometry.base import BaseGeometry

from rivermouth.errors import TableInvalid
from rivermouth.kernels.spatial import cells, sql_grid
from rivermouth.kernels.spatial.geometry import Geometries
from rivermouth.kernels.spatial.sql_grid import SqlGrid
from rivermouth.kernels.table_join.by_geometry import table_geometries
from rivermouth.kernels.table_join.matching import Columns, Index
from rivermouth.spark.engines.native.rows import (
    Groups,
    KeyedRows,
    groups_of,
    list_array,
    list_of,
    non_null,
)
from rivermouth.spec.conditions import DWithin, Topology

SPACE, CELLS, LISTS = "space", "cells", "lists"

_GRID = ("x0", "y0", "width", "height", "across", "along", "x1", "y1", "first")
_EDGE = pa.struct([non_null(end, pa.float64()) for end in ("ax", "ay", "bx", "by")])
_POLYGON = pa.struct([pa.field("row", pa.int32()), pa.field("edges", list_of(_EDGE))])
_POINT = pa.struct(
    [pa.field("row", pa.int32()), non_null("x", pa.float64()), non_null("y", pa.float64())]
)

#: edges of a key's polygons up to which they are put into one cell
_FEW_EDGES = 64
#: what a row should take in Spark, about: an index that takes more is split over several
PART_BYTES = 96 << 20


@dataclass(frozen=True)
class SpatialRows(KeyedRows):
    """Rows for a spatial condition.

    Parameters
    ----------
    spatial
        The condition.
    none
        Whether events that match nothing come out beside those that do (a left join).
    part_bytes
        What a row should take in Spark, about.
    """

    spatial: Topology | DWithin
    none: bool
    part_bytes: int

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        candidate = _POINT if isinstance(self.spatial, DWithin) else _POLYGON
        space = pa.struct([non_null(name, pa.float64()) for name in space_of(self.spatial)])
        return pa.schema(
            [
                *self.key_fields,
                non_null(SPACE, space),
                non_null(CELLS, list_of(pa.int32())),
                non_null(LISTS, list_of(list_of(candidate))),
                *self.row_fields,
            ]
        )

    def make(self, table: Columns, index: Index | None = None) -> pa.RecordBatch:
        """The rows, as `KeyedRows.make` gives them."""
        groups = groups_of(table, self.keys)
        if not groups.count:
            return pa.RecordBatch.from_pylist([], self.schema)
        geometries = table_geometries(table, self.spatial.right, where=self.table)
        if isinstance(self.spatial, DWithin):
            grid = self._points(self.spatial, geometries, groups)
        else:
            grid = self._polygons(self.spatial, geometries, groups, index)
        first = groups.rows[groups.start[:-1]]
        sizes = grid.part_bytes + self.row_bytes(table, groups)
        if self.part_bytes < sizes.max() and sizes.sum() <= self.most_bytes:
            pieces = np.ceil(sizes / self.part_bytes).astype(np.int64)
            grid, part, rows = grid.split(pieces)
            groups, first = groups.parts(part, rows), first[part]
            sizes = grid.part_bytes + self.row_bytes(table, groups)
        self.check_size(sizes)
        columns = [
            *self.keys_of(table, first), *_arrow(self.schema, grid), *self.rows_of(table, groups)
        ]  # fmt: skip
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _polygons(
        self, spatial: Topology, geometries: Geometries, groups: Groups, index: Index | None
    ) -> SqlGrid:
        inside, boundary = cells.PREDICATES[spatial.predicate]
        shapes = geometries.shapes
        if not cells.can_index(shapes):
            other = next(s for s in shapes if s is not None and not cells.can_index(np.array([s])))
            raise self._unsuitable(other, "finds points in polygons only", ", for every geometry.")
        if not (inside or boundary):  # nothing is listed, and nothing matches
            shapes = np.full(len(shapes), None, dtype=object)
        elif groups.count == 1 and index is not None and index.kind == "cells":
            stored = cells.Cells(**index.part("spatial"))  # type: ignore[arg-type]
            return sql_grid.polygon_grid(stored, full=inside, none=self.none)
        parts = []
        for low, high in zip(groups.start[:-1], groups.start[1:], strict=True):
            own = shapes[groups.rows[low:high]]
            few = shapely.get_num_coordinates(own).sum() <= _FEW_EDGES
            built = sql_grid.one_cell(own) if few else cells.build(own)
            parts.append(sql_grid.polygon_grid(built, full=inside, none=self.none))
        return sql_grid.stack(parts)

    def _points(self, spatial: DWithin, geometries: Geometries, groups: Groups) -> SqlGrid:
        sphere = spatial.metric == "sphere"
        if geometries.valid.any() and not geometries.is_points:
            other = geometries.shapes[np.flatnonzero(shapely.get_type_id(geometries.shapes) > 0)[0]]
            todo = "." if sphere else ", which measures to every geometry."
            raise self._unsuitable(other, "measures between points only", todo)
        group, number = groups.of_rows(len(geometries))
        geometries = geometries.on_sphere() if sphere else geometries
        rows = np.flatnonzero(geometries.valid & (group >= 0))
        x, y = geometries.xy if len(rows) else (np.empty(0), np.empty(0))
        return sql_grid.point_grid(
            x[rows], y[rows], number[rows], group[rows], groups.count,
            limit=spatial.limit, sphere=sphere, none=self.none,
        )  # fmt: skip

    def _unsuitable(self, other: BaseGeometry, there: str, todo: str) -> TableInvalid:
        return TableInvalid(
            self.table,
            f"column {self.spatial.right!r} holds a {other.geom_type}",
            there=f"plan='native' {there}",
            todo=f"Use plan='workers'{todo}",
        )


def space_of(spatial: Topology | DWithin) -> tuple[str, ...]:
    """The names of the numbers that a cell is computed from."""
    if not isinstance(spatial, DWithin):
        return _GRID
    axes = range(3 if spatial.metric == "sphere" else 2)
    corners = (f"{end}{axis}" for end in ("low", "high") for axis in axes)
    return ("side", *corners, "count", "first")


def _arrow(schema: pa.Schema, grid: SqlGrid) -> list[pa.Array]:
    """The columns space, cells and lists."""
    candidate = schema.field(LISTS).type.value_type.value_type
    row = pa.array(grid.row.astype(np.int32), mask=grid.row == sql_grid.NONE)
    if candidate == _POLYGON:
        no_edges = np.diff(grid.value_start) == 0
        values = [list_array(grid.value_start, _structs(_EDGE, grid.values), mask=no_edges)]
    else:
        values = [pa.array(axis) for axis in grid.values.T.copy()]
    candidates = pa.StructArray.from_arrays([row, *values], fields=list(candidate.fields))
    return [
        _structs(schema.field(SPACE).type, grid.space),
        list_array(grid.cell_start, pa.array(grid.cell.astype(np.int32))),
        list_array(grid.list_start, list_array(grid.start, candidates)),
    ]


def _structs(dtype: pa.StructType, values: np.ndarray) -> pa.StructArray:
    """A struct of doubles per row of `values`."""
    return pa.StructArray.from_arrays(
        [pa.array(column) for column in values.T.copy()], fields=list(dtype.fields)
    )
