"""The versions of a table that are kept on a host: Arrow rows and index arrays, memory-mapped.

    v1793830112000000/rows.arrow       the rows, one record batch, not compressed
    v1793830112000000/index/*.npy      the index, if it is made of arrays
    v1793830112000000/version.json     when it was read, how long that took, the kind of index
    v1793830112000000/revision         what the table calls these rows, if it has a name for them
    v1793830112000000/parts/           of a table in buckets: their rows (see `buckets`)
    v1793830112000000/cut.json         of one in buckets by place: where they lie
    CURRENT                            the newest version's name, replaced in one step
    batches/                           which version each micro-batch joins (see `batch_versions`)
    confirmed.json                     when the newest version was last found to be unchanged
    failure.json                       the last attempt to refresh, if it failed
    lock                               held by the one process that reads the table

All processes of a host map the same pages. Only data is kept here, never code or pickles.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs

from rivermouth.errors import RivermouthError
from rivermouth.kernels.table_join import matching
from rivermouth.spec.locations import Location
from rivermouth.tables import file_lock, files
from rivermouth.tables.cache.batch_versions import BatchVersions
from rivermouth.tables.versions import base_of, prune, read_pointer, version_name, write_pointer
from rivermouth.tables.worker_cache import WorkerCache

FORMAT = 3
PARTS = "parts"  # a folder whose files are copied to a host one by one, as they are needed
STEPS = "changes"  # likewise, of a table that follows changes (see `changes.overlay`)
CHOOSING = "choosing"  # the lock under which versions are chosen for batches, and removed
_REVISION = "revision"
_KEPT = 2  # versions: the newest, and the one that running tasks may still be opening


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
        The columns that the snapshot holds, mapped.
    index
        The index, its arrays mapped.
    """

    number: int
    loaded: float
    seconds: float
    rows: pa.Table
    index: matching.Index

    def report(self, refresh: float | None) -> dict[str, Any]:
        """What the metrics say of it; `refresh` is how often it should be read, in seconds."""
        return {
            "rows": self.rows.num_rows,
            "version": self.number,
            "age_seconds": time.time() - self.loaded,
            "load_seconds": self.seconds,
            "refresh_seconds": refresh,
            "index": self.index.kind,
        }

    @property
    def name(self) -> str:
        """What tells it from every other version of its table."""
        return str(self.number)

    @property
    def flat(self) -> Version:
        """Itself: all its rows are in one table."""
        return self

    @property
    def columns(self) -> dict[str, pa.Array]:
        """The rows' columns as arrays."""
        return {name: array_of(self.rows, name) for name in self.rows.column_names}


_open: WorkerCache[Path, Version] = WorkerCache(size=16)


@dataclass(frozen=True)
class SnapshotStore:
    """The folder of one snapshot's versions on this host, and the place they are shared through.

    `remote` is a URI that pyarrow.fs knows; versions are copied from and to it, once per host.
    None: `home` itself is what all processes (and, on a shared file system, all hosts) see.
    """

    home: Path
    remote: Location | None = None

    @classmethod
    def of(cls, digest: str, folder: str) -> SnapshotStore:
        """The store called `digest` under `folder`, a path or a URI."""
        location = Location.of(folder)
        if not location.is_uri:
            return cls(Path(location) / digest)
        caches = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
        shared = hashlib.sha256(location.shown.encode()).hexdigest()[:24]
        home = caches / "rivermouth" / "snapshots" / shared / digest
        return cls(home, location / digest)

    def newest(self) -> str | None:
        """The newest version's name, None if there is none; a shared one is copied to this host."""
        if self.remote is None:
            return read_pointer(str(self.home))
        version = read_pointer(self.remote)
        if version is not None:
            self.fetch(version)
        return version

    def fetch(self, version: str) -> None:
        """Have a version on this host.

        Raises
        ------
        FileNotFoundError
            If it has been removed.
        """
        if self.remote is not None and not (self.home / version).exists():
            with self.locked(wait=True, name="fetching"):  # a reader of the table may need it, too
                if not (self.home / version).exists():
                    self._download(version)
        if not (self.home / version).exists():
            raise FileNotFoundError(version)

    @property
    def batches(self) -> BatchVersions:
        """Which version each micro-batch joins."""
        return BatchVersions(self.home, self.remote)

    def loaded(self, version: str) -> float:
        """When a version was read, or last found to be unchanged."""
        read = float(_about(self.home / version)["loaded"])
        confirmed = files.read_json(f"{self.home}/confirmed.json") or {}
        return max(read, float(confirmed.get(version, read)))

    def revision(self, version: str) -> str | None:
        """What the table called the rows of a version; None where that is not known."""
        with contextlib.suppress(FileNotFoundError):
            return (self.home / version / _REVISION).read_text()
        return None

    def confirm(self, version: str, when: float) -> None:
        """Note on this host that a version is what the table still holds."""
        files.write_json(f"{self.home}/confirmed.json", {version: when})

    def open(self, version: str, bucket: str = "") -> Version:
        """Map a version or one of its buckets; each process maps it once."""
        path = self.home / version / bucket
        return _open.get(path, lambda: mapped(path, int(version.removeprefix("v"))))

    def add(self, loaded: float, fill: Callable[[Path], None]) -> str:
        """Have a version's folder filled and make it the newest, in one step for all readers."""
        version = version_name(loaded)
        with self.staging(version) as staging:
            fill(staging)
            if self.remote is not None:
                self._upload(staging, version)
                shutil.rmtree(staging / PARTS, ignore_errors=True)
        write_pointer(str(self.home), version)
        with self.locked(wait=True, name=CHOOSING):  # no batch is choosing a version meanwhile
            prune(str(self.home), _KEPT, self.batches.versions())
        return version

    @contextlib.contextmanager
    def staging(self, name: str) -> Iterator[Path]:
        """A folder that gets its `name` when it is complete, or is removed."""
        staging = (self.home / name).with_name(f"staging-{uuid.uuid4().hex}")
        staging.mkdir(parents=True)
        try:
            yield staging
            staging.rename(self.home / name)
        finally:
            shutil.rmtree(staging, ignore_errors=True)

    def part(self, version: str, name: str) -> Path:
        """Where one of a version's parts lies on this host, copied here if it is not yet."""
        path = self.home / version / PARTS / name
        if self.remote is not None and not path.exists():
            path.parent.mkdir(exist_ok=True)
            system, root = files.filesystem(self.remote)
            _copy(f"{root}/{version}/{PARTS}/{name}", path, source_filesystem=system)
        return path

    @contextlib.contextmanager
    def locked(self, *, wait: bool, name: str = "lock") -> Iterator[bool]:
        """Hold this host's lock; gives False where it is held by another and `wait` is not set."""
        self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        with file_lock.locked(self.home / name, wait=wait) as held:
            yield held

    def failure(self) -> dict[str, Any] | None:
        """The last attempt to refresh, if it failed: when, and with which message."""
        return files.read_json(f"{self.home}/failure.json")

    def note_failure(self, when: float, error: Exception) -> None:
        """Keep a failed attempt where the next one, and the metrics, can see it."""
        is_ours = isinstance(error, RivermouthError)
        text = str(error) if is_ours else f"{type(error).__name__}: {error}"
        files.write_json(f"{self.home}/failure.json", {"when": when, "message": text})

    def _upload(self, staging: Path, version: str) -> None:
        assert self.remote is not None
        self.copy_up(staging, version)
        write_pointer(self.remote, version)
        prune(self.remote, _KEPT, self.batches.versions())

    def copy_up(self, folder: Path, name: str) -> None:
        """Copy a folder of this host to where it is shared."""
        assert self.remote is not None
        system, root = files.filesystem(self.remote)
        _copy(folder, f"{root}/{name}", destination_filesystem=system)

    def copy_down(self, name: str, folder: Path) -> None:
        """Copy what is shared into a folder of this host."""
        assert self.remote is not None
        system, root = files.filesystem(self.remote)
        _copy(f"{root}/{name}", folder, source_filesystem=system)

    def _download(self, version: str) -> None:
        """Copy a shared version to this host, its parts excepted."""
        assert self.remote is not None
        system, root = files.filesystem(self.remote)
        with self.staging(version) as staging:
            for info in system.get_file_info(pa.fs.FileSelector(f"{root}/{version}")):
                if info.base_name in (PARTS, STEPS):
                    continue
                if info.type == pa.fs.FileType.Directory:
                    (staging / info.base_name).mkdir()
                _copy(info.path, staging / info.base_name, source_filesystem=system)
        prune(str(self.home), _KEPT, {base_of(version)})


def write(
    folder: Path, rows: pa.Table, index: matching.Index, *, loaded: float, seconds: float
) -> None:
    """Write what is mapped: rows, index, and what is to be known of them."""
    (folder / "index").mkdir()
    path = str(folder / "rows.arrow")
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=max(1, rows.num_rows))
    for name, array in index.arrays.items():
        np.save(folder / "index" / f"{name}.npy", array, allow_pickle=False)
    write_about(folder, loaded=loaded, seconds=seconds, index=index.kind)


def write_about(folder: Path, **known: object) -> None:
    """Write what is to be known of a version."""
    (folder / "version.json").write_text(json.dumps({"format": FORMAT, **known}))


def write_revision(folder: Path, revision: str) -> None:
    """Write what the table calls the rows of a version."""
    (folder / _REVISION).write_text(revision)


def array_of(table: pa.Table, name: str) -> pa.Array:
    """A column of one chunk, or of none, as an array."""
    column = table.column(name)
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)


def _about(path: Path) -> dict[str, Any]:
    about: dict[str, Any] = json.loads((path / "version.json").read_text())
    return about


def mapped(path: Path, number: int) -> Version:
    """The version, or the part of one, that was written to a folder."""
    about = _about(path)
    with pa.memory_map(str(path / "rows.arrow")) as mapped:
        rows = pa.ipc.open_file(mapped).read_all()
    # copy-on-write: shared like a read-only map, but of the type the kernels are compiled for
    arrays = {
        file.stem: np.asarray(np.load(file, mmap_mode="c", allow_pickle=False))
        for file in sorted((path / "index").glob("*.npy"))
    }
    index = matching.Index(about["index"], arrays)
    return Version(number, about["loaded"], about["seconds"], rows, index)


def _copy(source: object, destination: object, **systems: Any) -> None:
    """Copy a file or folder; what is not given another file system is on this host."""
    pa.fs.copy_files(
        str(source), str(destination),
        source_filesystem=systems.get("source_filesystem", pa.fs.LocalFileSystem()),
        destination_filesystem=systems.get("destination_filesystem", pa.fs.LocalFileSystem()),
    )  # fmt: skip
