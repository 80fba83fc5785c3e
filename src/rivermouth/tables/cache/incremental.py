"""The incremental cache: what a stream asked for lately, fetched when it is first asked for.

A process has one cache for one question to one table; all its tasks share it. A batch's missing
keys are fetched by one statement, in a thread of their own, while the batch before is finished;
one fetch is under way at a time. Rows are never older than the settings allow, but nothing that
matters lives here: a process that starts anew starts with an empty cache.
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from rivermouth.errors import TableUnavailable
from rivermouth.kernels.cache.key_cache import Found, Holding, Located
from rivermouth.kernels.cache.row_chunks import Chunk, Chunks, spread
from rivermouth.kernels.keys import key_index
from rivermouth.kernels.keys.encoding import EncodedKeys, Ints, encode
from rivermouth.kernels.ranges import bounds
from rivermouth.kernels.table_join.matching import Pairs
from rivermouth.spec.caches import Incremental
from rivermouth.spec.conditions import Between, Keys, Range
from rivermouth.spec.identity import digest, identity
from rivermouth.tables.cache.fetching import Answer, Fetch, Question
from rivermouth.tables.cache.retry import Asking
from rivermouth.tables.source import Source

T = TypeVar("T")
Columns = Mapping[str, pa.Array]

#: the counts that say what a cache holds now; the others say what has happened
HELD = ("entries", "rows", "bytes")

_SWEEPS = 4  # per the shortest time that anything is kept


@dataclass(frozen=True)
class Wanted:
    """What is looked up.

    Parameters
    ----------
    source
        The table; one that can answer, where there is equality.
    keys, range
        The condition's parts, at least one of them given.
    columns
        The table's columns to bring.
    left, table
        The types of the records' columns that the condition names, and of the table's columns.
    """

    source: Source
    keys: Keys | None
    range: Range | None
    columns: tuple[str, ...]
    left: pa.Schema
    table: pa.Schema

    @property
    def digest(self) -> str:
        """Text that is the same for the same question."""
        types = [[str(one) for one in side] for side in (self.left, self.table)]
        return digest(
            identity(
                table=self.source.identity,
                on=(self.keys, self.range),
                columns=self.columns,
                types=types,
            )
        )


@dataclass(frozen=True)
class Rows:
    """What a batch met: pairs of its records and rows of `table`, which may hold others too.

    `fetched` are the records whose keys had to be asked for, the first of each.
    """

    pairs: Pairs
    table: dict[str, pa.Array]
    fetched: Ints


@dataclass
class Lookup:
    """A batch that was begun and not yet finished.

    Parameters
    ----------
    found
        What is known of its keys.
    records
        The numbers of the records that can match.
    low, high
        The range of each of these, where the condition has one.
    troubles
        How many records cannot match, by reason.
    now
        When it was begun.
    fetch, error
        The fetch of its missing keys while it is under way, and why it failed if it did.
    """

    found: Found
    records: Ints
    low: bounds.Numbers | None
    high: bounds.Numbers | None
    troubles: dict[str, int]
    now: float
    fetch: Fetch | None = None
    error: Exception | None = None
    is_open: bool = True


class IncrementalCache:
    """Rows of one table by key, fetched when they are first asked for. Safe to use from threads.

    Parameters
    ----------
    wanted
        What is looked up.
    settings
        How much is kept, for how long, and what to do while the store does not answer.
    asking
        How the store is asked; None: as the settings say.
    """

    def __init__(
        self, wanted: Wanted, settings: Incremental, *, asking: Asking | None = None
    ) -> None:
        self._wanted, self._settings = wanted, settings
        ages = (settings.ttl, settings.idle_ttl, settings.missing_ttl)
        self._held = Holding(settings.rows, settings.bytes, *ages, policy=settings.policy)
        self._sweep_every = (
            min((age for age in ages if age is not None), default=math.inf) / _SWEEPS
        )
        self._swept = -math.inf
        self._chunks = Chunks(pa.schema([wanted.table.field(name) for name in wanted.columns]))
        self._scale = (
            bounds.scale_of(*(side.field(name).type for side, name in _ranged(wanted)))
            if wanted.range is not None
            else None
        )
        sort = wanted.range.right if wanted.range is not None else None
        self._question = Question(
            wanted.source, wanted.keys, wanted.columns, wanted.table, sort, self._scale
        )
        self._asking = asking or Asking(wanted.source.name, settings.attempts)
        self._lock = threading.Lock()
        self._under_way: Lookup | None = None

    def look_up(self, left: Columns, now: float) -> Rows:
        """The rows that a batch's records meet; `left` holds the columns the condition names."""
        return self.finish(self.begin(left, now))

    def each(
        self,
        batches: Iterable[T],
        left: Callable[[T], Columns],
        clock: Callable[[], float] = time.monotonic,
    ) -> Iterator[tuple[T, Rows]]:
        """Each batch with the rows it meets; while keys of one are fetched, the one before is done.

        A batch that needs no fetch comes at once; one that does, when the next has been begun.
        """
        waiting: list[tuple[T, Lookup]] = []
        try:
            for batch in batches:
                waiting.append((batch, self.begin(left(batch), clock())))
                while waiting and (len(waiting) > 1 or waiting[0][1].fetch is None):
                    yield waiting[0][0], self.finish(waiting.pop(0)[1])
            while waiting:
                yield waiting[0][0], self.finish(waiting.pop(0)[1])
        finally:
            for _, lookup in waiting:
                self.abandon(lookup)

    def begin(self, left: Columns, now: float) -> Lookup:
        """Look a batch up, and have what is missing fetched; waits for a fetch under way before."""
        records, troubles, low, high = self._readable(left)
        key_columns = self._key_columns(left, records)
        encoded = encode(list(key_columns.values())) if key_columns else _one_key(len(records))
        with self._lock:
            self._take_in()
            self._sweep(now)
            lookup = Lookup(self._held.find(encoded, now), records, low, high, troubles, now)
            if len(lookup.found.asked):
                self._fetch(lookup, key_columns)
            return lookup

    def finish(self, lookup: Lookup) -> Rows:
        """The rows that the batch's records meet.

        Raises
        ------
        TableUnavailable
            If the store did not answer and ``on_unavailable`` is "fail".
        TableError
            If the table is not what it was.
        """
        with self._lock:
            if lookup.fetch is not None:
                self._take_in()
            lookup.is_open = False
            if lookup.error is not None and not self._may_miss(lookup.error):
                self._held.abandon(lookup.found)
                raise lookup.error
            rows = self._met(lookup, self._held.settle(lookup.found, lookup.now))
            self._chunks.tidy(self._held)
            return rows

    def abandon(self, lookup: Lookup) -> None:
        """Give up a batch that will not be finished; what was fetched for it is not kept."""
        with self._lock:
            if lookup.is_open:
                if lookup.fetch is not None:
                    self._take_in()
                lookup.is_open = False
                self._held.abandon(lookup.found)

    @property
    def counts(self) -> dict[str, Any]:
        """What has happened so far, and what is held."""
        with self._lock:
            return {
                **self._held.counts,
                "loads": self._asking.loads,
                "load_seconds": self._asking.seconds,
                "retries": self._asking.retries,
                "entries": self._held.entries,
                "rows": self._held.rows,
                "bytes": self._held.bytes,
            }

    # -- before the fetch

    def _readable(
        self, left: Columns
    ) -> tuple[Ints, dict[str, int], bounds.Numbers | None, bounds.Numbers | None]:
        """The records that can match, how many cannot and why, and the range of each that can."""
        count = len(next(iter(left.values())))
        usable = np.ones(count, dtype=bool)
        troubles = {}
        if self._wanted.keys is not None:
            usable = ~key_index.missing([left[name] for name, _ in self._wanted.keys.pairs])
            troubles["null_key"] = count - int(np.count_nonzero(usable))
        low = high = None
        if self._wanted.range is not None:
            assert self._scale is not None
            values, there = self._scale.numbers(left[self._wanted.range.left])
            troubles["null_value"] = count - int(np.count_nonzero(there))
            usable &= there
            low, high = bounds.bounds(self._wanted.range, values[usable], self._scale)
        known = {reason: number for reason, number in troubles.items() if number}
        return np.flatnonzero(usable), known, low, high

    def _key_columns(self, left: Columns, records: Ints) -> dict[str, pa.Array]:
        names = (
            [name for name, _ in self._wanted.keys.pairs] if self._wanted.keys is not None else []
        )
        if names and len(records) == len(left[names[0]]):
            return {name: left[name] for name in names}
        index = pa.array(records)
        return {name: left[name].take(index) for name in names}

    def _fetch(self, lookup: Lookup, key_columns: Columns) -> None:
        """Have the missing keys of a batch fetched."""
        asked = lookup.found.asked
        try:
            missing = {name: column.take(pa.array(asked)) for name, column in key_columns.items()}
            lookup.fetch = Fetch(self._question, missing, len(asked), self._asking)
        except BaseException:  # else these keys would count as asked for, for ever
            self._held.fail(lookup.found)
            self._held.abandon(lookup.found)
            raise
        self._under_way = lookup

    def _sweep(self, now: float) -> None:
        if now - self._swept >= self._sweep_every:
            self._held.expire(now)
            self._swept = now

    # -- after it

    def _take_in(self) -> None:
        """Wait for the fetch under way, if there is one, and keep what it brings."""
        lookup = self._under_way
        if lookup is None:
            return
        assert lookup.fetch is not None
        answer = lookup.fetch.result()
        self._under_way = lookup.fetch = None
        if isinstance(answer, Exception):
            lookup.error = answer
            self._held.fail(lookup.found)
        else:
            self._keep(lookup, answer)

    def _keep(self, lookup: Lookup, answer: Answer) -> None:
        there = answer.count > 0
        entries = lookup.found.entries[lookup.found.asked]
        chunk = Chunk(
            answer.columns, int(answer.count.sum()), answer.order,
            entries[there], answer.start[there], answer.count[there],
        )  # fmt: skip
        number = self._chunks.add(chunk) if chunk.rows else -1
        self._held.fill(
            lookup.found,
            count=answer.count,
            size=answer.size,
            chunk=number,
            start=answer.start,
            now=lookup.now,
        )

    def _may_miss(self, error: Exception) -> bool:
        return isinstance(error, TableUnavailable) and self._settings.on_unavailable == "miss"

    def _met(self, lookup: Lookup, located: Located) -> Rows:
        """The rows that each record meets, gathered from the chunks."""
        start, count = located.start, located.count
        if self._wanted.range is not None:
            start, count = self._in_range(lookup, located)
        table, right = self._chunks.gather(np.repeat(located.chunk, count), spread(start, count))
        pairs = Pairs(np.repeat(lookup.records, count), right, None, lookup.troubles)
        return Rows(pairs, table, lookup.records[lookup.found.asked])

    def _in_range(self, lookup: Lookup, located: Located) -> tuple[Ints, Ints]:
        """The part of each record's run that is in its range, by bisection where the run lies."""
        assert lookup.low is not None
        assert lookup.high is not None
        start, count = located.start.copy(), np.zeros_like(located.count)
        for number in np.unique(located.chunk[located.count > 0]):
            here = np.flatnonzero(located.chunk == number)
            order = self._chunks.chunks[number].order
            assert order is not None
            run = (order, located.start[here], located.count[here])
            if isinstance(self._wanted.range, Between):
                start[here], count[here] = bounds.within(*run, lookup.low[here], lookup.high[here])
            else:
                start[here], count[here] = bounds.newest(*run, lookup.high[here])
        return start, count


def shared(wanted: Wanted, settings: Incremental) -> IncrementalCache:
    """The process's cache for `wanted` with these settings; all who ask for it share it."""
    key = (os.getpid(), wanted.digest, settings)
    with _guard:
        if key not in _caches:
            _caches[key] = IncrementalCache(wanted, settings)
        return _caches[key]


# By process: a cache that came over a fork may have a fetch of the parent's under way.
_caches: dict[tuple[int, str, Incremental], IncrementalCache] = {}
_guard = threading.Lock()


def _one_key(count: int) -> EncodedKeys:
    """The same key for all: without equality the whole table is one key's run."""
    return EncodedKeys(np.zeros(count, np.int64))


def _ranged(wanted: Wanted) -> tuple[tuple[pa.Schema, str], tuple[pa.Schema, str]]:
    assert wanted.range is not None
    return (wanted.left, wanted.range.left), (wanted.table, wanted.range.right)
