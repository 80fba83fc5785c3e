"""The rows that the native plan broadcasts: the table and its index, as Arrow.

For a place there is one row per key (one in all where the condition has no `equal`):

    key0, key1, ...   what the event's columns must equal
    space             the numbers that the cell of a place is computed from
    cells             array: cell -> list
    lists             array: list -> candidates, see `rivermouth.kernels.lists`
    rows              array: table row -> what is brought from it

and for `equal` alone one per row of the table: its keys, then what is brought.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import shapely

from rivermouth.errors import TableInvalid
from rivermouth.kernels import cells, keys, lists
from rivermouth.kernels.geometry import Floats, Places, Shapes
from rivermouth.kernels.matching import Columns, Index, table_places
from rivermouth.kernels.sphere import is_on_sphere
from rivermouth.spark import types
from rivermouth.spark.checking import WHERE, Join
from rivermouth.spec.conditions import Equal, Near, Place, Point, Topology

Ints = npt.NDArray[np.int64]

SPACE, CELLS, LISTS, ROWS = "space", "cells", "lists", "rows"


def _sure(name: str, kind: pa.DataType) -> pa.Field:
    """A field that is never null: Spark's code is half as long for it."""
    return pa.field(name, kind, nullable=False)


def _list_of(kind: pa.DataType) -> pa.DataType:
    return pa.list_(_sure("element", kind))


_GRID = ("x0", "y0", "width", "height", "across", "along", "x1", "y1")
_EDGE = pa.struct([_sure(end, pa.float64()) for end in ("ax", "ay", "bx", "by")])
_POLYGON = pa.struct(
    [
        pa.field("row", pa.int32()),
        pa.field("edges", _list_of(_EDGE)),
    ]
)
_POINT = pa.struct(
    [pa.field("row", pa.int32()), _sure("x", pa.float64()), _sure("y", pa.float64())]
)

#: edges of a key's polygons up to which they are put into one cell
_FEW_EDGES = 64
#: what an index may take in the JVM, where a row must stay below 2 GiB
_MOST_BYTES = 3 << 29


@dataclass(frozen=True)
class IndexRows:
    """What the rows are made for; a value that travels to a worker.

    Parameters
    ----------
    table
        The table's name, for messages.
    equal, place
        The parts of the condition.
    none
        Whether events that match nothing come out beside those that do (a left join).
    keys
        The types of the keys.
    brought
        What is brought: (name in the table, type).
    """

    table: str
    equal: Equal | None
    place: Place | None
    none: bool
    keys: tuple[pa.DataType, ...]
    brought: tuple[tuple[str, pa.DataType], ...]

    @classmethod
    def of(cls, join: Join) -> IndexRows:
        """What `join` needs."""
        pairs = join.equal.pairs if join.equal else ()
        return cls(
            table=join.source.name,
            equal=join.equal,
            place=join.place,
            none=join.how == "left",
            keys=tuple(_type(join, right) for _, right in pairs) or (pa.int64(),),
            brought=tuple((old, _type(join, old)) for _, old in join.columns),
        )

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        keys = [(f"key{i}", kind) for i, kind in enumerate(self.keys)]
        brought = [(f"c{i}", kind) for i, (_, kind) in enumerate(self.brought)]
        if self.place is None:
            return pa.schema([*keys, *brought])
        near = isinstance(self.place, Near)
        candidate = _POINT if near else _POLYGON
        return pa.schema(
            [
                *keys,
                _sure(SPACE, pa.struct([_sure(n, pa.float64()) for n in space_of(self.place)])),
                _sure(CELLS, _list_of(pa.int32())),
                _sure(LISTS, _list_of(_list_of(candidate))),
                *([_sure(ROWS, _list_of(pa.struct(brought)))] if brought else []),
            ]
        )

    def make(self, table: Columns, index: Index | None = None) -> pa.RecordBatch:
        """The rows, of the table's columns and of the index they were kept with.

        Raises
        ------
        TableInvalid
            Where the table holds places that this plan has no form for.
        """
        groups = _groups(table, self.equal)
        if self.place is None:
            columns = [*self._keys(table, groups.rows), *self._brought(table, groups.rows)]
            return pa.RecordBatch.from_arrays(columns, schema=self.schema)
        if len(groups.start) == 1:
            return pa.RecordBatch.from_pylist([], self.schema)
        first = groups.rows[groups.start[:-1]]
        parts = [
            *(self._keys(table, first) if self.equal else [pa.array([0])]),
            *self._index(table, groups, index),
        ]
        if self.brought:
            kind = self.schema.field(ROWS).type.value_type
            rows = pa.StructArray.from_arrays(
                self._brought(table, groups.rows), fields=list(kind.fields)
            )
            parts.append(_list(groups.start, rows))
        return pa.RecordBatch.from_arrays(parts, schema=self.schema)

    def _keys(self, table: Columns, rows: Ints) -> list[pa.Array]:
        assert self.equal is not None
        taken = [table[right].take(pa.array(rows)) for _, right in self.equal.pairs]
        return [_cast(key, kind) for key, kind in zip(taken, self.keys, strict=True)]

    def _brought(self, table: Columns, rows: Ints) -> list[pa.Array]:
        return [_cast(table[old].take(pa.array(rows)), kind) for old, kind in self.brought]

    def _index(self, table: Columns, groups: _Groups, index: Index | None) -> list[pa.Array]:
        if isinstance(self.place, Near):
            points = _points(self.place, table, groups, none=self.none, where=self.table)
            self._check_size(table, points.lists)
            return _points_arrow(self.place, points, len(groups.start) - 1)
        assert isinstance(self.place, Topology)
        polygons = _polygons(self.place, table, groups, index, none=self.none, where=self.table)
        self._check_size(table, polygons.lists, len(polygons.ends))
        return _polygons_arrow(polygons)

    def _check_size(self, table: Columns, found: lists.Lists, edges: int = 0) -> None:
        rows = sum(table[old].nbytes for old, _ in self.brought)
        # lists and candidates are an array and a struct of two or three fields, edges one of four
        size = 4 * len(found.cell) + 24 * len(found.start) + 64 * len(found.row) + 48 * edges
        size += 2 * rows
        if size > _MOST_BYTES:
            raise TableInvalid(
                self.table,
                f"its index would be a row of about {size >> 20} MiB",
                there="Spark broadcasts it in each batch, and a row can have 2 GiB",
                todo="Use plan='workers', whose index is kept on disk and shared.",
            )


def space_of(place: Place) -> tuple[str, ...]:
    """The names of the numbers that a cell is computed from."""
    if not isinstance(place, Near):
        return _GRID
    axes = range(3 if place.metric == "sphere" else 2)
    return ("side", *(f"{end}{axis}" for end in ("low", "high") for axis in axes))


# -- the groups of a table


@dataclass(frozen=True)
class _Groups:
    """The rows of each key: in `rows` from one `start` to the next; all rows where no key is."""

    rows: Ints
    start: Ints

    def of_rows(self, count: int) -> tuple[Ints, Ints]:
        """For each of the table's `count` rows its group, NONE without, and its number in it."""
        group, number = np.full(count, lists.NONE), np.zeros(count, np.int64)
        sizes = np.diff(self.start)
        group[self.rows] = np.repeat(np.arange(len(sizes)), sizes)
        number[self.rows] = np.arange(len(self.rows)) - np.repeat(self.start[:-1], sizes)
        return group, number


def _groups(table: Columns, equal: Equal | None) -> _Groups:
    if equal is None:
        count = len(next(iter(table.values())))
        return _Groups(np.arange(count), np.array([0, count]))
    made = keys.build([table[right] for _, right in equal.pairs])
    return _Groups(made.rows, made.start)


# -- polygons


def _polygons(
    place: Topology, table: Columns, groups: _Groups, index: Index | None, *, none: bool, where: str
) -> lists.Polygons:
    inside, boundary = cells.ANSWERS[place.predicate]
    shapes = _only_polygons(place, table, where)
    if not (inside or boundary):  # nothing is listed, and nothing is found
        shapes = np.full(len(shapes), None, dtype=object)
    elif len(groups.start) == 2 and index is not None and index.kind == "cells":
        made = cells.Cells(**index.arrays)  # type: ignore[arg-type]
        return lists.of_cells(made, full=inside, none=none)
    return lists.stack(
        [
            lists.of_cells(_cells(shapes[groups.rows[low:high]]), full=inside, none=none)
            for low, high in zip(groups.start[:-1], groups.start[1:], strict=True)
        ]
    )


def _cells(shapes: Shapes) -> cells.Cells:
    few = shapely.get_num_coordinates(shapes).sum() <= _FEW_EDGES
    return lists.one_cell(shapes) if few else cells.build(shapes)


def _only_polygons(place: Topology, table: Columns, where: str) -> Shapes:
    places = table_places(table, place.right, where=where)
    shapes = places.as_shapes
    if not cells.can_index(shapes):
        strange = next(s for s in shapes if s is not None and not cells.can_index(np.array([s])))
        raise TableInvalid(
            where,
            f"column {place.right!r} holds a {strange.geom_type}",
            there="plan='native' knows points in polygons only",
            todo="Use plan='workers', which knows every geometry.",
        )
    return shapes


def _polygons_arrow(made: lists.Polygons) -> list[pa.Array]:
    grid = _numbers(dict(zip(_GRID, made.grid.T.copy(), strict=True)))
    edges = _numbers(dict(zip(_EDGE.names, made.ends.T.copy(), strict=True)))
    count = np.diff(made.edge_start)
    candidates = pa.StructArray.from_arrays(
        [
            _row(made.lists.row),
            _list(made.edge_start, edges, mask=count == 0),
        ],
        fields=list(_POLYGON.fields),
    )
    return [grid, *_lists_arrow(made.lists, candidates)]


# -- points


def _points(
    place: Near, table: Columns, groups: _Groups, *, none: bool, where: str
) -> lists.Points:
    places = _only_points(place, table, where)
    group, number = groups.of_rows(len(places))
    sphere = place.metric == "sphere"
    usable = places.ok & (group >= 0)
    if not usable.any():
        x, y = np.empty(0), np.empty(0)
    else:
        x, y = places.xy
        usable &= is_on_sphere(y) if sphere else True
        x, y = x[usable], y[usable]
    return lists.of_points(
        x, y, number[usable], group[usable], len(groups.start) - 1,
        limit=place.limit, sphere=sphere, none=none,
    )  # fmt: skip


def _only_points(place: Near, table: Columns, where: str) -> Places:
    places = table_places(table, place.right, where=where)
    if places.ok.any() and not places.are_points:
        assert not isinstance(place.right, Point)
        kinds = shapely.get_type_id(places.as_shapes)
        strange = places.as_shapes[np.flatnonzero(kinds > 0)[0]]
        raise TableInvalid(
            where,
            f"column {place.right!r} holds a {strange.geom_type}",
            there="plan='native' measures between points only",
            todo="Use plan='workers'"
            + (", which measures to every geometry." if place.metric == "planar" else "."),
        )
    return places


def _points_arrow(place: Near, made: lists.Points, groups: int) -> list[pa.Array]:
    numbers = zip(space_of(place), (made.side, *made.low, *made.high), strict=True)
    space = _numbers({name: np.full(groups, number) for name, number in numbers})
    candidates = pa.StructArray.from_arrays(
        [_row(made.lists.row), pa.array(made.x), pa.array(made.y)], fields=list(_POINT.fields)
    )
    return [space, *_lists_arrow(made.lists, candidates)]


# -- arrays into Arrow


def _lists_arrow(made: lists.Lists, candidates: pa.StructArray) -> list[pa.Array]:
    cell = _list(made.cell_start, pa.array(made.cell.astype(np.int32)))
    return [cell, _list(made.list_start, _list(made.start, candidates))]


def _numbers(columns: dict[str, Floats]) -> pa.StructArray:
    fields = [_sure(name, pa.float64()) for name in columns]
    return pa.StructArray.from_arrays([pa.array(c) for c in columns.values()], fields=fields)


def _row(row: Ints) -> pa.Array:
    return pa.array(row.astype(np.int32), mask=row == lists.NONE)


def _list(start: Ints, values: pa.Array, mask: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    return pa.ListArray.from_arrays(
        pa.array(start.astype(np.int32)),
        values,
        type=_list_of(values.type),
        mask=None if mask is None else pa.array(mask),
    )


def _type(join: Join, column: str) -> pa.DataType:
    """The type in which Spark expects a column of the table."""
    kind = types.to_spark(join.table.field(column).type, where=WHERE, column=column)
    return types.to_arrow(kind, where=WHERE, column=column)


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type == kind else column.cast(kind, safe=False)
