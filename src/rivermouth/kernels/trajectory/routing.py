"""The bucket of each position: one for all of an object's; unusable positions are rejected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rivermouth.kernels.arrays import Bools, Ints
from rivermouth.kernels.keys.values import ints, missing
from rivermouth.kernels.spatial.geometry import Geometries, geometries_of
from rivermouth.kernels.state.bucketing import BAD_GEOMETRY, FUTURE, NO_KEY, NO_TIME, REASON, Routed
from rivermouth.kernels.state.groups import buckets
from rivermouth.spec.conditions import Geometry

#: a column of routed rows: false where a row repeats the position of the row before
FIRST = "_first"

#: gives for positions the rows to send instead, and the position that each is of, in order
Enrich = Callable[[pa.RecordBatch], tuple[pa.RecordBatch, Ints]]


class PositionRouter:
    """Sends each position to its object's bucket.

    A position without a time or too far in the future, without a place, or with a null or NaN in
    its object's key is rejected, in this order.

    Parameters
    ----------
    by, time, place
        The columns of the object, the time and the place.
    schema
        The columns as they are in state: the same whatever the session's time zone is.
    count
        How many buckets there are.
    max_future
        How far ahead of the wall clock a time may be, in microseconds: one wrong clock would make
        all other positions late.
    srid
        The SRID that places must have, 0 for any.
    on_sphere
        Whether places must be points of the sphere, in degrees.
    only_points
        Whether places must be points.
    enrich
        What is sent instead of the positions themselves, where it is not they.
    only
        A column that says which positions are sent; others count for the watermark. None: all.
    note
        What the buckets are told of the task, for the metrics; None for nothing.
    """

    def __init__(
        self,
        by: tuple[str, ...],
        time: str,
        place: Geometry,
        schema: pa.Schema,
        count: int,
        max_future: int,
        *,
        srid: int = 0,
        on_sphere: bool = False,
        only_points: bool = False,
        enrich: Enrich | None = None,
        only: str | None = None,
        note: dict[str, Any] | None = None,
    ) -> None:
        self._by, self._time, self._place, self._schema = by, time, place, schema
        self._count, self._max_future, self._enrich = count, max_future, enrich
        self._only, self._note = only, note
        self._srid, self._on_sphere, self._only_points = srid, on_sphere, only_points

    def note(self) -> dict[str, Any] | None:
        """What the buckets are told of the task."""
        return self._note

    def route(self, batch: pa.RecordBatch, now: int) -> Routed:
        """The positions with their buckets, and those that are rejected."""
        if not batch.schema.equals(self._schema, check_metadata=True):
            batch = batch.cast(self._schema)
        times = ints(batch.column(self._time))
        reasons = self._reject_reasons(batch, times, now)
        is_usable = reasons == ""
        rejected = None
        if not is_usable.all():
            reason = pa.array(reasons[~is_usable].astype(object), pa.string())
            unusable = batch.filter(pa.array(~is_usable))
            rejected = pa.RecordBatch.from_arrays(
                [*unusable.columns, reason], [*unusable.schema.names, REASON]
            )
            batch, times = batch.filter(pa.array(is_usable)), times[is_usable]
        if self._only is not None:
            batch = batch.filter(batch.column(self._only))
        to = buckets([batch.column(name) for name in self._by], batch.num_rows, self._count)
        rows, first = batch, np.ones(batch.num_rows, dtype=bool)
        if self._enrich is not None:
            rows, of = self._enrich(batch)
            to, first = to[of], np.diff(of, prepend=-1) != 0
        sent = pa.RecordBatch.from_arrays(
            [*rows.columns, pa.array(first)], [*rows.schema.names, FIRST]
        )
        return Routed(sent, to, int(times.max()) if len(times) else None, rejected)

    def _reject_reasons(self, batch: pa.RecordBatch, times: Ints, now: int) -> npt.NDArray[np.str_]:
        """Why each position cannot be used, "" where it can."""
        reasons = np.full(batch.num_rows, "", dtype="U16")
        reasons[missing([batch.column(name) for name in self._by])] = NO_KEY
        reasons[~self._valid_places(batch)] = BAD_GEOMETRY
        reasons[times > now + self._max_future] = FUTURE
        reasons[batch.column(self._time).is_null().to_numpy(zero_copy_only=False)] = NO_TIME
        return reasons

    def _valid_places(self, batch: pa.RecordBatch) -> Bools:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        places: Geometries = geometries_of(columns, self._place, srid=self._srid)
        if self._on_sphere:
            places = places.on_sphere()
        elif self._only_points:
            places = places.only_points()
        return places.valid
