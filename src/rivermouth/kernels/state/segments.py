"""Rows in a bucket's state: segments that are written once, merged now and then, and dropped.

A micro-batch appends one segment and rewrites none, so that it costs what it brings and not what
is there. When there are `_FANOUT` segments of one level they are merged into one of the next (an
LSM tree), so that a row is written once per level and a worker with an empty cache reads few.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_FANOUT = 8
_END = 1 << 62
_CHUNK = 1 << 19  # bytes of one value in the state


class Segments:
    """Tables kept under one prefix of a store, in which each row has a position in time.

    Parameters
    ----------
    store
        The bucket's state.
    prefix
        What its keys start with.
    position
        The column of positions: panes or windows.
    kept
        What `kept` returned when the state was last written.
    cache
        Tables that this process has decoded, by the number of their segment.
    merge
        Merges rows of the same position and group.
    """

    def __init__(
        self,
        store: MutableMapping[str, bytes],
        prefix: str,
        position: str,
        *,
        kept: dict[str, Any] | None,
        cache: dict[int, pa.Table],
        merge: Callable[[pa.Table], pa.Table] = lambda table: table,
    ) -> None:
        self._store, self._prefix, self._position, self._merge = store, prefix, position, merge
        self._next: int = (kept or {}).get("next", 0)
        self._segments: list[dict[str, int]] = (kept or {}).get("segments", [])
        self._cache = cache

    def kept(self) -> dict[str, Any]:
        """What the segments are, for the state."""
        return {"next": self._next, "segments": self._segments}

    def __len__(self) -> int:
        return sum(segment["rows"] for segment in self._segments)

    def attach(self, store: MutableMapping[str, bytes]) -> None:
        """Use the store of another micro-batch, which holds the same state."""
        self._store = store

    @property
    def next_number(self) -> int:
        """The number that the next segment will have; numbers only grow."""
        return self._next

    def tables(self, since: int = 0) -> list[tuple[int, pa.Table]]:
        """The segments from number `since` on, in the order in which they were written."""
        chosen = (each for each in self._segments if each["number"] >= since)
        return [(segment["number"], self._table(segment)) for segment in chosen]

    def table(self, number: int) -> pa.Table:
        """The rows of one segment."""
        return self._table(next(each for each in self._segments if each["number"] == number))

    def clear(self) -> None:
        """Drop all segments."""
        self._drop(list(self._segments))

    def append(self, table: pa.Table, level: int = 0) -> None:
        """Keep the rows of `table`."""
        if not table.num_rows:
            return
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        message, bounds = bytes(sink.getvalue()), pc.min_max(table.column(self._position)).as_py()
        segment = {
            "number": self._next,
            "level": level,
            "chunks": -(-len(message) // _CHUNK),
            "rows": table.num_rows,
            "low": bounds["min"],
            "high": bounds["max"],
        }
        for k, key in enumerate(self._keys(segment)):
            self._store[key] = message[k * _CHUNK : (k + 1) * _CHUNK]
        self._segments.append(segment)
        self._cache[self._next] = table
        self._next += 1

    def rows(self, low: int, high: int) -> pa.Table | None:
        """The rows at positions in [low, high], None where there are none."""
        overlapping = [
            each for each in self._segments if each["high"] >= low and each["low"] <= high
        ]
        return self._concat(overlapping, low, high) if overlapping else None

    def lowest(self) -> int | None:
        """The lowest position of any row."""
        return min((segment["low"] for segment in self._segments), default=None)

    def drop_below(self, position: int) -> None:
        """Drop the segments whose rows all lie below `position`, and merge where there are many."""
        self._drop([each for each in self._segments if each["high"] < position])
        level = 0
        while len(full := [each for each in self._segments if each["level"] == level]) >= _FANOUT:
            rows = self._concat(full, position, _END).combine_chunks()
            self._drop(full)
            level += 1
            self.append(self._merge(rows), level)

    def _concat(self, segments: list[dict[str, int]], low: int, high: int) -> pa.Table:
        """The rows of some segments at positions in [low, high]."""
        tables = []
        for segment in segments:
            table = self._table(segment)
            if segment["low"] < low or segment["high"] > high:
                positions = table.column(self._position).to_numpy()
                table = table.filter(pa.array((positions >= low) & (positions <= high)))
            tables.append(table)
        return pa.concat_tables(tables, promote_options="default")

    def _table(self, segment: dict[str, int]) -> pa.Table:
        if segment["number"] not in self._cache:
            message = b"".join(self._store[key] for key in self._keys(segment))
            with pa.ipc.open_stream(pa.py_buffer(message)) as reader:
                self._cache[segment["number"]] = reader.read_all()
        return self._cache[segment["number"]]

    def _drop(self, segments: list[dict[str, int]]) -> None:
        for segment in segments:
            for key in self._keys(segment):
                del self._store[key]
            self._cache.pop(segment["number"], None)
            self._segments.remove(segment)

    def _keys(self, segment: dict[str, int]) -> list[str]:
        return [f"{self._prefix}/{segment['number']}/{k}" for k in range(segment["chunks"])]
