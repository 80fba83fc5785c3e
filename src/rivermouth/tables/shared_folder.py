"""Folders that all hosts must see: the driver leaves a mark, and every worker looks for it.

    .rivermouth        a random text, written once per folder

A path that is another folder on another host has no mark, or another one. What a URI names is one
place by itself, and so is a path where all workers are on the driver's host: no mark is needed.
"""

from __future__ import annotations

import socket
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from rivermouth.errors import DefinitionError, FolderError
from rivermouth.spec.locations import Location
from rivermouth.tables.files import write_once
from rivermouth.tables.worker_cache import WorkerCache

MARK = ".rivermouth"
_TODO = (
    "Give a path on a file system that the driver and all workers mount, or a URI such as "
    "s3://bucket/folder."
)
_PATIENCE = 2.0  # seconds until a network file system must show what the driver wrote


@dataclass(frozen=True)
class SharedFolder:
    """A folder for the files of a query.

    Parameters
    ----------
    location
        Where it is.
    mark
        What the driver found or left in it; None: there is nothing to compare.
    driver
        The driver's host.
    """

    location: Location
    mark: str | None = None
    driver: str = ""

    @classmethod
    def marked(cls, location: Location, *, where: str) -> SharedFolder:
        """The folder with its mark, both made if they are not there; the driver does this."""
        path = Path(location)
        try:
            path.mkdir(parents=True, exist_ok=True)
            mark = write_once(path / MARK, uuid.uuid4().hex.encode()).decode()
        except OSError as error:
            raise DefinitionError(
                where,
                f"the driver, on host {socket.gethostname()!r}, cannot write in {location!r}",
                there=str(error).rstrip("."),
                todo=_TODO,
            ) from error
        return cls(location, mark, socket.gethostname())

    def seen(self, *, where: str) -> Location:
        """The folder's location, once this process has found the driver's mark in it.

        Raises
        ------
        FolderError
            If it has not.
        """
        if self.mark is not None and _seen.find((self.location, self.mark)) is None:
            if (missed := self.difference()) is not None:
                raise not_shared(self, {socket.gethostname(): missed}, where=where)
            _seen.put((self.location, self.mark), True)
        return self.location

    def difference(self) -> str | None:
        """How the folder differs from the one that the driver sees; None: it is the same."""
        deadline = time.monotonic() + _PATIENCE
        while (found := self._found()) != self.mark and time.monotonic() < deadline:
            time.sleep(0.1)
        if found == self.mark:
            return None
        if found is not None:
            return "it has the mark of another driver"
        return "it has no mark" if Path(self.location).is_dir() else "there is no such folder"

    def _found(self) -> str | None:
        try:
            return (Path(self.location) / MARK).read_text()
        except OSError:
            return None


def not_shared(folder: SharedFolder, hosts: dict[str, str], *, where: str) -> FolderError:
    """The error for hosts that do not see the driver's folder, by what they see instead."""
    named = ", ".join(f"on {host!r} {what}" for host, what in sorted(hosts.items()))
    return FolderError(
        where,
        f"{folder.location!r} is not the folder that the driver sees on host {folder.driver!r}",
        there=named,
        todo=_TODO,
    )


_seen: WorkerCache[tuple[str, str], bool] = WorkerCache(size=256)
