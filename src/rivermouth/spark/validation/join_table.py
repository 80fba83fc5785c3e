"""What `join_table` was asked, checked against both schemas: the first of the three steps."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast, get_args

import pyarrow as pa
from pyspark.sql import types as t

from rivermouth.errors import ColumnError, ConditionError, DefinitionError, missing_column
from rivermouth.spark import types
from rivermouth.spark.validation.names import Suffixes, result_names
from rivermouth.spec.caches import Full
from rivermouth.spec.conditions import (
    Between,
    Condition,
    Geometry,
    Keys,
    Nearest,
    Point,
    Range,
    Spatial,
    combine,
    key_pairs,
    named,
    split,
)
from rivermouth.tables.cache.snapshot import Recipe
from rivermouth.tables.source import Source, srid_of

How = Literal["inner", "left", "semi", "anti"]
Columns = Sequence[str] | Mapping[str, str] | None

WHERE = "join_table"


@dataclass(frozen=True)
class Join:
    """A join that can be done.

    Parameters
    ----------
    keys, spatial, range
        The parts of the condition.
    how
        Which rows come out.
    source
        Where the table's rows come from.
    events
        The schema of the events.
    table
        The table's schema.
    columns
        What is brought from the table: (unique name, name in the table). None for semi and anti.
    distance
        The unique name of the column of distances, where the result has one.
    names
        The names of the result's columns.
    since
        When the join was defined, in seconds since 1970.
    """

    keys: Keys | None
    spatial: Spatial | None
    range: Range | None
    how: How
    source: Source
    events: t.StructType
    table: pa.Schema
    columns: tuple[tuple[str, str], ...]
    distance: str | None
    names: tuple[str, ...]
    since: float

    @property
    def on(self) -> Condition:
        """The condition as it was written."""
        return combine(self.keys, self.range if self.spatial is None else self.spatial)

    @property
    def left_columns(self) -> tuple[str, ...]:
        """The events' columns that the condition names."""
        keys = (left for left, _ in key_pairs(self.keys))
        spatial = named(self.spatial.left) if self.spatial is not None else ()
        span = (self.range.left,) if self.range is not None else ()
        return tuple(dict.fromkeys((*keys, *spatial, *span)))

    @property
    def condition_columns(self) -> tuple[str, ...]:
        """The table's columns that the condition names."""
        keys = (right for _, right in key_pairs(self.keys))
        spatial = named(self.spatial.right) if self.spatial is not None else ()
        span = (self.range.right,) if self.range is not None else ()
        return tuple(dict.fromkeys((*keys, *spatial, *span)))

    @property
    def table_columns(self) -> tuple[str, ...]:
        """All columns of the table that are needed."""
        return tuple(dict.fromkeys((*self.condition_columns, *(old for _, old in self.columns))))

    def recipe(self, cache: Full) -> Recipe:
        """What a snapshot for this join holds."""
        schema = pa.schema([self.table.field(name) for name in self.table_columns])
        return Recipe(
            self.source, schema, self.keys, self.spatial, self.range, cache.index, self.since,
            cache.buckets,
        )  # fmt: skip

    @property
    def srid(self) -> int:
        """The SRID of the table's geometries, 0 where it is not known."""
        if self.spatial is None or isinstance(self.spatial.right, Point):
            return 0
        return srid_of(self.table.field(self.spatial.right)) or 0

    @property
    def added(self) -> list[t.StructField]:
        """The columns that the result has besides the events'."""
        brought = [
            t.StructField(new, types.to_spark(self.table.field(old).type, where=WHERE, column=old))
            for new, old in self.columns
        ]
        return [
            *brought,
            *([t.StructField(self.distance, t.DoubleType())] if self.distance is not None else []),
        ]

    @property
    def output(self) -> t.StructType:
        """The schema of the result, before its columns have their final `names`."""
        return t.StructType([*self.events.fields, *self.added])


def check(
    events: t.StructType,
    source: Source,
    *,
    on: Condition,
    how: str,
    columns: Columns,
    suffixes: Suffixes,
) -> Join:
    """The join, or the first thing that is wrong with it."""
    if how not in get_args(How):
        raise DefinitionError(WHERE, f"how is {how!r}", todo=f"Use one of {list(get_args(How))}.")
    keys, spatial, span = split(on)
    table = source.schema()
    if keys is not None:
        _check_keys(keys, events, table, source.name)
    if spatial is not None:
        _check_spatial(spatial, events, table, source.name)
    if span is not None:
        _check_range(span, events, table, source.name)
    bring = (
        brought(WHERE, columns, table.names, keys, spatial, source.name)
        if how in ("inner", "left")
        else ()
    )
    if how in ("semi", "anti") and columns:
        raise ColumnError(
            WHERE,
            f"columns= has no meaning with how={how!r}",
            todo="Leave it out: none are brought.",
        )
    distances = [spatial.name] if isinstance(spatial, Nearest) and how in ("inner", "left") else []
    left, right = result_names(
        WHERE, events.names, [*(new for new, _ in bring), *distances], suffixes,
        sides=("the events have", "the table brings"),
        todo='Choose or rename with columns=["..."] or columns={"new": "old"}'
        + (", name the distances with rm.nearest(name=...)" if distances else "")
        + ', or give suffixes=("", "_table").',
    )  # fmt: skip
    # a name that an event's column gives up for one with a suffix is not unique before that
    ours = {name.casefold() for name in events.names}
    unique = [f"_rivermouth_{name}" if name.casefold() in ours else name for name in right]
    return Join(
        keys, spatial, span, cast(How, how), source, events, table,
        tuple((new, old) for new, (_, old) in zip(unique, bring, strict=False)),
        unique[-1] if distances else None, (*left, *right), time.time(),
    )  # fmt: skip


def _check_keys(keys: Keys, events: t.StructType, table: pa.Schema, name: str) -> None:
    for left, right in keys.pairs:
        _check_same_family("keys", left, right, events, table, name)


def _check_same_family(
    what: str, left: str, right: str, events: t.StructType, table: pa.Schema, name: str
) -> t.DataType:
    ours = _event_type(events, left)
    theirs = types.to_spark(_table_field(table, right, name).type, where=WHERE, column=right)
    if types.family(ours) != types.family(theirs):
        raise ConditionError(
            WHERE,
            f"{what} compares {left!r} ({ours.simpleString()}) with {right!r} of {name} "
            f"({theirs.simpleString()})",
            todo=f"Cast one of them, as in events.withColumn({left!r}, F.col({left!r})"
            f".cast({theirs.simpleString()!r})).",
        )
    return theirs


def _check_range(span: Range, events: t.StructType, table: pa.Schema, name: str) -> None:
    what = "between" if isinstance(span, Between) else "asof"
    kind = _check_same_family(what, span.left, span.right, events, table, name)
    is_time = isinstance(kind, (t.DateType, t.TimestampType, t.TimestampNTZType))
    if not (is_time or types.is_number(kind)):
        raise ConditionError(
            WHERE,
            f"{what} needs numbers, dates or times, but {span.right!r} of {name} is "
            f"{kind.simpleString()}",
            todo="Cast it, or join by rm.keys.",
        )
    if isinstance(span, Between):
        _check_offsets(span, kind, is_time)


def _check_offsets(span: Between, kind: t.DataType, is_time: bool) -> None:
    """Offsets that the column's type can be added to without rounding or guessing."""
    for end in ("lower", "upper"):
        offset = getattr(span, end)
        if isinstance(offset, dt.timedelta) != is_time:
            todo = "Give a length of time, as in '5 minutes'." if is_time else "Give a number."
        elif isinstance(kind, t.DateType) and offset % dt.timedelta(days=1):
            todo = "Give whole days, or cast both columns to timestamp."
        elif types.family(kind) == "integer" and offset != int(offset):
            todo = "Give a whole number, or cast both columns to double."
        elif isinstance(kind, t.DecimalType) and isinstance(offset, float):
            todo = "Give a Decimal or a whole number, or cast both columns to double."
        else:
            continue
        raise ConditionError(
            WHERE,
            f"between({end}={offset!r}) does not go with {span.right!r}, which is "
            f"{kind.simpleString()}",
            todo=todo,
        )


def _check_spatial(spatial: Spatial, events: t.StructType, table: pa.Schema, name: str) -> None:
    ours = _event_srid(spatial.left, events)
    if isinstance(spatial.right, Point):
        for column in named(spatial.right):
            kind = types.to_spark(
                _table_field(table, column, name).type, where=WHERE, column=column
            )
            _check_coordinate(kind, column, f"{name}'s")
        return
    field = _table_field(table, spatial.right, name)
    theirs = srid_of(field)
    if theirs is None and not _is_binary(field.type):
        raise ColumnError(
            WHERE,
            f"column {spatial.right!r} of {name} is of type {field.type}, not a geometry",
            there=f"the table's geometry columns are {_geometries(table)}",
            todo="Name one of these, or two number columns with rm.point.",
        )
    if ours and theirs and ours != theirs:
        raise ConditionError(
            WHERE,
            f"{spatial.left!r} is in SRID {ours} and {spatial.right!r} of {name} in SRID {theirs}",
            todo="Bring both into one reference system first; rivermouth does not project.",
        )


def _event_srid(geometry: Geometry, events: t.StructType) -> int:
    """The reference system that the events' geometry column states, 0 where it states none."""
    for column in named(geometry):
        kind = _event_type(events, column)
        if isinstance(geometry, Point):
            _check_coordinate(kind, column, "the events'")
        elif isinstance(kind, t.GeometryType):
            return kind.srid if isinstance(kind.srid, int) and kind.srid > 0 else 0
        elif not isinstance(kind, t.BinaryType):
            raise ColumnError(
                WHERE,
                f"the events' column {column!r} is of type {kind.simpleString()}, not a geometry",
                todo="Name a column of WKB (binary) or GEOMETRY, or two numbers with rm.point.",
            )
    return 0


def _check_coordinate(kind: t.DataType, column: str, whose: str) -> None:
    if not types.is_number(kind):
        raise ColumnError(
            WHERE,
            f"rm.point needs numbers, but {whose} column {column!r} is {kind.simpleString()}",
            todo="Cast it to double.",
        )


def _event_type(events: t.StructType, column: str) -> t.DataType:
    if column not in events.names:
        raise missing_column(WHERE, column, events.names, side="the events")
    return events[column].dataType


def _table_field(table: pa.Schema, column: str, name: str) -> pa.Field:
    if column not in table.names:
        raise missing_column(WHERE, column, table.names, side=name)
    return table.field(column)


def _is_binary(kind: pa.DataType) -> bool:
    return kind in (pa.binary(), pa.large_binary(), pa.binary_view())


def _geometries(table: pa.Schema) -> list[str]:
    return [field.name for field in table if srid_of(field) is not None or _is_binary(field.type)]


def brought(
    where: str,
    columns: Columns,
    names: Sequence[str],
    keys: Keys | None,
    spatial: Spatial | None,
    side: str,
) -> tuple[tuple[str, str], ...]:
    """What is brought of `names`: where nothing is asked for, all that the condition leaves out."""
    if columns is None:
        omitted = {right for _, right in key_pairs(keys)}
        if spatial is not None and isinstance(spatial.right, str):
            omitted.add(spatial.right)
        return tuple((name, name) for name in names if name not in omitted)
    if isinstance(columns, str):
        raise ColumnError(
            where, f"columns is the text {columns!r}", todo=f"Write a list: columns=[{columns!r}]."
        )
    pairs = columns.items() if isinstance(columns, Mapping) else [(old, old) for old in columns]
    for _, old in pairs:
        if old not in names:
            raise missing_column(where, old, names, side=side, by="columns")
    return tuple(pairs)
