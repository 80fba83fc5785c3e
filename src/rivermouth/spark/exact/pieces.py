"""Pieces: what micro-batches and corrections leave in a store, each of one kind and one slot.

A small piece is kept in the commit of its batch, so that a small batch is one file; a large one is
a file of its own. Files are written once and never changed.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq

from rivermouth.kernels.aggregation.processor import PARTIALS
from rivermouth.kernels.state.bucketing import decode, encode
from rivermouth.spec.locations import Location
from rivermouth.tables.files import (
    delete,
    filesystem,
    listed,
    output_stream,
    read_json,
    write_bytes,
    write_json,
)

EMITTED = "emitted"
#: the kind of the pieces that are the backup
BACKUP = "record"
#: that of late records whose windows have been forgotten: nothing can be corrected
EXPIRED = "expired"
EMITTED_TYPE = pa.timestamp("us", "UTC")
#: what a task returns of each piece that it has written
WRITTEN = pa.schema(
    [
        ("kind", pa.string()),
        ("slot", pa.int64()),
        ("rows", pa.int64()),
        ("size", pa.int64()),
        ("low", pa.int64()),
        ("high", pa.int64()),
        ("closed", pa.int64()),
        ("path", pa.string()),
        ("data", pa.binary()),
    ]
)
WRITTEN_DDL = (
    "kind string, slot long, rows long, size long, low long, high long, closed long, "
    "path string, data binary"
)
_INLINE = 1 << 15  # bytes of a piece that is kept in its commit
_ABOUT = b"rivermouth"


@dataclass(frozen=True)
class Piece:
    """A piece that was committed.

    Parameters
    ----------
    kind
        "row", "late", "future", "rejected", "partials", "expired", "closed" (no rows of its own:
        the slot up to which a task's buckets have closed windows), or "record": the backup.
    slot
        The slot of its times; None where they are unknown.
    rows, size
        How many rows, and about how many bytes.
    low, high
        Of late records: the smallest and the largest time, in microseconds since 1970.
    closed
        Of partials: the last window that had closed when they came.
    path, row
        Its file in the store; where that is a commit, the piece's row in it.
    number, corrected
        The number of its batch, or of its correction.
    emitted
        The time of its batch, in microseconds since 1970; None: each row has its own.
    """

    kind: str
    slot: int | None
    rows: int
    size: int
    low: int | None
    high: int | None
    closed: int | None
    path: str
    row: int | None
    number: int
    corrected: bool
    emitted: int | None


@dataclass(frozen=True)
class Commit:
    """A committed batch or correction."""

    number: int
    emitted: int
    about: dict[str, Any]
    pieces: tuple[Piece, ...]


@dataclass(frozen=True)
class Files:
    """The files of a store, by their paths in it; commits that were read from are kept."""

    root: Location
    _commits: dict[str, pa.Table] = field(default_factory=dict, repr=False, compare=False)

    def json(self, path: str) -> dict[str, Any] | None:
        """A small file, None where there is none."""
        return read_json(self.root / path)

    def write_json(self, path: str, value: Mapping[str, Any]) -> None:
        """Write a small file at once."""
        write_json(self.root / path, value)

    def exists(self, path: str) -> bool:
        """Whether there is such a file or folder."""
        system, inner = filesystem(self.root / path)
        return bool(system.get_file_info(inner).type != pyarrow.fs.FileType.NotFound)

    def names(self, folder: str) -> list[str]:
        """The names of the files in a folder, none where there is no folder."""
        system, inner = filesystem(self.root / folder)
        found = listed(system, inner)
        named = [info.base_name for info in found if info.type == pyarrow.fs.FileType.File]
        return sorted(name for name in named if not name.startswith("."))  # being written

    def delete(self, path: str) -> None:
        """Delete a file, if it is there."""
        system, inner = filesystem(self.root / path)
        delete(system, inner)

    def delete_empty(self, folder: str) -> None:
        """Delete a folder that has no files left; in object stores there is none."""
        if not self.root.is_uri:
            with suppress(OSError):  # others have written into it, or deleted it
                os.rmdir(self.root / folder)

    def write_commit(
        self, path: str, written: pa.Table, *, number: int, emitted: int, about: Mapping[str, Any]
    ) -> None:
        """Write what tasks have returned of their pieces: from now on they are in the store."""
        told = {"number": number, "emitted": emitted, "about": dict(about)}
        schema = WRITTEN.with_metadata({_ABOUT: json.dumps(told).encode()})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, schema) as writer:
            writer.write_table(written.select(WRITTEN.names).cast(WRITTEN).cast(schema))
        write_bytes(self.root / path, bytes(sink.getvalue()))

    def commit(self, path: str, *, corrected: bool = False) -> Commit | None:
        """A commit, None where there is none."""
        try:
            found = self.table(path)
        except FileNotFoundError:
            return None
        told = json.loads(found.schema.metadata[_ABOUT])
        rows = found.drop_columns(["data"]).to_pylist()
        pieces = tuple(
            Piece(
                **{**row, "path": row["path"] or path},
                row=None if row["path"] else k,
                number=told["number"],
                corrected=corrected,
                emitted=told["about"].get("each", told["emitted"]),
            )
            for k, row in enumerate(rows)
        )
        return Commit(told["number"], told["emitted"], told["about"], pieces)

    def read(self, piece: Piece) -> pa.Table:
        """The rows of a piece, with the time of its batch; partials have none."""
        if piece.row is not None:
            if piece.path not in self._commits:
                self._commits[piece.path] = self.table(piece.path)
            data = self._commits[piece.path].column("data")[piece.row]
            table, _ = decode(data.as_buffer())
        else:
            table = self.table(piece.path)
        return table if piece.kind == PARTIALS else with_emitted(table, piece.emitted)

    def table(self, path: str) -> pa.Table:
        """The rows of a file."""
        system, inner = filesystem(self.root / path)
        with system.open_input_file(inner) as file:
            if path.endswith(".parquet"):
                return pq.ParquetFile(file).read()
            return pa.ipc.open_file(file).read_all()

    def write(self, kind: str, slot: int | None, table: pa.Table) -> str:
        """Write a file of rows; its path, which is another one each time."""
        ending = "arrow" if kind == PARTIALS else "parquet"
        path = f"data/{slot_name(slot)}/{kind}-{uuid.uuid4().hex}.{ending}"
        with output_stream(self.root / path) as stream:
            if kind == PARTIALS:
                options = pa.ipc.IpcWriteOptions(compression="zstd")
                with pa.ipc.new_file(stream, table.schema, options=options) as writer:
                    writer.write_table(table)
            else:
                pq.write_table(table, stream, compression="zstd")
        return path

    def piece(
        self, kind: str, slot: int | None, table: pa.Table, *, low: int | None = None,
        high: int | None = None, closed: int | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Write a piece, or put it into the row that is returned of it."""
        size = table.nbytes
        inline = size <= _INLINE
        return {
            "kind": kind,
            "slot": slot,
            "rows": table.num_rows,
            "size": size,
            "low": low,
            "high": high,
            "closed": closed,
            "path": None if inline else self.write(kind, slot, table),
            "data": encode(table, {}) if inline else None,
        }


def with_emitted(table: pa.Table, emitted: int | None) -> pa.Table:
    """The rows with a column `EMITTED`, unless they have it."""
    if emitted is None or EMITTED in table.column_names:
        return table
    times = pa.array([emitted], pa.int64()).cast(EMITTED_TYPE)
    return table.append_column(EMITTED, times.take(pa.array([0] * table.num_rows, pa.int64())))


def by_slot(pieces: Iterable[Piece]) -> dict[int | None, list[Piece]]:
    """The pieces of each slot."""
    found: dict[int | None, list[Piece]] = {}
    for piece in pieces:
        found.setdefault(piece.slot, []).append(piece)
    return found


def slot_name(slot: int | None) -> str:
    """How files of the slot are named."""
    return "none" if slot is None else str(slot)


def packed(pieces: list[Piece]) -> str:
    """Pieces as text, for a task."""
    return json.dumps([asdict(piece) for piece in pieces])


def unpacked(text: str) -> list[Piece]:
    """What `packed` was given."""
    return [Piece(**each) for each in json.loads(text)]
