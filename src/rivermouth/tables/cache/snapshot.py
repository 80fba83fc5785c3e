"""The version of a table that a task is to use: made, refreshed, or served a while longer.

Whoever needs the first version makes it while the others wait; a refresh is made beside the
work, and a failed one leaves the last good version in service until it is older than
``max_age``.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from rivermouth.errors import TableMissing, TableStale
from rivermouth.kernels.spatial.space_cut import SpaceCut
from rivermouth.kernels.table_join import matching
from rivermouth.spec.caches import Full
from rivermouth.spec.changes import Changes
from rivermouth.spec.conditions import Keys, Range, Spatial
from rivermouth.spec.identity import digest, identity
from rivermouth.tables.cache import buckets, place_buckets
from rivermouth.tables.cache.batch_versions import MicroBatch
from rivermouth.tables.cache.memory import release_memory
from rivermouth.tables.cache.snapshot_store import (
    CHOOSING,
    FORMAT,
    SnapshotStore,
    Version,
    array_of,
    write,
    write_about,
    write_revision,
)
from rivermouth.tables.changes.feed import feed_of
from rivermouth.tables.source import Source, check_unchanged, revision_of
from rivermouth.tables.worker_cache import WorkerCache

T = TypeVar("T")
_LARGE = 1 << 30


@dataclass(frozen=True)
class SnapshotSpec:
    """What a snapshot holds: which columns of which table, and the index of which condition.

    Parameters
    ----------
    source
        The table.
    schema
        The columns, with the types that they had when the join was defined.
    keys, spatial, range
        The parts of the condition.
    index
        The index, where it is not left to the table.
    since
        When the join was defined: a version that an earlier program left behind is used only
        while it is younger than ``refresh``.
    buckets
        Into how many buckets the table is partitioned, by its keys or without any by its places;
        None: it is kept whole.
    changes
        The feed of changes that the table follows (see `changes.following`); None: none.
    """

    source: Source
    schema: pa.Schema
    keys: Keys | None = None
    spatial: Spatial | None = None
    range: Range | None = None
    index: str | None = None
    since: float = 0.0
    buckets: int | None = None
    changes: Changes | None = None

    @property
    def digest(self) -> str:
        """A name for the snapshot's folder: the same for the same spec."""
        followed = {} if self.changes is None else {"changes": self._followed(self.changes)}
        return digest(
            identity(
                format=FORMAT,
                table=self.source.identity,
                columns=[(field.name, str(field.type)) for field in self.schema],
                on=(self.keys, self.spatial, self.range),
                index=self.index,
                buckets=self.buckets,
                **followed,
            )
        )

    def _followed(self, changes: Changes) -> tuple[object, ...]:
        return feed_of(changes, self.source, self.schema).identity, changes.key, changes.history

    def write(self, folder: Path, loaded: float, before: Path | None = None) -> None:
        """Write a version: the whole table with its index, or its buckets without theirs.

        `before` is the version before it, whose places are partitioned in the same way.
        """
        began, names = time.perf_counter(), self.schema.names
        revision = revision_of(self.source)
        if self.buckets is None:
            read = self.source.read(names)
            check_unchanged(read, self.schema, names, table=self.source.name)
            rows, index = self.indexed(read)
            write(folder, rows, index, loaded=loaded, seconds=time.perf_counter() - began)
        else:
            self._write_buckets(self.buckets, folder, before)
            seconds = time.perf_counter() - began
            write_about(folder, loaded=loaded, seconds=seconds, buckets=self.buckets)
        if revision is not None and revision == revision_of(self.source):
            write_revision(folder, revision)  # else it changed while it was read

    def _write_buckets(self, count: int, folder: Path, before: Path | None) -> None:
        if self.keys is not None:
            keys = [right for _, right in self.keys.pairs]
            buckets.write_by_keys(self.source, self.schema, keys, count, folder)
            return
        assert self.spatial is not None
        cut = None if before is None else place_buckets.read_cut(before)
        place_buckets.write_by_place(self.source, self.schema, self.spatial, count, folder, cut)

    def indexed(self, read: pa.Table) -> tuple[pa.Table, matching.Index]:
        """The rows in one chunk, and their index."""
        rows = _in_one_chunk(read)
        columns = {name: array_of(rows, name) for name in rows.column_names}
        return rows, matching.prepare(
            self.spatial, columns, where=self.source.name, index=self.index,
            keys=self.keys, span=self.range,
        )  # fmt: skip


class Snapshot:
    """The version of a table to use from now on: made if there is none, refreshed if due.

    Making one waits for the first version, and for a new one where the last is older than
    ``cache.max_age``. With `batch` it is the version that all tasks of that micro-batch join,
    whenever they run.

    Raises
    ------
    TableStale
        If no version younger than ``cache.max_age`` can be had.
    TableMissing
        If the version that `batch` has joined before is gone.
    TableError
        If the first version cannot be read.
    """

    _stores: type[SnapshotStore] = SnapshotStore

    def __init__(
        self,
        spec: SnapshotSpec,
        cache: Full,
        folder: str,
        clock: Callable[[], float] = time.time,
        *,
        batch: MicroBatch | None = None,
    ) -> None:
        self._spec, self._cache, self._clock, self._batch = spec, cache, clock, batch
        self._store = self._stores.of(spec.digest, folder)
        self._version = self._newest() if batch is None else self._of_batch(batch)

    @property
    def version(self) -> str:
        """The name of that version; without a `batch` it moves on when the version is removed."""
        return self._version

    def open(self, bucket: int | None = None) -> Version:
        """The rows and their index, mapped, or those of one bucket; it is indexed on first use."""
        return self._of_version(lambda: self._opened(bucket))

    def cut(self) -> SpaceCut:
        """Where the buckets of a table that is partitioned by place lie."""
        return self._of_version(lambda: place_buckets.read_cut(self._store.home / self._version))

    def _of_version(self, read: Callable[[], T]) -> T:
        try:
            return read()
        except FileNotFoundError:  # so many versions were made since that this one was removed
            if self._batch is not None:
                raise
            self._version = self._newest()
            return read()

    def _opened(self, bucket: int | None) -> Version:
        if bucket is None:
            version = self._store.open(self._version)
            return replace(version, loaded=self._store.loaded(self._version))
        return buckets.opened(self._store, self._version, bucket, self._spec.indexed)

    def _of_batch(self, batch: MicroBatch) -> str:
        """The version that all tasks of a micro-batch join, whenever it runs."""
        key = (self._store.home, batch)
        version = _chosen.find(key)
        if version is None:
            version = self._chosen_for(batch)
            _chosen.put(key, version)
        try:
            self._store.fetch(version)
        except FileNotFoundError:
            raise TableMissing(
                self._spec.source.name,
                f"micro-batch {batch.number} has joined version {version}, which is gone",
                there=f"{self._store.batches.shown(batch, version)} says so",
                todo="Restore the version, or remove that file to join the newest one.",
            ) from None
        return version

    def _chosen_for(self, batch: MicroBatch) -> str:
        """The version of a batch that this process has not seen yet."""
        batches = self._store.batches
        if self._store.remote is not None:
            with self._store.locked(wait=True, name="announcing"):
                return batches.announce(batch, self._newest, self._is_usable)
        version = batches.find(batch)
        if version is None:
            newest = self._newest()
            with self._store.locked(wait=True, name=CHOOSING):  # no version is removed meanwhile
                version = batches.write_once(batch, self._store.newest() or newest)
        return version

    def _is_usable(self, version: str) -> bool:
        """Whether a batch that has not run yet may join a version."""
        max_age = self._cache.max_age
        with contextlib.suppress(FileNotFoundError):
            self._store.fetch(version)
            is_young = max_age is None or self._age(version) <= max_age
            return is_young and self._is_current(version)
        return False

    def _newest(self) -> str:
        newest, refresh, max_age = self._usable(), self._cache.refresh, self._cache.max_age
        if newest is None:
            with self._store.locked(wait=True):  # who comes second finds it made
                newest = self._usable() or self._load()
        age = self._age(newest)
        if max_age is not None and age > max_age:
            return self._reload(age, max_age)
        if refresh is not None and age > refresh:
            self._refresh_beside(refresh)
        return newest

    def _usable(self) -> str | None:
        """The newest version, unless an earlier program left it and it is too old to start with."""
        newest = self._store.newest()
        return newest if newest is None or self._is_current(newest) else None

    def _is_current(self, version: str) -> bool:
        if self._store.loaded(version) >= self._spec.since:
            return True
        return self._cache.refresh is not None and self._age(version) <= self._cache.refresh

    def _age(self, version: str) -> float:
        return self._clock() - self._store.loaded(version)

    def _load(self) -> str:
        """Read the table, unless it says that it has not changed since it was last read."""
        began, version = self._clock(), self._store.newest()
        if version is not None and self._is_unchanged(version):
            self._store.confirm(version, began)
        else:
            before = None if version is None else self._store.home / version
            version = self._store.add(began, lambda folder: self._spec.write(folder, began, before))
            release_memory()
        with contextlib.suppress(FileNotFoundError):
            (self._store.home / "failure.json").unlink()
        return version

    def _is_unchanged(self, version: str) -> bool:
        read = self._store.revision(version)
        return read is not None and read == revision_of(self._spec.source)

    def _reload(self, age: float, max_age: float) -> str:
        """The version is too old to serve: make another now, or say why not."""
        with self._store.locked(wait=True):
            newest = self._store.newest()
            assert newest is not None
            if self._age(newest) <= max_age:
                return newest
            try:
                return self._load()
            except Exception as error:
                self._store.note_failure(self._clock(), error)
                raise TableStale(
                    self._spec.source.name,
                    f"its last good version is {age:.0f} s old and max_age is {max_age:.0f} s",
                    there=f"reading it again fails: {error}",
                    todo="Restore the table or its store, or allow a larger max_age.",
                ) from error

    def _refresh_beside(self, refresh: float) -> None:
        """Make a new version in a thread, unless one is being made or has just failed."""
        failure, home = self._store.failure(), self._store.home
        if failure is not None and self._clock() - failure["when"] < max(1.0, refresh / 10):
            return
        thread = _refreshing.pop(home)
        if thread is None or not thread.is_alive():
            thread = threading.Thread(target=self._refresh, args=(refresh,), daemon=True)
            thread.start()
        _refreshing.put(home, thread)

    def _refresh(self, refresh: float) -> None:
        try:
            with self._store.locked(wait=False) as is_held:
                newest = self._store.newest()
                if is_held and newest and self._age(newest) > refresh:
                    self._load()
        except Exception as error:  # whatever it was: the last good version serves
            self._store.note_failure(self._clock(), error)


_chosen: WorkerCache[tuple[Path, MicroBatch], str] = WorkerCache(size=64)
_refreshing: WorkerCache[Path, threading.Thread] = WorkerCache(size=64)


def _in_one_chunk(table: pa.Table) -> pa.Table:
    """The table with one chunk a column; columns too long for 32-bit offsets get 64-bit ones."""
    fields = []
    for field in table.schema:
        kind = field.type
        if table.column(field.name).nbytes > _LARGE and kind in (pa.string(), pa.binary()):
            kind = pa.large_string() if kind == pa.string() else pa.large_binary()
        fields.append(field.with_type(kind))
    return table.cast(pa.schema(fields)).combine_chunks()
