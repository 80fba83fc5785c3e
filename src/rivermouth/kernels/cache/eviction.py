"""Who stays and who leaves: least recently used, and S3-FIFO, as if records came one by one.

LRU is one queue in the order of last use. S3-FIFO (Yang et al., SOSP 2023) has a small queue for
newcomers, a main one, and remembers the keys that left the small one; a key that was not asked for
again while it was in the small queue leaves without having disturbed the main one.
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
    Books,
    Line,
    detach,
    let_go,
)

_MOST_HITS = 3  # counted of an entry, as in the paper
_PROVEN = 2  # hits in the small queue that lead to the main one


class Rules(NamedTuple):
    """What may be held, for how long (seconds), and by which policy.

    `main_rows` and `main_bytes` are the share of S3-FIFO's main queue.
    """

    rows: int
    bytes: int
    main_rows: int
    main_bytes: int
    ttl: float
    idle_ttl: float
    missing_ttl: float
    is_lru: bool


@numba.njit(cache=True)
def touch(books: Books, e: int, rules: Rules) -> None:
    """An entry that is held was asked for."""
    if not rules.is_lru:
        books.entries[e].hits = min(books.entries[e].hits + 1, _MOST_HITS)
    elif books.queues[MAIN].first != e:
        _unlink(books, e)
        _push(books, MAIN, e)


@numba.njit(cache=True)
def admit(books: Books, e: int, rules: Rules) -> bool:
    """Hold an entry that was loaded, whoever must leave for it; False if it is too large."""
    entry = books.entries[e]
    rows, size = max(entry.count, 1), entry.size
    if rows > rules.rows or size > rules.bytes:
        return False
    was_ghost = entry.state == GHOST
    if was_ghost:
        _unlink(books, e)
        entry.state = LOOSE
    while _is_full(books, rows, size, rules):
        if rules.is_lru:
            _drop(books, books.queues[MAIN].last)
        else:
            _make_room(books, rules)
    entry.hits = 0
    _push(books, MAIN if was_ghost or rules.is_lru else SMALL, e)
    return True


@numba.njit(cache=True)
def expel(books: Books, e: int) -> None:
    """Let an entry leave whose rows are too old, wherever it is; its key is no longer found."""
    if books.entries[e].state in (SMALL, MAIN, GHOST):
        _unlink(books, e)
    detach(books, e)
    if not books.entries[e].pins:
        let_go(books, e)


@numba.njit(cache=True)
def release(books: Books, e: int) -> None:
    """Nobody has yet to read this entry: unless it is held, its rows can go."""
    state = books.entries[e].state
    if state in (LOOSE, DETACHED):
        let_go(books, e)
    elif state == GHOST:
        books.entries[e].start = UNKNOWN


@numba.njit(cache=True, inline="always")
def _is_full(books: Books, rows: int, size: int, rules: Rules) -> Any:
    small, main = books.queues[SMALL], books.queues[MAIN]
    return (
        small.rows + main.rows + rows > rules.rows or small.bytes + main.bytes + size > rules.bytes
    )


@numba.njit(cache=True)
def _make_room(books: Books, rules: Rules) -> None:
    """One step of S3-FIFO's eviction: an entry leaves, or gets another chance."""
    main = books.queues[MAIN]
    from_main = main.rows > rules.main_rows or main.bytes > rules.main_bytes
    if from_main or not books.queues[SMALL].entries:
        e = main.last
        if books.entries[e].hits == 0:
            _drop(books, e)
            return
        hits = books.entries[e].hits - 1
    else:
        e = books.queues[SMALL].last
        if books.entries[e].hits < _PROVEN:
            _remember(books, e)
            return
        hits = 0
    _unlink(books, e)
    _push(books, MAIN, e)
    books.entries[e].hits = hits


@numba.njit(cache=True)
def _drop(books: Books, e: int) -> None:
    """Let an entry leave; its rows stay for those who have yet to read them."""
    _unlink(books, e)
    books.entries[e].state = LOOSE
    books.tally[EVICTIONS] += 1
    if not books.entries[e].pins:
        let_go(books, e)


@numba.njit(cache=True)
def _remember(books: Books, e: int) -> None:
    """Let an entry leave, but not its key; as many keys are remembered as are held."""
    _unlink(books, e)
    _push(books, GHOST, e)
    books.tally[EVICTIONS] += 1
    if not books.entries[e].pins:
        books.entries[e].start = UNKNOWN
    ghosts = books.queues[GHOST]
    while ghosts.entries > books.queues[SMALL].entries + books.queues[MAIN].entries:
        last = ghosts.last
        _unlink(books, last)
        books.entries[last].state = LOOSE
        if not books.entries[last].pins:
            let_go(books, last)


@numba.njit(cache=True)
def _push(books: Books, state: int, e: int) -> None:
    """Put an entry at the front of a queue."""
    queue, entry = books.queues[state], books.entries[e]
    entry.state, entry.before, entry.after = state, -1, queue.first
    if queue.entries:
        books.entries[queue.first].before = e
    else:
        queue.last = e
    queue.first = e
    queue.entries += 1
    _weigh(queue, entry, 1)


@numba.njit(cache=True)
def _unlink(books: Books, e: int) -> None:
    """Take an entry out of the queue it is in."""
    entry = books.entries[e]
    queue = books.queues[entry.state]
    if entry.before >= 0:
        books.entries[entry.before].after = entry.after
    else:
        queue.first = entry.after
    if entry.after >= 0:
        books.entries[entry.after].before = entry.before
    else:
        queue.last = entry.before
    queue.entries -= 1
    _weigh(queue, entry, -1)


@numba.njit(cache=True, inline="always")
def _weigh(queue: Line, entry: Line, sign: int) -> None:
    """Charge a queue for an entry; a ghost's rows may change while it is one, and cost nothing."""
    if entry.state != GHOST:
        queue.rows += sign * max(entry.count, 1)
        queue.empty += sign * (entry.count == 0)
        queue.bytes += sign * entry.size
