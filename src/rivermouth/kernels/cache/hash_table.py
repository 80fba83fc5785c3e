"""Which entry a key has: an open-addressing table that grows, and from which keys can leave.

Entries are numbered; an entry number stays with its key until the key is let go. Linear probing,
at most half full; what is removed leaves no mark behind (its followers move up), so that a table
from which as much leaves as comes stays as fast as it was.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np

from rivermouth.kernels.keys.encoding import Bytes, Ints, stirred

#: a structured array, and one line of it: numba reads their fields as attributes
Lines = Any
Line = Any

NONE = -1

#: what an entry is: unused; in no queue; no longer to be found by its key; or in a queue
FREE, LOOSE, DETACHED, SMALL, MAIN, GHOST = range(6)

#: where an entry's rows start, when they are not in hand: not asked for, or asked for just now
UNKNOWN, ASKED = -1, -2

ENTRY = np.dtype(
    [
        ("code", "i8"),  # the key, or a hash of its bytes
        ("key", "i8"),  # where its bytes are in the arena, and how many
        ("length", "i4"),
        ("chunk", "i4"),  # where its rows are
        ("start", "i8"),
        ("count", "i8"),
        ("size", "i8"),  # bytes it is charged for
        ("read", "f8"),  # when its rows were read, and when it was last asked for
        ("used", "f8"),
        ("before", "i4"),  # its neighbours in its queue
        ("after", "i4"),
        ("pins", "i4"),  # records that have yet to read it
        ("state", "i1"),
        ("hits", "i1"),
    ],
    align=True,
)
QUEUE = np.dtype([(name, "i8") for name in ("first", "last", "entries", "rows", "empty", "bytes")])

#: what is counted
TALLY = ("hits", "negative_hits", "misses", "failed_lookups", "evictions", "expired", "uncacheable")
HITS, NEGATIVE_HITS, MISSES, FAILED_LOOKUPS, EVICTIONS, EXPIRED, UNCACHEABLE = range(len(TALLY))


class Books(NamedTuple):
    """All that is known of the keys: one line an entry, the queues, and how a key is found."""

    entries: Lines
    queues: Lines
    slots: Ints
    arena: Bytes
    used: Ints  # of the arena
    tally: Ints


def empty_books(capacity: int, arena: int) -> Books:
    """Books with room for so many entries (a power of two) and bytes of keys."""
    entries = np.zeros(capacity, ENTRY)
    queues = np.zeros(6, QUEUE)
    queues["first"] = queues["last"] = NONE
    books = Books(
        entries,
        queues,
        np.full(2 * capacity, NONE),
        np.empty(arena, np.uint8),
        np.zeros(1, np.int64),
        np.zeros(len(TALLY), np.int64),
    )
    _free_from(books, 0)
    return books


def room_for(books: Books, entries: int, key_bytes: int) -> Books:
    """The same books, with room for so many more entries and bytes of keys."""
    capacity = len(books.entries)
    unused = int(books.queues[FREE]["entries"])
    if unused < entries:
        grown = 1 << int(capacity + entries - unused - 1).bit_length()
        more = np.zeros(grown, ENTRY)
        more[:capacity] = books.entries
        books = books._replace(entries=more, slots=np.full(2 * grown, NONE))
        _free_from(books, capacity)
        _fill_slots(books)
    if len(books.arena) - books.used[0] < key_bytes:
        known = books.entries["state"] != FREE
        live = int(books.entries["length"][known].sum())
        arena = np.empty(2 * (live + key_bytes), np.uint8)
        _move_keys(books, arena)
        books = books._replace(arena=arena)
    return books


@numba.njit(cache=True)
def _free_from(books: Books, first: int) -> None:
    for e in range(len(books.entries) - 1, first - 1, -1):
        books.entries[e].after = books.queues[FREE].first
        books.queues[FREE].first = e
        books.queues[FREE].entries += 1


@numba.njit(cache=True)
def _fill_slots(books: Books) -> None:
    mask = len(books.slots) - 1
    for e in range(len(books.entries)):
        if books.entries[e].state in (FREE, DETACHED):
            continue
        at = stirred(books.entries[e].code) & mask
        while books.slots[at] != NONE:
            at = (at + 1) & mask
        books.slots[at] = e


@numba.njit(cache=True)
def _move_keys(books: Books, arena: Bytes) -> None:
    """Write the keys that are in use one after the other into a new arena."""
    at = 0
    for e in range(len(books.entries)):
        entry = books.entries[e]
        if entry.state != FREE:
            for b in range(entry.length):
                arena[at + b] = books.arena[entry.key + b]
            entry.key = at
            at += entry.length
    books.used[0] = at


@numba.njit(cache=True, inline="always")
def find(books: Books, code: int, data: Bytes, begin: int, length: int) -> Any:
    """The slot that holds this key's entry, or the empty one where it would stand."""
    entries, slots, arena = books.entries, books.slots, books.arena
    mask = len(slots) - 1
    at = stirred(code) & mask
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
def add(books: Books, slot: int, code: int, data: Bytes, begin: int, length: int) -> Any:
    """A new entry for this key, found by `slot`; its rows are unknown and it is in no queue."""
    e = books.queues[FREE].first
    entry = books.entries[e]
    books.queues[FREE].first = entry.after
    books.queues[FREE].entries -= 1
    entry.code, entry.key, entry.length = code, books.used[0], length
    for b in range(length):
        books.arena[entry.key + b] = data[begin + b]
    books.used[0] += length
    entry.chunk, entry.start, entry.count = NONE, UNKNOWN, 0
    entry.pins, entry.state, entry.hits = 0, LOOSE, 0
    books.slots[slot] = e
    return e


@numba.njit(cache=True)
def detach(books: Books, e: int) -> None:
    """Take an entry out of its slot: its key is no longer found."""
    slots, entries = books.slots, books.entries
    mask = len(slots) - 1
    hole = stirred(entries[e].code) & mask
    while slots[hole] != e:
        hole = (hole + 1) & mask
    at = (hole + 1) & mask
    while slots[at] != NONE:
        home = stirred(entries[slots[at]].code) & mask
        if ((at - home) & mask) >= ((at - hole) & mask):
            slots[hole] = slots[at]
            hole = at
        at = (at + 1) & mask
    slots[hole] = NONE
    entries[e].state = DETACHED


@numba.njit(cache=True)
def let_go(books: Books, e: int) -> None:
    """Forget an entry that is in no queue and that nobody has yet to read."""
    entry = books.entries[e]
    if entry.state != DETACHED:
        detach(books, e)
    entry.state, entry.chunk, entry.start = FREE, NONE, UNKNOWN
    entry.after = books.queues[FREE].first
    books.queues[FREE].first = e
    books.queues[FREE].entries += 1
