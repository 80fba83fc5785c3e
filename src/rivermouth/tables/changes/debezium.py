"""A Debezium topic in Kafka, in JSON, with or without its schema: a position is an offset each.

    c, r, u    the row after the change, in ``after``
    d          the key of the row that is gone, in ``before``, or in the message's key
    t          the table was emptied: it is loaded anew
    no value   what Debezium sends after a delete, for Kafka's compaction: nothing

Values are taken as the table's column has them: times from Debezium's numbers (by the message's
schema; without one numbers are microseconds, dates days) or from text, decimals from its bytes,
numbers or text, geometries from its ``wkb``, and bytes from base 64.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from rivermouth.errors import TableGap, TableInvalid, TableUnavailable
from rivermouth.spec.changes import Debezium
from rivermouth.spec.identity import identity
from rivermouth.tables.changes.feed import ChangeBatch

_WHERE = "changes.debezium"
_PATIENCE = 10.0  # seconds that a broker has for an answer
_MESSAGES = 10_000  # taken at a time
_OPS = {"c": "insert", "r": "upsert", "u": "update", "d": "delete"}
_PER_SECOND = {
    "io.debezium.time.Timestamp": 1_000,
    "org.apache.kafka.connect.data.Timestamp": 1_000,
    "io.debezium.time.MicroTimestamp": 1_000_000,
    "io.debezium.time.NanoTimestamp": 1_000_000_000,
}
_EPOCH = dt.datetime(1970, 1, 1)


@dataclass(frozen=True)
class DebeziumFeed:
    """The changes in a topic; `schema` is the table's, `key` the columns a row is known by."""

    about: Debezium
    key: tuple[str, ...]
    schema: pa.Schema

    @property
    def identity(self) -> str:
        """The servers and the topic."""
        return identity(feed="debezium", servers=self.about.servers, topic=self.about.topic)

    def start(self) -> dict[str, int]:
        """The end of each partition."""
        with closing(self._consumer()) as consumer:
            return {name: high for name, (_, high) in self._ends(consumer).items()}

    def read(self, position: Any, columns: Sequence[str], limit: int) -> ChangeBatch:
        """The messages after a position, up to the present end."""
        with closing(self._consumer()) as consumer:
            ends = self._ends(consumer)
            offsets = {name: position.get(name, low) for name, (low, _) in ends.items()}
            for name, (low, high) in ends.items():
                if not low <= offsets[name] <= high or not set(position) <= set(ends):
                    raise TableGap(
                        _WHERE,
                        f"partition {name} of topic {self.about.topic!r} does not have offset "
                        f"{offsets[name]}",
                        there=f"it has {low} to {high}",
                        todo="The table is loaded anew.",
                    )
            targets = {name: high for name, (_, high) in ends.items()}
            messages, offsets = self._messages(consumer, offsets, targets, limit)
        return self._batch(messages, columns, offsets, is_last=offsets == targets)

    def _messages(
        self, consumer: Any, offsets: dict[str, int], targets: Mapping[str, int], limit: int
    ) -> tuple[list[Any], dict[str, int]]:
        """About `limit` messages up to the targets, and where to read on."""
        found: list[Any] = []
        behind = [name for name in targets if offsets[name] < targets[name]]
        consumer.assign(
            [TopicPartition(self.about.topic, int(name), offsets[name]) for name in behind]
        )
        deadline = time.monotonic() + _PATIENCE
        while len(found) < limit and any(offsets[name] < targets[name] for name in behind):
            some = consumer.consume(_MESSAGES, timeout=0.5)
            for message in some:
                if (error := message.error()) is not None:
                    raise self._unavailable(error)
                name = str(message.partition())
                if message.offset() < targets[name]:
                    found.append(message)
                    offsets[name] = message.offset() + 1
            # what is not a message, as the mark of a transaction, has an offset, too
            for at in consumer.position([TopicPartition(self.about.topic, int(n)) for n in behind]):
                reached = min(at.offset, targets[str(at.partition)])
                offsets[str(at.partition)] = max(offsets[str(at.partition)], reached)
            if some:
                deadline = time.monotonic() + _PATIENCE
            elif time.monotonic() > deadline:
                raise self._unavailable("no message came")
        return found, offsets

    def _batch(
        self, messages: Sequence[Any], columns: Sequence[str], offsets: Any, *, is_last: bool
    ) -> ChangeBatch:
        ops, rows, made = [], [], []
        for message in messages:
            if message.value() is None:
                continue
            payload, types = _payload(message.value(), "after")
            op = str(payload.get("op"))
            if op not in _OPS:
                self._refuse(message, payload)
            row = payload.get("after")
            if op == "d":
                row = payload.get("before") or self._key(message)
            ops.append(_OPS[op])
            rows.append((row or {}, types))
            source = payload.get("source") or {}
            made.append(source.get("ts_ms") or payload.get("ts_ms"))
        names = [name for name in columns if not rows or any(name in row for row, _ in rows)]
        arrays = [self._column(name, rows) for name in names]
        when = pa.array(made, pa.int64()).cast(pa.timestamp("ms", "UTC"))
        table = pa.table(dict(zip(names, arrays, strict=True)))
        return ChangeBatch(pa.array(ops, pa.string()), table, offsets, when, is_last)

    def _refuse(self, message: Any, payload: Mapping[str, Any]) -> None:
        where = f"partition {message.partition()}, offset {message.offset()}"
        if payload.get("op") == "t":
            raise TableGap(
                _WHERE, f"the table was emptied ({where})", todo="The table is loaded anew."
            )
        raise TableInvalid(
            _WHERE,
            f"a message of topic {self.about.topic!r} is no change ({where})",
            there=f"its fields are {sorted(payload)}",
            todo="Give a topic of Debezium's JSON, not unwrapped (before, after, op).",
        )

    def _key(self, message: Any) -> dict[str, Any]:
        return {} if message.key() is None else _payload(message.key(), "")[0]

    def _column(self, name: str, rows: Sequence[tuple[dict[str, Any], Any]]) -> pa.Array:
        kind = self.schema.field(name).type
        try:
            values = [_value(row.get(name), kind, types.get(name, {})) for row, types in rows]
            return pa.array(values, kind)
        except (pa.ArrowException, ValueError, TypeError, ArithmeticError) as error:
            raise TableInvalid(
                _WHERE,
                f"topic {self.about.topic!r} has a column {name!r} that does not fit {kind}",
                there=str(error).splitlines()[0].rstrip("."),
                todo="If the table has changed, define the join anew.",
            ) from None

    def _consumer(self) -> Any:
        given = {
            "bootstrap.servers": self.about.servers,
            "group.id": "rivermouth",  # required, and not used: nothing is committed
            "enable.auto.commit": False,
            "enable.partition.eof": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "log_level": 0,
        }
        return Consumer({**given, **dict(self.about.settings)})

    def _ends(self, consumer: Any) -> dict[str, tuple[int, int]]:
        """The first and the next offset of each partition."""
        topic = self.about.topic
        try:
            known = consumer.list_topics(topic, _PATIENCE).topics[topic]
            if known.error is not None and known.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise TableGap(
                    _WHERE, f"there is no topic {topic!r}", todo="The table is loaded anew."
                )
            return {
                str(number): consumer.get_watermark_offsets(
                    TopicPartition(topic, number), timeout=_PATIENCE, cached=False
                )
                for number in sorted(known.partitions)
            }
        except KafkaException as error:
            raise self._unavailable(error.args[0]) from None

    def _unavailable(self, error: object) -> TableUnavailable:
        return TableUnavailable(
            _WHERE,
            f"topic {self.about.topic!r} of {self.about.servers} cannot be read",
            there=str(error),
            todo="Start the broker, or check its address.",
        )


def _payload(data: bytes, part: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A message's fields, and the types of the columns of one of them, where it tells them."""
    message = json.loads(data)
    if not isinstance(message, dict):
        return {}, {}
    if "payload" not in message or "schema" not in message:
        return message, {}
    fields = (message["schema"] or {}).get("fields", ())
    inner: dict[str, Any] = next((field for field in fields if field.get("field") == part), {})
    types = {field["field"]: field for field in inner.get("fields", ())}
    return message["payload"] or {}, types


def _value(value: Any, kind: pa.DataType, told: Mapping[str, Any]) -> Any:
    """A JSON value as the column's type takes it."""
    if value is None:
        return None
    for is_kind, convert in _CONVERT:
        if is_kind(kind):
            return convert(value, kind, told)
    return value


def _time(value: Any, kind: Any, told: Mapping[str, Any]) -> dt.datetime:
    if isinstance(value, str):
        read = dt.datetime.fromisoformat(value)
    else:
        per_second = _PER_SECOND.get(told.get("name", ""), 1_000_000)
        read = _EPOCH + dt.timedelta(microseconds=value * 1_000_000 // per_second)
    if kind.tz is None:
        return read if read.tzinfo is None else read.astimezone(dt.UTC).replace(tzinfo=None)
    return read.replace(tzinfo=dt.UTC) if read.tzinfo is None else read


def _date(value: Any, _kind: Any, _told: Mapping[str, Any]) -> dt.date:
    if isinstance(value, str):
        return dt.date.fromisoformat(value)
    return _EPOCH.date() + dt.timedelta(days=value)


def _decimal(value: Any, kind: Any, told: Mapping[str, Any]) -> Decimal:
    if isinstance(value, str) and told.get("type", "bytes" if not told else "") == "bytes":
        scale = int((told.get("parameters") or {}).get("scale", kind.scale))
        try:
            return Decimal(value)  # text, with decimal.handling.mode=string
        except ArithmeticError:
            number = int.from_bytes(base64.b64decode(value, validate=True), "big", signed=True)
            return Decimal(number).scaleb(-scale)
    return Decimal(str(value))


def _bytes(value: Any, _kind: Any, _told: Mapping[str, Any]) -> bytes:
    inner: str = value["wkb"] if isinstance(value, dict) else value
    return base64.b64decode(inner, validate=True)


def _text(value: Any, _kind: Any, _told: Mapping[str, Any]) -> str:
    return value if isinstance(value, str) else json.dumps(value)


_CONVERT: tuple[tuple[Callable[[pa.DataType], bool], Callable[..., Any]], ...] = (
    (pa.types.is_timestamp, _time),
    (pa.types.is_date, _date),
    (pa.types.is_decimal, _decimal),
    (pa.types.is_binary, _bytes),
    (pa.types.is_string, _text),
)
