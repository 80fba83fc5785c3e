"""Rows packed by bucket: what the stateful door sends through Spark instead of rows.

A task that feeds a stateful operator sorts its rows by bucket and makes one message of each
bucket's: an Arrow stream whose schema says the side, the message's place in the order of arrival,
and the newest event time that the task has seen. Spark then shuffles, sorts and hands over a few
messages instead of many rows, and they are decoded without a copy. A message without rows is a
tick: every task sends one to every bucket, so that all buckets have the same clock.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

REASON = "reason"
_HEAD = b"rivermouth"


@dataclass(frozen=True)
class Routed:
    """A batch of one side, ready to be sent.

    Parameters
    ----------
    rows
        The rows as the buckets get them: one that goes to several is here several times.
    bucket
        Where each goes, int32.
    newest
        The largest admissible event time among them, in microseconds since 1970; None where no
        row has one.
    aside
        The rows that cannot be processed, as they came, and why in a last column `REASON`.
    """

    rows: pa.RecordBatch
    bucket: np.ndarray
    newest: int | None
    aside: pa.RecordBatch | None = None


class Router(Protocol):
    """Decides where the rows of one side go; made once per task."""

    def route(self, batch: pa.RecordBatch, now: int) -> Routed:
        """The rows of `batch` with their buckets; `now` is the wall clock in microseconds."""
        ...

    def note(self) -> dict[str, Any] | None:
        """What all buckets should know of this task, asked once after its last batch."""
        ...


@dataclass(frozen=True)
class Arrivals:
    """What a bucket gets in one micro-batch, or of a whole batch frame.

    Parameters
    ----------
    sides
        The rows of each side, in the order in which they arrived: those of one task stay in
        order, and the tasks follow one another.
    newest
        The newest event time of each side in this micro-batch, over all buckets.
    now
        The wall clock, in microseconds since 1970.
    aside
        The rows that could not be processed, each with its side. They come to one bucket only.
    last
        Whether this is all there is: the input was a batch frame.
    notes
        What the routers of the tasks had to say.
    """

    sides: tuple[tuple[pa.Table, ...], ...]
    newest: tuple[int | None, ...]
    now: int
    aside: tuple[tuple[int, pa.Table], ...] = ()
    last: bool = False
    notes: tuple[dict[str, Any], ...] = ()


class Stepper(Protocol):
    """What a stateful operator does in a bucket; made anew for each micro-batch."""

    def step(
        self, store: MutableMapping[str, bytes], arrivals: Arrivals, hint: dict[str, Any]
    ) -> Iterator[pa.Table]:
        """Take in what has arrived and give what can be said now; tables may be `folding`'s.

        `store` is the bucket's state and the only thing that lasts; its values should stay
        below a megabyte each. `hint` is empty or holds what the last step over this very state
        left in it: decoded rows, indexes, whatever is dear to make again.
        """
        ...

    def report(self) -> dict[str, Any]:
        """The step's numbers, asked once after its last table."""
        ...


@dataclass
class Packer:
    """Gathers a task's rows of one side and packs them by bucket.

    Parameters
    ----------
    side
        The number of the side.
    buckets
        How many buckets there are.
    task
        The task's number, which orders its messages among those of other tasks.
    rows
        How many rows are gathered before they are packed.
    """

    side: int
    buckets: int
    task: int
    rows: int = 1 << 20
    _held: list[Routed] = field(default_factory=list)
    _count: int = 0
    _sent: int = 0
    _newest: int | None = None

    def add(self, routed: Routed) -> Iterator[tuple[int, bytes]]:
        """The messages that are due, each with its bucket."""
        self._newest = latest(self._newest, routed.newest)
        if routed.aside is not None and routed.aside.num_rows:
            yield 0, self._message(routed.aside, aside=True)
        if routed.rows.num_rows:
            self._held.append(routed)
            self._count += routed.rows.num_rows
        if self._count >= self.rows:
            yield from self._flush()

    def end(self, note: dict[str, Any] | None = None) -> Iterator[tuple[int, bytes]]:
        """The rest, and a tick for every bucket, with the router's note."""
        yield from self._flush()
        tick = self._message(None, note=note)
        for bucket in range(self.buckets):
            yield bucket, tick

    def _flush(self) -> Iterator[tuple[int, bytes]]:
        if not self._held:
            return
        rows = pa.Table.from_batches([held.rows for held in self._held]).combine_chunks()
        bucket = np.concatenate([held.bucket for held in self._held])
        self._held, self._count = [], 0
        order = np.argsort(bucket, kind="stable")
        ends = np.cumsum(np.bincount(bucket, minlength=self.buckets))
        rows = rows.take(pa.array(order))
        for number, end in enumerate(ends):
            begin = int(ends[number - 1]) if number else 0
            if end > begin:
                yield number, self._message(rows.slice(begin, int(end) - begin))

    def _message(
        self,
        rows: pa.Table | pa.RecordBatch | None,
        *,
        aside: bool = False,
        note: dict[str, Any] | None = None,
    ) -> bytes:
        head = {
            "side": self.side,
            "order": [self.task, self._sent],
            "newest": self._newest,
            "aside": aside,
            **({} if note is None else {"note": note}),
        }
        self._sent += 1
        return encode(rows if rows is not None else pa.table({}), head)


def encode(rows: pa.Table | pa.RecordBatch, head: Mapping[str, Any]) -> bytes:
    """Rows and a small dict as one Arrow stream."""
    schema = rows.schema.with_metadata({_HEAD: json.dumps(head).encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        if rows.num_rows:
            writer.write(rows.replace_schema_metadata(schema.metadata))
    return bytes(sink.getvalue())


def decode(message: bytes) -> tuple[pa.Table, dict[str, Any]]:
    """What `encode` was given; the rows look into `message`, none are copied."""
    with pa.ipc.open_stream(pa.py_buffer(message)) as reader:
        table = reader.read_all()
    head: dict[str, Any] = json.loads(table.schema.metadata[_HEAD])
    return table.replace_schema_metadata(None), head


def arrivals(messages: Iterable[bytes], *, sides: int, now: int, last: bool) -> Arrivals:
    """What these messages hold, whatever order Spark handed them over in."""
    decoded = [decode(message) for message in messages]
    decoded.sort(key=lambda found: (found[1]["side"], found[1]["order"]))
    rows: list[list[pa.Table]] = [[] for _ in range(sides)]
    newest: list[int | None] = [None] * sides
    aside = []
    for table, head in decoded:
        side = head["side"]
        newest[side] = latest(newest[side], head["newest"])
        if head["aside"]:
            aside.append((side, table))
        elif table.num_rows:
            rows[side].append(table)
    notes = tuple(head["note"] for _, head in decoded if "note" in head)
    return Arrivals(tuple(map(tuple, rows)), tuple(newest), now, tuple(aside), last, notes)


def latest(one: int | None, other: int | None) -> int | None:
    """The later of two times, of which either may be missing.

    Examples
    --------
    >>> latest(3, None), latest(3, 5), latest(None, None)
    (3, 5, None)
    """
    return max((time for time in (one, other) if time is not None), default=None)
