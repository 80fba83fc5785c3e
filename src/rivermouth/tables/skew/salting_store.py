"""The folder by which the tasks of a join of two streams learn of crowded spots.

    bucket-3.json                the steps of the spots whose home is bucket 3, as it decided

Each bucket writes its own file and keeps the same in its state. A step counts from the micro-batch
after the one that decided it, so that all tasks of a micro-batch deal rows alike however often one
of them runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow.fs

from rivermouth.errors import TableUnavailable
from rivermouth.kernels.skew.salting import Crowds, Step
from rivermouth.tables.files import read_json, write_json

_FILE = re.compile(r"bucket-([0-9]+)\.json")


class Crowding:
    """The steps in a folder.

    Parameters
    ----------
    folder
        A path or a URI that pyarrow.fs knows.
    buckets
        How many there are.
    where
        Who asks, in errors.
    """

    def __init__(self, folder: str, buckets: int, *, where: str) -> None:
        self.folder, self.where, self._buckets = folder, where, buckets

    def before(self, batch: int) -> Crowds:
        """The steps that were decided before this micro-batch."""
        with self._reached():
            files, root = pyarrow.fs.FileSystem.from_uri(self.folder)
            listed = files.get_file_info(pyarrow.fs.FileSelector(root, allow_not_found=True))
            found = (_FILE.fullmatch(info.base_name) for info in listed)
            numbers = sorted(int(match[1]) for match in found if match)
            said = {number: self._read(number) for number in numbers}
        steps = {number: one.get("steps", ()) for number, one in said.items()}
        return Crowds.known(steps, self._buckets, batch)

    def publish(self, bucket: int, steps: Sequence[Step]) -> None:
        """Let the tasks of later micro-batches know of a bucket's steps."""
        with self._reached():
            write_json(self._file(bucket), {"steps": list(steps)})

    def _read(self, bucket: int) -> dict[str, Any]:
        try:
            return read_json(self._file(bucket)) or {}
        except ValueError:  # not what was written: the bucket will miss its steps and write again
            return {}

    def _file(self, bucket: int) -> str:
        return f"{self.folder}/bucket-{bucket}.json"

    @contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise TableUnavailable(
                self.where,
                f"the folder of crowded places, {self.folder!r}, cannot be used",
                there=str(error).rstrip("."),
                todo="Check that all hosts may read and write it.",
            ) from error
