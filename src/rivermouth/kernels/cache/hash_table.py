"""A hash table of keys that grows, and from which keys can be removed.

Entries are numbered; an entry number stays with its key until the key is freed. Linear probing, at
most half full, with backward-shift deletion: no tombstones, so that a table from which as much
leaves as comes stays as fast as it was.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from rivermouth.kernels.arrays import Bytes, Ints
from rivermouth.kernels.keys.encoding import splitmix64

#: a structured array, and one line of it: numba reads their fields as attributes
Lines = Any
Line = Any

NONE = -1

#: an entry is unused, in no queue, removed from the slots but still read, or in a queue
FREE, LOOSE, DETACHED, SMALL, MAIN, GHOST = range(6)

#: where an entry's rows start, when they are not in memory: unknown, or being loaded
UNKNOWN, LOADING = -1, -2

ENTRY = np.dtype(
    [
        ("code", "i8"),  # the key, or a hash of its bytes
        ("key", "i8"),  # where its bytes are in the arena, and how many
        ("length", "i4"),
        ("chunk", "i4"),  # where its rows are
        ("start", "i8"),
        ("count", "i8"),
        ("size", "i8"),  # bytes it is charged for
        ("read", "f8"),  # when its rows were read, and when it was last used
        ("used", "f8"),
        ("before", "i4"),  # its neighbours in its queue
        ("after", "i4"),
        ("pins", "i4"),  # records that were looked up and not yet committed
        ("state", "i1"),
        ("hits", "i1"),
    ],
    align=True,
)
QUEUE = np.dtype([(name, "i8") for name in ("first", "last", "entries", "rows", "empty", "bytes")])

COUNTERS = (
    "hits",
    "negative_hits",
    "misses",
    "failed_lookups",
    "evictions",
    "expired",
    "uncacheable",
)
HITS, NEGATIVE_HITS, MISSES, FAILED_LOOKUPS, EVICTIONS, EXPIRED, UNCACHEABLE = range(len(COUNTERS))


class HashTable(NamedTuple):
    """One line an entry, the queues, and the slots by which a key is found."""

    entries: Lines
    queues: Lines
    slots: Ints
    arena: Bytes
    used: Ints  # of the arena
    counters: Ints


def new_table(capacity: int, arena: int) -> HashTable:
    """A table with room for so many entries (a power of two) and bytes of keys."""
    entries = np.zeros(capacity, ENTRY)
    queues = np.zeros(6, QUEUE)
    queues["first"] = queues["last"] = NONE
    table = HashTable(
        entries,
        queues,
        np.full(2 * capacity, NONE),
        np.empty(arena, np.uint8),
        np.zeros(1, np.int64),
        np.zeros(len(COUNTERS), np.int64),
    )
    _free_from(table, 0)
    return table


def grow(table: HashTable, entries: int, key_bytes: int) -> HashTable:
    """The same table, with room for so many more entries and bytes of keys."""
    capacity = len(table.entries)
    unused = int(table.queues[FREE]["entries"])
    if unused < entries:
        grown = 1 << int(capacity + entries - unused - 1).bit_length()
        more = np.zeros(grown, ENTRY)
        more[:capacity] = table.entries
        table = table._replace(entries=more, slots=np.full(2 * grown, NONE))
        _free_from(table, capacity)
        _rehash(table)
    if len(table.arena) - table.used[0] < key_bytes:
        known = table.entries["state"] != FREE
        live = int(table.entries["length"][known].sum())
        arena = np.empty(2 * (live + key_bytes), np.uint8)
        _compact_arena(table, arena)
        table = table._replace(arena=arena)
    return table


@numba.njit(cache=True)
def _free_from(table: HashTable, first: int) -> None:
    for e in range(len(table.entries) - 1, first - 1, -1):
        table.entries[e].after = table.queues[FREE].first
        table.queues[FREE].first = e
        table.queues[FREE].entries += 1


@numba.njit(cache=True)
def _rehash(table: HashTable) -> None:
    mask = len(table.slots) - 1
    for e in range(len(table.entries)):
        if table.entries[e].state in (FREE, DETACHED):
            continue
        at = splitmix64(table.entries[e].code) & mask
        while table.slots[at] != NONE:
            at = (at + 1) & mask
        table.slots[at] = e


@numba.njit(cache=True)
def _compact_arena(table: HashTable, arena: Bytes) -> None:
    """Write the keys that are in use one after the other into a new arena."""
    at = 0
    for e in range(len(table.entries)):
        entry = table.entries[e]
        if entry.state != FREE:
            for b in range(entry.length):
                arena[at + b] = table.arena[entry.key + b]
            entry.key = at
            at += entry.length
    table.used[0] = at


@numba.njit(cache=True, inline="always")
def find_slot(table: HashTable, code: int, data: Bytes, begin: int, length: int) -> Any:
    """The slot that holds this key's entry, or the empty one where it would stand."""
    entries, slots, arena = table.entries, table.slots, table.arena
    mask = len(slots) - 1
    at = splitmix64(code) & mask
    while slots[at] != NONE:
        entry = entries[slots[at]]
        if entry.code == code and entry.length == length:
            b = 0
            while b < length and arena[entry.key + b] == data[begin + b]:
                b += 1
            if b == length:
                return at
        at = (at + 1) & mask
    return at


@numba.njit(cache=True)
def insert(table: HashTable, slot: int, code: int, data: Bytes, begin: int, length: int) -> Any:
    """A new entry for this key at `slot`; its rows are unknown and it is in no queue."""
    e = table.queues[FREE].first
    entry = table.entries[e]
    table.queues[FREE].first = entry.after
    table.queues[FREE].entries -= 1
    entry.code, entry.key, entry.length = code, table.used[0], length
    for b in range(length):
        table.arena[entry.key + b] = data[begin + b]
    table.used[0] += length
    entry.chunk, entry.start, entry.count = NONE, UNKNOWN, 0
    entry.pins, entry.state, entry.hits = 0, LOOSE, 0
    table.slots[slot] = e
    return e


@numba.njit(cache=True)
def detach(table: HashTable, e: int) -> None:
    """Take an entry out of its slot, so that its key is no longer found."""
    slots, entries = table.slots, table.entries
    mask = len(slots) - 1
    hole = splitmix64(entries[e].code) & mask
    while slots[hole] != e:
        hole = (hole + 1) & mask
    at = (hole + 1) & mask
    while slots[at] != NONE:
        home = splitmix64(entries[slots[at]].code) & mask
        if ((at - home) & mask) >= ((at - hole) & mask):
            slots[hole] = slots[at]
            hole = at
        at = (at + 1) & mask
    slots[hole] = NONE
    entries[e].state = DETACHED


@numba.njit(cache=True)
def free(table: HashTable, e: int) -> None:
    """Free an entry that is in no queue and has no pins."""
    entry = table.entries[e]
    if entry.state != DETACHED:
        detach(table, e)
    entry.state, entry.chunk, entry.start = FREE, NONE, UNKNOWN
    entry.after = table.queues[FREE].first
    table.queues[FREE].first = e
    table.queues[FREE].entries += 1
