"""The folder in which the tasks of a stream join find the salting of skewed cells.

    bucket-3.json                the changes of the cells whose home is bucket 3, as it decided

Each bucket writes its own file and keeps the same in its state. A change applies from the
micro-batch after the one that decided it, so that all tasks of a micro-batch assign rows alike
however often one of them runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rivermouth.errors import TableUnavailable
from rivermouth.kernels.stream_join.salting import SaltChange, SaltSchedule
from rivermouth.spec.locations import Location
from rivermouth.tables.files import filesystem, listed, read_json, write_json

_FILE = re.compile(r"bucket-([0-9]+)\.json")


class SaltingStore:
    """The salting changes in a folder.

    Parameters
    ----------
    folder
        A path or a URI that pyarrow.fs knows.
    buckets
        The number of buckets.
    where
        The operator, for errors.
    """

    def __init__(self, folder: str, buckets: int, *, where: str) -> None:
        self.folder, self.where, self._buckets = Location(folder), where, buckets

    def schedule(self, batch: int) -> SaltSchedule:
        """The changes that were decided before this micro-batch."""
        with self._available():
            files, root = filesystem(self.folder)
            found = listed(files, root)
            matches = (_FILE.fullmatch(info.base_name) for info in found)
            numbers = sorted(int(match[1]) for match in matches if match)
            published = {number: self._read(number).get("steps", ()) for number in numbers}
        return SaltSchedule.merged(published, self._buckets, batch)

    def publish(self, bucket: int, changes: Sequence[SaltChange]) -> None:
        """Tell the tasks of later micro-batches a bucket's changes."""
        with self._available():
            write_json(self._file(bucket), {"steps": list(changes)})

    def _read(self, bucket: int) -> dict[str, Any]:
        try:
            return read_json(self._file(bucket)) or {}
        except ValueError:  # unreadable: the bucket will miss its changes and write them again
            return {}

    def _file(self, bucket: int) -> str:
        return self.folder / f"bucket-{bucket}.json"

    @contextmanager
    def _available(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise TableUnavailable(
                self.where,
                f"the folder of skewed cells, {self.folder!r}, cannot be used",
                there=self.folder.redacted(str(error)).rstrip("."),
                todo="Check that all hosts may read and write it.",
            ) from error
