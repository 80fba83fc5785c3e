"""Where rows go: the buckets in which they may meet others.

A row of the side that stays (`Routing.single`) lives in exactly one bucket: that of its point's
cell. The other side's rows go to all buckets that their boxes, grown by the distance asked for,
meet. Where neither side stays, because both may hold shapes, both go to all buckets that their
boxes meet, and a pair belongs to the bucket that owns its reference point: the lower left corner
of the boxes' common part (paper C's rule, for both sides).

A left row that finds nothing must be known to have found nothing, and the nearest must be chosen
among all: for those the left side stays. Where nothing bounds how far away its partners are, the
other side's rows go to every bucket.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rivermouth.kernels.keys import row_hash
from rivermouth.kernels.keys.dictionaries import mixed_numbers
from rivermouth.kernels.keys.values import missing, whole
from rivermouth.kernels.skew.salting import Crowds
from rivermouth.kernels.spatial.distance import SLACK, TINY, chord
from rivermouth.kernels.spatial.geometry import Bools, Floats
from rivermouth.kernels.spatial.sphere import RADIUS
from rivermouth.kernels.state.bucketing import REASON, Routed
from rivermouth.kernels.stream_join.grid import Buckets, Grid
from rivermouth.kernels.stream_join.query import COPY, LEFT, RIGHT, Meeting
from rivermouth.kernels.stream_join.row_block import Run, boxes_of, places_of
from rivermouth.kernels.stream_join.times import Span
from rivermouth.spec.conditions import DWithin, Nearest, Point

Ints = npt.NDArray[np.int64]

#: cells are so many times as wide as the distance asked for
_CELLS = 8
_ROUNDING = 1e-15  # share of a coordinate that a sum may be off by

NO_TIME, FUTURE, NO_PLACE, NO_KEY = "null_time", "future", "no_place", "null_key"
#: the copy numbers of left rows that nothing can match, by reason
LONE = {NO_PLACE: -1, NO_KEY: -2}


@dataclass(frozen=True)
class Routing:
    """How the rows of a meeting are dealt to buckets.

    Parameters
    ----------
    grid
        The cells, in the unit of `boxes_of`.
    single
        The side whose rows live in one bucket each, None where neither does.
    reach
        By how much boxes of the other side (of the right one, where neither stays) are grown.
    """

    grid: Grid
    single: int | None
    reach: float


def routing(
    meeting: Meeting, buckets: int, *, cell: float | None = None, spread: int | None = None
) -> Routing:
    """The routing that suits a meeting.

    Parameters
    ----------
    cell
        The side of a cell, in the coordinates' unit or in metres. None: eight times the distance
        asked for, and no cells where there is none.
    spread
        Over how many buckets the rows of one cell are dealt. None: one, or all where there are
        neither cells nor keys to tell rows apart by.
    """
    place = meeting.place
    limit = place.limit if isinstance(place, (DWithin, Nearest)) else None
    on_sphere = isinstance(place, (DWithin, Nearest)) and place.metric == "sphere"
    stays = meeting.how == "left" or meeting.is_nearest
    points = [isinstance(party.place, Point) or on_sphere for party in meeting.parties]
    unbounded = place is None or (isinstance(place, Nearest) and limit is None)
    if unbounded or (stays and not points[LEFT]):
        cell = None
    elif cell is None and limit is not None:
        cell = _CELLS * limit or None
    if on_sphere and cell is not None:
        cell = cell / RADIUS
    if spread is None:
        spread = buckets if cell is None and meeting.equal is None else 1
    single: int | None = LEFT
    if not (stays or points[LEFT] or place is None):
        single = RIGHT if points[RIGHT] else LEFT if cell is None else None
    reach = 0.0 if limit is None else chord(limit, 3 if on_sphere else 2)
    return Routing(Grid(buckets, cell, min(spread, buckets)), single, reach)


def grown(boxes: Floats, reach: float) -> Floats:
    """Boxes that reach farther to all sides, by a little more than asked for rather than less."""
    axes = boxes.shape[1] // 2
    slack = np.abs(boxes) * _ROUNDING + (reach * (1.0 + SLACK) + TINY)
    return np.concatenate([boxes[:, :axes] - slack[:, :axes], boxes[:, axes:] + slack[:, axes:]], 1)


def salts(times: Ints, boxes: Floats) -> Ints:
    """A number that deals rows of one cell: the same wherever and whenever it is computed."""
    mixed = times
    for axis in range(boxes.shape[1] // 2):
        bits = np.ascontiguousarray(boxes[:, axis]).view(np.int64)
        mixed = mixed_numbers(mixed ^ bits).view(np.int64)
    return np.asarray(mixed.view(np.uint64) >> np.uint64(34)).astype(np.int64)


def owners(routing: Routing, left: Run, li: Ints, right: Run, ri: Ints) -> Buckets:
    """The bucket that each pair belongs to, by its reference point."""
    axes = left.boxes.shape[1] // 2
    corner = np.maximum(left.boxes[li, :axes], grown(right.boxes, routing.reach)[ri, :axes])
    salt = salts(left.times, left.boxes)[li]
    return routing.grid.home(routing.grid.spots(left.codes[li], corner), salt)


def asking(meeting: Meeting, routing: Routing) -> Span:
    """When, after a row of the side that goes to several buckets, rows that stay may meet it."""
    return meeting.when.span if routing.single == RIGHT else meeting.when.turned


def spots(routing: Routing, run: Run) -> Ints:
    """The number of each row's code and cell, by the low corner of its box."""
    corner = run.boxes[:, : run.boxes.shape[1] // 2]
    return routing.grid.spots(run.codes, np.ascontiguousarray(corner))


class MeetingRouter:
    """Sends the rows of one side to their buckets.

    Parameters
    ----------
    meeting, side
        What is asked, and whose rows come.
    routing
        How rows are dealt.
    future
        How far ahead of the wall clock a time may be, in microseconds.
    schema
        The columns as they are held: the same whatever the session's time zone is.
    crowds
        The steps that are known when the micro-batch begins; None where nothing is learned.
    """

    def __init__(
        self,
        meeting: Meeting,
        side: int,
        routing: Routing,
        future: int,
        schema: pa.Schema,
        crowds: Crowds | None = None,
    ) -> None:
        self._meeting, self._side, self._routing, self._future = meeting, side, routing, future
        self._schema, self._crowds = schema, crowds
        self._asking, self._stayed = asking(meeting, routing), 0
        self._party = meeting.parties[side]
        self._keeps = side == LEFT and meeting.how == "left"

    def route(self, batch: pa.RecordBatch, now: int) -> Routed:
        """The rows with their buckets, and those that cannot take part."""
        if not batch.schema.equals(self._schema, check_metadata=True):
            batch = batch.cast(self._schema)
        why, times = self._judged(batch, now)
        lone = np.isin(why, list(LONE)) if self._keeps else np.zeros(len(why), dtype=bool)
        aside = (why != "") & ~lone
        fit, alone = np.flatnonzero(why == ""), np.flatnonzero(lone)
        rows, bucket, copy = self._dealt(batch, times, fit)
        rows = np.concatenate([fit[rows], alone])
        bucket = np.concatenate([bucket, (times[alone] % self._routing.grid.buckets)])
        copy = np.concatenate([copy, np.array([LONE[w] for w in why[alone].tolist()], np.int64)])
        admitted = times[(why != NO_TIME) & (why != FUTURE)]
        return Routed(
            _with(_taken(batch, rows), COPY, pa.array(copy, pa.int16())),
            bucket.astype(np.int32),
            int(admitted.max()) if len(admitted) else None,
            self._aside(batch, why, aside),
        )

    def note(self) -> dict[str, Any] | None:
        """By which steps rows were dealt, and how many of the side that stays."""
        if self._crowds is None:
            return None
        return {"steps": self._crowds.steps, "rows": self._stayed}

    def _judged(self, batch: pa.RecordBatch, now: int) -> tuple[npt.NDArray[np.str_], Ints]:
        """Why each row cannot take part, "" where it can, and the rows' times."""
        column = batch.column(self._party.time)
        times = whole(column)
        why = np.full(batch.num_rows, "", dtype="U9")
        if self._party.keys:
            why[missing([batch.column(name) for name in self._party.keys])] = NO_KEY
        if self._party.place is not None:
            why[~places_of(self._meeting, self._side, batch).ok] = NO_PLACE
        why[times > now + self._future] = FUTURE
        why[column.is_null().to_numpy(zero_copy_only=False)] = NO_TIME
        return why, times

    def _dealt(self, batch: pa.RecordBatch, times: Ints, fit: Ints) -> tuple[Ints, Buckets, Ints]:
        """For rows that can take part: (place in `fit`, bucket, number of the copy)."""
        routing, crowds = self._routing, self._crowds or Crowds()
        part = _taken(batch, fit)
        keys = [part.column(name) for name in self._party.keys]
        code = row_hash.codes(keys) if keys else np.zeros(len(fit), np.int64)
        if self._party.place is None:
            boxes = np.zeros((len(fit), 2))
        else:
            boxes = boxes_of(self._meeting, places_of(self._meeting, self._side, part))
        if routing.single == self._side:
            corner = np.ascontiguousarray(boxes[:, : boxes.shape[1] // 2])
            spot = routing.grid.spots(code, corner)
            spread = crowds.at(spot, times[fit])
            home = routing.grid.home(spot, salts(times[fit], boxes), spread)
            self._stayed += len(fit)
            return np.arange(len(fit)), home, np.zeros(len(fit), np.int64)
        grows = routing.single is not None or self._side == RIGHT
        rows, bucket = routing.grid.copies(
            code,
            grown(boxes, routing.reach) if grows else boxes,
            crowds,
            times[fit] + self._asking.lower,
            times[fit] + self._asking.upper,
        )
        first = np.searchsorted(rows, rows)
        return rows, bucket, np.arange(len(rows)) - first

    def _aside(
        self, batch: pa.RecordBatch, why: npt.NDArray[np.str_], aside: Bools
    ) -> pa.RecordBatch | None:
        if not aside.any():
            return None
        rows = np.flatnonzero(aside)
        return _with(_taken(batch, rows), REASON, pa.array(why[rows].astype(object), pa.string()))


def _taken(batch: pa.RecordBatch, rows: Ints) -> pa.RecordBatch:
    if len(rows) == batch.num_rows and (np.diff(rows) == 1).all():
        return batch
    return batch.take(pa.array(rows))


def _with(batch: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([*batch.columns, column], [*batch.schema.names, name])
