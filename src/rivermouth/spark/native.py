"""join_table's plan "native": the condition compiled to Spark SQL, no Python beside the events.

The table comes as a frame of few rows that hold the whole index in arrays (`native_rows`), made
anew for each batch of events and broadcast:

    events -> join with the index -> the list of the event's cell -> a row per candidate
           -> filter by the exact test -> the result's columns

The join is on equal keys, or on a constant where there are none, since real-time mode takes no
other. No operator here shuffles, and each is on that mode's list.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (as everybody writes it)
from pyspark.sql import types as t

from rivermouth.errors import PlanError
from rivermouth.kernels.cells import ANSWERS
from rivermouth.spark import expressions, types
from rivermouth.spark.checking import WHERE, Join
from rivermouth.spark.native_rows import CELLS, LISTS, ROWS, SPACE, IndexRows
from rivermouth.spec.caches import Full
from rivermouth.spec.conditions import Near, Point, Topology
from rivermouth.tables import snapshot

_KINDS = {"inner": "inner", "left": "left", "semi": "left_semi", "anti": "left_anti"}


def native_join(events: DataFrame, join: Join, cache: Full, folder: str) -> DataFrame:
    """The join against a snapshot under `folder`, or against the frame that the table is.

    A new version of the table is seen by the next batch of events; a batch sees one only.

    Raises
    ------
    PlanError
        Where the condition has no form in Spark SQL.
    """
    refuse(join)
    index = F.broadcast(index_frame(events.sparkSession, join, cache, folder))
    if join.place is None:
        return _by_keys(events, join, index)
    listed = _listed(events, join, index)
    return _pairs(listed, join) if join.how in ("inner", "left") else _events(listed, join)


def refuse(join: Join) -> None:
    """Raise a `PlanError` for a join that this plan cannot do, as far as the schemas show."""
    place = join.place
    if place is None:
        return
    match place:
        case Near() | Topology(predicate=_) if not isinstance(place.left, Point):
            what = f"the events' place is the column {place.left!r}, not rm.point"
        case Topology(predicate=predicate) if predicate not in ANSWERS:
            what = f"{predicate} has no form in Spark SQL"
        case Topology() if isinstance(place.right, Point):
            what = "the table's places are points, not polygons"
        case Near() | Topology():
            return
        case _:
            what = "nearest has no form in Spark SQL"
    raise PlanError(
        WHERE,
        f"plan='native' cannot do this join: {what}",
        there="it places points in polygons, measures dwithin between points, and compares keys",
        todo="Use plan='workers', which knows every condition.",
    )


# -- the table's side


def index_frame(spark: SparkSession, join: Join, cache: Full, folder: str) -> DataFrame:
    """The rows of `native_rows`, made by one worker, their columns hidden from the events'."""
    rows = IndexRows.of(join)
    schema = t.StructType(
        [
            t.StructField(_hidden(field.name), _spark_type(field.type), field.nullable)
            for field in rows.schema
        ]
    )
    frame: DataFrame | None = getattr(join.source, "frame", None)
    if frame is None:
        recipe = join.recipe(cache)
        # one partition: each would make the rows once more
        return spark.range(0, 1, 1, 1).mapInArrow(
            _FromSnapshot(rows, recipe, cache, folder).make, schema
        )
    table = frame.select(*(_as_wkb(frame, name) for name in join.table_columns))
    return table.coalesce(1).mapInArrow(_FromFrame(rows).make, schema)


def _spark_type(kind: pa.DataType) -> t.DataType:
    if pa.types.is_list(kind):
        return t.ArrayType(_spark_type(kind.value_type), kind.value_field.nullable)
    if pa.types.is_struct(kind):
        return t.StructType(
            [t.StructField(f.name, _spark_type(f.type), f.nullable) for f in kind.fields]
        )
    return types.to_spark(kind, where=WHERE, column="")


@dataclass(frozen=True)
class _FromSnapshot:
    """Makes the rows of a snapshot's newest version.

    A class, since a nested function would travel with a copy of `_made` of its own.
    """

    rows: IndexRows
    recipe: snapshot.Recipe
    cache: Full
    folder: str

    def make(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows; the input says nothing."""
        for _ in batches:  # a worker that leaves its input unread is not used again
            pass
        version = snapshot.current(self.recipe, self.cache, self.folder)
        key = (self.rows, self.recipe.digest)
        if key not in _made or _made[key][0] != version.number:
            made = self.rows.make(snapshot.columns_of(version), version.index)
            _made.pop(key, None)
            _made[key] = (version.number, made)
            while len(_made) > _MOST_MADE:
                del _made[next(iter(_made))]
        yield _made[key][1]


#: what this worker has made of the newest version of its last tables
_made: dict[tuple[IndexRows, str], tuple[int, pa.RecordBatch]] = {}
_MOST_MADE = 4


@dataclass(frozen=True)
class _FromFrame:
    """Makes the rows of those of a frame."""

    rows: IndexRows

    def make(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows, none of none."""
        parts = list(batches)
        if parts:
            whole = pa.Table.from_batches(parts).combine_chunks()
            yield self.rows.make({name: whole[name].chunk(0) for name in whole.column_names})


def _as_wkb(frame: DataFrame, name: str) -> Column:
    """A column of the frame, WKB where it is a GEOMETRY, as the table's schema says."""
    column = _column(name)
    is_geometry = isinstance(frame.schema[name].dataType, t.GeometryType)
    return F.st_asbinary(column).alias(name) if is_geometry else column


# -- the events' side


def _by_keys(events: DataFrame, join: Join, index: DataFrame) -> DataFrame:
    brought = [F.col(_hidden(f"c{i}")).alias(field.name) for i, field in enumerate(join.added)]
    joined = events.join(index, _same_key(join), _KINDS[join.how])
    return joined.select(*_events_columns(join), *brought)


def _listed(events: DataFrame, join: Join, index: DataFrame) -> DataFrame:
    """The events with the list of their cell, null where nothing is, and the table's rows."""
    joined = events.join(
        index, _same_key(join), "inner" if join.how in ("inner", "semi") else "left"
    )
    found = F.get(F.col(_hidden(LISTS)), F.get(F.col(_hidden(CELLS)), _cell(join)))
    rows = [F.col(_hidden(ROWS))] if join.columns else []
    x, y = _point(join)
    return joined.select(
        *_events_columns(join),
        *rows,
        x.alias(_hidden("x")),
        y.alias(_hidden("y")),
        found.alias(_hidden("list")),
    )


def _pairs(listed: DataFrame, join: Join) -> DataFrame:
    """A row per candidate that passes its test, with what is brought from it."""
    each = _apart(listed, F.explode_outer(_hidden("list")), "candidate")
    candidate, others = F.col(_hidden("candidate")), F.col(_hidden("list"))
    has_row = candidate["row"].isNotNull()
    if join.how == "left":
        # the candidate without a row stands for the event that no other candidate passes for
        passes = _any(F.when(has_row, F.array(candidate)).otherwise(others), join) == has_row
    else:
        passes = has_row & _test(candidate, join)
    row = F.get(F.col(_hidden(ROWS)), candidate["row"]) if join.columns else F.lit(None)
    kept = _apart(each.filter(passes), F.explode(F.array(row)), "row")
    brought = [
        F.col(_hidden("row"))[f"c{i}"].alias(field.name) for i, field in enumerate(join.added)
    ]
    return kept.select(*_events_columns(join), *brought)


def _events(listed: DataFrame, join: Join) -> DataFrame:
    """The events that some candidate passes for, or none does."""
    whole = _apart(listed, F.explode(F.array(F.col(_hidden("list")))), "lists")
    found = _any(F.col(_hidden("lists")), join)
    passes = found if join.how == "semi" else ~found
    kept = _apart(whole.filter(passes), F.explode(F.array(F.lit(None))), "row")
    return kept.select(*_events_columns(join))


def _apart(frame: DataFrame, generated: Column, name: str) -> DataFrame:
    """`frame` with a generated column; Spark writes what follows into a method of its own."""
    return frame.select("*", generated.alias(_hidden(name)))


def _any(candidates: Column, join: Join) -> Column:
    """Whether any candidate with a row passes its test; false where there is no list."""
    found = F.exists(candidates, lambda each: each["row"].isNotNull() & _test(each, join))
    return F.coalesce(found, F.lit(False))


def _cell(join: Join) -> Column:
    x, y = _point(join)
    space, cells = F.col(_hidden(SPACE)), F.col(_hidden(CELLS))
    if isinstance(join.place, Near):
        on_sphere = join.place.metric == "sphere"
        position = expressions.on_sphere(x, y) if on_sphere else (x, y)
        return expressions.hashed_cell(space, cells, position)
    return expressions.grid_cell(space, x, y)


def _test(candidate: Column, join: Join) -> Column:
    x, y = F.col(_hidden("x")), F.col(_hidden("y"))
    match join.place:
        case Near(limit=limit, metric=metric):
            return expressions.is_near(candidate, x, y, limit, sphere=metric == "sphere")
        case Topology(predicate=predicate):
            return expressions.in_polygon(candidate, x, y, predicate)
    raise AssertionError(join.place)


def _point(join: Join) -> tuple[Column, Column]:
    assert join.place is not None
    assert isinstance(join.place.left, Point)
    x, y = (
        F.coalesce(_column(name).cast("double"), F.lit(math.nan))
        for name in (join.place.left.x, join.place.left.y)
    )
    return x, y


def _same_key(join: Join) -> Column:
    """The events' keys equal the index's; without keys, the event has a place at all."""
    if join.equal is None:
        x, y = _point(join)
        # not a literal: Spark would make that a filter, and the join one without an equality
        ours = [F.when(~(F.isnan(x) | F.isnan(y)), F.lit(0).cast("long"))]
    else:
        ours = [_comparable(left, join.events[left].dataType) for left, _ in join.equal.pairs]
    same = F.lit(True)
    for i, key in enumerate(ours):
        same &= key == F.col(_hidden(f"key{i}"))
    return same


def _comparable(name: str, kind: t.DataType) -> Column:
    """A key that equals nothing where it is NaN, and compares by bytes where it is text."""
    column = _column(name)
    if isinstance(kind, (t.FloatType, t.DoubleType)):
        return F.when(~F.isnan(column), column)
    return column.cast(t.StringType()) if isinstance(kind, t.StringType) else column


def _events_columns(join: Join) -> list[Column]:
    return [_column(name) for name in join.events.names]


def _column(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")


def _hidden(name: str) -> str:
    """A column of the plan's own, under a name that no event has."""
    return f"_rivermouth_{name}"
