"""A table as an immutable, versioned snapshot: Arrow rows and index arrays, memory-mapped.

A snapshot folder holds versions that never change, and the name of the newest:

    v1793830112000000/rows.arrow       the rows, one record batch, not compressed
    v1793830112000000/index/*.npy      the index, if it is made of arrays
    v1793830112000000/version.json     when it was read, how long that took, the kind of index
    CURRENT                            the newest version's name, replaced in one step
    failure.json                       the last attempt to refresh, if it failed
    lock                               held by the one process that reads the table

All processes of a host map the same pages. Whoever needs the first version makes it while the
others wait; a refresh is made beside the work, and a failed one leaves the last good version
in service until it is older than ``max_age``.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rivermouth.errors import RivermouthError, TableStale
from rivermouth.kernels import matching
from rivermouth.spec.caches import Full
from rivermouth.spec.conditions import Place
from rivermouth.tables.source import Source

Clock = Callable[[], float]

FORMAT = 1
_KEPT = 2  # versions: the newest, and the one that running tasks may still be opening
_LARGE = 1 << 30


@dataclass(frozen=True)
class Recipe:
    """What a snapshot holds: which columns of which table, and the index of which condition."""

    source: Source
    columns: tuple[str, ...]
    place: Place | None
    index: str | None = None

    @property
    def digest(self) -> str:
        """A name for the snapshot's folder: the same recipe, the same name."""
        text = repr((FORMAT, self.source.identity, self.columns, self.place, self.index))
        return hashlib.sha256(text.encode()).hexdigest()[:24]


@dataclass(frozen=True)
class Version:
    """One version of a table, open.

    Parameters
    ----------
    number
        Grows with each version.
    loaded
        When reading began, in seconds since 1970: the rows are at least as new as this.
    seconds
        How long reading and indexing took.
    rows
        The recipe's columns, mapped.
    index
        The index, its arrays mapped.
    """

    number: int
    loaded: float
    seconds: float
    rows: pa.Table
    index: matching.Index


def current(recipe: Recipe, cache: Full, folder: str, clock: Clock = time.time) -> Version:
    """The version to use now, by one who can wait: made if there is none, refreshed if due.

    Raises
    ------
    TableStale
        If no version younger than ``cache.max_age`` can be had.
    TableError
        If the first version cannot be read.
    """
    shelf = Shelf.of(recipe, folder)
    newest = shelf.newest()
    if newest is None:
        newest = _first(shelf, recipe, clock)
    age = clock() - shelf.loaded(newest)
    if cache.max_age is not None and age > cache.max_age:
        newest = _refresh_or_fail(shelf, recipe, cache, age, clock)
    elif cache.refresh is not None and age > cache.refresh:
        _refresh_beside(shelf, recipe, cache, clock)
    return shelf.open(newest)


@dataclass(frozen=True)
class Shelf:
    """The folder of one recipe's versions on this host, and the place they are shared through.

    `remote` is a URI that pyarrow.fs knows; versions are copied from and to it, once per host.
    None: `home` itself is what all processes (and, on a shared file system, all hosts) see.
    """

    home: Path
    remote: str | None = None

    @classmethod
    def of(cls, recipe: Recipe, folder: str) -> Shelf:
        """The shelf of `recipe` under `folder`, a path or a URI."""
        if "://" not in folder:
            return cls(Path(folder) / recipe.digest)
        if folder.startswith("file://"):
            return cls(Path(folder.removeprefix("file://")) / recipe.digest)
        place = hashlib.sha256(folder.encode()).hexdigest()[:24]
        return cls(_host_folder() / place / recipe.digest, f"{folder.rstrip('/')}/{recipe.digest}")

    def newest(self) -> str | None:
        """The name of the newest version, None if there is none."""
        if self.remote is not None:
            return self._fetch()
        with contextlib.suppress(FileNotFoundError):
            return (self.home / "CURRENT").read_text()
        return None

    def loaded(self, version: str) -> float:
        """When a version was read."""
        return float(self._about(version)["loaded"])

    def open(self, version: str) -> Version:
        """Map a version; each process maps it once."""
        path = self.home / version
        return _opened(path) or _keep(path, self._map(version))

    def add(self, rows: pa.Table, index: matching.Index, loaded: float, seconds: float) -> str:
        """Write a version and make it the newest, in one step for whoever looks."""
        version = f"v{int(loaded * 1e6):016d}"
        draft = self.home / f"draft-{uuid.uuid4().hex}"
        (draft / "index").mkdir(parents=True)
        try:
            _write_rows(draft / "rows.arrow", rows)
            for name, array in index.arrays.items():
                np.save(draft / "index" / f"{name}.npy", array, allow_pickle=False)
            about = {"format": FORMAT, "loaded": loaded, "seconds": seconds, "index": index.kind}
            (draft / "version.json").write_text(json.dumps(about))
            if self.remote is not None:
                self._publish(draft, version)
            draft.rename(self.home / version)
            _replace(self.home / "CURRENT", version)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        self._tidy()
        return version

    @contextlib.contextmanager
    def locked(self, *, wait: bool) -> Iterator[bool]:
        """Hold this host's lock; gives False where it is held by another and `wait` is not set."""
        self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(self.home / "lock", "w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                yield False
                return
            yield True  # closing the file lets go, and so does the death of the process

    def failure(self) -> dict[str, Any] | None:
        """The last attempt to refresh, if it failed: when, and with which message."""
        with contextlib.suppress(FileNotFoundError):
            failure: dict[str, Any] = json.loads((self.home / "failure.json").read_text())
            return failure
        return None

    def note_failure(self, when: float, error: Exception) -> None:
        """Keep a failed attempt where the next one, and the metrics, can see it."""
        text = (
            str(error) if isinstance(error, RivermouthError) else f"{type(error).__name__}: {error}"
        )
        _replace(self.home / "failure.json", json.dumps({"when": when, "message": text}))

    def _about(self, version: str) -> dict[str, Any]:
        about: dict[str, Any] = json.loads((self.home / version / "version.json").read_text())
        return about

    def _map(self, version: str) -> Version:
        path, about = self.home / version, self._about(version)
        with pa.memory_map(str(path / "rows.arrow")) as mapped:
            rows = pa.ipc.open_file(mapped).read_all()
        # copy-on-write: shared like a read-only map, but of the type the kernels are compiled for
        arrays = {
            file.stem: np.asarray(np.load(file, mmap_mode="c", allow_pickle=False))
            for file in sorted((path / "index").glob("*.npy"))
        }
        number = int(version.removeprefix("v"))
        index = matching.Index(about["index"], arrays)
        return Version(number, about["loaded"], about["seconds"], rows, index)

    def _tidy(self) -> None:
        """Remove versions no task can still be about to open; open ones stay mapped regardless."""
        for old in sorted(self.home.glob("v*"))[:-_KEPT]:
            shutil.rmtree(old, ignore_errors=True)

    def _publish(self, draft: Path, version: str) -> None:
        files, root = _remote(self.remote)
        pa.fs.copy_files(
            str(draft), f"{root}/{version}", source_filesystem=pa.fs.LocalFileSystem(),
            destination_filesystem=files,
        )  # fmt: skip
        with files.open_output_stream(f"{root}/CURRENT") as stream:
            stream.write(version.encode())

    def _fetch(self) -> str | None:
        """The newest shared version, copied to this host if it is not here yet."""
        files, root = _remote(self.remote)
        try:
            with files.open_input_stream(f"{root}/CURRENT") as stream:
                version: str = stream.read().decode()
        except FileNotFoundError:
            return None
        if (self.home / version).exists():
            return version
        with self.locked(wait=True):
            if not (self.home / version).exists():
                draft = self.home / f"draft-{uuid.uuid4().hex}"
                pa.fs.copy_files(
                    f"{root}/{version}", str(draft), source_filesystem=files,
                    destination_filesystem=pa.fs.LocalFileSystem(),
                )  # fmt: skip
                draft.rename(self.home / version)
        return version


def load(recipe: Recipe) -> tuple[pa.Table, matching.Index]:
    """Read the table and make its index."""
    rows = _one_batch(recipe.source.read(recipe.columns))
    columns = {name: _array(rows, name) for name in rows.column_names}
    return rows, matching.prepare(
        recipe.place, columns, where=recipe.source.name, index=recipe.index
    )


def columns_of(version: Version) -> dict[str, pa.Array]:
    """The version's columns as arrays."""
    return {name: _array(version.rows, name) for name in version.rows.column_names}


def _first(shelf: Shelf, recipe: Recipe, clock: Clock) -> str:
    """Make the first version; whoever comes second waits and finds it made."""
    with shelf.locked(wait=True):
        return shelf.newest() or _load_into(shelf, recipe, clock)


def _load_into(shelf: Shelf, recipe: Recipe, clock: Clock) -> str:
    began, watch = clock(), time.perf_counter()
    rows, index = load(recipe)
    version = shelf.add(rows, index, began, time.perf_counter() - watch)
    with contextlib.suppress(FileNotFoundError):
        (shelf.home / "failure.json").unlink()
    return version


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
_open: dict[Path, Version] = {}
_MOST_OPEN = 16


def _opened(path: Path) -> Version | None:
    with _guard:
        return _open.get(path)


def _keep(path: Path, version: Version) -> Version:
    """Keep a version open in this process; the oldest leaves when there are too many."""
    with _guard:
        _open[path] = version
        while len(_open) > _MOST_OPEN:
            del _open[next(iter(_open))]
    return version


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


def _write_rows(path: Path, rows: pa.Table) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=max(1, rows.num_rows))


def _replace(path: Path, text: str) -> None:
    """Write a small file so that a reader sees the old text or the new, never a part."""
    draft = path.with_name(f"{path.name}-{uuid.uuid4().hex}")
    draft.write_text(text)
    os.replace(draft, path)


def _remote(uri: str | None) -> tuple[Any, str]:
    import pyarrow.fs  # only where snapshots are shared through an object store

    assert uri is not None
    files, root = pyarrow.fs.FileSystem.from_uri(uri)
    return files, root


def _host_folder() -> Path:
    """Where this user's copies of shared snapshots are kept on this host."""
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    return home / "rivermouth" / "snapshots"
