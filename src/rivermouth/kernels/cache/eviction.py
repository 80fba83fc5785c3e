"""Eviction: least recently used, and S3-FIFO, as if records came one by one.

LRU is one queue in the order of last use. S3-FIFO (Yang et al., SOSP 2023) has a small queue for
new keys, a main one, and a ghost queue of the keys that left the small one; a key that is not used
again while it is in the small queue leaves without having disturbed the main one.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba

from rivermouth.kernels.cache.hash_table import (
    DETACHED,
    EVICTIONS,
    GHOST,
    LOOSE,
    MAIN,
    SMALL,
    UNKNOWN,
    HashTable,
    Line,
    detach,
    free,
)

_MOST_HITS = 3  # counted of an entry, as in the paper
_PROMOTED = 2  # hits in the small queue that lead to the main one


class Policy(NamedTuple):
    """How much is kept, for how long (seconds), and how: the main queue's share is S3-FIFO's."""

    rows: int
    bytes: int
    main_rows: int
    main_bytes: int
    ttl: float
    idle_ttl: float
    missing_ttl: float
    is_lru: bool


@numba.njit(cache=True)
def touch(table: HashTable, e: int, policy: Policy) -> None:
    """Count a use of an entry that is kept."""
    if not policy.is_lru:
        table.entries[e].hits = min(table.entries[e].hits + 1, _MOST_HITS)
    elif table.queues[MAIN].first != e:
        _unlink(table, e)
        _push(table, MAIN, e)


@numba.njit(cache=True)
def admit(table: HashTable, e: int, policy: Policy) -> bool:
    """Keep an entry that was loaded, evicting others for it; False if it is too large."""
    entry = table.entries[e]
    rows, size = max(entry.count, 1), entry.size
    if rows > policy.rows or size > policy.bytes:
        return False
    was_ghost = entry.state == GHOST
    if was_ghost:
        _unlink(table, e)
        entry.state = LOOSE
    while _is_full(table, rows, size, policy):
        if policy.is_lru:
            _evict(table, table.queues[MAIN].last)
        else:
            _evict_one(table, policy)
    entry.hits = 0
    _push(table, MAIN if was_ghost or policy.is_lru else SMALL, e)
    return True


@numba.njit(cache=True)
def remove(table: HashTable, e: int) -> None:
    """Remove an entry, in whichever queue it is; its key is no longer found."""
    if table.entries[e].state in (SMALL, MAIN, GHOST):
        _unlink(table, e)
    detach(table, e)
    if not table.entries[e].pins:
        free(table, e)


@numba.njit(cache=True)
def release(table: HashTable, e: int) -> None:
    """The last pin of an entry is gone: unless it is in a queue, it is freed."""
    state = table.entries[e].state
    if state in (LOOSE, DETACHED):
        free(table, e)
    elif state == GHOST:
        table.entries[e].start = UNKNOWN


@numba.njit(cache=True, inline="always")
def _is_full(table: HashTable, rows: int, size: int, policy: Policy) -> Any:
    small, main = table.queues[SMALL], table.queues[MAIN]
    return (
        small.rows + main.rows + rows > policy.rows
        or small.bytes + main.bytes + size > policy.bytes
    )


@numba.njit(cache=True)
def _evict_one(table: HashTable, policy: Policy) -> None:
    """One step of S3-FIFO: an entry is evicted, or gets another chance."""
    main = table.queues[MAIN]
    from_main = main.rows > policy.main_rows or main.bytes > policy.main_bytes
    if from_main or not table.queues[SMALL].entries:
        e = main.last
        if table.entries[e].hits == 0:
            _evict(table, e)
            return
        hits = table.entries[e].hits - 1
    else:
        e = table.queues[SMALL].last
        if table.entries[e].hits < _PROMOTED:
            _evict_to_ghost(table, e)
            return
        hits = 0
    _unlink(table, e)
    _push(table, MAIN, e)
    table.entries[e].hits = hits


@numba.njit(cache=True)
def _evict(table: HashTable, e: int) -> None:
    """Evict an entry; its rows stay as long as it has pins."""
    _unlink(table, e)
    table.entries[e].state = LOOSE
    table.counters[EVICTIONS] += 1
    if not table.entries[e].pins:
        free(table, e)


@numba.njit(cache=True)
def _evict_to_ghost(table: HashTable, e: int) -> None:
    """Evict an entry to the ghost queue, which has at most as many keys as are kept."""
    _unlink(table, e)
    _push(table, GHOST, e)
    table.counters[EVICTIONS] += 1
    if not table.entries[e].pins:
        table.entries[e].start = UNKNOWN
    ghosts = table.queues[GHOST]
    while ghosts.entries > table.queues[SMALL].entries + table.queues[MAIN].entries:
        last = ghosts.last
        _unlink(table, last)
        table.entries[last].state = LOOSE
        if not table.entries[last].pins:
            free(table, last)


@numba.njit(cache=True)
def _push(table: HashTable, state: int, e: int) -> None:
    """Put an entry at the front of a queue."""
    queue, entry = table.queues[state], table.entries[e]
    entry.state, entry.before, entry.after = state, -1, queue.first
    if queue.entries:
        table.entries[queue.first].before = e
    else:
        queue.last = e
    queue.first = e
    queue.entries += 1
    _charge(queue, entry, 1)


@numba.njit(cache=True)
def _unlink(table: HashTable, e: int) -> None:
    """Take an entry out of the queue it is in."""
    entry = table.entries[e]
    queue = table.queues[entry.state]
    if entry.before >= 0:
        table.entries[entry.before].after = entry.after
    else:
        queue.first = entry.after
    if entry.after >= 0:
        table.entries[entry.after].before = entry.before
    else:
        queue.last = entry.before
    queue.entries -= 1
    _charge(queue, entry, -1)


@numba.njit(cache=True, inline="always")
def _charge(queue: Line, entry: Line, sign: int) -> None:
    """Charge a queue for an entry; a ghost costs nothing."""
    if entry.state != GHOST:
        queue.rows += sign * max(entry.count, 1)
        queue.empty += sign * (entry.count == 0)
        queue.bytes += sign * entry.size
