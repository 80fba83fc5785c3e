"""The incremental cache: the recently used keys of a table, each fetched when it is first used.

A process has one cache for one lookup in one table; all its tasks share it. A batch's missed keys
are fetched by one statement, in a thread of their own, while the batch before is finished; one
fetch is under way at a time. Rows are never older than the settings allow. Nothing here need
survive: a new process starts with an empty cache.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from rivermouth.errors import TableUnavailable
from rivermouth.kernels.arrays import Ints
from rivermouth.kernels.cache.key_cache import KeyCache, Pending, RowRuns
from rivermouth.kernels.cache.row_chunks import Chunk, Chunks, spread
from rivermouth.kernels.keys.encoding import EncodedKeys, encode
from rivermouth.kernels.keys.values import missing
from rivermouth.kernels.ranges.range_keys import Limits, limits
from rivermouth.kernels.ranges.sorted_index import runs_asof, runs_between
from rivermouth.kernels.table_join.matching import Pairs
from rivermouth.spec.caches import Incremental
from rivermouth.spec.conditions import Between
from rivermouth.tables.cache.fetching import Fetch, FetchedRows, LookupSpec
from rivermouth.tables.cache.retry import RetryPolicy
from rivermouth.tables.worker_cache import WorkerCache

T = TypeVar("T")
Columns = Mapping[str, pa.Array]

#: the counts that say what a cache holds now; the others say what has happened
GAUGES = ("entries", "rows", "bytes")

_SWEEPS = 4  # per the shortest time that anything is kept


@dataclass(frozen=True)
class Matches:
    """Pairs of a batch's records and rows of `table`, which may hold others too.

    `fetched` are the records whose keys were missed, the first of each.
    """

    pairs: Pairs
    table: dict[str, pa.Array]
    fetched: Ints


@dataclass
class Lookup:
    """A batch that was begun and not yet finished.

    Parameters
    ----------
    pending
        What is known of its keys.
    records
        The numbers of the records that can match.
    limits
        The range of each of these, where the condition has one.
    rejected
        How many records cannot match, by reason.
    now
        When it was begun.
    fetch, error
        The fetch of its missed keys while it is under way, and why it failed if it did, wholly or
        for some of them.
    """

    pending: Pending
    records: Ints
    limits: Limits | None
    rejected: dict[str, int]
    now: float
    fetch: Fetch | None = None
    error: Exception | None = None
    is_open: bool = True


class IncrementalCache:
    """Rows of one table by key, fetched when they are first used. Safe to use from threads.

    Parameters
    ----------
    spec
        What is looked up.
    settings
        How much is kept, for how long, and what to do while the store does not answer.
    retry
        How the store is asked; None: as the settings say.
    """

    def __init__(
        self, spec: LookupSpec, settings: Incremental, *, retry: RetryPolicy | None = None
    ) -> None:
        self._spec, self._settings = spec, settings
        ages = (settings.ttl, settings.idle_ttl, settings.missing_ttl)
        self._keys = KeyCache(settings.rows, settings.bytes, *ages, policy=settings.policy)
        self._sweep_every = (
            min((age for age in ages if age is not None), default=math.inf) / _SWEEPS
        )
        self._swept = -math.inf
        self._chunks = Chunks(pa.schema([spec.table.field(name) for name in spec.columns]))
        self._retry = retry or RetryPolicy(
            spec.source.name, settings.attempts, reset_timeout=settings.reset_timeout
        )
        self._lock = threading.Lock()
        self._under_way: Lookup | None = None

    def lookup(self, left: Columns, now: float) -> Matches:
        """The rows that match a batch's records; `left` holds the columns the condition names."""
        return self.finish(self.begin(left, now))

    def each(
        self,
        batches: Iterable[T],
        left: Callable[[T], Columns],
        clock: Callable[[], float] = time.monotonic,
    ) -> Iterator[tuple[T, Matches]]:
        """Each batch with its rows; while keys of one are fetched, the one before is finished.

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
        """Look a batch up, and start to fetch what is missed, after the fetch under way."""
        records, rejected, found = self._usable(left)
        keys = self._key_columns(left, records)
        encoded = (
            encode(list(keys.values()))
            if keys
            else EncodedKeys(np.zeros(len(records), np.int64))  # the whole table is one key's
        )
        with self._lock:
            self._take_in()
            if now - self._swept >= self._sweep_every:
                self._keys.expire(now)
                self._swept = now
            lookup = Lookup(self._keys.lookup(encoded, now), records, found, rejected, now)
            if len(lookup.pending.missed):
                self._fetch(lookup, keys)
            return lookup

    def finish(self, lookup: Lookup) -> Matches:
        """The rows that match the batch's records.

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
            may_miss = self._settings.on_unavailable == "miss"
            if lookup.error and not (may_miss and isinstance(lookup.error, TableUnavailable)):
                self._keys.abandon(lookup.pending)
                raise lookup.error
            matches = self._matches(lookup, self._keys.commit(lookup.pending, lookup.now))
            self._chunks.compact(self._keys)
            return matches

    def abandon(self, lookup: Lookup) -> None:
        """Give up a batch that will not be finished; what was fetched for it is not kept."""
        with self._lock:
            if lookup.is_open:
                if lookup.fetch is not None:
                    self._take_in()
                lookup.is_open = False
                self._keys.abandon(lookup.pending)

    @property
    def counts(self) -> dict[str, Any]:
        """What has happened so far, and what is kept."""
        with self._lock:
            return {
                **self._keys.counts,
                "loads": self._retry.loads,
                "load_seconds": self._retry.seconds,
                "retries": self._retry.retries,
                "circuit_opens": self._retry.circuit_opens,
                **{name: getattr(self._keys, name) for name in GAUGES},
            }

    # -- before the fetch

    def _usable(self, left: Columns) -> tuple[Ints, dict[str, int], Limits | None]:
        """The records that can match, how many cannot and why, and the range of each that can."""
        count = len(next(iter(left.values())))
        usable = np.ones(count, dtype=bool)
        rejected, found = {}, None
        if self._spec.keys is not None:
            usable = ~missing([left[name] for name, _ in self._spec.keys.pairs])
            rejected["null_key"] = count - int(np.count_nonzero(usable))
        if self._spec.range is not None:
            values = left[self._spec.range.left]
            there = ~missing([values])
            rejected["null_value"] = count - int(np.count_nonzero(there))
            usable &= there
            kind = self._spec.table.field(self._spec.range.right).type
            found = limits(self._spec.range, values, kind).take(np.flatnonzero(usable))
        known = {reason: number for reason, number in rejected.items() if number}
        return np.flatnonzero(usable), known, found

    def _key_columns(self, left: Columns, records: Ints) -> dict[str, pa.Array]:
        names = [name for name, _ in self._spec.keys.pairs] if self._spec.keys is not None else []
        if names and len(records) == len(left[names[0]]):
            return {name: left[name] for name in names}
        index = pa.array(records)
        return {name: left[name].take(index) for name in names}

    def _fetch(self, lookup: Lookup, keys: Columns) -> None:
        """Start to fetch the missed keys of a batch."""
        missed = lookup.pending.missed
        try:
            columns = {name: column.take(pa.array(missed)) for name, column in keys.items()}
            lookup.fetch = Fetch(self._spec, columns, len(missed), self._retry)
        except BaseException:  # else these keys would count as being loaded, for ever
            self._keys.fail(lookup.pending)
            self._keys.abandon(lookup.pending)
            raise
        self._under_way = lookup

    # -- after it

    def _take_in(self) -> None:
        """Wait for the fetch under way, if there is one, and keep what it brings."""
        lookup = self._under_way
        if lookup is None:
            return
        assert lookup.fetch is not None
        result = lookup.fetch.result()
        self._under_way = lookup.fetch = None
        if isinstance(result, Exception):
            lookup.error = result
            self._keys.fail(lookup.pending)
        else:
            self._keep(lookup, result)
            if result.error is not None:
                lookup.error = result.error
                self._keys.fail(lookup.pending, result.failed)

    def _keep(self, lookup: Lookup, rows: FetchedRows) -> None:
        there = rows.count > 0
        entries = lookup.pending.entries[lookup.pending.missed]
        chunk = Chunk(
            rows.columns, int(rows.count.sum()), rows.order,
            entries[there], rows.start[there], rows.count[there],
        )  # fmt: skip
        number = self._chunks.add(chunk) if chunk.rows else -1
        self._keys.load(
            lookup.pending,
            count=rows.count,
            size=rows.size,
            chunk=number,
            start=rows.start,
            now=lookup.now,
        )

    def _matches(self, lookup: Lookup, runs: RowRuns) -> Matches:
        """The rows that match each record, gathered from the chunks."""
        start, count = runs.start, runs.count
        if lookup.limits is not None:
            start, count = self._in_range(lookup.limits, runs)
        table, right = self._chunks.gather(np.repeat(runs.chunk, count), spread(start, count))
        pairs = Pairs(np.repeat(lookup.records, count), right, None, lookup.rejected)
        return Matches(pairs, table, lookup.records[lookup.pending.missed])

    def _in_range(self, found: Limits, runs: RowRuns) -> tuple[Ints, Ints]:
        """The part of each record's run that is in its range, by bisection within the chunk."""
        start, count = runs.start.copy(), np.zeros_like(runs.count)
        for number in np.unique(runs.chunk[runs.count > 0]):
            here = np.flatnonzero((runs.chunk == number) & found.exists)
            order = self._chunks.chunks[number].order
            assert order is not None
            encoder, keys = order
            low, high, _ = encoder.encode(found.take(here))
            run = (keys, runs.start[here], runs.count[here])
            if isinstance(self._spec.range, Between):
                start[here], count[here] = runs_between(*run, low, high)
            else:
                start[here], count[here] = runs_asof(*run, high)
        return start, count


_caches: WorkerCache[tuple[str, Incremental], IncrementalCache] = WorkerCache(size=64)


def shared(spec: LookupSpec, settings: Incremental) -> IncrementalCache:
    """The process's cache for `spec` with these settings; all its tasks share it."""
    return _caches.get((spec.digest, settings), lambda: IncrementalCache(spec, settings))
