"""The arguments of `fence_events`, checked against the positions and the table."""

from __future__ import annotations

import time as clock
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as t

from rivermouth.errors import ColumnError, ConditionError, DefinitionError, PlanError
from rivermouth.kernels.fences import query as names
from rivermouth.kernels.fences.query import EVENTS, FenceQuery, Hysteresis, fence_column
from rivermouth.kernels.fences.table import CROSSABLE
from rivermouth.kernels.trajectory.query import Trajectory
from rivermouth.spark import types
from rivermouth.spark.validation.names import result_names
from rivermouth.spark.validation.relation import (
    Columns,
    Relation,
    check_comparable,
    check_spatial,
)
from rivermouth.spark.validation.services import not_readable
from rivermouth.spark.validation.trajectories import (
    CHANGE_FIELD,
    REVISION_FIELD,
    Positions,
    check_positions,
)
from rivermouth.spec.caches import Cache, Full
from rivermouth.spec.conditions import (
    Condition,
    DWithin,
    Keys,
    Spatial,
    Topology,
    key_pairs,
    named,
    split,
)
from rivermouth.spec.durations import Duration, microseconds
from rivermouth.tables.cache.snapshot import SnapshotSpec
from rivermouth.tables.changes.definition import following_spec
from rivermouth.tables.source import Source
from rivermouth.tables.sources.frame import FrameTable
from rivermouth.tables.sources.service.table import ServiceTable

WHERE = "fence_events"
#: a length of time, or a number of positions
Confirmation = Duration | int | None


@dataclass(frozen=True)
class Checked:
    """Fence events that can be computed.

    Parameters
    ----------
    query
        What is asked of an object's positions.
    positions
        The positions.
    keys, spatial, srid
        The condition, and the SRID of its geometries.
    spec, cache
        What a snapshot of the table holds, and how it is kept.
    fences
        The table's columns that tell fences apart: (name in the state, name in the table, type).
    schema
        The result's schema.
    only
        A column of the positions that says which of them are processed; None: all.
    """

    query: FenceQuery
    positions: Positions
    keys: Keys | None
    spatial: Spatial
    srid: int
    spec: SnapshotSpec
    cache: Full
    fences: tuple[tuple[str, str, pa.DataType], ...]
    schema: t.StructType
    only: str | None = None

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The positions' columns that are compared with keys of the table."""
        return tuple(left for left, _ in key_pairs(self.keys))


def check(
    positions: DataFrame,
    table: Source,
    *,
    on: Condition,
    by: str | Sequence[str],
    time: str,
    events: Sequence[str],
    dwell: Duration | None,
    min_inside: Confirmation,
    min_outside: Confirmation,
    gap: Duration | None,
    first_inside: bool,
    columns: Columns,
    cache: Cache | None,
    lateness: Duration | None,
    late: str,
    max_future: Duration,
    idle_timeout: Duration | None,
    early: bool,
    only: str | None = None,
) -> Checked:
    """The definition, or the first error in these arguments."""
    _check_sides(positions, table)
    keys, spatial = _condition(on)
    left, right = Relation(WHERE, "the positions", positions.schema), _relation(table)
    for ours, theirs in key_pairs(keys):
        check_comparable("keys", left, ours, right, theirs)
    srid = check_spatial(left, right, spatial)
    wanted = _events(events, spatial, dwell, gap)
    key_columns = tuple(ours for ours, _ in key_pairs(keys))
    found = check_positions(
        WHERE, positions, by=by, time=time, place=spatial.left,
        more=key_columns if only is None else (*key_columns, only),
        lateness=lateness, late=late, max_future=max_future, idle_timeout=idle_timeout,
    )  # fmt: skip
    brought = _brought(right, columns, keys, spatial)
    schema = _schema(found, right, brought, early=early)
    output = types.arrow_schema(schema, where=WHERE)
    fences = tuple(
        (fence_column(number), old, output.field(new).type)
        for number, (new, old) in enumerate(brought)
    )
    more = [
        *(found.schema.field(name) for name in key_columns if name not in found.columns),
        *(pa.field(name, dtype) for name, _, dtype in fences),
        *(pa.field(names.INSIDE, pa.bool_()), pa.field(names.VERSION, pa.int64())),
    ]
    place = named(spatial.left)
    # an object may be at several places at one time
    identity = (*found.columns, *(new for new, _ in brought), names.EVENT) if early else ()
    trajectory = Trajectory(
        found.by, time, found.state_schema(more), place, found.lateness, output,
        found.idle_timeout, identity=identity,
    )  # fmt: skip
    query = FenceQuery(
        trajectory, place, tuple(new for new, _ in brought), wanted,
        _hysteresis("min_inside", min_inside), _hysteresis("min_outside", min_outside),
        _length("dwell", dwell), _length("gap", gap), bool(first_inside),
    )  # fmt: skip
    full = _full(cache, table)
    compared = [*(name for _, name in key_pairs(keys)), *named(spatial.right)]
    held = dict.fromkeys([*compared, *(old for _, old in brought)])
    held_schema = pa.schema([table.schema().field(name) for name in held])
    spec = SnapshotSpec(table, held_schema, keys, spatial, None, full.index, clock.time())
    spec = following_spec(spec, table.schema(), full.changes, where=WHERE)
    return Checked(query, found, keys, spatial, srid, spec, full, fences, schema, only)


def _relation(table: Source) -> Relation:
    return Relation(WHERE, table.name, table.schema())


def _check_sides(positions: object, table: object) -> None:
    # asked first: a frame of Spark Connect seems to have every attribute, so those of a Source, too
    is_frame = isinstance(table, DataFrame)
    if isinstance(positions, DataFrame) and isinstance(table, Source) and not is_frame:
        return
    raise DefinitionError(
        WHERE,
        "the positions must be a DataFrame and the fences one of rm.tables",
        there=f"they are of types {type(positions).__name__} and {type(table).__name__}",
        todo='Write fence_events(positions, rm.tables.geojson("fences.geojson"), ...) or the like.',
    )


def _condition(on: Condition) -> tuple[Keys | None, Spatial]:
    keys, spatial, span = split(on)
    if spatial is None or span is not None:
        raise ConditionError(
            WHERE,
            "on says nothing of where a position is",
            there=f"it is {on}",
            todo='Write a spatial condition, as in rm.within(rm.point("lon", "lat"), "geometry").',
        )
    return keys, spatial


def _events(
    events: Sequence[str], spatial: Spatial, dwell: Duration | None, gap: Duration | None
) -> frozenset[str]:
    """The kinds of events that are asked for, and can be given."""
    wanted = (events,) if isinstance(events, str) else tuple(events)
    if not wanted or not set(wanted) <= set(EVENTS):
        raise DefinitionError(
            WHERE, f"events is {events!r}", todo=f"Give one or more of {list(EVENTS)}."
        )
    for event, argument, value in (("dwell", "dwell", dwell), ("lost", "gap", gap)):
        if event in wanted and value is None:
            raise DefinitionError(
                WHERE,
                f"events has {event!r}, but {argument} is not given",
                todo=f'Give a length of time, as in {argument}="10 minutes".',
            )
    if dwell is not None and "dwell" not in wanted:
        raise DefinitionError(
            WHERE,
            "dwell is given, but events has no 'dwell'",
            there=f"events is {list(wanted)}",
            todo=f"Write events={[*wanted, 'dwell']}, or leave dwell out.",
        )
    can_cross = (
        spatial.predicate in CROSSABLE if isinstance(spatial, Topology)
        else isinstance(spatial, DWithin)
    )  # fmt: skip
    if "cross" in wanted and not can_cross:
        raise ConditionError(
            WHERE,
            f"'cross' has no meaning for {spatial}",
            todo=f"Use one of {[f'rm.{name}' for name in (*CROSSABLE, 'dwithin')]}.",
        )
    return frozenset(wanted)


def _hysteresis(name: str, value: Confirmation) -> Hysteresis:
    if value is None:
        return Hysteresis()
    if isinstance(value, int) and not isinstance(value, bool):
        if value < 1:
            raise DefinitionError(
                WHERE, f"{name} is {value}", todo="Give one position or more, or a length of time."
            )
        return Hysteresis(count=value)
    length = _length(name, value)
    assert length is not None
    return Hysteresis(length=length)


def _length(name: str, value: Any) -> int | None:
    """A length of time in microseconds, longer than nothing; None stays None."""
    if value is None:
        return None
    where = f"{WHERE}({name}=)"
    length = microseconds(value, where=where)
    if length <= 0:
        raise DefinitionError(
            where, f"{value!r} is not longer than nothing", todo="Make it positive."
        )
    return length


def _brought(
    right: Relation, columns: Columns, keys: Keys | None, spatial: Spatial
) -> tuple[tuple[str, str], ...]:
    """The columns that tell fences apart."""
    brought = right.brought(columns, keys, spatial)
    if not brought:
        raise ColumnError(
            WHERE,
            "no column tells one fence from another",
            there=f"the columns of {right.name} are {right.schema.names}",
            todo='Name at least one, as in columns=["zone"].',
        )
    for _, old in brought:
        dtype = right.dtype(old, by="columns")
        if isinstance(dtype, (t.ArrayType, t.MapType, t.StructType)):
            raise ColumnError(
                WHERE,
                f"column {old!r} of {right.name} is {dtype.simpleString()}, which cannot tell "
                "fences apart",
                todo="Choose columns of numbers, strings, dates or times with columns=[...].",
            )
    return brought


def _schema(
    found: Positions, right: Relation, brought: tuple[tuple[str, str], ...], *, early: bool
) -> t.StructType:
    time = found.relation.dtype(found.time)
    kind = [*found.kind, CHANGE_FIELD] if early else found.kind
    added = [
        t.StructField(names.EVENT, t.StringType()),
        t.StructField(names.ENTERED, time),
        t.StructField(names.SECONDS, t.DoubleType()),
        t.StructField(names.REASON, t.StringType()),
        *([REVISION_FIELD] if early else []),
        *found.record,
    ]
    reserved = [field.name for field in (*kind, *added)]
    result_names(
        WHERE, [field.name for field in found.shown], [new for new, _ in brought], None,
        sides=("the positions have", "the fences bring"), reserved=reserved,
        todo='Choose or rename with columns=["..."] or columns={"new": "old"}, and rename columns '
        f"of the positions that are called like one of {reserved}.",
    )  # fmt: skip
    fences = [t.StructField(new, right.dtype(old)) for new, old in brought]
    return t.StructType([*kind, *found.shown, *fences, *added])


def _full(cache: Cache | None, table: Source) -> Full:
    if cache is not None and not isinstance(cache, Full):
        raise PlanError(
            WHERE,
            f"cache is {cache!r}",
            there="fences are kept whole, so that one that is removed can be told",
            todo="Use rm.full(...), or leave it out.",
        )
    if cache is not None and cache.buckets is not None:
        raise PlanError(WHERE, "rm.full(buckets=) is not for fences", todo="Leave buckets out.")
    if isinstance(table, ServiceTable):
        raise not_readable(table, where=WHERE, todo="Keep the fences in a file or a database.")
    if isinstance(table, FrameTable):
        raise PlanError(
            WHERE,
            "the fences are a DataFrame, which workers cannot read",
            todo="Write it once: table = rm.snapshot(df, path).",
        )
    return Full() if cache is None else cache
