"""Moves and stays of the positions that a bucket releases."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from rivermouth.kernels.arrays import Ints
from rivermouth.kernels.spatial.geometry import geometries_of
from rivermouth.kernels.trajectory.processor import Folded, Released
from rivermouth.kernels.trips.paths import lengths, located, wkb
from rivermouth.kernels.trips.segmentation import (
    KINDS,
    STAY,
    Carry,
    Rows,
    Segmentation,
    Tracks,
    appended,
    finish,
    segment,
)
from rivermouth.kernels.trips.track_log import TrackLog
from rivermouth.spec.conditions import Geometry, named

#: raised when what is kept in the state changes its meaning
FORMAT = 1
#: the columns of a position's coordinates in the state
X, Y = "_x", "_y"
#: the columns of a result besides those of the object
KIND, BEGIN, END, PATH = "kind", "begin", "end", "path"
LENGTH, DURATION, POSITIONS = "length", "duration", "positions"
#: those of them that may change from one revision of a row to the next
VALUES = (KIND, END, PATH, LENGTH, DURATION, POSITIONS)

_CARRY = pa.schema(
    [
        ("begin", pa.int64()),
        ("after_stay", pa.bool_()),
        ("is_stay", pa.bool_()),
        ("time", pa.list_(pa.int64())),
        ("x", pa.list_(pa.float64())),
        ("y", pa.list_(pa.float64())),
    ]
)
_COUNTS = tuple(f"{kind}s" for kind in KINDS)
_BYTES = 1 << 30  # of paths in one array, about


@dataclass(frozen=True)
class Trips:
    """What moves and stays are made of.

    Parameters
    ----------
    by, time
        The columns of the object and the time.
    segmentation
        How positions are cut.
    min_length
        Moves and points shorter than that are no rows.
    time_type
        The type of the time column.
    """

    by: tuple[str, ...]
    time: str
    segmentation: Segmentation
    min_length: float
    time_type: pa.DataType

    def fields(self) -> list[tuple[str, pa.DataType]]:
        """The columns of a result besides those of the object."""
        return [
            (KIND, pa.string()),
            (BEGIN, self.time_type),
            (END, self.time_type),
            (PATH, pa.binary()),
            (LENGTH, pa.float64()),
            (DURATION, pa.float64()),
            (POSITIONS, pa.int64()),
        ]


@dataclass(frozen=True)
class Coordinates:
    """Puts the coordinates of each position beside its other columns, for the state.

    Parameters
    ----------
    point
        The column or columns of the place.
    columns
        The other columns that are needed.
    srid
        The SRID of the places, 0 where it is not known.
    on_sphere
        Whether they are degrees; one point of the sphere then has one pair of coordinates.
    """

    point: Geometry
    columns: tuple[str, ...]
    srid: int
    on_sphere: bool

    def __call__(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Ints]:
        """The positions with their coordinates; all of them are points."""
        places = geometries_of(
            {name: batch.column(name) for name in named(self.point)}, self.point, srid=self.srid
        )
        places = places.on_sphere() if self.on_sphere else places.only_points()
        xy = [pa.array(part + 0.0) for part in places.xy]  # -0.0 becomes 0.0
        columns = [batch.column(name) for name in self.columns]
        made = pa.RecordBatch.from_arrays([*columns, *xy], [*self.columns, X, Y])
        return made, np.arange(batch.num_rows)


class TripFold:
    """Finishes rows and carries the open ones on; one instance per micro-batch.

    Of an object's positions of one time the one with the least x, then y, counts.
    """

    def __init__(self, trips: Trips) -> None:
        self._trips = trips
        self._counts: Counter[str] = Counter()

    @property
    def carry(self) -> pa.Schema:
        """What is carried per object: `segmentation.Carry`."""
        return _CARRY

    def counts(self) -> dict[str, int]:
        """The rows by kind, those that were too short, and positions of one time."""
        return dict.fromkeys((*_COUNTS, "too_short", "same_time"), 0) | self._counts

    def sketch(self) -> None:
        """No map shows trips."""

    def fold(self, released: Released) -> Folded:
        """The rows that end, and the positions of those that do not."""
        how = self._trips.segmentation
        new = self._distinct(released)
        before = _carried(released)
        rows, carry = segment(how, before, new)
        last = carry.last
        is_over = released.is_last | (last + how.gap < released.watermark)
        over = np.flatnonzero(is_over)
        ended = finish(carry.take(over))
        rows = _joined(rows, ended._replace(object=over[ended.object]))
        begin = np.where(is_over, last + 1, carry.begin)
        touched = np.flatnonzero(released.known & (begin != before.begin))
        old = released.log.read(released.slots[touched])
        results = self._results(released, rows, _with_old(touched, old, new))
        if not released.is_early:
            self._log(released, begin, touched, old, new)
        return Folded(results, _table(carry), last + how.gap, ~is_over)

    def _distinct(self, released: Released) -> Tracks:
        """The released positions, one per object and time."""
        time, x, y = (released.rows.column(name).to_numpy() for name in (self._trips.time, X, Y))
        first = np.ones(len(time), dtype=bool)
        first[1:] = np.diff(time) != 0
        first[released.starts[:-1][np.diff(released.starts) > 0]] = True
        self._counts["same_time"] += int((~first).sum())
        start = np.concatenate([[0], np.cumsum(first)])[released.starts]
        return Tracks(start, time[first], x[first], y[first])

    def _results(self, released: Released, rows: Rows, tracks: Tracks) -> pa.Table:
        trips, how = self._trips, self._trips.segmentation
        first = located(tracks.start, tracks.time, rows.object, rows.begin)
        end = 1 + located(tracks.start, tracks.time, rows.object, rows.end)
        length = lengths(first, end, tracks.x, tracks.y, on_sphere=how.on_sphere)
        is_row = (rows.kind == STAY) | (length >= trips.min_length)
        self._counts["too_short"] += int((~is_row).sum())
        rows, length = rows.take(np.flatnonzero(is_row)), length[is_row]
        first, end = first[is_row], end[is_row]
        for kind, count in enumerate(np.bincount(rows.kind, minlength=len(KINDS)).tolist()):
            self._counts[_COUNTS[kind]] += count
        objects = released.objects.select(list(trips.by)).take(pa.array(rows.object))
        kinds = pa.DictionaryArray.from_arrays(pa.array(rows.kind), pa.array(KINDS))
        columns: dict[str, Any] = {
            **dict(zip(trips.by, objects.columns, strict=True)),
            KIND: kinds.cast(pa.string()),
            BEGIN: pa.array(rows.begin).cast(trips.time_type),
            END: pa.array(rows.end).cast(trips.time_type),
            PATH: _paths(first, end, tracks),
            LENGTH: length,
            DURATION: (rows.end - rows.begin) / 1e6,
            POSITIONS: end - first,
        }
        return pa.table(columns)

    def _log(
        self, released: Released, begin: Ints, touched: Ints, old: Tracks, new: Tracks
    ) -> None:
        """Append the positions of open rows, and trim those whose rows are finished."""
        log: TrackLog = released.log
        whose = np.repeat(np.arange(len(begin)), np.diff(new.start))
        needed = new.time >= begin[whose]
        start = np.concatenate([[0], np.cumsum(needed)])[new.start]
        dropped = np.zeros(len(begin), np.int64)
        whose_old = np.repeat(touched, np.diff(old.start))
        np.add.at(dropped, whose_old[old.time < begin[whose_old]], 1)
        log.write(released.slots, begin, dropped, new.take(start, np.flatnonzero(needed)))


def _carried(released: Released) -> Carry:
    """What the objects carry; nothing for those that are new."""
    begin, after_stay, is_stay = (
        _filled(released.carry.column(name)) for name in ("begin", "after_stay", "is_stay")
    )
    lists = [_combined(released.carry.column(name)) for name in ("time", "x", "y")]
    count = np.where(released.known, _filled(lists[0].value_lengths()), 0)
    start = np.concatenate([[0], np.cumsum(count)])
    time, x, y = (each.flatten().to_numpy() for each in lists)
    return Carry(begin, after_stay, is_stay, Tracks(start, time, x, y))


def _combined(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _filled(column: pa.ChunkedArray | pa.Array) -> Any:
    """The values, zero or false where there is none."""
    empty = False if pa.types.is_boolean(column.type) else 0
    return _combined(column).fill_null(empty).to_numpy(zero_copy_only=False)


def _table(carry: Carry) -> pa.Table:
    """The carry as rows, one per object."""
    offsets = pa.array(carry.window.start.astype(np.int32))
    lists = [pa.ListArray.from_arrays(offsets, pa.array(part)) for part in carry.window[1:]]
    return pa.table([*map(pa.array, carry[:3]), *lists], schema=_CARRY)


def _joined(one: Rows, other: Rows) -> Rows:
    """All rows, by object and then as they are: those of `other` are later."""
    whole = Rows(
        np.concatenate([one.object, other.object]),
        np.concatenate([one.kind, other.kind]),
        np.concatenate([one.begin, other.begin]),
        np.concatenate([one.end, other.end]),
    )
    return whole.take(np.argsort(whole.object, kind="stable"))


def _with_old(objects: Ints, old: Tracks, new: Tracks) -> Tracks:
    """The new positions of all objects, with the old ones of some before them."""
    before = np.zeros(len(new.start) - 1, np.int64)
    before[objects] = np.diff(old.start)
    of_all = old._replace(start=np.concatenate([[0], np.cumsum(before)]))
    return appended(of_all, new)[0]


def _paths(first: Ints, end: Ints, tracks: Tracks) -> pa.ChunkedArray:
    """The rows' paths as WKB, in arrays that their offsets can address."""
    part = np.cumsum((end - first) * 16) // _BYTES
    cuts = [0, *(np.flatnonzero(np.diff(part)) + 1).tolist(), len(first)]
    made = [wkb(first[a:b], end[a:b], tracks.x, tracks.y) for a, b in pairwise(cuts)]
    return pa.chunked_array(made, pa.binary())
