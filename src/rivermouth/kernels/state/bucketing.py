"""Rows packed by bucket: what the stateful engine sends through Spark instead of rows.

A task that feeds a stateful operator sorts its rows by bucket and encodes each bucket's rows as one
message: an Arrow stream whose schema metadata holds the side, the message's position in the order
of arrival, and the newest event time that the task has seen. Spark then shuffles and sorts a few
messages instead of many rows, and they are decoded without a copy. Every task also sends an empty
message, a heartbeat, to every bucket, so that all buckets compute the same watermark.

A router that can combine rows sends what they are summed up to instead (a combiner, as in
MapReduce), and beside it the rows' times, thinned out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

REASON = "reason"
#: why a stateful operator rejects a row
NO_TIME, FUTURE, BAD_GEOMETRY, NO_KEY = "null_time", "future", "invalid_geometry", "null_key"
#: the columns of combined rows' times
OLDEST, COUNT = "oldest", "count"
#: what a message holds
ROWS, TIMES, REJECTED = "rows", "times", "rejected"
_HEADER = b"rivermouth"


@dataclass(frozen=True)
class Routed:
    """A batch of one side with the bucket of each row.

    Parameters
    ----------
    rows
        The rows to send; one that goes to several buckets is repeated.
    bucket
        The bucket of each, int32.
    newest
        The largest admissible event time among them, in microseconds since 1970; None where no
        row has one.
    rejected
        The rows that cannot be processed, unchanged, with the reason in a last column `REASON`.
    """

    rows: pa.RecordBatch
    bucket: np.ndarray
    newest: int | None
    rejected: pa.RecordBatch | None = None


class Combined(NamedTuple):
    """What a task's rows are summed up to, and the times of the rows; each with its buckets.

    `times` has the columns `OLDEST` and `COUNT`: of rows whose times are close to each other the
    oldest time, in microseconds since 1970, and how many they are.
    """

    rows: pa.Table
    bucket: np.ndarray
    times: pa.Table
    times_bucket: np.ndarray


@runtime_checkable
class Combiner(Protocol):
    """A router that sums up rows before they are sent; their buckets in `Routed` are not used."""

    def combine(self, rows: pa.Table) -> Combined:
        """What is sent instead of `rows`, which are those of several batches."""
        ...


class Router(Protocol):
    """Assigns the rows of one side to buckets; one instance per task."""

    def route(self, batch: pa.RecordBatch, now: int) -> Routed:
        """The rows of `batch` with their buckets; `now` is the wall clock in microseconds."""
        ...

    def note(self) -> dict[str, Any] | None:
        """What this task tells all buckets, called once after its last batch."""
        ...


@dataclass(frozen=True)
class Arrivals:
    """What a bucket gets in one micro-batch, or of a whole batch frame.

    Parameters
    ----------
    sides
        The rows of each side in order of arrival: rows of one task keep their order, tasks follow
        one another.
    newest
        The newest event time of each side in this micro-batch, over all buckets.
    now
        The wall clock, in microseconds since 1970.
    rejected
        The rows that could not be processed, each table with its side; sent to one bucket only.
    last
        Whether no more input follows: the input was a batch frame.
    notes
        The notes of the tasks' routers.
    times
        The times of rows that were combined, see `Combined`.
    """

    sides: tuple[tuple[pa.Table, ...], ...]
    newest: tuple[int | None, ...]
    now: int
    rejected: tuple[tuple[int, pa.Table], ...] = ()
    last: bool = False
    notes: tuple[dict[str, Any], ...] = ()
    times: tuple[pa.Table, ...] = ()


class BucketProcessor(Protocol):
    """What a stateful operator does in one bucket; one instance per micro-batch."""

    def process(
        self, store: MutableMapping[str, bytes], arrivals: Arrivals, cache: dict[str, Any]
    ) -> Iterator[pa.Table]:
        """Process what has arrived and emit results; tables may be dictionary-encoded pairs.

        `store` is the bucket's durable state; its values should stay below a megabyte each.
        `cache` is empty or holds what the previous call over this very state left in it: decoded
        rows, indexes, whatever is expensive to rebuild.
        """
        ...

    def report(self) -> dict[str, Any]:
        """The metrics of this micro-batch, called once after the last table."""
        ...


@dataclass
class Packer:
    """Gathers a task's rows of one side and packs them by bucket.

    Parameters
    ----------
    side
        The number of the side.
    buckets
        The number of buckets.
    task
        The task's number, which orders its messages among those of other tasks.
    rows
        How many rows are gathered before they are packed.
    combiner
        What sums them up before, if anything does.
    """

    side: int
    buckets: int
    task: int
    rows: int = 1 << 20
    combiner: Combiner | None = None
    _pending: list[Routed] = field(default_factory=list)
    _count: int = 0
    _sent: int = 0
    _newest: int | None = None

    def add(self, routed: Routed) -> Iterator[tuple[int, bytes]]:
        """The messages to send now, each with its bucket."""
        self._newest = latest(self._newest, routed.newest)
        if routed.rejected is not None and routed.rejected.num_rows:
            yield 0, self._message(routed.rejected, REJECTED)
        if routed.rows.num_rows:
            self._pending.append(routed)
            self._count += routed.rows.num_rows
        if self._count >= self.rows:
            yield from self._flush()

    def end(self, note: dict[str, Any] | None = None) -> Iterator[tuple[int, bytes]]:
        """The remaining messages, and a heartbeat with the router's note for every bucket."""
        yield from self._flush()
        heartbeat = self._message(pa.table({}), note=note)
        for bucket in range(self.buckets):
            yield bucket, heartbeat

    def _flush(self) -> Iterator[tuple[int, bytes]]:
        if not self._pending:
            return
        rows = pa.Table.from_batches([routed.rows for routed in self._pending]).combine_chunks()
        bucket = np.concatenate([routed.bucket for routed in self._pending])
        self._pending, self._count = [], 0
        if self.combiner is None:
            yield from self._by_bucket(rows, bucket, ROWS)
            return
        combined = self.combiner.combine(rows)
        yield from self._by_bucket(combined.rows, combined.bucket, ROWS)
        yield from self._by_bucket(combined.times, combined.times_bucket, TIMES)

    def _by_bucket(
        self, rows: pa.Table, bucket: np.ndarray, content: str
    ) -> Iterator[tuple[int, bytes]]:
        order = np.argsort(bucket, kind="stable")
        ends = np.cumsum(np.bincount(bucket, minlength=self.buckets))
        rows = rows.take(pa.array(order))
        for number, end in enumerate(ends):
            begin = int(ends[number - 1]) if number else 0
            if end > begin:
                yield number, self._message(rows.slice(begin, int(end) - begin), content)

    def _message(
        self,
        rows: pa.Table | pa.RecordBatch,
        content: str = ROWS,
        *,
        note: dict[str, Any] | None = None,
    ) -> bytes:
        header = {
            "side": self.side,
            "order": [self.task, self._sent],
            "newest": self._newest,
            "content": content,
            **({} if note is None else {"note": note}),
        }
        self._sent += 1
        return encode(rows, header)


def encode(rows: pa.Table | pa.RecordBatch, header: Mapping[str, Any]) -> bytes:
    """Rows and a small dict as one Arrow stream."""
    schema = rows.schema.with_metadata({_HEADER: json.dumps(header).encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        if rows.num_rows:
            writer.write(rows.replace_schema_metadata(schema.metadata))
    return bytes(sink.getvalue())


def decode(message: bytes) -> tuple[pa.Table, dict[str, Any]]:
    """What `encode` was given; the rows are views of `message`, not copies."""
    with pa.ipc.open_stream(pa.py_buffer(message)) as reader:
        table = reader.read_all()
    header: dict[str, Any] = json.loads(table.schema.metadata[_HEADER])
    return table.replace_schema_metadata(None), header


def arrivals(messages: Iterable[bytes], *, sides: int, now: int, last: bool) -> Arrivals:
    """The content of these messages, whatever order Spark delivered them in."""
    decoded = [decode(message) for message in messages]
    decoded.sort(key=lambda message: (message[1]["side"], message[1]["order"]))
    rows: list[list[pa.Table]] = [[] for _ in range(sides)]
    newest: list[int | None] = [None] * sides
    rejected, times = [], []
    for table, header in decoded:
        side = header["side"]
        newest[side] = latest(newest[side], header["newest"])
        if header["content"] == REJECTED:
            rejected.append((side, table))
        elif header["content"] == TIMES:
            times.append(table)
        elif table.num_rows:
            rows[side].append(table)
    notes = tuple(header["note"] for _, header in decoded if "note" in header)
    return Arrivals(
        tuple(map(tuple, rows)), tuple(newest), now, tuple(rejected), last, notes, tuple(times)
    )


def latest(one: int | None, other: int | None) -> int | None:
    """The later of two times, of which either may be missing.

    Examples
    --------
    >>> latest(3, None), latest(3, 5), latest(None, None)
    (3, 5, None)
    """
    return max((time for time in (one, other) if time is not None), default=None)
