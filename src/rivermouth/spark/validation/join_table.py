"""The arguments of `join_table`, checked against both schemas."""

from __future__ import annotations

import datetime as dt
import time
from dataclasses import dataclass
from typing import Literal, cast, get_args

import pyarrow as pa
from pyspark.sql import types as t

from rivermouth.errors import ColumnError, ConditionError
from rivermouth.spark import types
from rivermouth.spark.validation.names import Suffixes, result_names, unique_names
from rivermouth.spark.validation.relation import (
    Columns,
    Relation,
    check_comparable,
    check_option,
    check_spatial,
)
from rivermouth.spec.caches import Full
from rivermouth.spec.conditions import (
    Between,
    Condition,
    Keys,
    Nearest,
    Point,
    Range,
    Spatial,
    combine,
    key_pairs,
    named,
    right_columns,
    split,
)
from rivermouth.tables.cache.snapshot import SnapshotSpec
from rivermouth.tables.changes.definition import following_spec
from rivermouth.tables.source import Source, srid_of

How = Literal["inner", "left", "semi", "anti"]
WHERE = "join_table"
_GEOMETRY = pa.struct([("srid", pa.int32()), ("wkb", pa.binary())])


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
    def label_columns(self) -> list[str]:
        """What a map calls a row by: the first text among the columns brought, or at all."""
        texts = [field.name for field in self.table if _is_text(field.type)]
        return [name for name in (*(old for _, old in self.columns), *texts) if name in texts][:1]

    @property
    def left_columns(self) -> tuple[str, ...]:
        """The events' columns that the condition names."""
        keys = (left for left, _ in key_pairs(self.keys))
        spatial = named(self.spatial.left) if self.spatial is not None else ()
        span = (self.range.left,) if self.range is not None else ()
        return tuple(dict.fromkeys((*keys, *spatial, *span)))

    @property
    def probe_schema(self) -> pa.Schema:
        """The events' columns that the condition names, as they come to a worker."""
        fields = []
        for name in self.left_columns:
            kind = self.events[name].dataType
            is_geometry = types.is_geometry(kind)
            arrow = _GEOMETRY if is_geometry else types.to_arrow(kind, where=WHERE, column=name)
            fields.append(pa.field(name, arrow))
        return pa.schema(fields)

    @property
    def table_columns(self) -> tuple[str, ...]:
        """All columns of the table that are needed."""
        return tuple(dict.fromkeys((*right_columns(self.on), *(old for _, old in self.columns))))

    def snapshot_spec(self, cache: Full) -> SnapshotSpec:
        """What a snapshot for this join holds."""
        schema = pa.schema([self.table.field(name) for name in self.table_columns])
        spec = SnapshotSpec(
            self.source, schema, self.keys, self.spatial, self.range, cache.index, self.since,
            cache.buckets,
        )  # fmt: skip
        return following_spec(spec, self.table, cache.changes, where=WHERE)

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


def _is_text(dtype: pa.DataType) -> bool:
    return bool(pa.types.is_string(dtype) or pa.types.is_large_string(dtype))


def check(
    events: t.StructType,
    source: Source,
    *,
    on: Condition,
    how: str,
    columns: Columns,
    suffixes: Suffixes,
    where: str = WHERE,
) -> Join:
    """The join, or the first thing that is wrong with it; `where` is what its errors begin with."""
    check_option(where, "how", how, get_args(How))
    keys, spatial, span = split(on)
    table = source.schema()
    left, right = Relation(where, "the events", events), Relation(where, source.name, table)
    for one, other in key_pairs(keys):
        check_comparable("keys", left, one, right, other)
    if spatial is not None:
        check_spatial(left, right, spatial)
    if span is not None:
        _check_range(span, left, right)
    bring = right.brought(columns, keys, spatial) if how in ("inner", "left") else ()
    if how in ("semi", "anti") and columns:
        raise ColumnError(
            where,
            f"columns= has no meaning with how={how!r}",
            todo="Leave it out: none are brought.",
        )
    distances = [spatial.name] if isinstance(spatial, Nearest) and how in ("inner", "left") else []
    ours, theirs = result_names(
        where, events.names, [*(new for new, _ in bring), *distances], suffixes,
        sides=("the events have", "the table brings"),
        todo='Choose or rename with columns=["..."] or columns={"new": "old"}'
        + (", name the distances with rm.nearest(name=...)" if distances else "")
        + ', or give suffixes=("", "_table").',
    )  # fmt: skip
    unique = unique_names(events.names, theirs)
    return Join(
        keys, spatial, span, cast(How, how), source, events, table,
        tuple((new, old) for new, (_, old) in zip(unique, bring, strict=False)),
        unique[-1] if distances else None, (*ours, *theirs), time.time(),
    )  # fmt: skip


def _check_range(span: Range, left: Relation, right: Relation) -> None:
    what = "between" if isinstance(span, Between) else "asof"
    dtype = check_comparable(what, left, span.left, right, span.right)
    is_time = isinstance(dtype, (t.DateType, t.TimestampType, t.TimestampNTZType))
    if not (is_time or types.is_number(dtype)):
        raise ConditionError(
            left.where,
            f"{what} needs numbers, dates or times, but {span.right!r} of {right.name} is "
            f"{dtype.simpleString()}",
            todo="Cast it, or join by rm.keys.",
        )
    if isinstance(span, Between):
        _check_offsets(span, dtype, is_time, left.where)


def _check_offsets(span: Between, dtype: t.DataType, is_time: bool, where: str) -> None:
    """Offsets that the column's type can be added to without rounding or guessing."""
    for end in ("lower", "upper"):
        offset = getattr(span, end)
        if isinstance(offset, dt.timedelta) != is_time:
            todo = "Give a length of time, as in '5 minutes'." if is_time else "Give a number."
        elif isinstance(dtype, t.DateType) and offset % dt.timedelta(days=1):
            todo = "Give whole days, or cast both columns to timestamp."
        elif types.family(dtype) == "integer" and offset != int(offset):
            todo = "Give a whole number, or cast both columns to double."
        elif isinstance(dtype, t.DecimalType) and isinstance(offset, float):
            todo = "Give a Decimal or a whole number, or cast both columns to double."
        else:
            continue
        raise ConditionError(
            where,
            f"between({end}={offset!r}) does not go with {span.right!r}, which is "
            f"{dtype.simpleString()}",
            todo=todo,
        )
