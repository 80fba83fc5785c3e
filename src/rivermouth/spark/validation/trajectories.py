"""What all operators on trajectories check: the objects, the times, and how long is waited."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as t

from rivermouth.errors import ColumnError, DefinitionError
from rivermouth.kernels.trajectory.query import CHANGE, KIND, RECORD, REVISION
from rivermouth.spark import types
from rivermouth.spark.validation.relation import Relation, check_option, watermark_delay
from rivermouth.spec.conditions import Geometry, named
from rivermouth.spec.durations import Duration, microseconds, positive_seconds

Late = Literal["count", "rows"]
#: the first and the last column of a changelog
CHANGE_FIELD = t.StructField(CHANGE, t.StringType())
REVISION_FIELD = t.StructField(REVISION, t.LongType())
_SIDE = "the positions"
_ZONES = 14 * 3_600_000_000  # how far a local time without a zone may be ahead of UTC


@dataclass(frozen=True)
class Positions:
    """A frame of positions that can be processed.

    Parameters
    ----------
    frame
        The frame, with the columns that are needed only.
    relation
        The same as one input of a join, whole.
    by, time, place
        The columns of the object, of the time, and of the place.
    schema
        The frame's schema as workers get it.
    lateness, max_future, idle_timeout
        How much older than the newest a position may be, how far ahead of the wall clock, and for
        how long none may come, in microseconds.
    late
        Whether late and rejected positions are rows of the result.
    """

    frame: DataFrame
    relation: Relation
    by: tuple[str, ...]
    time: str
    place: Geometry
    schema: pa.Schema
    lateness: int
    max_future: int
    idle_timeout: int | None
    late: Late

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the object, the time and the place."""
        return (*self.by, self.time, *named(self.place))

    @property
    def shown(self) -> list[t.StructField]:
        """The fields of a result that come from the positions."""
        return [t.StructField(name, self._dtype(name)) for name in self.columns]

    @property
    def kind(self) -> list[t.StructField]:
        """The first field of a result, where late positions are part of it."""
        return [t.StructField(KIND, t.StringType())] if self.late == "rows" else []

    @property
    def record(self) -> list[t.StructField]:
        """The field of a result in which late and rejected positions are."""
        if self.late == "count":
            return []
        whole = [t.StructField(field.name, field.dataType) for field in self.frame.schema]
        return [t.StructField(RECORD, t.StructType(whole))]

    def state_schema(self, more: Sequence[pa.Field] = ()) -> pa.Schema:
        """What the state keeps of a position; its time as a number."""
        fields = [self.schema.field(name) for name in self.columns]
        fields[len(self.by)] = pa.field(self.time, pa.int64())
        return pa.schema([*fields, *more])

    def _dtype(self, name: str) -> t.DataType:
        return self.relation.dtype(name)


def check_positions(
    where: str,
    positions: DataFrame,
    *,
    by: str | Sequence[str],
    time: str,
    place: Geometry,
    more: Sequence[str] = (),
    lateness: Duration | None,
    late: str,
    max_future: Duration,
    idle_timeout: Duration | None,
) -> Positions:
    """The positions, or the first error in these arguments.

    `place` has been checked already; `more` are further columns that are needed.
    """
    if not hasattr(positions, "isStreaming"):
        raise DefinitionError(
            where,
            f"{_SIDE} are a {type(positions).__name__}, not a frame",
            todo="Give a DataFrame of positions first.",
        )
    check_option(where, "late", late, get_args(Late))
    relation = Relation(where, _SIDE, positions.schema)
    keys = (by,) if isinstance(by, str) else tuple(by)
    _check_keys(relation, keys)
    _check_time(relation, time)
    columns = [*keys, time, *named(place)]
    if twice := sorted({name for name in columns if columns.count(name) > 1}):
        raise ColumnError(
            where,
            f"column {twice[0]!r} is named twice",
            there=f"the object is {list(keys)}, the time {time!r}, the place {place}",
            todo="Name three different things.",
        )
    future = microseconds(max_future, where=f"{where}(max_future=)")
    if isinstance(relation.dtype(time), t.TimestampNTZType):
        future += _ZONES
    idle = positive_seconds(idle_timeout, where=f"{where}(idle_timeout=)")
    needed = {*columns, *more}
    frame = positions
    if late == "count":
        frame = positions.select(*(f"`{name}`" for name in positions.columns if name in needed))
    return Positions(
        frame, relation, keys, time, place, types.arrow_schema(frame.schema, where=where),
        _lateness(relation, time, lateness, is_streaming=positions.isStreaming), future,
        None if idle is None else round(idle * 1e6), "rows" if late == "rows" else "count",
    )  # fmt: skip


def _check_keys(relation: Relation, by: tuple[str, ...]) -> None:
    if not by:
        raise DefinitionError(
            relation.where, "by names no column", todo='Name what tells objects apart: by="taxi".'
        )
    for name in by:
        dtype = relation.dtype(name, by="by")
        if not types.is_comparable(dtype):
            raise ColumnError(
                relation.where,
                f"by names column {name!r}, which is {dtype.simpleString()}",
                todo="Name columns of numbers, strings, bytes, dates or times.",
            )


def _check_time(relation: Relation, time: str) -> None:
    dtype = relation.dtype(time, by="time")
    if not isinstance(dtype, (t.TimestampType, t.TimestampNTZType)):
        raise ColumnError(
            relation.where,
            f"time names column {time!r}, which is {dtype.simpleString()}",
            todo="Cast it to timestamp.",
        )


def _lateness(
    relation: Relation, time: str, lateness: Duration | None, *, is_streaming: bool
) -> int:
    """How much older than the newest a position may be, in microseconds."""
    if lateness is None:
        return watermark_delay(relation, time) if is_streaming else 0
    where = f"{relation.where}(lateness=)"
    found = microseconds(lateness, where=where)
    if found < 0:
        raise DefinitionError(where, f"{lateness!r} is negative", todo="Make it zero or longer.")
    return found
