"""The positions of open rows in a bucket's state: a log that is appended to, trimmed and merged.

A move may last for days, and each micro-batch adds a few positions to it. They are appended to
segments (`state.segments`) as they come, and read when the row is finished. What an object no
longer needs is not deleted but trimmed: a row without a place says that the object's positions
before its time are over. Merging drops what is over; all segments are rewritten when most of their
rows are. A micro-batch so writes what it brings, however long the rows are.

Objects are known by their slots (`trajectory.objects`). A slot that is used again is trimmed to
after the last position of the object that had it, so that their positions are not confused.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import numpy as np
import pyarrow as pa

from rivermouth.kernels.arrays import Bools, Floats, Ints, ranges
from rivermouth.kernels.state.segments import Segments
from rivermouth.kernels.trips.segmentation import Tracks

_SLOT, _TIME, _X, _Y = "slot", "time", "x", "y"
_EVER = -(1 << 62)  # before all times
_SPARE = 4096  # rows that are over and never make a rewrite worth while
_TOP = 99  # the level of a segment that has everything: it is not merged with others


class TrackLog:
    """The positions of open rows.

    Parameters
    ----------
    store
        The bucket's state.
    kept
        What `kept` returned when the state was last written.
    """

    def __init__(
        self, store: MutableMapping[str, bytes], kept: dict[str, Any] | None = None
    ) -> None:
        found = kept or {}
        self._floor: int = found.get("floor", _EVER)  # all before is over
        self._segments = Segments(
            store, "t", _TIME, kept=found.get("segments"), cache={}, merge=self._merged
        )
        self._begin, self._count = np.empty((2, 0), np.int64)
        self._restore()

    def kept(self) -> dict[str, Any]:
        """What is there, as JSON for the state."""
        return {"floor": self._floor, "segments": self._segments.kept()}

    def __len__(self) -> int:
        return int(self._count.sum())

    def attach(self, store: MutableMapping[str, bytes]) -> None:
        """Use the store of another micro-batch, which holds the same state."""
        self._segments.attach(store)

    def sizes(self) -> dict[str, int]:
        """What the log adds to the sizes of the state."""
        return {"open_positions": len(self)}

    def read(self, slots: Ints) -> Tracks:
        """The positions of these objects, each object's in the order of time."""
        parts = []
        for _, table in self._segments.tables():
            slot, *columns = _columns(table)
            first = np.searchsorted(slot, slots)
            rows, start = ranges(first, np.searchsorted(slot, slots, side="right"))
            number = np.repeat(np.arange(len(slots)), np.diff(start))
            parts.append((number, *(column[rows] for column in columns)))
        if not parts:
            return Tracks.none(len(slots))
        number, time, x, y = (np.concatenate(part) for part in zip(*parts, strict=True))
        live = np.flatnonzero((time >= self._begins(slots)[number]) & ~np.isnan(x))
        order = live[np.lexsort((time[live], number[live]))]
        start = np.searchsorted(number[order], np.arange(len(slots) + 1))
        return Tracks(start, time[order], x[order], y[order])

    def write(self, slots: Ints, begin: Ints, dropped: Ints, new: Tracks) -> None:
        """Append positions, and trim.

        Parameters
        ----------
        slots, begin
            Objects, and the time before which nothing is needed of them any more.
        dropped
            How many of each object's positions are older than that; its open row begins anew
            where there are such.
        new
            The positions to append, none of them older.
        """
        self._grow(slots)
        count = np.diff(new.start)
        trimmed = np.flatnonzero(dropped)
        self._begin[slots] = begin
        self._count[slots] += count - dropped
        nowhere = np.full(len(trimmed), np.nan)
        rows = _sorted(
            np.concatenate([np.repeat(slots, count), slots[trimmed]]),
            np.concatenate([new.time, begin[trimmed]]),
            np.concatenate([new.x, nowhere]),
            np.concatenate([new.y, nowhere]),
        )
        self._segments.append(rows)
        is_open = self._count > 0
        self._floor = int(self._begin[is_open].min()) if is_open.any() else self._floor
        if not is_open.any():
            self._segments.clear()
        elif len(self._segments) > 2 * len(self) + _SPARE:
            self._rewrite()
        else:
            self._segments.drop_below(self._floor)

    def _begins(self, slots: Ints) -> Ints:
        known = slots < len(self._begin)
        found = np.full(len(slots), self._floor)
        found[known] = np.maximum(self._floor, self._begin[slots[known]])
        return found

    def _grow(self, slots: Ints) -> None:
        size, needed = len(self._begin), 1 + int(slots.max(initial=-1))
        if needed > size:
            more = max(needed, 2 * size) - size
            self._begin = np.concatenate([self._begin, np.full(more, _EVER)])
            self._count = np.concatenate([self._count, np.zeros(more, np.int64)])

    def _restore(self) -> None:
        tables = [_columns(table) for _, table in self._segments.tables()]
        for slot, time, x, _ in tables:
            self._grow(slot)
            trims = np.isnan(x)
            np.maximum.at(self._begin, slot[trims], time[trims])
        for slot, time, x, _ in tables:
            live = slot[self._is_live(slot, time, x)]
            self._count += np.bincount(live, minlength=len(self._count))
        self._begin = np.maximum(self._begin, self._floor)

    def _is_live(self, slot: Ints, time: Ints, x: Floats) -> Bools:
        return np.asarray((time >= self._begins(slot)) & ~np.isnan(x))

    def _merged(self, table: pa.Table) -> pa.Table:
        """The rows of a few segments as one: what is over left out, one trim of each object."""
        slot, time, x, y = _columns(table)
        # an object's newest trim is where it begins now; an older one says nothing more
        is_trim = np.isnan(x) & (time == self._begin[slot])
        rows = np.flatnonzero(is_trim | self._is_live(slot, time, x))
        return _sorted(slot[rows], time[rows], x[rows], y[rows])

    def _rewrite(self) -> None:
        """Write what is live as one segment, in the place of all others."""
        parts = [_columns(table) for _, table in self._segments.tables()]
        slot, time, x, y = (np.concatenate(part) for part in zip(*parts, strict=True))
        rows = np.flatnonzero(self._is_live(slot, time, x))
        self._segments.clear()
        self._segments.append(_sorted(slot[rows], time[rows], x[rows], y[rows]), level=_TOP)


def _columns(table: pa.Table) -> tuple[Ints, Ints, Floats, Floats]:
    slot, time, x, y = (table.column(name).to_numpy() for name in (_SLOT, _TIME, _X, _Y))
    return slot, time, x, y


def _sorted(slot: Ints, time: Ints, x: Floats, y: Floats) -> pa.Table:
    """The rows by slot and time, so that an object's are found by halving."""
    order = np.lexsort((time, slot))
    parts = (part[order] for part in (slot, time, x, y))
    return pa.table(dict(zip((_SLOT, _TIME, _X, _Y), parts, strict=True)))
