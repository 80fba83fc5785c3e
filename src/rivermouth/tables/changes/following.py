"""The version of a table that a task is to use, where the table follows a feed of changes.

Whoever needs a version first reads the feed and writes a step above the snapshot, while the others
wait: a moment's work, since a step has only what has changed. A new snapshot is made beside the
work, of the rows that are there where many have changed, or of the table where `refresh` says so;
it is brought up to the feed's present position before anybody uses it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rivermouth.errors import PlanError, TableGap, TableInvalid, TableStale, TableUnavailable
from rivermouth.kernels.arrays import Bools
from rivermouth.kernels.keys import key_index
from rivermouth.spec.caches import Full
from rivermouth.tables.cache.batch_versions import MicroBatch
from rivermouth.tables.cache.memory import release_memory
from rivermouth.tables.cache.snapshot import Snapshot, SnapshotSpec
from rivermouth.tables.cache.snapshot_store import CHOOSING, Version, array_of
from rivermouth.tables.changes.effect import ENDED, Applying, Effect
from rivermouth.tables.changes.feed import ChangeBatch, Pinned, feed_of
from rivermouth.tables.changes.overlay import (
    BASE,
    LayeredVersion,
    OverlayStore,
    Step,
    StoredLayer,
    write_keyed,
)
from rivermouth.tables.source import check_unchanged
from rivermouth.tables.worker_cache import WorkerCache

_MOST = 100_000  # changes that a micro-batch waits for; the rest is for the next ones
_GROWTH = 2  # a layer is put together with those above it until it has so many times their rows
_COMPACTED = 50_000  # changed rows up to which a new snapshot is not worth its work
_PAUSE = 60.0  # seconds between attempts to make a new snapshot


def open_version(
    spec: SnapshotSpec, cache: Full, folder: str, batch: MicroBatch | None
) -> Version | LayeredVersion:
    """The version of a table to join, whether it follows changes or not, open."""
    if spec.changes is None:
        return Snapshot(spec, cache, folder, batch=batch).open()
    return Following(spec, cache, folder, batch=batch).opened()


class Following(Snapshot):
    """The version of a table to use from now on: with all changes up to now.

    With `batch` it is the version that all tasks of that micro-batch join, whenever they run.

    Raises
    ------
    TableStale
        If the feed does not answer and the newest version is older than ``cache.max_age``.
    TableMissing
        If the version that `batch` has joined before is gone.
    TableError
        If the table cannot be loaded, or changes cannot be applied.
    """

    _stores = OverlayStore
    _store: OverlayStore

    def __init__(
        self,
        spec: SnapshotSpec,
        cache: Full,
        folder: str,
        clock: Callable[[], float] = time.time,
        *,
        batch: MicroBatch | None = None,
    ) -> None:
        assert spec.changes is not None
        self._changes = spec.changes
        self._feed = feed_of(spec.changes, spec.source, spec.schema)
        history = spec.changes.history
        self._key = (*spec.changes.key, *([] if history is None else [history]))
        self._applying = Applying(
            spec.schema, self._key, spec.spatial, history, getattr(spec.source, "where", ()),
            spec.source.name,
        )  # fmt: skip
        super().__init__(spec, cache, folder, clock, batch=batch)

    def opened(self) -> LayeredVersion:
        """The layers, mapped."""
        try:
            return self._layers(self._version)
        except FileNotFoundError:  # so many versions were made since that this one was removed
            if self._batch is not None:
                raise
            self._version = self._newest()
            return self._layers(self._version)

    def _layers(self, version: str) -> LayeredVersion:
        return self._store.opened(version, replace(self._spec, index=None).indexed)

    def _is_current(self, version: str) -> bool:
        return True  # what an earlier program left is followed on

    # -- up to date

    def _newest(self) -> str:
        asked, newest = self._clock(), self._store.newest()
        if newest is None or self._is_due(newest, asked):
            with self._store.locked(wait=True):
                newest = self._brought_up(asked)
                if self._batch is not None and self._store.remote is None:
                    # before the lock is given up: who waits for it shall not read the feed again
                    with self._store.locked(wait=True, name=CHOOSING):
                        newest = self._store.batches.write_once(self._batch, newest)
        self._rebuild_beside(newest)
        return newest

    def _is_due(self, newest: str, asked: float) -> bool:
        """Whether the feed is to be read for one who asks."""
        loaded, every = self._store.loaded(newest), self._changes.every
        if loaded < self._spec.since:
            return True
        if every is None:
            return self._batch is not None and loaded < asked
        return asked - loaded >= every

    def _brought_up(self, asked: float) -> str:
        """The newest version with all changes up to now; the lock is held."""
        newest = self._store.newest()
        if newest is not None:
            if self._batch is not None and self._store.remote is None:
                chosen = self._store.batches.find(self._batch)
                if chosen is not None:  # by who had the lock before
                    return chosen
            if not self._is_due(newest, asked) or self._has_just_failed(asked):
                return self._served(newest, None)
        try:
            version = self._loaded({}) if newest is None else self._followed(newest)
        except TableUnavailable as error:
            if newest is None:
                raise
            self._store.note_failure(self._clock(), error)
            return self._served(newest, error)
        with contextlib.suppress(FileNotFoundError):
            (self._store.home / "failure.json").unlink()
        if version != newest:
            self._store.publish(version)
        return version

    def _followed(self, newest: str) -> str:
        """A version with the changes since another, or the table anew where some are lost."""
        is_behind = self._store.loaded(newest) < self._spec.since  # an earlier program's
        try:
            return self._advanced(newest, whole=is_behind)
        except TableGap:
            counts = Counter(self._store.step(newest).counts)
            counts["gaps"] += 1
            return self._loaded(counts)

    def _has_just_failed(self, now: float) -> bool:
        failure = self._store.failure()
        pause = max(1.0, (self._changes.every or 0) / 10)
        return failure is not None and now - failure["when"] < pause

    def _served(self, newest: str, error: Exception | None) -> str:
        """A version without the changes of late, while it may be used."""
        age, max_age = self._age(newest), self._cache.max_age
        if max_age is None or age <= max_age:
            return newest
        failure = self._store.failure() or {"message": "the feed has not been read"}
        raise TableStale(
            self._spec.source.name,
            f"its changes were last read {age:.0f} s ago and max_age is {max_age:.0f} s",
            there=f"reading them fails: {failure['message']}",
            todo="Restore the feed, or allow a larger max_age.",
        ) from error

    # -- loads

    def _loaded(self, counts: dict[str, int]) -> str:
        """The table as it is now, loaded and brought up to the feed's present position."""
        began, position = self._clock(), self._feed.start()
        source = self._feed.table_at(position) if isinstance(self._feed, Pinned) else None
        fill = partial(self._write_table, self._spec.source if source is None else source, began)
        total = Counter(counts)
        total["full_loads"] += 1
        version = self._store.add_base(began, Step(position, began, counts=dict(total)), fill)
        release_memory()
        # what changed while the table was read is in the feed, and may be in the table
        return self._advanced(version, whole=True)

    def _write_table(self, source: object, began: float, folder: Path) -> None:
        names = [name for name in self._spec.schema.names if name != ENDED]
        read: pa.Table = source.read(names)  # type: ignore[attr-defined]
        check_unchanged(read, self._spec.schema, names, table=self._spec.source.name)
        if ENDED in self._spec.schema.names:
            read = read.append_column(ENDED, pa.array(np.zeros(read.num_rows, dtype=bool)))
        self._write_layer(read.select(self._spec.schema.names), self._spec, began, folder)

    def _write_layer(self, rows: pa.Table, spec: SnapshotSpec, read: float, folder: Path) -> None:
        """Write rows with their index and their keys; `read` is when the table was."""
        began = time.perf_counter()
        rows, index = spec.indexed(rows)
        keys = key_index.build([array_of(rows, name) for name in self._key])
        if keys.count < len(keys.rows):
            raise TableInvalid(
                self._spec.source.name,
                f"its changes are known by {list(self._key)}, and rows share a key",
                there=f"{len(keys.rows):,} rows have {keys.count:,} different ones",
                todo="Name columns as key= that tell all rows apart.",
            )
        write_keyed(folder, rows, index, keys, read, time.perf_counter() - began)

    # -- steps

    def _advanced(self, version: str, *, whole: bool) -> str:
        """A version with the changes since this one; not all of them where they are many.

        With `whole` all of them.
        """
        columns = [name for name in self._spec.schema.names if name != ENDED]
        while True:
            step, began = self._store.step(version), self._clock()
            batch = self._feed.read(step.position, columns, _MOST)
            version = self._applied(version, step, batch, began)
            if batch.is_last or not whole:
                return version

    def _applied(self, version: str, step: Step, batch: ChangeBatch, began: float) -> str:
        """The step after a version, with these changes."""
        if not len(batch.op) and (batch.position, batch.is_last) == (step.position, step.is_last):
            self._store.confirm(version, began)
            return version
        effect, opened = self._applying.effect(batch), self._layers(version).layers
        if batch.repeats:
            effect = self._new(effect, opened)
            if not effect.changes and batch.position == step.position:
                self._store.confirm(version, began)
                return version
        layers, known = [], np.zeros(effect.rows.num_rows, dtype=bool)
        for layer in opened:
            at, rows = layer.rows_of(effect.rows, self._key)
            known[at] = True
            layers.append(layer.without(rows))
        counts = Counter(step.counts)
        counts.update(effect.counts)
        counts["applied"] += effect.changes
        counts["unknown_updates"] += int(np.count_nonzero(effect.is_update & ~known))
        counts["absent_deletes"] += int(np.count_nonzero(effect.is_delete & ~known))
        added = effect.rows.take(pa.array(np.flatnonzero(~effect.is_delete)))
        kept, rows = _merged(layers, added)
        made = replace(
            step, position=batch.position, loaded=began, layers=tuple(one.name for one in kept),
            is_last=batch.is_last, counts=dict(counts), freshness=self._freshness(effect.made),
        )  # fmt: skip
        fill = None
        if rows.num_rows:
            # an index that is asked for by name need not serve a few rows
            spec, read = replace(self._spec, index=None), self._store.read_at(version)
            fill = partial(self._write_layer, rows, spec, read)
        number = int(version.split("_")[1]) + 1
        gone = {one.name: one.gone for one in kept if one.gone is not None}
        return self._store.add_step(version, number, made, gone, fill)

    def _new(self, effect: Effect, layers: Sequence[StoredLayer]) -> Effect:
        """The changes without those that leave a row, or its absence, as it is."""
        is_new = ~effect.is_delete
        for layer in layers:
            at, rows = layer.rows_of(effect.rows, self._key)
            there, now = layer.rows.take(pa.array(rows)), effect.rows.take(pa.array(at))
            is_new[at] = effect.is_delete[at] | ~_equal(there, now.cast(there.schema))
        some = effect.take(np.flatnonzero(is_new))
        counts = some.counts if is_new.any() else {}
        return replace(some, changes=some.rows.num_rows, counts=counts)

    def _freshness(self, when: pa.Array | None) -> tuple[float, float] | None:
        if when is None or when.null_count == len(when):
            return None
        made = when.cast(pa.timestamp("us", "UTC")).drop_null().cast(pa.int64()).to_numpy()
        waited = self._clock() - made / 1e6
        return float(np.median(waited)), float(waited.max())

    # -- snapshots made beside the work

    def _rebuild_beside(self, version: str) -> None:
        """Make a new snapshot in a thread, unless one is being made or has just failed."""
        home, now = self._store.home, self._clock()
        if self._reason(version) is None or now - (_failed.find(home) or -_PAUSE) < _PAUSE:
            return
        thread = _rebuilding.pop(home)
        if thread is None or not thread.is_alive():
            thread = threading.Thread(target=self._rebuild, daemon=True)
            thread.start()
        _rebuilding.put(home, thread)

    def _reason(self, version: str) -> str | None:
        """Why a new snapshot is due: "refresh", "changes" or None."""
        refresh = self._cache.refresh
        if refresh is not None and self._clock() - self._store.read_at(version) > refresh:
            return "refresh"
        with contextlib.suppress(FileNotFoundError):  # removed since: a newer one tells
            base, *above = self._layers(version).layers
            changed = max(base.count_gone, sum(layer.count_live for layer in above))
            most = self._changes.compact_at or max(_COMPACTED, base.rows.num_rows // 4)
            return "changes" if changed >= most else None
        return None

    def _rebuild(self) -> None:
        try:
            with self._store.locked(wait=False, name="rebuilding") as is_held:
                newest = self._store.newest()
                reason = self._reason(newest) if is_held and newest is not None else None
                if newest is None or reason is None:
                    return
                made = (
                    self._loaded(dict(self._store.step(newest).counts))
                    if (reason == "refresh")
                    else self._compacted(newest)
                )
                made = self._advanced(made, whole=True)
                with self._store.locked(wait=True):
                    made = self._advanced(made, whole=True)
                    self._store.publish(made)
                release_memory()
        except Exception as error:  # whatever it was: the layers serve
            self._store.note_failure(self._clock(), error)
            _failed.put(self._store.home, self._clock())

    def _compacted(self, version: str) -> str:
        """A snapshot of the rows that are there, at the same position of the feed."""
        opened, read = self._layers(version), self._store.read_at(version)
        counts = Counter(opened.step.counts)
        counts["compactions"] += 1
        step = replace(opened.step, layers=(BASE,), counts=dict(counts))

        def fill(folder: Path) -> None:
            rows = opened.live()
            try:
                self._write_layer(rows, self._spec, read, folder)
            except PlanError:  # the index that was asked for does not serve what is there now
                self._write_layer(rows, replace(self._spec, index=None), read, folder)

        return self._store.add_base(self._clock(), step, fill)


def _merged(layers: Sequence[StoredLayer], added: pa.Table) -> tuple[list[StoredLayer], pa.Table]:
    """The layers that stay, and the rows of the new one above them.

    A layer that is not much larger than what comes above it becomes part of that, so that there
    are few layers, and each row is written anew only a few times.
    """
    base, *above = layers
    kept = [base, *(layer for layer in above if layer.count_live)]
    rows, count = [added], added.num_rows
    while count and len(kept) > 1 and kept[-1].count_live < _GROWTH * count:
        layer = kept.pop()
        rows.insert(0, layer.live())
        count += layer.count_live
    return kept, pa.concat_tables([part.cast(base.rows.schema) for part in rows])


def _equal(some: pa.Table, others: pa.Table) -> Bools:
    """Whether rows are equal in all columns; nulls equal each other."""
    same = np.ones(some.num_rows, dtype=bool)
    for one, other in zip(some.columns, others.columns, strict=True):
        equal = pc.equal(one, other).fill_null(False)
        both_null = pc.and_(one.is_null(), other.is_null())
        same &= pc.or_(equal, both_null).combine_chunks().to_numpy(zero_copy_only=False)
    return same


_rebuilding: WorkerCache[Path, threading.Thread] = WorkerCache(size=64)
_failed: WorkerCache[Path, float] = WorkerCache(size=64)
