"""The rows of the keys that are cached, in few Arrow chunks.

What one fetch brings is a chunk. Chunks of like size are merged, so that their number grows with
the logarithm of the rows; rows that no entry refers to any more are dropped when chunks are merged,
or when more than half of all rows are such.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from rivermouth.kernels.arrays import Floats, Ints
from rivermouth.kernels.cache.key_cache import KeyCache
from rivermouth.kernels.ranges.range_keys import RangeEncoder, RangeKeys

Columns = Mapping[str, pa.Array]
Order = tuple[RangeEncoder, RangeKeys]

_LARGEST = 1 << 30  # bytes of a chunk; far from where 32-bit offsets end
_SPARE_ROWS, _SPARE_BYTES = 10_000, 1 << 20  # dead ones that are not worth the work


@dataclass(frozen=True)
class Chunk:
    """Rows, key by key.

    Parameters
    ----------
    columns, rows
        The columns, and how many rows they have (there may be no column).
    order
        The range keys by which each key's rows are sorted, where they are, and their encoder.
    entries, start, count
        The entry of each key, where its rows start, and how many there are.
    """

    columns: Columns
    rows: int
    order: Order | None
    entries: Ints
    start: Ints
    count: Ints

    @property
    def nbytes(self) -> int:
        """The bytes of its columns."""
        return sum(column.nbytes for column in self.columns.values())


@dataclass
class Chunks:
    """All chunks, from large to small, as `columns` of these types."""

    schema: pa.Schema
    chunks: list[Chunk] = field(default_factory=list)

    def add(self, chunk: Chunk) -> int:
        """Append a chunk; gives its number."""
        self.chunks.append(chunk)
        return len(self.chunks) - 1

    def gather(self, chunk: Ints, row: Ints) -> tuple[dict[str, pa.Array], Ints]:
        """A table that holds these rows, and where each of them is in it."""
        used = np.unique(chunk)
        if len(used) == 0:
            return {name: pa.array([], kind) for name, kind in self._types}, row
        if len(used) == 1:
            return dict(self.chunks[used[0]].columns), row
        order = np.argsort(chunk.astype(np.int16), kind="stable")  # a radix sort
        ends = np.searchsorted(chunk[order], used, side="right")
        parts = [
            _taken(self.chunks[number].columns, rows)
            for number, rows in zip(used, np.split(row[order], ends[:-1]), strict=True)
        ]
        position = np.empty(len(row), np.int64)
        position[order] = np.arange(len(row))
        return _concatenated(parts), position

    def compact(self, cache: KeyCache) -> None:
        """Merge chunks of like size, and drop dead rows."""
        while len(self.chunks) > 1 and self._last_are_alike():
            last, other = self.chunks.pop(), self.chunks.pop()
            number = len(self.chunks)
            parts = [_live(other, number, cache), _live(last, number + 1, cache)]
            self._append([part for part in parts if part.rows], cache)
        if self._are_mostly_dead(cache):
            old, self.chunks = self.chunks, []
            live = [_live(chunk, number, cache) for number, chunk in enumerate(old)]
            for chunk in live:
                if chunk.rows:
                    self._append([chunk], cache)

    def _are_mostly_dead(self, cache: KeyCache) -> bool:
        rows = sum(chunk.rows for chunk in self.chunks)
        size = sum(chunk.nbytes for chunk in self.chunks)
        return rows > 2 * cache.rows + _SPARE_ROWS or size > 2 * cache.bytes + _SPARE_BYTES

    def _last_are_alike(self) -> bool:
        other, last = self.chunks[-2:]
        return other.rows <= 2 * last.rows and other.nbytes + last.nbytes < _LARGEST

    def _append(self, parts: Sequence[Chunk], cache: KeyCache) -> None:
        """Add these chunks as one, and set where their rows are now."""
        if parts:
            chunk = parts[0] if len(parts) == 1 else _merged(parts)
            cache.move(chunk.entries, self.add(chunk), chunk.start)

    @property
    def _types(self) -> list[tuple[str, pa.DataType]]:
        return [(field.name, field.type) for field in self.schema]


def _live(chunk: Chunk, number: int, cache: KeyCache) -> Chunk:
    """The chunk without its dead rows; `number` is what entries know it by."""
    where, start = cache.locations(chunk.entries)
    keep = (where == number) & (start == chunk.start)
    if keep.all():
        return chunk
    count = chunk.count[keep]
    rows = spread(chunk.start[keep], count)
    return Chunk(
        _taken(chunk.columns, rows),
        len(rows),
        None
        if chunk.order is None
        else RangeEncoder.merge([(chunk.order[0], chunk.order[1][rows])]),
        chunk.entries[keep],
        np.cumsum(count) - count,
        count,
    )


def _merged(parts: Sequence[Chunk]) -> Chunk:
    """Chunks one after the other, as one."""
    first = np.cumsum([0, *(part.rows for part in parts)])
    orders = [part.order for part in parts if part.order is not None]
    return Chunk(
        _concatenated([part.columns for part in parts]),
        int(first[-1]),
        RangeEncoder.merge(orders) if orders else None,
        np.concatenate([part.entries for part in parts]),
        np.concatenate([part.start + before for part, before in zip(parts, first, strict=False)]),
        np.concatenate([part.count for part in parts]),
    )


def _taken(columns: Columns, rows: Ints) -> dict[str, pa.Array]:
    index = pa.array(rows)
    return {name: column.take(index) for name, column in columns.items()}


def _concatenated(parts: Sequence[Columns]) -> dict[str, pa.Array]:
    return {name: pa.concat_arrays([part[name] for part in parts]) for name in parts[0]}


def spread(start: Ints, count: Ints) -> Ints:
    """The rows ``start, start + 1, ...`` of each run, one run after the other.

    Examples
    --------
    >>> spread(np.array([7, 0]), np.array([2, 3])).tolist()
    [7, 8, 0, 1, 2]
    """
    ends = np.cumsum(count)
    return np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(start - ends + count, count)


def row_sizes(columns: Columns, rows: int) -> Floats:
    """The bytes of each row: exact for flat columns, the mean for nested ones."""
    sizes = np.zeros(rows)
    for column in columns.values() if rows else ():
        kind = column.type
        if pa.types.is_primitive(kind) or pa.types.is_decimal(kind):
            sizes += kind.bit_width / 8
        elif kind in (pa.string(), pa.binary(), pa.large_string(), pa.large_binary()):
            wide = kind in (pa.large_string(), pa.large_binary())
            ends = np.frombuffer(column.buffers()[1], np.int64 if wide else np.int32)
            sizes += np.diff(ends[column.offset : column.offset + rows + 1]) + ends.itemsize
        else:
            sizes += column.nbytes / rows
    return sizes
