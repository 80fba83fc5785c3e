"""The arguments of `trips`, checked against the positions' schema."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import types as t

from rivermouth.errors import ColumnError, DefinitionError
from rivermouth.kernels.trajectory.query import REASON, Trajectory
from rivermouth.kernels.trips.fold import BEGIN, Trips, X, Y
from rivermouth.kernels.trips.segmentation import Segmentation
from rivermouth.spark import types
from rivermouth.spark.validation.relation import Relation, check_option
from rivermouth.spark.validation.trajectories import (
    CHANGE_FIELD,
    REVISION_FIELD,
    Positions,
    check_positions,
)
from rivermouth.spec.conditions import Geometry, Metric, Point, named
from rivermouth.spec.durations import Duration, microseconds

#: radius and duration
Stop = tuple[float, Duration]

Late = Literal["count", "rows"]
_SIDE = "the positions"


@dataclass(frozen=True)
class CheckedTrips:
    """Trips that can be computed.

    Parameters
    ----------
    positions
        The positions and how long they are waited for.
    trips, query
        What is computed, and how it is bucketed.
    srid
        The SRID of the places, 0 where it is not known.
    schema
        The result's schema.
    """

    positions: Positions
    trips: Trips
    query: Trajectory
    srid: int
    schema: t.StructType


def check(
    where: str,
    positions: DataFrame,
    *,
    by: str | Sequence[str],
    time: str,
    point: Geometry,
    gap: Duration,
    stop: Stop | None,
    min_length: float,
    metric: str,
    lateness: Duration | None,
    late: str,
    max_future: Duration,
    idle_timeout: Duration | None,
    early: bool,
) -> CheckedTrips:
    """The trips, or the first error in their arguments."""
    check_option(where, "metric", metric, get_args(Metric))
    how = _segmentation(where, gap, stop, on_sphere=metric == "sphere")
    _check_length(where, "min_length", min_length)
    checked = check_positions(
        where, positions, by=by, time=time, place=_point(where, point), lateness=lateness,
        late=late, max_future=max_future, idle_timeout=idle_timeout,
    )  # fmt: skip
    srid = _srid(checked.relation, point)
    time_type = checked.schema.field(time).type
    trips = Trips(checked.by, time, how, float(min_length), time_type)
    fields = [t.StructField(name, checked.relation.dtype(name)) for name in checked.by]
    if early:
        fields.insert(0, CHANGE_FIELD)
    for name, dtype in trips.fields():
        made = types.to_spark(dtype, where=where, column=name)
        fields.append(t.StructField(name, made))
    if early:
        fields.append(REVISION_FIELD)
    fields += checked.record
    if checked.late == "rows":
        fields.append(t.StructField(REASON, t.StringType()))
    _check_names(where, [field.name for field in fields], checked)
    schema = t.StructType(fields)
    query = Trajectory(
        checked.by,
        time,
        pa.schema([
            *(checked.schema.field(name) for name in checked.by),
            (time, pa.int64()), (X, pa.float64()), (Y, pa.float64()),
        ]),
        (X, Y),
        checked.lateness,
        types.arrow_schema(schema, where=where),
        checked.idle_timeout,
        closes=True,
        identity=(*checked.by, BEGIN) if early else (),
    )  # fmt: skip
    return CheckedTrips(checked, trips, query, srid, schema)


def _segmentation(where: str, gap: Duration, stop: Stop | None, *, on_sphere: bool) -> Segmentation:
    gap_us = _positive(f"{where}(gap=)", gap)
    if stop is None:
        return Segmentation(gap_us, on_sphere=on_sphere)
    if isinstance(stop, str) or not hasattr(stop, "__len__") or len(stop) != 2:
        raise DefinitionError(
            where, f"stop is {stop!r}", todo='Give (radius, duration), as in (50, "5 minutes").'
        )
    radius, duration = stop
    _check_length(where, "stop's radius", radius)
    return Segmentation(gap_us, float(radius), _positive(f"{where}(stop=)", duration), on_sphere)


def _positive(where: str, length: Duration) -> int:
    found = microseconds(length, where=where)
    if found <= 0:
        raise DefinitionError(
            where, f"{length!r} is not longer than nothing", todo="Make it positive."
        )
    return found


def _check_length(where: str, name: str, value: object) -> None:
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or value < 0:  # type: ignore[arg-type,operator]
        raise DefinitionError(
            where,
            f"{name} is {value!r}",
            todo='Give a number that is not negative: metres with metric="sphere", else in the'
            " coordinates' unit.",
        )


def _point(where: str, point: Geometry) -> Geometry:
    if not isinstance(point, (str, Point)):
        raise DefinitionError(
            where,
            f"point is {point!r}",
            todo='Name a column of points, or two of numbers as in rm.point("lon", "lat").',
        )
    return point


def _srid(relation: Relation, point: Geometry) -> int:
    for name in named(point):
        relation.dtype(name, by="point")
    return relation.srid(point)


def _check_names(where: str, names: Sequence[str], checked: Positions) -> None:
    added = list(names)
    for name in checked.by:
        added.remove(name)
    if clash := [name for name in checked.by if name in (*added, X, Y)]:
        raise ColumnError(
            where,
            f"by names column {clash[0]!r}, which the result has itself",
            there=f"it adds {added}",
            todo=f"Rename it first: positions.withColumnRenamed({clash[0]!r}, ...).",
        )
    if checked.late == "rows" and (
        clash := [name for name in (X, Y) if name in checked.schema.names]
    ):
        raise ColumnError(
            where,
            f"the positions have a column {clash[0]!r}, a name that the state uses",
            todo=f"Rename it first: positions.withColumnRenamed({clash[0]!r}, ...).",
        )
