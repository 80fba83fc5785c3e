"""One side's rows as they are held: bins of time, each in bounded chunks of Arrow bytes.

A bin's chunks are only ever added to: rows go into the last chunk until it is full, so that many
small batches do not leave many small values. What was decoded stays in memory as runs; a bin
whose rows are not asked for is not read at all.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rivermouth.kernels.arrays import stable_order
from rivermouth.kernels.spatial.geometry import Bools
from rivermouth.kernels.state.bucketing import decode, encode
from rivermouth.kernels.stream_join.nearest import ordered
from rivermouth.kernels.stream_join.query import LEFT, Meeting
from rivermouth.kernels.stream_join.row_block import Run, joined

Ints = npt.NDArray[np.int64]
Store = MutableMapping[str, bytes]

_CHUNK = 1 << 19  # bytes of rows in one value, at most
_FULL = 1 << 16  # bytes from which on a chunk is not added to


@dataclass
class Bin:
    """The rows of one piece of time.

    Parameters
    ----------
    rows, chunks, size
        How many rows, in how many values of so many bytes together.
    tail
        The bytes of the last value.
    runs
        The rows, decoded, in the order of the chunks; None where they have not been read.
    added
        Runs that are not written yet; they are among `runs`, too, where those were read.
    in_order
        All rows as one run in the order of `nearest.ordered`, once it was asked for.
    """

    rows: int = 0
    chunks: int = 0
    size: int = 0
    tail: int = 0
    runs: list[Run] | None = None
    added: list[Run] = field(default_factory=list)
    in_order: Run | None = None


class Shelf:
    """The bins of one side.

    Parameters
    ----------
    meeting, side
        What is asked, and whose rows are here.
    book
        What `book` gave: the bins that the store has.
    """

    def __init__(self, meeting: Meeting, side: int, book: dict[str, list[int]]) -> None:
        self._meeting, self._side = meeting, side
        self._keeps_found = meeting.keeps_found and side == LEFT
        self._bins = {
            int(number): Bin(rows, chunks, size, tail)
            for number, (rows, chunks, size, tail) in book.items()
        }

    def book(self) -> dict[str, list[int]]:
        """The bins, in a form that can be written down."""
        return {str(n): [b.rows, b.chunks, b.size, b.tail] for n, b in self._bins.items()}

    @property
    def rows(self) -> int:
        """How many rows are held."""
        return sum(held.rows for held in self._bins.values())

    @property
    def bytes(self) -> int:
        """How many bytes they take."""
        return sum(held.size for held in self._bins.values())

    @property
    def bins(self) -> int:
        """In how many bins they are."""
        return len(self._bins)

    @property
    def oldest(self) -> int:
        """Where the oldest bin begins, in microseconds since 1970; there must be one."""
        return min(self._bins) * self._meeting.bin

    def put(self, rows: Run) -> None:
        """Hold rows, each in its bin."""
        for number, run in self._cut(rows):
            self._add(number, run)

    def _cut(self, rows: Run) -> list[tuple[int, Run]]:
        """Rows by the bin that they belong to."""
        if not len(rows):
            return []
        number = rows.times // self._meeting.bin
        if number.min() == number.max():
            return [(int(number[0]), rows)]
        names, place = np.unique(number, return_inverse=True)
        order, start = stable_order(place, len(names))
        return [
            (int(name), rows.take(order[start[k] : start[k + 1]])) for k, name in enumerate(names)
        ]

    def _add(self, number: int, run: Run) -> None:
        """Hold a run in its bin. Runs of about one size become one, so that few must be asked."""
        held = self._bins.setdefault(number, Bin(runs=[]))
        held.rows += len(run)
        held.added.append(run)
        held.in_order = None
        if held.runs is None:
            return
        held.runs.append(run)
        while len(held.runs) > 1 and len(held.runs[-2]) <= 2 * len(held.runs[-1]):
            held.runs[-2:] = [joined(held.runs[-2:])]

    def runs(self, store: Store, first: int, last: int) -> Iterator[Run]:
        """The runs of bins that may hold times in [first, last], oldest bin first."""
        for number in self._between(first, last):
            yield from self._read(store, number)

    def in_order(self, store: Store, first: int, last: int) -> Iterator[Run]:
        """The same, each bin's rows as one run in the order of `nearest.ordered`."""
        for number in self._between(first, last):
            held = self._bins[number]
            if held.in_order is None:
                held.in_order = ordered(self._read(store, number))
            yield held.in_order

    def spans(self) -> list[tuple[int, int]]:
        """The first and last time that each bin can hold, oldest bin first."""
        width = self._meeting.bin
        return [(number * width, (number + 1) * width - 1) for number in sorted(self._bins)]

    def _between(self, first: int, last: int) -> list[int]:
        low, high = first // self._meeting.bin, last // self._meeting.bin
        return sorted(number for number in self._bins if low <= number <= high)

    def forget(self, store: Store, before: int) -> None:
        """Let go of bins all of whose times are before this one."""
        for number in [n for n in self._bins if (n + 1) * self._meeting.bin <= before]:
            held = self._bins.pop(number)
            for chunk in range(held.chunks):
                del store[self._name(number, chunk)]
            if self._keeps_found and held.chunks:
                del store[self._found(number)]

    def save(self, store: Store) -> None:
        """Write what is not written yet."""
        for number, held in self._bins.items():
            if self._keeps_found:
                self._save_found(store, number, held)
            if held.added:
                self._append(store, number, held)

    def _save_found(self, store: Store, number: int, held: Bin) -> None:
        if held.added or any(run.is_news for run in held.runs or ()):
            runs = self._read(store, number)
            store[self._found(number)] = np.packbits(
                np.concatenate([run.found for run in runs])
            ).tobytes()
            for run in runs:
                run.is_news = False

    def _append(self, store: Store, number: int, held: Bin) -> None:
        parts = [run.rows for run in held.added]
        if held.chunks and held.tail < _FULL:
            held.chunks -= 1
            held.size -= held.tail
            parts[:0] = decode(store[self._name(number, held.chunks)])[0].to_batches()
        rows = pa.Table.from_batches(parts).combine_chunks()
        step = max(1, int(_CHUNK * rows.num_rows / max(1, rows.nbytes)))
        for begin in range(0, rows.num_rows, step):
            value = encode(rows.slice(begin, step), {})
            store[self._name(number, held.chunks)] = value
            held.chunks, held.tail = held.chunks + 1, len(value)
            held.size += len(value)
        held.added = []

    def _read(self, store: Store, number: int) -> list[Run]:
        held = self._bins[number]
        if held.runs is None:
            values = [store[self._name(number, chunk)] for chunk in range(held.chunks)]
            tables = [decode(value)[0] for value in values]
            rows = pa.concat_tables(tables).combine_chunks().to_batches()[0]
            stored = Run(self._meeting, self._side, rows, self._found_of(store, number, len(rows)))
            held.runs = [stored, *held.added]
        return held.runs

    def _found_of(self, store: Store, number: int, rows: int) -> Bools | None:
        if not self._keeps_found:
            return None
        bits = np.frombuffer(store[self._found(number)], np.uint8)
        return np.unpackbits(bits, count=rows).astype(bool)

    def _name(self, number: int, chunk: int) -> str:
        return f"{'LR'[self._side]}/{number}/{chunk}"

    def _found(self, number: int) -> str:
        return f"found/{number}"
