"""A cache of keys that is used batch by batch, and evicts as if records came one by one.

A batch takes three steps, so that the rows of missed keys can be fetched in between:

1. `lookup` gives each record its entry, and lists the first record of every key that is missed;
2. `load` sets what the store has for those, or `fail` that it did not answer;
3. `commit` goes through the records in their order: uses, admissions, evictions.

What a batch has found stays readable until it is committed, whatever other batches do meanwhile;
so the next batch may be looked up before this one is committed. Rows themselves are kept
elsewhere: an entry knows in which chunk, from which row on and how many.

After each batch the same keys are kept as if its records had come one by one. What is counted
differs in one point: rows that were evicted and are used again within a batch are still in memory,
and so they are hits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np

from rivermouth.kernels.arrays import Bools, Bytes, Ints
from rivermouth.kernels.cache import hash_table
from rivermouth.kernels.cache.eviction import Policy, admit, release, remove, touch
from rivermouth.kernels.cache.hash_table import (
    COUNTERS,
    DETACHED,
    EXPIRED,
    FAILED_LOOKUPS,
    FREE,
    GHOST,
    HITS,
    LOADING,
    LOOSE,
    MAIN,
    MISSES,
    NEGATIVE_HITS,
    NONE,
    SMALL,
    UNCACHEABLE,
    UNKNOWN,
    HashTable,
    Line,
    find_slot,
)
from rivermouth.kernels.keys.encoding import EncodedKeys

ENTRY_BYTES = 128  #: of an entry besides its key and its rows: its line, slots, a ghost's
_UNBOUNDED = 1 << 62
_SMALL_SHARE = 10  # S3-FIFO's small queue gets one part in ten


@dataclass(frozen=True)
class Pending:
    """A batch that was looked up and is not yet committed.

    Parameters
    ----------
    entries
        The entry of each record.
    missed
        The first record of each key whose rows are not in memory, in their order.
    """

    entries: Ints
    missed: Ints


@dataclass(frozen=True)
class RowRuns:
    """Where each record's rows are; no rows, in no chunk, where its key has none."""

    chunk: Ints
    start: Ints
    count: Ints


class KeyCache:
    """The keys that are kept, within bounds.

    Parameters
    ----------
    rows, bytes
        How much is kept at most, None: any amount. A key without rows counts as one row.
    ttl, idle_ttl, missing_ttl
        Seconds after which a key expires: since its rows were read, since it was last used, and
        since it was found to have none. None: never.
    policy
        "lru" or "s3fifo".

    Examples
    --------
    >>> cache = KeyCache(rows=2, policy="lru")
    >>> batch = cache.lookup(EncodedKeys(np.array([7, 8, 7])), now=0.0)
    >>> batch.missed.tolist()
    [0, 1]
    >>> cache.load(batch, count=np.array([1, 0]), size=np.array([8, 0]), chunk=0,
    ...            start=np.array([0, 1]), now=0.0)
    >>> cache.commit(batch, now=0.0).count.tolist()
    [1, 0, 1]
    >>> cache.counts["hits"], cache.counts["misses"], cache.entries
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
        ttl, idle_ttl, missing_ttl = (
            math.inf if age is None else float(age) for age in (ttl, idle_ttl, missing_ttl)
        )
        self._policy = Policy(
            most_rows,
            most_bytes,
            most_rows - max(1, most_rows // _SMALL_SHARE),
            most_bytes - max(1, most_bytes // _SMALL_SHARE),
            ttl,
            idle_ttl,
            missing_ttl,
            policy == "lru",
        )
        self._table = hash_table.new_table(1 << 10, 1 << 10)

    def lookup(self, keys: EncodedKeys, now: float) -> Pending:
        """Look up a batch; keys that have expired are missed."""
        self._table = hash_table.grow(self._table, len(keys), keys.nbytes)
        entries, missed = np.empty(len(keys), np.int64), np.empty(len(keys), np.int64)
        count = _lookup(
            self._table, keys.codes, keys.data, keys.offsets, now, self._policy, entries, missed
        )
        return Pending(entries, missed[:count])

    def load(
        self, batch: Pending, *, count: Ints, size: Ints, chunk: int, start: Ints, now: float
    ) -> None:
        """Set what the store has for the keys that `batch` missed, in their order."""
        _load(self._table, batch.entries[batch.missed], count, size, chunk, start, now)

    def fail(self, batch: Pending, which: Bools | None = None) -> None:
        """The store did not answer: the keys that `batch` missed are unknown as before.

        `which` of them, where it answered for others; None: all.
        """
        missed = batch.missed if which is None else batch.missed[which]
        _fail(self._table, batch.entries[missed])

    def commit(self, batch: Pending, now: float) -> RowRuns:
        """Where each record's rows are; the batch's uses, admissions and evictions take effect."""
        runs = RowRuns(*(np.empty(len(batch.entries), np.int64) for _ in range(3)))
        _commit(
            self._table, batch.entries, batch.missed, now, self._policy,
            runs.chunk, runs.start, runs.count,
        )  # fmt: skip
        return runs

    def abandon(self, batch: Pending) -> None:
        """Give up a batch that will not be committed."""
        _abandon(self._table, batch.entries)

    def expire(self, now: float) -> None:
        """Remove all keys that have expired, also those that are not looked up."""
        _expire(self._table, now, self._policy)

    def locations(self, entries: Ints) -> tuple[Ints, Ints]:
        """Chunk and first row of these entries' rows; `NONE` where they are not in memory."""
        rows = self._table.entries[entries]
        there = (rows["state"] != FREE) & (rows["start"] >= 0)
        return (
            np.where(there, rows["chunk"], NONE).astype(np.int64),
            np.where(there, rows["start"], NONE),
        )

    def move(self, entries: Ints, chunk: int, start: Ints) -> None:
        """Set where these entries' rows are now."""
        self._table.entries["chunk"][entries] = chunk
        self._table.entries["start"][entries] = start

    @property
    def counts(self) -> dict[str, int]:
        """What has happened; each record is a hit, a negative hit, a miss or a failed lookup."""
        return dict(zip(COUNTERS, self._table.counters.tolist(), strict=True))

    @property
    def entries(self) -> int:
        """Keys that are kept, those without rows included."""
        return self._sum("entries")

    @property
    def rows(self) -> int:
        """Rows that are kept."""
        return self._sum("rows") - self._sum("empty")

    @property
    def bytes(self) -> int:
        """Bytes that are kept, as they are charged for."""
        return self._sum("bytes")

    def _sum(self, name: str) -> int:
        return int(self._table.queues[name][[SMALL, MAIN]].sum())

    def codes(self) -> dict[str, list[int]]:
        """The codes of the keys in each queue, the newest first: for tests."""
        queues = {"small": SMALL, "main": MAIN, "ghost": GHOST}
        return {name: _codes(self._table, state).tolist() for name, state in queues.items()}


@numba.njit(cache=True, inline="always")
def _has_expired(entry: Line, now: float, policy: Policy) -> Any:
    if entry.start < 0:
        return False
    limit = policy.ttl if entry.count else policy.missing_ttl
    return now - entry.read >= limit or now - entry.used >= policy.idle_ttl


@numba.njit(cache=True)
def _lookup(
    table: HashTable, codes: Ints, data: Bytes, offsets: Ints, now: float, policy: Policy,
    entries: Ints, missed: Ints,
) -> int:  # fmt: skip
    count, begin, length = 0, 0, 0
    for i in range(len(codes)):
        if len(offsets):
            begin, length = offsets[i], offsets[i + 1] - offsets[i]
        slot = find_slot(table, codes[i], data, begin, length)
        e = table.slots[slot]
        if e != NONE and _has_expired(table.entries[e], now, policy):
            remove(table, e)
            table.counters[EXPIRED] += 1
            slot = find_slot(table, codes[i], data, begin, length)
            e = NONE
        if e == NONE:
            e = hash_table.insert(table, slot, codes[i], data, begin, length)
        entry = table.entries[e]
        if entry.start == UNKNOWN:
            entry.start = LOADING
            missed[count] = i
            count += 1
        entry.pins += 1
        entries[i] = e
    return count


@numba.njit(cache=True)
def _load(
    table: HashTable, entries: Ints, count: Ints, size: Ints, chunk: int, start: Ints, now: float
) -> None:
    for k in range(len(entries)):
        entry = table.entries[entries[k]]
        entry.count, entry.size = count[k], size[k] + entry.length + ENTRY_BYTES
        entry.chunk, entry.start = (chunk, start[k]) if count[k] else (NONE, 0)
        entry.read = entry.used = now


@numba.njit(cache=True)
def _fail(table: HashTable, entries: Ints) -> None:
    for e in entries:
        table.entries[e].start = UNKNOWN
        remove(table, e)


@numba.njit(cache=True)
def _commit(
    table: HashTable, entries: Ints, missed: Ints, now: float, policy: Policy,
    chunk: Ints, start: Ints, count: Ints,
) -> None:  # fmt: skip
    loads = 0
    for i in range(len(entries)):
        e = entries[i]
        entry = table.entries[e]
        entry.pins -= 1
        is_first = loads < len(missed) and missed[loads] == i
        loads += is_first
        if entry.start < 0:
            table.counters[FAILED_LOOKUPS] += 1
            chunk[i], start[i], count[i] = NONE, 0, 0
            continue
        chunk[i], start[i], count[i] = entry.chunk, entry.start, entry.count
        table.counters[MISSES if is_first else HITS if entry.count else NEGATIVE_HITS] += 1
        entry.used = now
        if entry.state == SMALL or entry.state == MAIN:
            touch(table, e, policy)
        elif entry.state != DETACHED and not admit(table, e, policy):
            table.counters[UNCACHEABLE] += is_first
    for e in entries:
        if not table.entries[e].pins:
            release(table, e)


@numba.njit(cache=True)
def _abandon(table: HashTable, entries: Ints) -> None:
    for e in entries:
        table.entries[e].pins -= 1
    for e in entries:
        entry = table.entries[e]
        if not entry.pins:
            if entry.start == LOADING:
                entry.start = UNKNOWN
            release(table, e)


@numba.njit(cache=True)
def _expire(table: HashTable, now: float, policy: Policy) -> None:
    for e in range(len(table.entries)):
        entry = table.entries[e]
        if entry.state not in (FREE, LOOSE, DETACHED) and _has_expired(entry, now, policy):
            remove(table, e)
            table.counters[EXPIRED] += 1


@numba.njit(cache=True)
def _codes(table: HashTable, state: int) -> Ints:
    codes = np.empty(table.queues[state].entries, np.int64)
    e = table.queues[state].first
    for k in range(len(codes)):
        codes[k] = table.entries[e].code
        e = table.entries[e].after
    return codes
