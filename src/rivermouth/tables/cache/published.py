"""A DataFrame written down for workers: versions of Parquet files, and the name of the newest."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.fs

from rivermouth.errors import TableMissing
from rivermouth.tables.files import read_bytes, short_name
from rivermouth.tables.source import T, geometry_field
from rivermouth.tables.sources.parquet import ParquetFiles
from rivermouth.tables.sources.table import HTMLRepr

WHERE = "snapshot"
CURRENT = "CURRENT.json"


@dataclass(frozen=True)
class Published(HTMLRepr):
    """The newest version that `rivermouth.snapshot` wrote under a path, looked up at each read."""

    path: str

    @property
    def name(self) -> str:
        """The folder's name."""
        return short_name(self.path)

    @property
    def identity(self) -> str:
        """The path."""
        return f"published:{self.path}"

    def schema(self) -> pa.Schema:
        """The newest version's columns."""
        about = self._about()
        return _described(self._files(about).schema(), about["srids"])

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
        try:
            about: dict[str, Any] = json.loads(read_bytes(f"{self.path}/{CURRENT}", where=WHERE))
        except TableMissing:
            raise TableMissing(
                WHERE,
                f"there is no snapshot under {self.path!r}",
                todo="Write one: rm.snapshot(df, path).",
            ) from None
        return about

    def _files(self, about: Mapping[str, Any]) -> ParquetFiles:
        return ParquetFiles(f"{self.path}/{about['version']}", tuple(about["srids"]))


def announce(path: str, version: str, srids: Mapping[str, int]) -> None:
    """Make `version` the newest; readers see the old name or the new one."""
    system, inner = pyarrow.fs.FileSystem.from_uri(path)
    draft = f"{inner}/.{version}.json"
    with system.open_output_stream(draft) as stream:
        stream.write(json.dumps({"version": version, "srids": dict(srids)}).encode())
    system.move(draft, f"{inner}/{CURRENT}")


def _described(schema: pa.Schema, srids: Mapping[str, int]) -> pa.Schema:
    return pa.schema(
        [geometry_field(f.name, srids[f.name]) if f.name in srids else f for f in schema]
    )
