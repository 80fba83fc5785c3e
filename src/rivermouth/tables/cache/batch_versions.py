"""Which version of a table each micro-batch joins: chosen by one of its tasks, kept for all.

    batches/QUERY/0000000000000007                      of a folder: the name of batch 7's version
    batches/QUERY/0000000000000007-v1793830112000000    of an object store: in the record's name

Every task of a batch, and the batch when it runs again after a crash, reads what is written here.
A version that the last two batches of a query joined is not removed, nor forgotten for a week.

In a folder the file of a batch is written by whoever is first, in one step. An object store has no
such step that pyarrow knows. There a version that is made during a batch is announced for the next
one: no task of that one runs yet, and all of them read the same. What is left to chance is a batch
that may not join the version before: the first of a query, or of a program that reads the table
anew, and one whose version `max_age` forbids. Hosts that start it at the same moment wait a moment
for each other's choice.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.fs

from rivermouth.spec.locations import Location
from rivermouth.tables import files

FOLDER = "batches"
_KEPT = 2  # batches of a query: the one that runs, and the one before
_REMEMBERED = 7 * 86_400.0  # seconds for which a query that does not run can still run again
_SETTLING = 0.5  # seconds in which hosts that choose at the same moment see each other's choice


@dataclass(frozen=True)
class MicroBatch:
    """A micro-batch: the id of its query, which a restart keeps, and its number."""

    query: str
    number: int


class Record(NamedTuple):
    """What is written: from which batch on (in a folder: for which) a version is joined."""

    number: int
    version: str


@dataclass(frozen=True)
class BatchVersions:
    """The records of one snapshot: under `home`, or under `remote` where hosts share that."""

    home: Path
    remote: Location | None = None

    def find(self, batch: MicroBatch) -> str | None:
        """The version that a batch has joined already; None: it has not run yet."""
        if self.remote is None:
            with suppress(FileNotFoundError):
                return self._path(batch).read_text()
            return None
        known = _effective(self._records(batch.query), batch)
        return known.version if known is not None and known.number == batch.number else None

    def write_once(self, batch: MicroBatch, version: str) -> str:
        """Have a batch in a folder join a version, unless it has one; gives the one it has."""
        path = self._path(batch)
        path.parent.mkdir(parents=True, exist_ok=True)
        written = files.write_once(path, version.encode()).decode()
        for other in path.parent.glob("[0-9]*"):
            if int(other.name) <= batch.number - _KEPT:
                other.unlink(missing_ok=True)
        return written

    def announce(
        self, batch: MicroBatch, newest: Callable[[], str], is_usable: Callable[[str], bool]
    ) -> str:
        """The version that a batch joins by the records of an object store, and the next one's.

        Parameters
        ----------
        batch
            The batch.
        newest
            Gives the newest version, after making one if there is none that may be used.
        is_usable
            Whether a batch that has not run yet may join a version.
        """
        records = self._records(batch.query)
        known = _effective(records, batch)
        if known is None or not (known.number == batch.number or is_usable(known.version)):
            self._write(batch.query, Record(batch.number, newest()))
            time.sleep(_SETTLING)
            known = _effective(self._records(batch.query), batch)
            assert known is not None
        elif known.number < batch.number:
            self._write(batch.query, Record(batch.number, known.version))
        if (made := newest()) != known.version:
            self._write(batch.query, Record(batch.number + 1, made))
        self._forget(batch, records)
        return known.version

    def _forget(self, batch: MicroBatch, records: list[Record]) -> None:
        system, root = files.filesystem(self._folder(batch.query))
        for record in records:
            if record.number <= batch.number - _KEPT:
                files.delete(system, f"{root}/{_name(record)}")

    def versions(self) -> set[str]:
        """The versions that some batch may still join; queries long gone are forgotten here."""
        system, root = files.filesystem(self._folder())
        found, expired = set(), time.time() - _REMEMBERED
        for info in files.listed(system, root, recursive=True):
            if not _is_record(info):
                continue
            with suppress(FileNotFoundError):  # its query is done with it
                if info.mtime.timestamp() < expired:
                    files.delete(system, info.path)
                elif "-" in info.base_name:
                    found.add(_record(info).version)
                else:
                    found.add(Path(info.path).read_text())
        return found

    def shown(self, batch: MicroBatch, version: str) -> str:
        """Where a batch's record is, for errors."""
        name = self._path(batch).name if self.remote is None else _name((batch.number, version))
        return (self._folder(batch.query) / name).shown

    def _path(self, batch: MicroBatch) -> Path:
        return Path(self._folder(batch.query)) / f"{batch.number:016d}"

    def _folder(self, query: str = "") -> Location:
        root = Location(self.home) if self.remote is None else self.remote
        return root / FOLDER / query if query else root / FOLDER

    def _write(self, query: str, record: Record) -> None:
        files.write_bytes(self._folder(query) / _name(record), b"")

    def _records(self, query: str) -> list[Record]:
        system, root = files.filesystem(self._folder(query))
        found = files.listed(system, root)
        return [_record(info) for info in found if _is_record(info)]


def _name(record: tuple[int, str]) -> str:
    return f"{record[0]:016d}-{record[1]}"


def _is_record(info: Any) -> bool:
    """Whether it is a record, not a folder or a file that is being written."""
    is_file: bool = info.type == pyarrow.fs.FileType.File
    return is_file and info.base_name[0].isdigit()


def _record(info: Any) -> Record:
    number, _, version = info.base_name.partition("-")
    return Record(int(number), version)


def _effective(records: list[Record], batch: MicroBatch) -> Record | None:
    """The last record up to a batch; of several for one number all tasks take the same."""
    return max((record for record in records if record.number <= batch.number), default=None)
