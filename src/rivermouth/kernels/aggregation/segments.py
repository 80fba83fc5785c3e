"""Entries in a bucket's state: segments that are written once, merged now and then, and dropped.

A micro-batch appends one segment and rewrites none, so that it costs what it brings and not what
is there. When there are `_MANY` segments of one level they are merged into one of the next, so
that an entry is written once per level and few segments are read where a worker knows none.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Ints = npt.NDArray[np.int64]
Store = MutableMapping[str, bytes]

_MANY = 8
_END = 1 << 62
_CHUNK = 1 << 19  # bytes of one value in the state


class Ledger:
    """Tables kept under one letter of a store, each row at a place in time.

    Parameters
    ----------
    store
        The bucket's state.
    letter
        What its keys start with.
    at
        The column of places: panes or windows. Rows below a given place are forgotten.
    kept
        The list that `kept` gave when the state was last written.
    held
        Tables that this process knows already, by the number of their segment.
    merge
        What makes one table of several rows of the same place and group.
    """

    def __init__(
        self,
        store: Store,
        letter: str,
        at: str,
        *,
        kept: dict[str, Any] | None,
        held: dict[int, pa.Table],
        merge: Callable[[pa.Table], pa.Table] = lambda table: table,
    ) -> None:
        self._store, self._letter, self._at, self._merge = store, letter, at, merge
        self._next: int = (kept or {}).get("next", 0)
        self._segments: list[dict[str, int]] = (kept or {}).get("segments", [])
        self.held = held

    def kept(self) -> dict[str, Any]:
        """What the segments are, for the state."""
        return {"next": self._next, "segments": self._segments}

    def __len__(self) -> int:
        return sum(segment["rows"] for segment in self._segments)

    def append(self, table: pa.Table, level: int = 0) -> None:
        """Keep the rows of `table`."""
        if not table.num_rows:
            return
        message = _encoded(table)
        places = table.column(self._at)
        chunks = range(0, len(message), _CHUNK)
        for number, begin in enumerate(chunks):
            self._store[self._key(self._next, number)] = message[begin : begin + _CHUNK]
        self._segments.append(
            {
                "number": self._next,
                "level": level,
                "chunks": len(chunks),
                "rows": table.num_rows,
                "low": pc.min(places).as_py(),
                "high": pc.max(places).as_py(),
            }
        )
        self.held[self._next] = table
        self._next += 1

    def rows(self, low: int, high: int) -> pa.Table | None:
        """The rows at places in [low, high], None where there are none."""
        tables = [
            self._between(segment, low, high)
            for segment in self._segments
            if segment["high"] >= low and segment["low"] <= high
        ]
        return pa.concat_tables(tables, promote_options="default") if tables else None

    def lowest(self) -> int | None:
        """The lowest place of any row."""
        return min((segment["low"] for segment in self._segments), default=None)

    def forget(self, below: int) -> None:
        """Drop the segments whose rows are all below a place, and merge where there are many."""
        for segment in [each for each in self._segments if each["high"] < below]:
            self._drop(segment)
        level = 0
        while len(full := [each for each in self._segments if each["level"] == level]) >= _MANY:
            tables = [self._between(each, below, _END) for each in full]
            for segment in full:
                self._drop(segment)
            whole = pa.concat_tables(tables, promote_options="default")
            self.append(self._merge(whole.combine_chunks()), level + 1)
            level += 1

    def _between(self, segment: dict[str, int], low: int, high: int) -> pa.Table:
        """The rows of a segment at places in [low, high]."""
        table = self._table(segment)
        if low <= segment["low"] and segment["high"] <= high:
            return table
        places = table.column(self._at).to_numpy()
        return table.filter(pa.array((places >= low) & (places <= high)))

    def _table(self, segment: dict[str, int]) -> pa.Table:
        number = segment["number"]
        if number not in self.held:
            chunks = (self._store[self._key(number, k)] for k in range(segment["chunks"]))
            self.held[number] = _decoded(b"".join(chunks))
        return self.held[number]

    def _drop(self, segment: dict[str, int]) -> None:
        for chunk in range(segment["chunks"]):
            del self._store[self._key(segment["number"], chunk)]
        self.held.pop(segment["number"], None)
        self._segments.remove(segment)

    def _key(self, number: int, chunk: int) -> str:
        return f"{self._letter}/{number}/{chunk}"


def _encoded(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _decoded(message: bytes) -> pa.Table:
    with pa.ipc.open_stream(pa.py_buffer(message)) as reader:
        return reader.read_all()
