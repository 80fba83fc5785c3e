"""Which keys are held, asked batch by batch, as if their records came one by one.

A batch is looked up in three steps, so that the rows of unknown keys can be fetched in between:

1. `find` gives each record its entry, and lists the first record of every key that is not in hand;
2. `fill` says what the store answered for those, or `fail` that it did not;
3. `settle` goes through the records in their order: who is touched, who comes in, who leaves.

What a batch has found stays readable until it is settled, whatever other batches do meanwhile; so
the next batch may be looked up before this one is settled. Rows themselves are kept elsewhere: an
entry knows in which chunk, from which row on and how many.

After each batch the same keys are held as if its records had come one by one. What is counted
differs in one point: rows that left and are asked for again within a batch are still in hand, and
so they are hits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np

from rivermouth.kernels.cache import hash_table
from rivermouth.kernels.cache.eviction import Rules, admit, expel, release, touch
from rivermouth.kernels.cache.hash_table import (
    ASKED,
    DETACHED,
    FAILED_LOOKUPS,
    FREE,
    GHOST,
    HITS,
    LOOSE,
    MAIN,
    MISSES,
    NEGATIVE_HITS,
    NONE,
    SMALL,
    TALLY,
    UNCACHEABLE,
    UNKNOWN,
    Books,
    Line,
)
from rivermouth.kernels.keys.encoding import Bytes, EncodedKeys, Ints

ENTRY_BYTES = 128  #: what an entry costs besides its key and its rows: its line, slots, a ghost's
_UNBOUNDED = 1 << 62
_SMALL_SHARE = 10  # S3-FIFO's small queue gets one part in ten


@dataclass(frozen=True)
class Found:
    """A batch that was looked up and is not yet settled.

    Parameters
    ----------
    entries
        The entry of each record.
    asked
        The first record of each key whose rows are not in hand, in their order.
    """

    entries: Ints
    asked: Ints


@dataclass(frozen=True)
class Located:
    """Where each record's rows are; no rows, in no chunk, where its key has none."""

    chunk: Ints
    start: Ints
    count: Ints


class Holding:
    """The keys that are held, within bounds.

    Parameters
    ----------
    rows, bytes
        How much is held at most, None: any amount. A key without rows counts as one row.
    ttl, idle_ttl, missing_ttl
        Seconds after which a key is no longer held: since its rows were read, since it was last
        asked for, and since it was found to have none. None: never.
    policy
        "lru" or "s3fifo".

    Examples
    --------
    >>> held = Holding(rows=2, policy="lru")
    >>> batch = held.find(EncodedKeys(np.array([7, 8, 7])), now=0.0)
    >>> batch.asked.tolist()
    [0, 1]
    >>> held.fill(batch, count=np.array([1, 0]), size=np.array([8, 0]), chunk=0,
    ...           start=np.array([0, 1]), now=0.0)
    >>> held.settle(batch, now=0.0).count.tolist()
    [1, 0, 1]
    >>> held.counts["hits"], held.counts["misses"], held.entries
    (1, 2, 2)
    """

    def __init__(
        self,
        rows: int | None = None,
        bytes: int | None = None,  # noqa: A002  (the user's word for it)
        ttl: float | None = None,
        idle_ttl: float | None = None,
        missing_ttl: float | None = None,
        policy: str = "s3fifo",
    ) -> None:
        most_rows, most_bytes = rows or _UNBOUNDED, bytes or _UNBOUNDED
        self._rules = Rules(
            most_rows,
            most_bytes,
            most_rows - max(1, most_rows // _SMALL_SHARE),
            most_bytes - max(1, most_bytes // _SMALL_SHARE),
            _or_never(ttl),
            _or_never(idle_ttl),
            _or_never(missing_ttl),
            policy == "lru",
        )
        self._books = hash_table.empty_books(1 << 10, 1 << 10)

    def find(self, keys: EncodedKeys, now: float) -> Found:
        """Look up a batch; entries that are too old are as if they were not there."""
        self._books = hash_table.room_for(self._books, len(keys), keys.nbytes)
        entries, asked = np.empty(len(keys), np.int64), np.empty(len(keys), np.int64)
        count = _find(
            self._books, keys.codes, keys.data, keys.offsets, now, self._rules, entries, asked
        )
        return Found(entries, asked[:count])

    def fill(
        self, batch: Found, *, count: Ints, size: Ints, chunk: int, start: Ints, now: float
    ) -> None:
        """Say what the store answered for the keys that `batch` asked for, in their order."""
        _fill(self._books, batch.entries[batch.asked], count, size, chunk, start, now)

    def fail(self, batch: Found) -> None:
        """Say that the store did not answer: the keys `batch` asked for are unknown as before."""
        _fail(self._books, batch.entries[batch.asked])

    def settle(self, batch: Found, now: float) -> Located:
        """Where each record's rows are; after this the batch is done with."""
        located = Located(*(np.empty(len(batch.entries), np.int64) for _ in range(3)))
        _settle(
            self._books, batch.entries, batch.asked, now, self._rules,
            located.chunk, located.start, located.count,
        )  # fmt: skip
        return located

    def abandon(self, batch: Found) -> None:
        """Give up a batch that will not be settled."""
        _abandon(self._books, batch.entries)

    def expire(self, now: float) -> None:
        """Let all leave that are too old, also those that nobody asks for."""
        _expire(self._books, now, self._rules)

    def places(self, entries: Ints) -> tuple[Ints, Ints]:
        """Chunk and first row of these entries' rows; `NONE` where they are not in hand."""
        rows = self._books.entries[entries]
        there = (rows["state"] != FREE) & (rows["start"] >= 0)
        return (
            np.where(there, rows["chunk"], NONE).astype(np.int64),
            np.where(there, rows["start"], NONE),
        )

    def move(self, entries: Ints, chunk: int, start: Ints) -> None:
        """Say where these entries' rows are now."""
        self._books.entries["chunk"][entries] = chunk
        self._books.entries["start"][entries] = start

    @property
    def counts(self) -> dict[str, int]:
        """Counts so far; each record is a hit, a negative hit, a miss or a failed lookup."""
        return dict(zip(TALLY, self._books.tally.tolist(), strict=True))

    @property
    def entries(self) -> int:
        """Keys that are held, those without rows included."""
        return self._sum("entries")

    @property
    def rows(self) -> int:
        """Rows that are held."""
        return self._sum("rows") - self._sum("empty")

    @property
    def bytes(self) -> int:
        """Bytes that are held, as they are charged for."""
        return self._sum("bytes")

    def _sum(self, name: str) -> int:
        return int(self._books.queues[name][[SMALL, MAIN]].sum())

    def codes(self) -> dict[str, list[int]]:
        """The codes of the keys in each queue, the newest first: for tests."""
        books, queues = self._books, {"small": SMALL, "main": MAIN, "ghost": GHOST}
        return {name: _codes(books, state).tolist() for name, state in queues.items()}


def _or_never(age: float | None) -> float:
    return math.inf if age is None else float(age)


@numba.njit(cache=True, inline="always")
def _is_too_old(entry: Line, now: float, rules: Rules) -> Any:
    if entry.start < 0:
        return False
    limit = rules.ttl if entry.count else rules.missing_ttl
    return now - entry.read >= limit or now - entry.used >= rules.idle_ttl


@numba.njit(cache=True)
def _find(
    books: Books, codes: Ints, data: Bytes, offsets: Ints, now: float, rules: Rules,
    found: Ints, asked: Ints,
) -> int:  # fmt: skip
    count, begin, length = 0, 0, 0
    for i in range(len(codes)):
        if len(offsets):
            begin, length = offsets[i], offsets[i + 1] - offsets[i]
        slot = hash_table.find(books, codes[i], data, begin, length)
        e = books.slots[slot]
        if e != NONE and _is_too_old(books.entries[e], now, rules):
            expel(books, e)
            books.tally[hash_table.EXPIRED] += 1
            slot = hash_table.find(books, codes[i], data, begin, length)
            e = NONE
        if e == NONE:
            e = hash_table.add(books, slot, codes[i], data, begin, length)
        entry = books.entries[e]
        if entry.start == UNKNOWN:
            entry.start = ASKED
            asked[count] = i
            count += 1
        entry.pins += 1
        found[i] = e
    return count


@numba.njit(cache=True)
def _fill(
    books: Books, entries: Ints, count: Ints, size: Ints, chunk: int, start: Ints, now: float
) -> None:
    for k in range(len(entries)):
        entry = books.entries[entries[k]]
        entry.count, entry.size = count[k], size[k] + entry.length + ENTRY_BYTES
        entry.chunk, entry.start = (chunk, start[k]) if count[k] else (NONE, 0)
        entry.read = entry.used = now


@numba.njit(cache=True)
def _fail(books: Books, entries: Ints) -> None:
    for e in entries:
        books.entries[e].start = UNKNOWN
        expel(books, e)


@numba.njit(cache=True)
def _settle(
    books: Books, found: Ints, asked: Ints, now: float, rules: Rules,
    chunk: Ints, start: Ints, count: Ints,
) -> None:  # fmt: skip
    loads = 0
    for i in range(len(found)):
        e = found[i]
        entry = books.entries[e]
        entry.pins -= 1
        is_first = loads < len(asked) and asked[loads] == i
        loads += is_first
        if entry.start < 0:
            books.tally[FAILED_LOOKUPS] += 1
            chunk[i], start[i], count[i] = NONE, 0, 0
            continue
        chunk[i], start[i], count[i] = entry.chunk, entry.start, entry.count
        books.tally[MISSES if is_first else HITS if entry.count else NEGATIVE_HITS] += 1
        entry.used = now
        if entry.state == SMALL or entry.state == MAIN:
            touch(books, e, rules)
        elif entry.state != DETACHED and not admit(books, e, rules):
            books.tally[UNCACHEABLE] += is_first
    for e in found:
        if not books.entries[e].pins:
            release(books, e)


@numba.njit(cache=True)
def _abandon(books: Books, found: Ints) -> None:
    for e in found:
        books.entries[e].pins -= 1
    for e in found:
        entry = books.entries[e]
        if not entry.pins:
            if entry.start == ASKED:
                entry.start = UNKNOWN
            release(books, e)


@numba.njit(cache=True)
def _expire(books: Books, now: float, rules: Rules) -> None:
    for e in range(len(books.entries)):
        entry = books.entries[e]
        if entry.state not in (FREE, LOOSE, DETACHED) and _is_too_old(entry, now, rules):
            expel(books, e)
            books.tally[hash_table.EXPIRED] += 1


@numba.njit(cache=True)
def _codes(books: Books, state: int) -> Ints:
    codes = np.empty(books.queues[state].entries, np.int64)
    e = books.queues[state].first
    for k in range(len(codes)):
        codes[k] = books.entries[e].code
        e = books.entries[e].after
    return codes
