"""A folder of versions that never change: Arrow rows and index arrays, memory-mapped.

    v1793830112000000/rows.arrow       the rows, one record batch, not compressed
    v1793830112000000/index/*.npy      the index, if it is made of arrays
    v1793830112000000/version.json     when it was read, how long that took, the kind of index
    v1793830112000000/parts/           of a table in buckets: their rows (see `buckets`)
    CURRENT                            the newest version's name, replaced in one step
    failure.json                       the last attempt to refresh, if it failed
    lock                               held by the one process that reads the table

All processes of a host map the same pages. Only data is kept here, never code or pickles.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from rivermouth.errors import RivermouthError
from rivermouth.kernels.table_join import matching

FORMAT = 4
PARTS = "parts"  # a folder whose files are brought to a host one by one, as they are needed
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
        The recipe's columns, mapped.
    index
        The index, its arrays mapped.
    """

    number: int
    loaded: float
    seconds: float
    rows: pa.Table
    index: matching.Index


@dataclass(frozen=True)
class Shelf:
    """The folder of one recipe's versions on this host, and the place they are shared through.

    `remote` is a URI that pyarrow.fs knows; versions are copied from and to it, once per host.
    None: `home` itself is what all processes (and, on a shared file system, all hosts) see.
    """

    home: Path
    remote: str | None = None

    @classmethod
    def of(cls, digest: str, folder: str) -> Shelf:
        """The shelf called `digest` under `folder`, a path or a URI."""
        if "://" not in folder:
            return cls(Path(folder) / digest)
        if folder.startswith("file://"):
            return cls(Path(folder.removeprefix("file://")) / digest)
        place = hashlib.sha256(folder.encode()).hexdigest()[:24]
        return cls(_host_folder() / place / digest, f"{folder.rstrip('/')}/{digest}")

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

    def open(self, version: str, bucket: str = "") -> Version:
        """Map a version or one of its buckets; each process maps it once."""
        path = self.home / version / bucket
        return _opened(path) or _keep(path, _mapped(path, int(version.removeprefix("v"))))

    def add(self, loaded: float, fill: Callable[[Path], None]) -> str:
        """Have a version's folder filled and make it the newest, in one step for whoever looks."""
        version = f"v{int(loaded * 1e6):016d}"
        with self.draft(version) as draft:
            fill(draft)
            if self.remote is not None:
                self._publish(draft, version)
                shutil.rmtree(draft / PARTS, ignore_errors=True)
        _replace(self.home / "CURRENT", version)
        self._tidy()
        return version

    @contextlib.contextmanager
    def draft(self, name: str) -> Iterator[Path]:
        """A folder that gets its `name` when it is done, or is gone."""
        draft = (self.home / name).with_name(f"draft-{uuid.uuid4().hex}")
        draft.mkdir(parents=True)
        try:
            yield draft
            draft.rename(self.home / name)
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def part(self, version: str, name: str) -> Path:
        """Where one of a version's parts lies on this host, brought here if it is not yet."""
        path = self.home / version / PARTS / name
        if self.remote is not None and not path.exists():
            files, root = _remote(self.remote)
            path.parent.mkdir(exist_ok=True)
            _copy(files, f"{root}/{version}/{PARTS}/{name}", path)
        return path

    @contextlib.contextmanager
    def locked(self, *, wait: bool, name: str = "lock") -> Iterator[bool]:
        """Hold this host's lock; gives False where it is held by another and `wait` is not set."""
        self.home.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(self.home / name, "w") as handle:
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
        there = files.get_file_info(pa.fs.FileSelector(root))
        versions = sorted(info.path for info in there if info.base_name.startswith("v"))
        for old in versions[:-_KEPT]:
            files.delete_dir(old)

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
        with self.locked(wait=True, name="fetching"):  # a reader of the table may ask for it, too
            if not (self.home / version).exists():
                with self.draft(version) as draft:
                    for info in files.get_file_info(pa.fs.FileSelector(f"{root}/{version}")):
                        if info.base_name == PARTS:
                            continue
                        if info.type == pa.fs.FileType.Directory:
                            (draft / info.base_name).mkdir()
                        _copy(files, info.path, draft / info.base_name)
                self._tidy()
        return version


_guard = threading.Lock()
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


def write(
    folder: Path, rows: pa.Table, index: matching.Index, *, loaded: float, seconds: float
) -> None:
    """Write what is mapped: rows, index, and what is to be known of them."""
    (folder / "index").mkdir()
    _write_rows(folder / "rows.arrow", rows)
    for name, array in index.arrays.items():
        np.save(folder / "index" / f"{name}.npy", array, allow_pickle=False)
    write_about(folder, loaded=loaded, seconds=seconds, index=index.kind)


def write_about(folder: Path, **known: object) -> None:
    """Write what is to be known of a version."""
    (folder / "version.json").write_text(json.dumps({"format": FORMAT, **known}))


def _mapped(path: Path, number: int) -> Version:
    about = json.loads((path / "version.json").read_text())
    with pa.memory_map(str(path / "rows.arrow")) as mapped:
        rows = pa.ipc.open_file(mapped).read_all()
    # copy-on-write: shared like a read-only map, but of the type the kernels are compiled for
    arrays = {
        file.stem: np.asarray(np.load(file, mmap_mode="c", allow_pickle=False))
        for file in sorted((path / "index").glob("*.npy"))
    }
    index = matching.Index(about["index"], arrays)
    return Version(number, about["loaded"], about["seconds"], rows, index)


def _write_rows(path: Path, rows: pa.Table) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=max(1, rows.num_rows))


def _replace(path: Path, text: str) -> None:
    """Write a small file so that a reader sees the old text or the new, never a part."""
    draft = path.with_name(f"{path.name}-{uuid.uuid4().hex}")
    draft.write_text(text)
    os.replace(draft, path)


def _copy(files: Any, path: str, to: Path) -> None:
    """Bring a file or folder to this host."""
    pa.fs.copy_files(
        path, str(to), source_filesystem=files, destination_filesystem=pa.fs.LocalFileSystem()
    )


def _remote(uri: str | None) -> tuple[Any, str]:
    import pyarrow.fs  # only where snapshots are shared through an object store

    assert uri is not None
    files, root = pyarrow.fs.FileSystem.from_uri(uri)
    return files, root


def _host_folder() -> Path:
    """Where this user's copies of shared snapshots are kept on this host."""
    home = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    return home / "rivermouth" / "snapshots"
