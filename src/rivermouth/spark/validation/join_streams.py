"""What a join of two streams was asked, checked against both schemas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as t

from rivermouth.errors import ColumnError, ConditionError, DefinitionError, missing_column
from rivermouth.kernels.spatial.strtree import may_be_disjoint
from rivermouth.kernels.stream_join.query import ENDS, KIND, SIDE, STARTS
from rivermouth.spark import types
from rivermouth.spark.validation.join_table import Columns, brought
from rivermouth.spec.conditions import (
    Condition,
    DWithin,
    Geometry,
    Keys,
    Nearest,
    Point,
    Spatial,
    Topology,
    named,
    split,
)
from rivermouth.spec.durations import Duration, microseconds

How = Literal["inner", "left"]
Late = Literal["count", "rows"]
Times = str | tuple[str, str]
Lateness = Duration | tuple[Duration, Duration] | None

_DELAY = "spark.watermarkDelayMs"
_SIDES = ("the left side", "the right side")


@dataclass(frozen=True)
class Asked:
    """A join of two frames that can be done.

    Parameters
    ----------
    where
        The operator's name, for messages.
    frames
        Both frames, the right one with the columns that are needed only.
    equal, place
        The parts of the condition.
    time
        The name of each side's time column.
    how
        Which rows come out.
    columns
        What is brought from the right side: (name in the result, name there).
    srid
        The reference system of both sides, 0 where it is not known.
    """

    where: str
    frames: tuple[DataFrame, DataFrame]
    equal: Keys | None
    place: Spatial | None
    time: tuple[str, str]
    how: How
    columns: tuple[tuple[str, str], ...]
    srid: int

    @property
    def streams(self) -> bool:
        """Whether the frames are streams."""
        return self.frames[0].isStreaming

    @property
    def kind(self) -> t.DataType:
        """The type of the times."""
        return self.frames[0].schema[self.time[0]].dataType

    def arrow(self, side: int) -> pa.Schema:
        """The columns of one side as workers get them."""
        return pa.schema(
            [(field.name, _arrow(field, self.where)) for field in self.frames[side].schema]
        )

    def output(self, *, windows: bool, late_rows: bool) -> t.StructType:
        """The schema of the result.

        A watermark that a side had is not the result's: pairs come later than their rows.
        """
        left, right = self.frames[0].schema, self.frames[1].schema
        told = [t.StructField(name, t.StringType()) for name in (KIND, SIDE)] if late_rows else []
        fields = [
            *told,
            *left.fields,
            *(t.StructField(new, right[old].dataType) for new, old in self.columns),
        ]
        if isinstance(self.place, Nearest):
            fields.append(t.StructField(self.place.name, t.DoubleType()))
        if windows:
            fields += [t.StructField(name, self.kind) for name in (STARTS, ENDS)]
        return t.StructType([t.StructField(f.name, f.dataType, True) for f in fields])


def check(
    where: str,
    left: DataFrame,
    right: DataFrame,
    *,
    on: Condition,
    time: Times,
    how: str,
    columns: Columns,
    late: str,
) -> Asked:
    """The join, or the first thing that is wrong with it."""
    _check_frames(where, left, right)
    if how not in get_args(How):
        raise DefinitionError(where, f"how is {how!r}", todo=f"Use one of {list(get_args(How))}.")
    if late not in get_args(Late):
        raise DefinitionError(where, f"late is {late!r}", todo="Use 'count' or 'rows'.")
    equal, place, span = split(on)
    if span is not None:
        raise ConditionError(
            where,
            "rm.between and rm.asof look up a table",
            there="streams are joined by their times, which this operator compares itself",
            todo="Leave it out of on=; combine places and rm.keys.",
        )
    schemas = (left.schema, right.schema)
    names = _times(where, schemas, time)
    srid = 0
    if equal is not None:
        _check_keys(where, equal, schemas)
    if place is not None:
        _check_not_apart(where, place)
        srid = _check_place(where, place, schemas)
    bring = brought(where, columns, right.schema.names, equal, place, _SIDES[1])
    return Asked(
        where,
        (left, right.select(*_needed(right.schema, names[1], equal, place, bring))),
        equal, place, names, how, bring, srid,  # type: ignore[arg-type]
    )  # fmt: skip


def check_names(where: str, output: t.StructType, left: t.StructType) -> None:
    """No two columns of the result may have one name; Spark does not tell cases apart."""
    folded = [name.casefold() for name in output.names]
    clash = [name for name in output.names if folded.count(name.casefold()) > 1]
    if clash:
        raise ColumnError(
            where,
            f"the result would have two columns {clash[-1]!r}",
            there=f"the left side has {sorted(left.names)}",
            todo='Choose or rename the right side\'s with columns=["..."] or '
            'columns={"new": "old"}, or rename the left side\'s.',
        )


def lateness_of(asked: Asked, lateness: Lateness) -> tuple[int, int]:
    """How much older than its side's newest row a row of either side may be, in microseconds."""
    where = f"{asked.where}(lateness=)"
    if lateness is not None:
        both = lateness if isinstance(lateness, tuple) else (lateness, lateness)
        found = tuple(microseconds(one, where=where) for one in both)
    elif not asked.streams:
        return 0, 0
    else:
        found = tuple(_own_delay(asked, side) for side in (0, 1))
    if len(found) != 2 or min(found) < 0:
        raise DefinitionError(
            where, f"{lateness!r} is not a lateness", todo="Give a length of time, or two of them."
        )
    return found[0], found[1]


def _own_delay(asked: Asked, side: int) -> int:
    name = asked.time[side]
    delay = asked.frames[side].schema[name].metadata.get(_DELAY)
    if delay is None:
        raise DefinitionError(
            asked.where,
            "how late rows may be is not said",
            there=f"{_SIDES[side]}'s {name!r} has no watermark to take it from",
            todo='Give lateness="1 minute" or the like; 0 seconds where rows come in order.',
        )
    return int(delay) * 1000


def _check_frames(where: str, left: DataFrame, right: DataFrame) -> None:
    for frame, side in ((left, _SIDES[0]), (right, _SIDES[1])):
        if not hasattr(frame, "isStreaming"):
            raise DefinitionError(
                where,
                f"{side} is a {type(frame).__name__}, not a frame",
                todo="Join tables with rm.join_table.",
            )
    if left.isStreaming != right.isStreaming:
        which = _SIDES[0] if left.isStreaming else _SIDES[1]
        raise DefinitionError(
            where,
            f"only {which} is a stream",
            todo="Join a stream with a table by rm.join_table, or make both streams.",
        )


def _times(where: str, schemas: tuple[t.StructType, t.StructType], time: Times) -> tuple[str, str]:
    names = (time, time) if isinstance(time, str) else tuple(time)
    if len(names) != 2:
        raise DefinitionError(
            where, f"time is {time!r}", todo="Give a name, or (left name, right name)."
        )
    kinds = [_kind(where, schemas, side, name, "time") for side, name in enumerate(names)]
    for name, kind, side in zip(names, kinds, _SIDES, strict=True):
        if not isinstance(kind, (t.TimestampType, t.TimestampNTZType)):
            raise ColumnError(
                where,
                f"time names column {name!r} of {side}, which is {kind.simpleString()}",
                todo="Cast it to timestamp.",
            )
    if kinds[0] != kinds[1]:
        raise ColumnError(
            where,
            f"the times are of two types: {names[0]!r} is {kinds[0].simpleString()}, "
            f"{names[1]!r} is {kinds[1].simpleString()}",
            todo="Cast one of them: which instant a local time is depends on its zone.",
        )
    return names[0], names[1]


def _check_keys(where: str, equal: Keys, schemas: tuple[t.StructType, t.StructType]) -> None:
    for names in equal.pairs:
        ours, theirs = (_kind(where, schemas, side, name) for side, name in enumerate(names))
        if types.family(ours) != types.family(theirs):
            raise ConditionError(
                where,
                f"equal compares {names[0]!r} ({ours.simpleString()}) with {names[1]!r} "
                f"({theirs.simpleString()})",
                todo="Cast one of them.",
            )
        if isinstance(ours, (t.ArrayType, t.MapType, t.StructType, t.GeometryType)):
            raise ConditionError(
                where,
                f"equal compares columns of type {ours.simpleString()}",
                todo="Compare numbers, strings, bytes, dates or times.",
            )


def _check_not_apart(where: str, place: Spatial) -> None:
    if not isinstance(place, Topology):
        return
    pattern = place.pattern
    if place.predicate == "disjoint" or (pattern is not None and may_be_disjoint(pattern)):
        raise ConditionError(
            where,
            "two streams cannot be joined by shapes that do not meet",
            there=f"{place.predicate}({place.left!r}, {place.right!r}) holds for nearly all pairs",
            todo="Ask for shapes that meet or are near, and filter; or join a table.",
        )


def _check_place(where: str, place: Spatial, schemas: tuple[t.StructType, t.StructType]) -> int:
    """The reference system that the sides state, 0 where they state none."""
    srids = [
        _srid(where, schemas, side, geometry)
        for side, geometry in enumerate((place.left, place.right))
    ]
    if all(srids) and srids[0] != srids[1]:
        raise ConditionError(
            where,
            f"{place.left!r} is in SRID {srids[0]} and {place.right!r} in SRID {srids[1]}",
            todo="Bring both into one reference system first; rivermouth does not project.",
        )
    return max(srids)


def _srid(
    where: str, schemas: tuple[t.StructType, t.StructType], side: int, geometry: Geometry
) -> int:
    for column in named(geometry):
        kind = _kind(where, schemas, side, column)
        if isinstance(geometry, Point):
            if not types.is_number(kind):
                raise ColumnError(
                    where,
                    f"rm.point needs numbers, but column {column!r} of {_SIDES[side]} is "
                    f"{kind.simpleString()}",
                    todo="Cast it to double.",
                )
        elif isinstance(kind, t.GeometryType):
            return kind.srid if isinstance(kind.srid, int) and kind.srid > 0 else 0
        elif not isinstance(kind, t.BinaryType):
            raise ColumnError(
                where,
                f"column {column!r} of {_SIDES[side]} is {kind.simpleString()}, not a geometry",
                todo="Name a column of WKB (binary) or GEOMETRY, or two numbers with rm.point.",
            )
    return 0


def _kind(
    where: str,
    schemas: tuple[t.StructType, t.StructType],
    side: int,
    column: str,
    by: str = "on",
) -> t.DataType:
    if column not in schemas[side].names:
        raise missing_column(where, column, schemas[side].names, side=_SIDES[side], by=by)
    return schemas[side][column].dataType


def _needed(
    right: t.StructType,
    time: str,
    equal: Keys | None,
    place: Spatial | None,
    bring: tuple[tuple[str, str], ...],
) -> list[str]:
    """The right side's columns that are needed, in their order."""
    keys = [theirs for _, theirs in equal.pairs] if equal is not None else []
    shape = named(place.right) if place is not None else ()
    wanted = {time, *keys, *shape, *(old for _, old in bring)}
    return [f"`{name}`" for name in right.names if name in wanted]


def _arrow(field: t.StructField, where: str) -> pa.DataType:
    if isinstance(field.dataType, t.GeometryType):
        # Spark tells a geometry from other structs by the metadata of its second part
        mark = {b"geometry": b"true", b"srid": str(field.dataType.srid).encode()}
        wkb = pa.field("wkb", pa.binary(), nullable=False, metadata=mark)
        return pa.struct([pa.field("srid", pa.int32(), nullable=False), wkb])
    return types.to_arrow(field.dataType, where=where, column=field.name)


def is_bounded(place: Spatial | None) -> bool:
    """Whether it is known how far apart rows that meet can be."""
    if isinstance(place, (DWithin, Nearest)):
        return place.limit is not None
    return place is not None
