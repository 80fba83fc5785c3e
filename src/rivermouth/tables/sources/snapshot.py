"""A DataFrame written for workers: versions of Parquet files, and a pointer to the newest."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from rivermouth.errors import TableMissing
from rivermouth.spec.locations import Location
from rivermouth.tables.files import reading
from rivermouth.tables.source import T, geometry_field
from rivermouth.tables.sources.parquet import ParquetFiles
from rivermouth.tables.sources.table import HTMLRepr
from rivermouth.tables.versions import read_pointer, write_pointer

WHERE = "snapshot"
CURRENT = "CURRENT.json"


@dataclass(frozen=True)
class SnapshotTable(HTMLRepr):
    """The newest version that `rivermouth.snapshot` wrote under a path, looked up at each read."""

    path: Location

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.path.name

    @property
    def identity(self) -> str:
        """The path, without credentials."""
        return f"published:{self.path.shown}"

    def schema(self) -> pa.Schema:
        """The newest version's columns."""
        about = self._about()
        return _described(self._files(about).schema(), about["srids"])

    def file_bytes(self) -> int:
        """What the newest version's files take."""
        return self._files(self._about()).file_bytes()

    def file_rows(self) -> int:
        """How many rows the newest version has."""
        return self._files(self._about()).file_rows()

    def read(self, columns: Sequence[str]) -> pa.Table:
        """The newest version's rows."""
        about = self._about()
        rows = self._files(about).read(columns)
        return rows.cast(_described(rows.schema, about["srids"]))

    def scan(self, columns: Sequence[str], use: Callable[[Iterator[pa.RecordBatch]], T]) -> T:
        """The newest version's rows, a piece of a file at a time."""
        about = self._about()

        def described(batches: Iterator[pa.RecordBatch]) -> T:
            return use(batch.cast(_described(batch.schema, about["srids"])) for batch in batches)

        return self._files(about).scan(columns, described)

    def _about(self) -> dict[str, Any]:
        with reading(self.path, where=WHERE):
            pointer = read_pointer(self.path, CURRENT)
        if pointer is None:
            raise TableMissing(
                WHERE,
                f"there is no snapshot under {self.path!r}",
                todo="Write one: rm.snapshot(df, path).",
            )
        about: dict[str, Any] = json.loads(pointer)
        return about

    def _files(self, about: Mapping[str, Any]) -> ParquetFiles:
        return ParquetFiles(self.path / about["version"], tuple(about["srids"]))


def publish(path: str, version: str, srids: Mapping[str, int]) -> None:
    """Make `version` the newest; readers see the old name or the new one."""
    write_pointer(path, json.dumps({"version": version, "srids": dict(srids)}), CURRENT)


def _described(schema: pa.Schema, srids: Mapping[str, int]) -> pa.Schema:
    return pa.schema(
        [geometry_field(f.name, srids[f.name]) if f.name in srids else f for f in schema]
    )
