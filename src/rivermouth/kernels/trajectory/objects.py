"""What an operator carries from one micro-batch to the next, one row per object, in a bucket.

A row holds what the operator needs of an object's past (its last position, the fences it is in,
the trip it is on) in columns of the operator's own, lists included, and a deadline. Rows are
replaced whole: an update appends the new row to a log of segments (`state.segments`), and the
newest row of an object counts. A micro-batch therefore writes the objects that it touched and not
the others. Segments are merged now and then, and all of them rewritten when most of their rows
are outdated.

An object leaves the state when the operator says so (`put` with `keep` false): there is then
nothing left of it after the next rewrite. An operator that wants idle objects to leave gives each
a deadline, the event time after which it is to be processed again even without a new position;
`due` finds those that the watermark has passed.

In memory each object has a slot, a small number that stays with it while it is in the state. A
dict finds the slot of a key, arrays the row and the deadline of a slot.
"""

from __future__ import annotations

from collections.abc import Hashable, MutableMapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from rivermouth.kernels.arrays import Bools, Ints
from rivermouth.kernels.keys.encoding import encode
from rivermouth.kernels.state.segments import Segments

#: a deadline that no watermark passes
NEVER = (1 << 62) - 1
_GONE = -(1 << 62)  # the deadline of an object that has left
_NONE = -1

SLOT, DEADLINE = "_slot", "_deadline"
_SPARE = 4096  # outdated rows that never make a rewrite worth while
_TOP = 99  # the level of a segment that has everything: it is not merged with others


class Objects:
    """The rows of a bucket's objects.

    Parameters
    ----------
    store
        The bucket's state.
    by
        The columns that tell objects apart; none of their values is null or NaN.
    carry
        The operator's columns.
    kept
        What `kept` returned when the state was last written.
    prefix
        What its keys in the store start with.
    """

    def __init__(
        self,
        store: MutableMapping[str, bytes],
        by: Sequence[str],
        carry: pa.Schema,
        kept: dict[str, Any] | None = None,
        *,
        prefix: str = "o",
    ) -> None:
        self._by, self._carry = list(by), carry
        self._segments = Segments(store, prefix, DEADLINE, kept=kept, cache={}, merge=_newest)
        self._segment, self._row, self._deadline = np.empty((3, 0), np.int64)
        self._slots: dict[Hashable, int] = {}
        self._free: list[int] = []
        self._restore()

    def kept(self) -> dict[str, Any]:
        """What is there, as JSON for the state."""
        return self._segments.kept()

    def __len__(self) -> int:
        return len(self._slots)

    def attach(self, store: MutableMapping[str, bytes]) -> None:
        """Use the store of another micro-batch, which holds the same state."""
        self._segments.attach(store)

    def slots(self, objects: pa.Table) -> Ints:
        """The slot of each object, given by its key columns; one that is new gets one."""
        keys = _keys(objects, self._by)
        found = [*map(self._slots.get, keys)]
        for k in [k for k, slot in enumerate(found) if slot is None]:
            found[k] = self._slots[keys[k]] = self._new_slot()
        return np.array(found, np.int64)

    def known_slots(self, objects: pa.Table) -> Ints:
        """The slot of each object, -1 where it is not in the state."""
        keys = _keys(objects, self._by)
        return np.array([self._slots.get(key, _NONE) for key in keys], np.int64)

    def due(self, watermark: int, since: int = _GONE) -> Ints:
        """The slots of objects whose deadline is earlier than the watermark, not than `since`."""
        deadline = self._deadline
        return np.flatnonzero(
            (self._segment != _NONE) & (deadline < watermark) & (deadline >= since)
        )

    def keys(self, slots: Ints) -> pa.Table:
        """The key columns of objects, one or more, that have a row."""
        return self.rows(slots)[0].select(self._by)

    def rows(self, slots: Ints) -> tuple[pa.Table, Bools]:
        """The key columns and the operator's of these objects, and which of them have a row.

        The slot -1 has none.
        """
        segments = np.full(len(slots), _NONE)
        segments[slots >= 0] = self._segment[slots[slots >= 0]]
        known = segments != _NONE
        names = [*self._by, *self._carry.names]
        parts, places = [], []
        for number in np.unique(segments[known]).tolist():
            at = np.flatnonzero(segments == number)
            table = self._segments.table(number).select(names)
            parts.append(table.take(pa.array(self._row[slots[at]])))
            places.append(at)
        if not parts:
            return self._carry.empty_table(), known
        order = np.empty(len(slots), np.int64)
        order[np.concatenate(places)] = np.arange(int(known.sum()))
        return pa.concat_tables(parts).take(pa.array(order[known])), known

    def put(
        self, slots: Ints, objects: pa.Table, carry: pa.Table, deadline: Ints, keep: Bools
    ) -> None:
        """Replace the rows of these objects; those not to keep leave the state.

        Parameters
        ----------
        slots, objects
            Their slots and key columns.
        carry
            Their new rows, in the operator's columns.
        deadline
            The event time after which each is due, `NEVER` for none.
        keep
            Which of them stay.
        """
        had_row = self._segment[slots] != _NONE
        written = np.flatnonzero(keep | had_row)
        if len(written):
            rows = pa.table(
                {
                    SLOT: pa.array(slots[written]),
                    DEADLINE: pa.array(np.where(keep, deadline, _GONE)[written]),
                    **_columns(objects.select(self._by).take(pa.array(written))),
                    **_columns(carry.select(self._carry.names).take(pa.array(written))),
                }
            )
            since = self._segments.next_number
            self._segments.append(rows.combine_chunks())
            self._segments.drop_below(_GONE)  # drops none, merges where there are many
            self._locate(since)
        self._forget(slots[~keep], objects.filter(pa.array(~keep)))
        if len(self._segments) > 2 * len(self) + _SPARE:
            self._rewrite()

    def _forget(self, slots: Ints, objects: pa.Table) -> None:
        self._segment[slots] = _NONE
        for slot, key in zip(slots.tolist(), _keys(objects, self._by), strict=True):
            del self._slots[key]
            self._free.append(slot)

    def _new_slot(self) -> int:
        if not self._free:
            size = len(self._segment)
            more = max(64, size)
            nothing = np.full(more, _NONE, np.int64)
            self._segment = np.concatenate([self._segment, nothing])
            self._row = np.concatenate([self._row, nothing])
            self._deadline = np.concatenate([self._deadline, nothing])
            self._free = list(range(size + more - 1, size - 1, -1))
        return self._free.pop()

    def _locate(self, since: int) -> None:
        """Note where the rows of the segments from number `since` on are."""
        for number, table in self._segments.tables(since):
            slots = table.column(SLOT).to_numpy()
            self._segment[slots] = number
            self._row[slots] = np.arange(len(slots))
            self._deadline[slots] = table.column(DEADLINE).to_numpy()
        self._segment[self._deadline == _GONE] = _NONE

    def _restore(self) -> None:
        tables = self._segments.tables()
        if not tables:
            return
        size = 1 + max(int(table.column(SLOT).to_numpy().max()) for _, table in tables)
        self._segment, self._row, self._deadline = np.full((3, size), _NONE, np.int64)
        self._locate(0)
        live = np.flatnonzero(self._segment != _NONE)
        self._free = np.flatnonzero(self._segment == _NONE).tolist()
        if len(live):
            keys = _keys(self.rows(live)[0], self._by)
            self._slots = dict(zip(keys, live.tolist(), strict=True))

    def _rewrite(self) -> None:
        """Write the rows that count as one segment, in the place of all others."""
        live = np.flatnonzero(self._segment != _NONE)
        rows = self.rows(live)[0] if len(live) else None
        self._segments.clear()
        if rows is not None:
            columns = {SLOT: pa.array(live), DEADLINE: pa.array(self._deadline[live])}
            since = self._segments.next_number
            self._segments.append(
                pa.table({**columns, **_columns(rows)}).combine_chunks(), level=_TOP
            )
            self._locate(since)


def _keys(objects: pa.Table, by: Sequence[str]) -> list[Hashable]:
    """The key of each object as one value."""
    if not objects.num_rows:
        return []
    encoded = encode([objects.column(name).combine_chunks() for name in by])
    if not len(encoded.offsets):
        numbers: list[Hashable] = encoded.codes.tolist()
        return numbers
    data, ends = encoded.data.tobytes(), encoded.offsets.tolist()
    return [data[ends[k] : ends[k + 1]] for k in range(len(ends) - 1)]


def _newest(table: pa.Table) -> pa.Table:
    """The last row of each slot."""
    slots = table.column(SLOT).to_numpy()
    _, last = np.unique(slots[::-1], return_index=True)
    return table.take(pa.array(np.sort(len(slots) - 1 - last)))


def _columns(table: pa.Table) -> dict[str, pa.ChunkedArray]:
    return dict(zip(table.column_names, table.columns, strict=True))
