"""join_table's plan "native": the condition compiled to Spark SQL, no Python beside the events.

The table comes as a frame of few rows that hold the whole index in arrays (`native_rows`), made
anew for each batch of events, and broadcast:

    events -> join with the index -> the list of the event's cell -> a row per candidate
           -> filter by the exact test -> the result's columns

The join is on equal keys, or on a constant where there are none, since real-time mode takes no
other. Nothing here shuffles, and every operator is on that mode's list. All of it is compiled
into one stage, in which the arrays of the index are looked into and never copied; that ends
where the events have more than some 80 columns (``spark.sql.codegen.maxFields``).
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
from rivermouth.spark.checking import WHERE, Join, named
from rivermouth.spark.expressions import Sql
from rivermouth.spark.native_rows import CELLS, LISTS, ROWS, SPACE, IndexRows
from rivermouth.spec.caches import Full
from rivermouth.spec.conditions import Near, Nearest, Point, Topology
from rivermouth.tables import snapshot

_KINDS = {"inner": "inner", "left": "left", "semi": "left_semi", "anti": "left_anti"}


def native_join(events: DataFrame, join: Join, cache: Full, folder: str) -> DataFrame:
    """The join against a snapshot under `folder`, or against the frame that the table is.

    A batch of events sees one version of the table; a new one is seen by the next batch.

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
    if what := _trouble(join):
        raise PlanError(
            WHERE,
            f"plan='native' cannot do this join: {what}",
            there="it finds points in polygons, points near points (dwithin), and equal keys",
            todo="Use plan='workers', which knows every condition.",
        )


def _trouble(join: Join) -> str:
    match join.place:
        case None:
            return ""
        case Nearest():
            return "nearest has no form in Spark SQL"
        case Topology(predicate) if predicate not in ANSWERS:
            return f"{predicate} has no form in Spark SQL"
        case Topology() | Near() as place if not isinstance(place.left, Point):
            return f"the events' place is the column {place.left!r}, not rm.point"
        case Topology() as place if isinstance(place.right, Point):
            return "the table's places are points, not polygons"
    return ""


# -- the table's side


def index_frame(spark: SparkSession, join: Join, cache: Full, folder: str) -> DataFrame:
    """The rows of `native_rows`, made by one worker, under names that no event has."""
    rows = IndexRows.of(join)
    schema = t.StructType(
        [
            t.StructField(_hidden(field.name), _spark_type(field.type), field.nullable)
            for field in rows.schema
        ]
    )
    frame: DataFrame | None = getattr(join.source, "frame", None)
    if frame is not None:
        table = frame.select(*(_as_wkb(frame, name) for name in join.table_columns))
        return table.coalesce(1).mapInArrow(_FromFrame(rows).make, schema)
    recipe = join.recipe(cache)
    # one partition: each would make the rows once more
    one = spark.range(0, 1, 1, 1)
    return one.mapInArrow(_FromSnapshot(rows, recipe, cache, folder).make, schema)


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
    column = F.col(_quoted(name))
    is_geometry = isinstance(frame.schema[name].dataType, t.GeometryType)
    return F.st_asbinary(column).alias(name) if is_geometry else column


def _spark_type(kind: pa.DataType) -> t.DataType:
    """As `types.to_spark`, and it says what is never null: Spark's code is half as long for it."""
    if pa.types.is_list(kind):
        return t.ArrayType(_spark_type(kind.value_type), kind.value_field.nullable)
    if pa.types.is_struct(kind):
        return t.StructType(
            [
                t.StructField(part.name, _spark_type(part.type), part.nullable)
                for part in kind.fields
            ]
        )
    return types.to_spark(kind, where=WHERE, column="")


# -- the events' side


def _by_keys(events: DataFrame, join: Join, index: DataFrame) -> DataFrame:
    joined = events.join(index, _same_key(join), _KINDS[join.how])
    return joined.selectExpr(*_columns(join), *_brought(join, _hidden("c")))


def _listed(events: DataFrame, join: Join, index: DataFrame) -> DataFrame:
    """The events with their coordinates, the list of their cell, and the rows it speaks of."""
    joined = _located(events, join).join(
        index, _same_key(join), "left" if join.how in ("left", "anti") else "inner"
    )
    return joined.selectExpr(
        *_columns(join),
        *(_X, _Y),
        *([_hidden(ROWS)] if join.columns else []),
        f"get({_hidden(LISTS)}, get({_hidden(CELLS)}, {_cell(join)})) AS {_hidden('list')}",
    )


def _located(events: DataFrame, join: Join) -> DataFrame:
    """The events with their coordinates as doubles, NaN where they are null."""
    assert join.place is not None
    assert isinstance(join.place.left, Point)
    nan = F.lit(math.nan)  # in SQL it is text, cast, and that may be null as far as Spark knows
    x, y = (F.col(_quoted(name)).cast("double") for name in named(join.place.left))
    return events.select("*", F.coalesce(x, nan).alias(_X), F.coalesce(y, nan).alias(_Y))


def _pairs(listed: DataFrame, join: Join) -> DataFrame:
    """A row per candidate that passes its test, with what is brought from it."""
    candidate, others = _hidden("candidate"), _hidden("list")
    each = _apart(listed, f"explode_outer({others})", candidate)
    has_row = f"{candidate}.row IS NOT NULL"
    if join.how == "left":
        # the candidate without a row stands for the event that no other candidate passes for
        tested = f"CASE WHEN {has_row} THEN array({candidate}) ELSE {others} END"
        passes = f"{_any(tested, join)} = ({has_row})"
    else:
        passes = f"{has_row} AND {_test(candidate, join)}"
    row = f"get({_hidden(ROWS)}, {candidate}.row)" if join.columns else "NULL"
    kept = _apart(each.filter(passes), f"explode(array({row}))", _hidden("row"))
    return kept.selectExpr(*_columns(join), *_brought(join, f"{_hidden('row')}.c"))


def _events(listed: DataFrame, join: Join) -> DataFrame:
    """The events that some candidate passes for, or none does."""
    whole = _apart(listed, f"explode(array({_hidden('list')}))", _hidden("candidates"))
    found = _any(_hidden("candidates"), join)
    passes = found if join.how == "semi" else f"NOT {found}"
    kept = _apart(whole.filter(passes), "explode(array(NULL))", _hidden("row"))
    return kept.selectExpr(*_columns(join))


def _apart(frame: DataFrame, generated: Sql, name: str) -> DataFrame:
    """`frame` with a generated column; Spark writes what comes after it into another method.

    So neither the test of a polygon nor a wide row makes the other's method too long to be
    compiled, which would cost tenfold.
    """
    return frame.selectExpr("*", f"{generated} AS {name}")


def _any(candidates: Sql, join: Join) -> Sql:
    """Whether any candidate with a row passes its test; false where there is no list."""
    passes = f"c.row IS NOT NULL AND {_test('c', join)}"
    return f"coalesce(exists({candidates}, c -> {passes}), false)"


def _cell(join: Join) -> Sql:
    if not isinstance(join.place, Near):
        return expressions.grid_cell(_hidden(SPACE), _X, _Y)
    position = expressions.on_sphere(_X, _Y) if join.place.metric == "sphere" else (_X, _Y)
    return expressions.hashed_cell(_hidden(SPACE), _hidden(CELLS), position)


def _test(candidate: Sql, join: Join) -> Sql:
    match join.place:
        case Near(limit=limit, metric=metric):
            return expressions.is_near(candidate, _X, _Y, limit, sphere=metric == "sphere")
        case Topology(predicate):
            return expressions.in_polygon(candidate, _X, _Y, predicate)
    raise AssertionError(join.place)


def _same_key(join: Join) -> Column:
    """The event's keys equal the index's; without keys, the event may have a place."""
    if join.equal is None:
        # not a literal: Spark would make a filter of that, and a join without an equality
        return F.expr(f"CASE WHEN NOT isnan({_X}) THEN 0L END = {_hidden('key0')}")
    ours = (_comparable(left, join.events[left].dataType) for left, _ in join.equal.pairs)
    return F.expr(" AND ".join(f"{key} = {_hidden(f'key{i}')}" for i, key in enumerate(ours)))


def _comparable(name: str, kind: t.DataType) -> Sql:
    """A key that equals nothing where it is NaN, and compares by bytes where it is text."""
    column = _quoted(name)
    if isinstance(kind, (t.FloatType, t.DoubleType)):
        return f"CASE WHEN NOT isnan({column}) THEN {column} END"
    return f"collate({column}, 'UTF8_BINARY')" if isinstance(kind, t.StringType) else column


def _columns(join: Join) -> list[Sql]:
    return [_quoted(name) for name in join.events.names]


def _brought(join: Join, prefix: Sql) -> list[Sql]:
    return [f"{prefix}{i} AS {_quoted(new)}" for i, (new, _) in enumerate(join.columns)]


def _quoted(name: str) -> Sql:
    return "`" + name.replace("`", "``") + "`"


def _hidden(name: str) -> Sql:
    """A column of the plan's own, under a name that no event has."""
    return f"_rivermouth_{name}"


_X, _Y = _hidden("x"), _hidden("y")
