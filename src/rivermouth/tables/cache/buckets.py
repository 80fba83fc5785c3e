"""A table in parts, cut by its keys: written in one pass, each part indexed when it is needed.

    v1793830112000000/parts/00007.arrow   the rows of bucket 7, in pieces, until they are indexed
    v1793830112000000/00007/              the same, as a version is kept: rows, index, version.json
    v1793830112000000/00007.lock          held by the one process that indexes it

Which bucket a row belongs to is Spark's own hash of its keys (`kernels.keys.murmur`), so that
Spark can send events after it. Rows whose keys are null or NaN equal nothing, and are left out.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from rivermouth.kernels.arrays import stable_order
from rivermouth.kernels.keys import murmur
from rivermouth.kernels.keys.values import missing
from rivermouth.kernels.table_join import matching
from rivermouth.tables.cache.memory import give_back
from rivermouth.tables.cache.snapshot_store import PARTS, Shelf, Version, write
from rivermouth.tables.source import Source, check_unchanged, scan

Indexed = Callable[[pa.Table], tuple[pa.Table, matching.Index]]

_PIECE = 64 << 20  # bytes that are cut at a time: a table is never held whole


def cut(source: Source, schema: pa.Schema, keys: Sequence[str], count: int, folder: Path) -> None:
    """Write the rows of a table to `count` files under `folder`, by the buckets of their keys."""
    (folder / PARTS).mkdir()

    def write_all(batches: Iterator[pa.RecordBatch]) -> None:
        with contextlib.ExitStack() as stack:
            files = [
                stack.enter_context(_new_part(folder, bucket, schema)) for bucket in range(count)
            ]
            for rows in _pieces(batches):
                check_unchanged(rows, schema, schema.names, table=source.name)
                whole = pa.table(rows.select(schema.names).columns, schema=schema)
                for bucket, part in _divided(whole.combine_chunks(), keys, count):
                    files[bucket].write_table(part)

    scan(source, schema.names, write_all)


def opened(shelf: Shelf, version: str, bucket: int, index: Indexed) -> Version:
    """One bucket of a version, mapped; the first who needs it makes its index, others wait."""
    name = f"{bucket:05d}"
    if not (shelf.home / version / name).exists():
        with shelf.locked(wait=True, name=f"{version}/{name}.lock"):
            if not (shelf.home / version / name).exists():
                _make(shelf, version, name, index)
    return shelf.open(version, name)


def _make(shelf: Shelf, version: str, name: str, index: Indexed) -> None:
    """Index a bucket; its part is not needed after that."""
    watch, part = time.perf_counter(), shelf.part(version, f"{name}.arrow")
    with pa.memory_map(str(part)) as mapped:
        rows, made = index(pa.ipc.open_stream(mapped).read_all())
    with shelf.draft(f"{version}/{name}") as draft:
        seconds = time.perf_counter() - watch
        write(draft, rows, made, loaded=shelf.loaded(version), seconds=seconds)
    part.unlink()
    del rows, made
    give_back()


@contextlib.contextmanager
def _new_part(folder: Path, bucket: int, schema: pa.Schema) -> Iterator[pa.RecordBatchStreamWriter]:
    path = folder / PARTS / f"{bucket:05d}.arrow"
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
        yield writer


def _pieces(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The batches put together to pieces that are worth being cut."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        if size >= _PIECE:
            yield pa.Table.from_batches(held)
            held, size = [], 0
    if held:
        yield pa.Table.from_batches(held)


def _divided(rows: pa.Table, keys: Sequence[str], count: int) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each bucket that has some, in their order."""
    columns = [_array(rows, name) for name in keys]
    there = np.flatnonzero(~missing(columns))
    order, start = stable_order(murmur.buckets(columns, count)[there], count)
    ordered = rows.take(pa.array(there[order]))
    for bucket in np.flatnonzero(np.diff(start)):
        yield int(bucket), ordered.slice(start[bucket], start[bucket + 1] - start[bucket])


def _array(rows: pa.Table, name: str) -> pa.Array:
    column = rows.column(name)
    return column.chunk(0) if column.num_chunks else pa.array([], column.type)
