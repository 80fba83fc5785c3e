"""One side's rows in state: bins of time, each in bounded chunks of Arrow bytes.

A bin's chunks are only appended to: rows go into the last chunk until it is full, so that many
small batches do not leave many small values. Decoded rows stay in memory as row blocks; a bin that
nothing probes is not read.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from rivermouth.kernels.arrays import one_batch, stable_order
from rivermouth.kernels.state.bucketing import decode, encode
from rivermouth.kernels.stream_join.nearest import in_order
from rivermouth.kernels.stream_join.query import LEFT, StreamJoin
from rivermouth.kernels.stream_join.row_block import RowBlock, concat

Store = MutableMapping[str, bytes]

_CHUNK = 1 << 19  # bytes of rows in one value, at most
_FULL = 1 << 16  # bytes from which on a chunk is not appended to


@dataclass
class Bin:
    """The rows of one bin of time.

    Parameters
    ----------
    rows, chunks, size
        How many rows, in how many values of so many bytes together.
    tail
        The bytes of the last value.
    blocks
        The rows, decoded, in the order of the chunks; None where they have not been read.
    unsaved
        Blocks that are not in the store yet; also among `blocks`, where those were read.
    sorted
        All rows as one block in the order of `nearest.in_order`, once that was needed.
    """

    rows: int = 0
    chunks: int = 0
    size: int = 0
    tail: int = 0
    blocks: list[RowBlock] | None = None
    unsaved: list[RowBlock] = field(default_factory=list)
    sorted: RowBlock | None = None


class SideState:
    """The bins of one side.

    Parameters
    ----------
    join, side
        The join, and whose rows these are.
    manifest
        What `manifest` gave: the bins that the store has.
    """

    def __init__(self, join: StreamJoin, side: int, manifest: dict[str, list[int]]) -> None:
        self._join, self._side = join, side
        self._tracks_matched = side in join.tracked_sides
        self._bins = {
            int(number): Bin(rows, chunks, size, tail)
            for number, (rows, chunks, size, tail) in manifest.items()
        }

    def manifest(self) -> dict[str, list[int]]:
        """The bins and their sizes, as JSON for the state."""
        return {str(n): [b.rows, b.chunks, b.size, b.tail] for n, b in self._bins.items()}

    @property
    def sizes(self) -> dict[str, int]:
        """How many rows, bytes and bins there are."""
        bins = self._bins.values()
        return {
            "rows": sum(one.rows for one in bins),
            "bytes": sum(one.size for one in bins),
            "bins": len(bins),
        }

    def time_ranges(self) -> list[tuple[int, int]]:
        """The first and last time of each bin, in microseconds since 1970, oldest bin first."""
        width = self._join.bin
        return [(number * width, (number + 1) * width - 1) for number in sorted(self._bins)]

    def add(self, rows: RowBlock) -> None:
        """Add rows, each to its bin."""
        if not len(rows):
            return
        number = rows.times // self._join.bin
        if number.min() == number.max():
            self._append(int(number[0]), rows)
            return
        names, at = np.unique(number, return_inverse=True)
        order, start = stable_order(at, len(names))
        for k, name in enumerate(names.tolist()):
            self._append(name, rows.take(order[start[k] : start[k + 1]]))

    def _append(self, number: int, block: RowBlock) -> None:
        """Add a block to a bin; blocks of similar size are merged, so that few must be probed."""
        one = self._bins.setdefault(number, Bin(blocks=[]))
        one.rows += len(block)
        one.unsaved.append(block)
        one.sorted = None
        if one.blocks is None:
            return
        one.blocks.append(block)
        while len(one.blocks) > 1 and len(one.blocks[-2]) <= 2 * len(one.blocks[-1]):
            one.blocks[-2:] = [concat(one.blocks[-2:])]

    def blocks(self, store: Store, first: int, last: int) -> Iterator[RowBlock]:
        """The blocks of bins that may contain times in [first, last], oldest bin first."""
        for number in self._between(first, last):
            yield from self._read(store, number)

    def sorted_blocks(self, store: Store, first: int, last: int) -> Iterator[RowBlock]:
        """The same, each bin's rows as one block in the order of `nearest.in_order`."""
        for number in self._between(first, last):
            one = self._bins[number]
            if one.sorted is None:
                one.sorted = in_order(self._read(store, number))
            yield one.sorted

    def _between(self, first: int, last: int) -> list[int]:
        low, high = first // self._join.bin, last // self._join.bin
        return sorted(number for number in self._bins if low <= number <= high)

    def drop_before(self, store: Store, time: int) -> None:
        """Drop the bins all of whose times are before this one."""
        for number in [n for n in self._bins if (n + 1) * self._join.bin <= time]:
            one = self._bins.pop(number)
            for chunk in range(one.chunks):
                del store[self._chunk_key(number, chunk)]
            if self._tracks_matched and one.chunks:
                del store[self._matched_key(number)]

    def save(self, store: Store) -> None:
        """Write what is not in the store yet."""
        for number, one in self._bins.items():
            if self._tracks_matched:
                self._save_matched(store, number, one)
            if one.unsaved:
                self._save_rows(store, number, one)

    def _save_matched(self, store: Store, number: int, one: Bin) -> None:
        if one.unsaved or any(block.is_changed for block in one.blocks or ()):
            blocks = self._read(store, number)
            bits = np.packbits(np.concatenate([block.matched for block in blocks]))
            store[self._matched_key(number)] = bits.tobytes()
            for block in blocks:
                block.is_changed = False

    def _save_rows(self, store: Store, number: int, one: Bin) -> None:
        parts = [block.rows for block in one.unsaved]
        if one.chunks and one.tail < _FULL:
            one.chunks -= 1
            one.size -= one.tail
            parts[:0] = decode(store[self._chunk_key(number, one.chunks)])[0].to_batches()
        rows = pa.Table.from_batches(parts).combine_chunks()
        step = max(1, int(_CHUNK * rows.num_rows / max(1, rows.nbytes)))
        for begin in range(0, rows.num_rows, step):
            value = encode(rows.slice(begin, step), {})
            store[self._chunk_key(number, one.chunks)] = value
            one.chunks, one.tail = one.chunks + 1, len(value)
            one.size += len(value)
        one.unsaved = []

    def _read(self, store: Store, number: int) -> list[RowBlock]:
        one = self._bins[number]
        if one.blocks is None:
            chunks = [store[self._chunk_key(number, chunk)] for chunk in range(one.chunks)]
            tables = [decode(chunk)[0] for chunk in chunks]
            rows = one_batch(pa.concat_tables(tables))
            matched = None
            if self._tracks_matched:
                bits = np.frombuffer(store[self._matched_key(number)], np.uint8)
                matched = np.unpackbits(bits, count=len(rows)).astype(bool)
            one.blocks = [RowBlock(self._join, self._side, rows, matched), *one.unsaved]
        return one.blocks

    def _chunk_key(self, number: int, chunk: int) -> str:
        return f"{'LR'[self._side]}/{number}/{chunk}"

    def _matched_key(self, number: int) -> str:
        return f"{'found' if self._side == LEFT else 'found_right'}/{number}"
