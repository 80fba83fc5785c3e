"""Results that may still change, emitted as a changelog: inserted, updated, deleted.

Of each object a bucket keeps the results that were emitted and are not final. When positions come,
the object's results are computed anew and compared with them: what is new is inserted, what differs
is updated, what is not among them any more is deleted. A result is known by columns of its own, its
identity, and has a revision that rises with every change. Final results leave the state: no
position that is admitted can change them.

A deleted result may come back, with the revision that follows. It is remembered until the
watermark has passed all positions that the object had when it was deleted: positions are only ever
added, so that what those positions decided against stays so.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from rivermouth.kernels.arrays import Bools, Ints
from rivermouth.kernels.state.groups import group
from rivermouth.kernels.trajectory.objects import NEVER, Objects
from rivermouth.kernels.trajectory.positions import comparable
from rivermouth.kernels.trajectory.query import CHANGE, DELETE, INSERT, REVISION, UPDATE

_EMITTED, _DELETED, _UNTIL = "emitted", "_deleted", "_until"


class Changelog:
    """The results of a bucket's objects that were emitted and are not final.

    Parameters
    ----------
    store
        The bucket's state.
    by
        The columns that tell objects apart.
    identity
        The columns that tell results apart; no two results are equal in all of them.
    results
        The columns of a result.
    kept
        What `kept` returned when the state was last written.
    """

    def __init__(
        self,
        store: MutableMapping[str, bytes],
        by: Sequence[str],
        identity: Sequence[str],
        results: pa.Schema,
        kept: dict[str, Any] | None = None,
    ) -> None:
        self._by, self._identity, self._results = list(by), list(identity), results
        own = [(REVISION, pa.int64()), (_DELETED, pa.bool_()), (_UNTIL, pa.int64())]
        self._entry = pa.struct([*results, *(pa.field(name, dtype) for name, dtype in own)])
        carry = pa.schema([(_EMITTED, pa.list_(self._entry))])
        self._objects = Objects(store, by, carry, kept, prefix="e")

    def kept(self) -> dict[str, Any]:
        """What is there, as JSON for the state."""
        return self._objects.kept()

    def attach(self, store: MutableMapping[str, bytes]) -> None:
        """Use the store of another micro-batch, which holds the same state."""
        self._objects.attach(store)

    def __len__(self) -> int:
        return len(self._objects)

    def due(self, time: int) -> pa.Table | None:
        """The key columns of objects whose deadline is earlier than `time`; None if none."""
        slots = self._objects.due(time)
        return self._objects.keys(slots) if len(slots) else None

    def revise(
        self,
        objects: pa.Table,
        final: pa.Table,
        early: pa.Table,
        *,
        last: Ints,
        deadline: Ints,
        watermark: int,
    ) -> pa.Table:
        """The changes that make what was emitted of these objects their results of now.

        Parameters
        ----------
        objects
            Their key columns.
        final, early
            All their results that are not emitted as final yet: those that are final now, and
            those that may change.
        last
            The time of each object's newest position that waits; before all times where none does.
        deadline
            When each is due; `objects.NEVER` for those without positions that wait.
        watermark
            All earlier positions are known.

        Returns
        -------
        pa.Table
            The columns of a result, and which `CHANGE` of which `REVISION` it is.
        """
        slots = self._objects.slots(objects)
        old = self._entries(self._objects.rows(slots)[0])
        new = pa.concat_tables([final, early])
        count, names = old.num_rows, self._results.names
        both = pa.concat_tables([old.select(names), new])
        key, content = _codes(both, self._identity), _codes(both, names)
        was, now = _partners(key[:count], key[count:])
        deleted, until = (old.column(name).to_numpy() for name in (_DELETED, _UNTIL))
        before = old.column(REVISION).to_numpy()

        is_live = (was >= 0) & ~np.append(deleted, True)[was]
        is_same = is_live & (np.append(content[:count], -1)[was] == content[count:])
        revision = np.append(before, -1)[was] + ~is_same
        is_gone = ~deleted & (now < 0)
        changes = [
            _changes(new, ~is_same, np.where(is_live, UPDATE, INSERT), revision),
            _changes(old.select(names), is_gone, np.full(count, DELETE), before + 1),
        ]

        whose = numbers(objects, both.select(self._by))
        until = np.where(deleted, until, last[whose[:count]])
        remembered = (now < 0) & (until >= watermark)
        entries = [
            self._table(old, remembered, before + is_gone, until),
            self._table(new, np.arange(len(revision)) >= final.num_rows, revision, None),
        ]
        owners = [whose[:count][remembered], whose[count + final.num_rows :]]
        self._put(slots, objects, pa.concat_tables(entries), np.concatenate(owners), deadline)
        return pa.concat_tables(changes)

    def _entries(self, rows: pa.Table) -> pa.Table:
        """What is kept of some objects, one row per result."""
        if not rows.num_rows:
            return pa.schema(list(self._entry)).empty_table()
        return pa.Table.from_struct_array(rows.column(_EMITTED).combine_chunks().flatten())

    def _table(self, rows: pa.Table, chosen: Bools, revision: Ints, until: Ints | None) -> pa.Table:
        """Some rows as they are kept; `until` where they are deleted."""
        columns = {name: rows.column(name) for name in self._results.names}
        columns[REVISION] = pa.array(revision)
        columns[_DELETED] = pa.repeat(until is not None, rows.num_rows)
        columns[_UNTIL] = pa.array(np.zeros(rows.num_rows, np.int64) if until is None else until)
        return pa.table(columns, pa.schema(list(self._entry))).filter(pa.array(chosen))

    def _put(
        self, slots: Ints, objects: pa.Table, entries: pa.Table, whose: Ints, deadline: Ints
    ) -> None:
        entries = entries.take(pa.array(np.argsort(whose, kind="stable"))).combine_chunks()
        count = np.bincount(whose, minlength=len(slots))
        arrays = [column.combine_chunks() for column in entries.columns]
        offsets = pa.array(np.concatenate([[0], np.cumsum(count)]), pa.int32())
        lists = pa.ListArray.from_arrays(
            offsets, pa.StructArray.from_arrays(arrays, fields=list(self._entry))
        )
        carry = pa.table({_EMITTED: lists.cast(pa.list_(self._entry))})
        self._objects.put(slots, objects, carry, deadline, (count > 0) | (deadline != NEVER))


def _codes(table: pa.Table, names: Sequence[str]) -> Ints:
    """A number for each row, the same for rows that are equal in these columns."""
    return group([comparable(table.column(name)) for name in names], table.num_rows).code


def _partners(old: Ints, new: Ints) -> tuple[Ints, Ints]:
    """Of each new row the old one of the same code, and the other way round; -1 for none."""
    was, now = np.full((2, len(old) + len(new)), -1)
    was[old], now[new] = np.arange(len(old)), np.arange(len(new))
    return was[new], now[old]


def numbers(objects: pa.Table, rows: pa.Table) -> Ints:
    """Which of the objects each row is of, by their key columns; -1 for none."""
    names = rows.column_names
    code = _codes(pa.concat_tables([objects.select(names), rows]), names)
    number = np.full(len(code), -1)
    number[code[: objects.num_rows]] = np.arange(objects.num_rows)
    return number[code[objects.num_rows :]]


def _changes(rows: pa.Table, chosen: Bools, change: np.ndarray, revision: Ints) -> pa.Table:
    """Some rows as changes."""
    made = rows.append_column(CHANGE, pa.array(change.tolist(), pa.string()))
    return made.append_column(REVISION, pa.array(revision)).filter(pa.array(chosen))
