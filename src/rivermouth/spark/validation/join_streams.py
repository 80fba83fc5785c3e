"""The arguments of a join of two streams, checked against both schemas."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, cast, get_args

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as t

from rivermouth.errors import ColumnError, ConditionError, DefinitionError
from rivermouth.kernels.spatial.strtree import may_be_disjoint
from rivermouth.kernels.stream_join.query import ENDS, KIND, SIDE, STARTS, How, StreamJoin
from rivermouth.kernels.stream_join.times import Interval, Windows
from rivermouth.spark import types
from rivermouth.spark.validation.names import Suffixes, result_names, unique_names
from rivermouth.spark.validation.relation import (
    Columns,
    Relation,
    check_comparable,
    check_option,
    check_spatial,
    watermark_delay,
)
from rivermouth.spec.conditions import (
    Condition,
    Keys,
    Nearest,
    Spatial,
    Topology,
    key_pairs,
    named,
    split,
)
from rivermouth.spec.durations import Duration, microseconds, positive_seconds

Late = Literal["count", "rows"]
Times = str | tuple[str, str]
Lateness = Duration | tuple[Duration, Duration] | None

_SIDES = ("the left side", "the right side")


@dataclass(frozen=True)
class Checked:
    """A join of two frames that can run.

    Parameters
    ----------
    where
        The operator's name, for errors.
    join
        The join.
    frames
        Both frames, the right one with the columns that are needed only.
    inputs
        Their schemas as workers get them.
    schema
        The result's schema, before its columns have their final `names`.
    names
        The names of the result's columns.
    """

    where: str
    join: StreamJoin
    frames: tuple[DataFrame, DataFrame]
    inputs: tuple[pa.Schema, pa.Schema]
    schema: t.StructType
    names: tuple[str, ...]


def check(
    where: str,
    left: DataFrame,
    right: DataFrame,
    *,
    on: Condition,
    time: Times,
    when: Interval | Windows,
    how: str,
    columns: Columns,
    suffixes: Suffixes,
    lateness: Lateness,
    late: str,
    idle_timeout: Duration | None,
    bin_us: int | None,
) -> Checked:
    """The join, or the first error in its arguments."""
    _check_frames(where, left, right)
    check_option(where, "how", how, get_args(How))
    check_option(where, "late", late, get_args(Late))
    sides = Relation(where, _SIDES[0], left.schema), Relation(where, _SIDES[1], right.schema)
    times, time_type = _times(sides, time)
    keys, spatial, srid = _condition(sides, on)
    if how in ("right", "full") and isinstance(spatial, Nearest):
        raise ConditionError(
            where,
            f"how={how!r} with rm.nearest",
            there="the nearest of left rows are chosen, and a right row may be that of none",
            todo='Use how="left", or ask with rm.dwithin.',
        )
    alone = how in ("semi", "anti")
    if alone:
        _check_alone(where, how, columns, when)
    brought = () if alone else sides[1].brought(columns, keys, spatial)
    added = [KIND, SIDE] if late == "rows" else []
    bounds = [STARTS, ENDS] if isinstance(when, Windows) else []
    distances = [spatial.name] if isinstance(spatial, Nearest) and not alone else []
    ours, theirs = result_names(
        where, left.columns, [*(new for new, _ in brought), *distances], suffixes,
        sides=("the left side has", "the right side brings"), reserved=(*added, *bounds),
        todo='Choose or rename with columns=["..."] or columns={"new": "old"}'
        + (", name the distances with rm.nearest(name=...)" if distances else "")
        + ', or give suffixes=("", "_right").',
    )  # fmt: skip
    unique = unique_names(left.columns, theirs)
    brought = tuple((new, old) for new, (_, old) in zip(unique, brought, strict=False))
    if isinstance(spatial, Nearest) and not alone:
        spatial = replace(spatial, name=unique[-1])
    # a watermark that a side had is not the result's: pairs come later than their rows
    fields = [
        *((name, t.StringType()) for name in added),
        *((field.name, field.dataType) for field in left.schema),
        *((new, right.schema[old].dataType) for new, old in brought),
        *((name, t.DoubleType()) for name in unique[len(brought) :]),
        *((name, time_type) for name in bounds),
    ]
    schema = t.StructType([t.StructField(name, dtype) for name, dtype in fields])
    needed = {times[1], *(old for _, old in brought), *(theirs for _, theirs in key_pairs(keys))}
    needed |= set(named(spatial.right)) if spatial is not None else set()
    idle = positive_seconds(idle_timeout, where=f"{where}(idle_timeout=)")
    frames = left, right.select(*(f"`{name}`" for name in right.columns if name in needed))
    return Checked(
        where,
        StreamJoin(
            keys=keys,
            spatial=spatial,
            time=times,
            when=when,
            how=cast(How, how),
            columns=brought,
            output=types.arrow_schema(schema, where=where),
            lateness=_lateness(sides, times, lateness, is_streaming=left.isStreaming),
            bin=bin_us or when.bin,
            srid=srid,
            idle_timeout=None if idle is None else round(idle * 1e6),
            late_rows=late == "rows",
        ),
        frames,
        (
            types.arrow_schema(frames[0].schema, where=where),
            types.arrow_schema(frames[1].schema, where=where),
        ),
        schema,
        (*added, *ours, *theirs, *bounds),
    )


def _check_alone(where: str, how: str, columns: Columns, when: Interval | Windows) -> None:
    """Whether a join that gives left rows alone asks for nothing of the right side."""
    if columns:
        raise DefinitionError(
            where,
            f"columns is {columns!r}, but how={how!r} brings none",
            there="its rows are those of the left side",
            todo='Leave columns= out, or use how="inner" or how="left".',
        )
    if isinstance(when, Windows) and when.early:
        raise DefinitionError(
            where,
            f"early=True with how={how!r}",
            there="a row is emitted once for each of its windows, when that closes",
            todo="Leave early= out.",
        )


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


def _times(sides: tuple[Relation, Relation], time: Times) -> tuple[tuple[str, str], t.DataType]:
    """The names of the time columns, and their type."""
    where = sides[0].where
    names = (time, time) if isinstance(time, str) else tuple(time)
    if len(names) != 2:
        raise DefinitionError(
            where, f"time is {time!r}", todo="Give a name, or (left name, right name)."
        )
    dtypes = [side.dtype(name, by="time") for side, name in zip(sides, names, strict=True)]
    for side, name, dtype in zip(sides, names, dtypes, strict=True):
        if not isinstance(dtype, (t.TimestampType, t.TimestampNTZType)):
            raise ColumnError(
                where,
                f"time names column {name!r} of {side.name}, which is {dtype.simpleString()}",
                todo="Cast it to timestamp.",
            )
    if dtypes[0] != dtypes[1]:
        raise ColumnError(
            where,
            f"the times are of two types: {names[0]!r} is {dtypes[0].simpleString()}, "
            f"{names[1]!r} is {dtypes[1].simpleString()}",
            todo="Cast one of them: which instant a local time is depends on its zone.",
        )
    return (names[0], names[1]), dtypes[0]


def _condition(
    sides: tuple[Relation, Relation], on: Condition
) -> tuple[Keys | None, Spatial | None, int]:
    """The parts of the condition, and the SRID of its geometries."""
    where = sides[0].where
    keys, spatial, span = split(on)
    if span is not None:
        raise ConditionError(
            where,
            "rm.between and rm.asof look up a table",
            there="streams are joined by their times, which this operator compares itself",
            todo="Leave it out of on=; combine a spatial condition and rm.keys.",
        )
    for ours, theirs in key_pairs(keys):
        dtype = check_comparable("keys", sides[0], ours, sides[1], theirs)
        if not types.is_comparable(dtype):
            raise ConditionError(
                where,
                f"keys compares columns of type {dtype.simpleString()}",
                todo="Compare numbers, strings, bytes, dates or times.",
            )
    if spatial is None:
        return keys, None, 0
    pattern = spatial.pattern if isinstance(spatial, Topology) else None
    if isinstance(spatial, Topology) and (
        spatial.predicate == "disjoint" or (pattern is not None and may_be_disjoint(pattern))
    ):
        raise ConditionError(
            where,
            "two streams cannot be joined by shapes that do not intersect",
            there=f"{spatial} holds for nearly all pairs",
            todo="Ask for shapes that intersect or are near, and filter; or join a table.",
        )
    return keys, spatial, check_spatial(*sides, spatial)


def _lateness(
    sides: tuple[Relation, Relation],
    times: tuple[str, str],
    lateness: Lateness,
    *,
    is_streaming: bool,
) -> tuple[int, int]:
    """How much older than its side's newest row a row of either side may be, in microseconds."""
    if lateness is None:
        if not is_streaming:
            return 0, 0
        return watermark_delay(sides[0], times[0]), watermark_delay(sides[1], times[1])
    where = f"{sides[0].where}(lateness=)"
    both = lateness if isinstance(lateness, tuple) else (lateness, lateness)
    found = tuple(microseconds(one, where=where) for one in both)
    if len(found) != 2 or min(found) < 0:
        raise DefinitionError(
            where, f"{lateness!r} is not a lateness", todo="Give a length of time, or two of them."
        )
    return found[0], found[1]
