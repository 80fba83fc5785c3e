"""A table in buckets: its rows are written in one pass, and a bucket is indexed when it is needed.

    v1793830112000000/parts/00007.arrow   the rows of bucket 7, in pieces, until they are indexed
    v1793830112000000/00007/              the same, as a version is kept: rows, index, version.json
    v1793830112000000/00007.lock          held by the one process that indexes it

Which bucket a row belongs to is Spark's own hash of its keys (`kernels.keys.murmur`), so that
Spark can route events to it. Rows whose keys are null or NaN equal nothing, and are left out.
A table without keys is partitioned by place (see `place_buckets`).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from rivermouth.kernels.arrays import stable_order
from rivermouth.kernels.keys import murmur
from rivermouth.kernels.keys.values import missing
from rivermouth.kernels.table_join import matching
from rivermouth.tables.cache.memory import release_memory
from rivermouth.tables.cache.snapshot_store import PARTS, SnapshotStore, Version, array_of, write
from rivermouth.tables.source import Source, check_unchanged, scan

_PIECE = 64 << 20  # bytes that are partitioned at a time: a table is never in memory as a whole


def write_by_keys(
    source: Source, schema: pa.Schema, keys: Sequence[str], count: int, folder: Path
) -> None:
    """Write the rows of a table to `count` files under `folder`, by the buckets of their keys."""

    def write_all(batches: Iterator[pa.RecordBatch]) -> None:
        rows = pieces(batches, schema, table=source.name, size=_PIECE)
        parts = (part for piece in rows for part in _partitioned(piece, keys, count))
        write_parts(parts, schema, count, folder)

    scan(source, schema.names, write_all)


def write_parts(
    parts: Iterable[tuple[int, pa.Table]], schema: pa.Schema, count: int, folder: Path
) -> None:
    """Write rows, each with its bucket of `count`, to the buckets' files under `folder`."""
    (folder / PARTS).mkdir(exist_ok=True)
    with contextlib.ExitStack() as stack:
        files = []
        for bucket in range(count):
            path = folder / PARTS / f"{bucket:05d}.arrow"
            sink = stack.enter_context(pa.OSFile(str(path), "wb"))
            files.append(stack.enter_context(pa.ipc.new_stream(sink, schema)))
        for bucket, part in parts:
            files[bucket].write_table(part)


def opened(
    store: SnapshotStore,
    version: str,
    bucket: int,
    index: Callable[[pa.Table], tuple[pa.Table, matching.Index]],
) -> Version:
    """One bucket of a version, mapped; the first who needs it makes its index, others wait."""
    name = f"{bucket:05d}"
    path = store.home / version / name
    if not path.exists():
        with store.locked(wait=True, name=f"{version}/{name}.lock"):
            if not path.exists():
                began, part = time.perf_counter(), store.part(version, f"{name}.arrow")
                with pa.memory_map(str(part)) as mapped:
                    rows, made = index(pa.ipc.open_stream(mapped).read_all())
                with store.staging(f"{version}/{name}") as staging:
                    seconds = time.perf_counter() - began
                    write(staging, rows, made, loaded=store.loaded(version), seconds=seconds)
                part.unlink()  # the part is not needed any more
                del rows, made
                release_memory()
    return store.open(version, name)


def pieces(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, *, table: str, size: int
) -> Iterator[pa.Table]:
    """The batches put together to pieces of about `size` bytes, of one chunk each."""
    for rows in _gathered(batches, size):
        check_unchanged(rows, schema, schema.names, table=table)
        yield pa.table(rows.select(schema.names).columns, schema=schema).combine_chunks()


def _gathered(batches: Iterable[pa.RecordBatch], size: int) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    held = 0
    for batch in batches:
        waiting.append(batch)
        held += batch.nbytes
        if held >= size:
            yield pa.Table.from_batches(waiting)
            waiting, held = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _partitioned(rows: pa.Table, keys: Sequence[str], count: int) -> Iterator[tuple[int, pa.Table]]:
    """The rows of each bucket that has some, in their order."""
    columns = [array_of(rows, name) for name in keys]
    there = np.flatnonzero(~missing(columns))
    order, start = stable_order(murmur.buckets(columns, count)[there], count)
    ordered = rows.take(pa.array(there[order]))
    for bucket in np.flatnonzero(np.diff(start)):
        yield int(bucket), ordered.slice(start[bucket], start[bucket + 1] - start[bucket])
