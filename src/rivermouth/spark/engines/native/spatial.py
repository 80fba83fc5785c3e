"""The events' side of a spatial join: the candidates of the event's cell, and the test of each.

events -> join with the index -> the list of the event's cell -> a row per candidate
       -> filter by the exact test -> the result's columns

A large index has several rows per key, each with a range of the cells. An event meets all of them,
and exactly one has its cell.
"""

from __future__ import annotations

import math

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (as everybody writes it)

from rivermouth.spark.engines.native import expressions
from rivermouth.spark.engines.native.columns import (
    codegen_barrier,
    event_columns,
    hidden,
    projected,
    quoted,
    with_index,
)
from rivermouth.spark.engines.native.expressions import Sql
from rivermouth.spark.engines.native.index_rows import CELLS, LISTS, SPACE
from rivermouth.spark.engines.native.rows import ROWS
from rivermouth.spark.validation.join_table import Join
from rivermouth.spec.conditions import DWithin, Point, Topology, is_on_sphere, named

_X, _Y, _LIST, _OWNS = hidden("x"), hidden("y"), hidden("list"), hidden("owns")


def join_spatial(events: DataFrame, join: Join, index: DataFrame) -> DataFrame:
    """The join, `index` being the frame of `SpatialRows`."""
    listed = _listed(events, join, index)
    return _pairs(listed, join) if join.how in ("inner", "left") else _events(listed, join)


def _listed(events: DataFrame, join: Join, index: DataFrame) -> DataFrame:
    """The events with their coordinates, the list of their cell, and the rows it refers to."""
    joined = with_index(
        events.select("*", *_coordinates(join)), join, index, present=f"NOT isnan({_X})"
    )
    number = f"get({hidden(CELLS)}, {_cell(join)} - int({hidden(SPACE)}.first))"
    columns = {
        _LIST: f"get({hidden(LISTS)}, {number})",
        # whether it is this row of the index that has the event's cell, if there is any row
        _OWNS: f"{hidden(CELLS)} IS NULL OR {number} IS NOT NULL",
    }
    return joined.selectExpr(
        *event_columns(join),
        *(_X, _Y),
        *([hidden(ROWS)] if join.columns else []),
        *(f"{value} AS {name}" for name, value in columns.items()),
    )


def _coordinates(join: Join) -> tuple[Column, Column]:
    """The events' coordinates as doubles, NaN where they are null.

    On the sphere a point has one pair of coordinates: longitudes in [-180, 180), 0 at the poles.
    """
    assert join.spatial is not None
    assert isinstance(join.spatial.left, Point)
    nan = F.lit(math.nan)  # in SQL it is text, cast, and that may be null as far as Spark knows
    x, y = (
        F.coalesce(F.col(quoted(name)).cast("double"), nan) for name in named(join.spatial.left)
    )
    if is_on_sphere(join.spatial):
        turned = x % 360
        turned = (
            F.when(turned >= 180, turned - 360).when(turned < -180, turned + 360).otherwise(turned)
        )
        x = F.when(F.abs(y) == 90, 0.0 * x).otherwise(turned)
    return x.alias(_X), y.alias(_Y)


def _pairs(listed: DataFrame, join: Join) -> DataFrame:
    """A row per candidate that passes its test, with its projected columns."""
    candidate = hidden("candidate")
    each = codegen_barrier(listed, f"explode_outer({_LIST})", candidate)
    has_row = f"{candidate}.row IS NOT NULL"
    if join.how == "left":
        # the candidate without a row stands for the event that no other candidate passes for
        tested = f"CASE WHEN {has_row} THEN array({candidate}) ELSE {_LIST} END"
        passes = f"CASE WHEN {_OWNS} THEN {_any(tested, join)} = ({has_row}) ELSE false END"
    else:
        passes = f"{has_row} AND {_test(candidate, join)}"
    row = f"get({hidden(ROWS)}, {candidate}.row)" if join.columns else "NULL"
    kept = codegen_barrier(each.filter(passes), f"explode(array({row}))", hidden("row"))
    return kept.selectExpr(*event_columns(join), *projected(join, f"{hidden('row')}.c"))


def _events(listed: DataFrame, join: Join) -> DataFrame:
    """The events that some candidate passes for, or none does."""
    whole = codegen_barrier(listed, f"explode(array({_LIST}))", hidden("candidates"))
    found = _any(hidden("candidates"), join)
    passes = found if join.how == "semi" else f"CASE WHEN {_OWNS} THEN NOT {found} ELSE false END"
    kept = codegen_barrier(whole.filter(passes), "explode(array(NULL))", hidden("row"))
    return kept.selectExpr(*event_columns(join))


def _any(candidates: Sql, join: Join) -> Sql:
    """Whether any candidate with a row passes its test; false where there is no list."""
    passes = f"c.row IS NOT NULL AND {_test('c', join)}"
    return f"coalesce(exists({candidates}, c -> {passes}), false)"


def _cell(join: Join) -> Sql:
    if not isinstance(join.spatial, DWithin):
        return expressions.grid_cell(hidden(SPACE), _X, _Y)
    position = expressions.unit_vector(_X, _Y) if is_on_sphere(join.spatial) else (_X, _Y)
    return expressions.hashed_cell(hidden(SPACE), position)


def _test(candidate: Sql, join: Join) -> Sql:
    match join.spatial:
        case DWithin(limit=limit, metric=metric):
            return expressions.is_near(candidate, _X, _Y, limit, sphere=metric == "sphere")
        case Topology(predicate):
            return expressions.in_polygon(candidate, _X, _Y, predicate)
    raise AssertionError(join.spatial)
