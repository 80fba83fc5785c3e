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
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from rivermouth.errors import TableStale
from rivermouth.kernels.table_join import matching
from rivermouth.spec.caches import Full
from rivermouth.spec.conditions import Keys, Range, Spatial
from rivermouth.spec.identity import digest, identity
from rivermouth.tables.cache import buckets
from rivermouth.tables.cache.memory import give_back
from rivermouth.tables.cache.snapshot_store import FORMAT, Shelf, Version, write, write_about
from rivermouth.tables.source import Source, check_unchanged

Clock = Callable[[], float]

_LARGE = 1 << 30


@dataclass(frozen=True)
class Recipe:
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
        Into how many parts the table is cut by its keys; None: it is kept whole.
    """

    source: Source
    schema: pa.Schema
    keys: Keys | None = None
    spatial: Spatial | None = None
    range: Range | None = None
    index: str | None = None
    since: float = 0.0
    buckets: int | None = None

    @property
    def digest(self) -> str:
        """A name for the snapshot's folder: the same recipe, the same name."""
        return digest(
            identity(
                format=FORMAT,
                table=self.source.identity,
                columns=[(field.name, str(field.type)) for field in self.schema],
                on=(self.keys, self.spatial, self.range),
                index=self.index,
                buckets=self.buckets,
            )
        )


def current(recipe: Recipe, cache: Full, folder: str, clock: Clock = time.time) -> Version:
    """The version to use now, by one who can wait: made if there is none, refreshed if due.

    Raises
    ------
    TableStale
        If no version younger than ``cache.max_age`` can be had.
    TableError
        If the first version cannot be read.
    """
    shelf = Shelf.of(recipe.digest, folder)
    return shelf.open(_newest(shelf, recipe, cache, clock))


class Buckets:
    """The parts of a table that a task needs, of the version that is to be used when it begins.

    A part is indexed by the first who needs it. Parameters and errors are those of `current`.
    """

    def __init__(self, recipe: Recipe, cache: Full, folder: str, clock: Clock = time.time) -> None:
        self._recipe, self._cache, self._clock = recipe, cache, clock
        self._shelf = Shelf.of(recipe.digest, folder)
        self._version = _newest(self._shelf, recipe, cache, clock)

    def open(self, bucket: int) -> Version:
        """The rows of one bucket and their index, mapped."""
        try:
            return self._open(bucket)
        except FileNotFoundError:  # so many versions were made since that this one was removed
            self._version = _newest(self._shelf, self._recipe, self._cache, self._clock)
            return self._open(bucket)

    def _open(self, bucket: int) -> Version:
        return buckets.opened(
            self._shelf, self._version, bucket, lambda rows: _indexed(self._recipe, rows)
        )


def _newest(shelf: Shelf, recipe: Recipe, cache: Full, clock: Clock) -> str:
    newest = shelf.newest()
    if newest is None or _is_left_behind(shelf, newest, recipe, cache, clock):
        newest = _first(shelf, recipe, cache, clock)
    age = clock() - shelf.loaded(newest)
    if cache.max_age is not None and age > cache.max_age:
        newest = _refresh_or_fail(shelf, recipe, cache, age, clock)
    elif cache.refresh is not None and age > cache.refresh:
        _refresh_beside(shelf, recipe, cache, clock)
    return newest


def load(recipe: Recipe) -> tuple[pa.Table, matching.Index]:
    """Read the table and make its index."""
    names = recipe.schema.names
    read = recipe.source.read(names)
    check_unchanged(read, recipe.schema, names, table=recipe.source.name)
    return _indexed(recipe, read)


def _indexed(recipe: Recipe, read: pa.Table) -> tuple[pa.Table, matching.Index]:
    rows = _one_batch(read)
    columns = {name: _array(rows, name) for name in rows.column_names}
    return rows, matching.prepare(
        recipe.spatial, columns, where=recipe.source.name, index=recipe.index,
        keys=recipe.keys, span=recipe.range,
    )  # fmt: skip


def columns_of(version: Version) -> dict[str, pa.Array]:
    """The version's columns as arrays."""
    return {name: _array(version.rows, name) for name in version.rows.column_names}


def _is_left_behind(shelf: Shelf, version: str, recipe: Recipe, cache: Full, clock: Clock) -> bool:
    """Whether a version is an earlier program's, and too old to start with."""
    loaded = shelf.loaded(version)
    return loaded < recipe.since and (cache.refresh is None or clock() - loaded > cache.refresh)


def _first(shelf: Shelf, recipe: Recipe, cache: Full, clock: Clock) -> str:
    """Make the first version; whoever comes second waits and finds it made."""
    with shelf.locked(wait=True):
        newest = shelf.newest()
        if newest is None or _is_left_behind(shelf, newest, recipe, cache, clock):
            return _load_into(shelf, recipe, clock)
        return newest


def _load_into(shelf: Shelf, recipe: Recipe, clock: Clock) -> str:
    began = clock()
    version = shelf.add(began, lambda draft: _fill(draft, recipe, began))
    give_back()
    with contextlib.suppress(FileNotFoundError):
        (shelf.home / "failure.json").unlink()
    return version


def _fill(draft: Path, recipe: Recipe, began: float) -> None:
    """Write a version: the whole table with its index, or its parts, whose indexes can wait."""
    watch = time.perf_counter()
    if recipe.buckets is None:
        rows, index = load(recipe)
        write(draft, rows, index, loaded=began, seconds=time.perf_counter() - watch)
        return
    assert recipe.keys is not None
    keys = [right for _, right in recipe.keys.pairs]
    buckets.cut(recipe.source, recipe.schema, keys, recipe.buckets, draft)
    write_about(draft, loaded=began, seconds=time.perf_counter() - watch, buckets=recipe.buckets)


def _refresh_or_fail(shelf: Shelf, recipe: Recipe, cache: Full, age: float, clock: Clock) -> str:
    """The version is too old to serve: make another now, or say why not."""
    with shelf.locked(wait=True):
        newest = shelf.newest()
        assert newest is not None
        assert cache.max_age is not None
        if clock() - shelf.loaded(newest) <= cache.max_age:
            return newest
        try:
            return _load_into(shelf, recipe, clock)
        except Exception as error:
            shelf.note_failure(clock(), error)
            raise TableStale(
                recipe.source.name,
                f"its last good version is {age:.0f} s old and max_age is {cache.max_age:.0f} s",
                there=f"reading it anew fails: {error}",
                todo="Mend the table or its store, or allow a larger max_age.",
            ) from error


def _refresh_beside(shelf: Shelf, recipe: Recipe, cache: Full, clock: Clock) -> None:
    """Make a new version in a thread of its own, unless one is being made or has just failed."""
    assert cache.refresh is not None
    failure = shelf.failure()
    if failure is not None and clock() - failure["when"] < max(1.0, cache.refresh / 10):
        return
    with _guard:
        if shelf.home in _refreshing:
            return
        _refreshing.add(shelf.home)
    threading.Thread(target=_refresh, args=(shelf, recipe, cache, clock), daemon=True).start()


def _refresh(shelf: Shelf, recipe: Recipe, cache: Full, clock: Clock) -> None:
    assert cache.refresh is not None
    try:
        with shelf.locked(wait=False) as held:
            newest = shelf.newest()
            if held and newest and clock() - shelf.loaded(newest) > cache.refresh:
                _load_into(shelf, recipe, clock)
    except Exception as error:  # whatever it was: the last good version serves, the failure is kept
        shelf.note_failure(clock(), error)
    finally:
        with _guard:
            _refreshing.discard(shelf.home)


_guard = threading.Lock()
_refreshing: set[Path] = set()


def _one_batch(table: pa.Table) -> pa.Table:
    """The table with one chunk a column; columns too long for 32-bit offsets get 64-bit ones."""
    fields = []
    for field in table.schema:
        kind = field.type
        if table.column(field.name).nbytes > _LARGE and kind in (pa.string(), pa.binary()):
            kind = pa.large_string() if kind == pa.string() else pa.large_binary()
        fields.append(field.with_type(kind))
    return table.cast(pa.schema(fields)).combine_chunks()


def _array(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name)
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)
