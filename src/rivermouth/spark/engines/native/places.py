"""The events' side of a join by places: the list of the event's cell, and the test of each.

events -> join with the index -> the list of the event's cell -> a row per candidate
       -> filter by the exact test -> the result's columns
"""

from __future__ import annotations

import math

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (as everybody writes it)

from rivermouth.spark.engines.native import expressions
from rivermouth.spark.engines.native.columns import (
    apart,
    brought,
    event_columns,
    hidden,
    quoted,
    with_index,
)
from rivermouth.spark.engines.native.expressions import Sql
from rivermouth.spark.engines.native.place_rows import CELLS, LISTS, SPACE
from rivermouth.spark.engines.native.rows import ROWS
from rivermouth.spark.validation.join_table import Join
from rivermouth.spec.conditions import DWithin, Point, Topology, named

_X, _Y = hidden("x"), hidden("y")


def join_places(events: DataFrame, join: Join, index: DataFrame) -> DataFrame:
    """The join, `index` being the frame of `place_rows`."""
    listed = _listed(events, join, index)
    return _pairs(listed, join) if join.how in ("inner", "left") else _events(listed, join)


def _listed(events: DataFrame, join: Join, index: DataFrame) -> DataFrame:
    """The events with their coordinates, the list of their cell, and the rows it speaks of."""
    joined = with_index(_located(events, join), join, index, present=f"NOT isnan({_X})")
    return joined.selectExpr(
        *event_columns(join),
        *(_X, _Y),
        *([hidden(ROWS)] if join.columns else []),
        f"get({hidden(LISTS)}, get({hidden(CELLS)}, {_cell(join)})) AS {hidden('list')}",
    )


def _located(events: DataFrame, join: Join) -> DataFrame:
    """The events with their coordinates as doubles, NaN where they are null.

    On the sphere a point has one pair of coordinates: longitudes in [-180, 180), 0 at the poles.
    """
    assert join.spatial is not None
    assert isinstance(join.spatial.left, Point)
    nan = F.lit(math.nan)  # in SQL it is text, cast, and that may be null as far as Spark knows
    x, y = (
        F.coalesce(F.col(quoted(name)).cast("double"), nan) for name in named(join.spatial.left)
    )
    if isinstance(join.spatial, DWithin) and join.spatial.metric == "sphere":
        turned = x % 360
        turned = (
            F.when(turned >= 180, turned - 360).when(turned < -180, turned + 360).otherwise(turned)
        )
        x = F.when(F.abs(y) == 90, 0.0 * x).otherwise(turned)
    return events.select("*", x.alias(_X), y.alias(_Y))


def _pairs(listed: DataFrame, join: Join) -> DataFrame:
    """A row per candidate that passes its test, with what is brought from it."""
    candidate, others = hidden("candidate"), hidden("list")
    each = apart(listed, f"explode_outer({others})", candidate)
    has_row = f"{candidate}.row IS NOT NULL"
    if join.how == "left":
        # the candidate without a row stands for the event that no other candidate passes for
        tested = f"CASE WHEN {has_row} THEN array({candidate}) ELSE {others} END"
        passes = f"{_any(tested, join)} = ({has_row})"
    else:
        passes = f"{has_row} AND {_test(candidate, join)}"
    row = f"get({hidden(ROWS)}, {candidate}.row)" if join.columns else "NULL"
    kept = apart(each.filter(passes), f"explode(array({row}))", hidden("row"))
    return kept.selectExpr(*event_columns(join), *brought(join, f"{hidden('row')}.c"))


def _events(listed: DataFrame, join: Join) -> DataFrame:
    """The events that some candidate passes for, or none does."""
    whole = apart(listed, f"explode(array({hidden('list')}))", hidden("candidates"))
    found = _any(hidden("candidates"), join)
    passes = found if join.how == "semi" else f"NOT {found}"
    kept = apart(whole.filter(passes), "explode(array(NULL))", hidden("row"))
    return kept.selectExpr(*event_columns(join))


def _any(candidates: Sql, join: Join) -> Sql:
    """Whether any candidate with a row passes its test; false where there is no list."""
    passes = f"c.row IS NOT NULL AND {_test('c', join)}"
    return f"coalesce(exists({candidates}, c -> {passes}), false)"


def _cell(join: Join) -> Sql:
    if not isinstance(join.spatial, DWithin):
        return expressions.grid_cell(hidden(SPACE), _X, _Y)
    position = expressions.on_sphere(_X, _Y) if join.spatial.metric == "sphere" else (_X, _Y)
    return expressions.hashed_cell(hidden(SPACE), hidden(CELLS), position)


def _test(candidate: Sql, join: Join) -> Sql:
    match join.spatial:
        case DWithin(limit=limit, metric=metric):
            return expressions.is_near(candidate, _X, _Y, limit, sphere=metric == "sphere")
        case Topology(predicate):
            return expressions.in_polygon(candidate, _X, _Y, predicate)
    raise AssertionError(join.spatial)
