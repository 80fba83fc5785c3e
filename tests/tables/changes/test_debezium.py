"""A Debezium topic in a real Kafka: envelopes, types, offsets, and what counts as a gap."""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import json
import os
import time
import uuid
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely
from benchmarks.harness import kafka
from tests.tables.changes.test_feeds import follower

import rivermouth as rm
from rivermouth.errors import TableGap, TableInvalid, TableUnavailable
from rivermouth.tables.changes.debezium import DebeziumFeed, _value
from rivermouth.tables.source import geometry_field

confluent = pytest.importorskip("confluent_kafka")


@pytest.fixture(scope="module")
def servers():
    with contextlib.ExitStack() as stack:
        try:
            address = stack.enter_context(kafka.broker())
        except kafka.KafkaMissing as missing:
            if "RIVERMOUTH_REQUIRE_SERVERS" in os.environ:
                raise
            pytest.skip(str(missing))
        yield address


@pytest.fixture
def topic(servers):
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    name = f"city.zones.{uuid.uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(name, 2, 1)])[name].result()
    return name


def envelope(op, before=None, after=None, **more):
    made = int(time.time() * 1000)
    return {"before": before, "after": after, "op": op, "source": {"ts_ms": made}, **more}


def send(servers, topic, *messages):
    """Messages keyed by their row's id, as Debezium keys them; None is a tombstone."""
    producer = confluent.Producer({"bootstrap.servers": servers})
    for key, message in messages:
        value = None if message is None else json.dumps(message)
        producer.produce(topic, key=json.dumps({"id": key}), value=value)
    assert producer.flush(30) == 0


def row(key, name):
    return {"id": key, "name": name}


@pytest.fixture
def zones(tmp_path):
    pq.write_table(pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]}), tmp_path / "z.parquet")
    return rm.tables.parquet(tmp_path / "z.parquet")


def test_a_topic_is_followed_from_where_it_was_when_the_table_was_loaded(
    servers, topic, zones, tmp_path
):
    send(servers, topic, (1, envelope("r", after=row(1, "of old"))))
    follow = follower(zones, rm.changes.debezium(servers, topic, key="id"), tmp_path / "s")
    assert follow()[0] == [(1, "a"), (2, "b"), (3, "c")]
    with_schema = {
        "schema": {"type": "struct", "fields": []},
        "payload": envelope("c", after=row(4, "d")),
    }
    send(
        servers, topic,
        (1, envelope("u", before=row(1, "a"), after=row(1, "A"))),
        (2, envelope("d", before=row(2, "b"))),
        (2, None),
        (3, envelope("d")),  # with the key in the message's alone
        (4, with_schema),
    )  # fmt: skip
    rows, step = follow()
    assert rows == [(1, "A"), (4, "d")]
    assert (step.counts["applied"], step.counts["full_loads"]) == (4, 1)
    assert sum(step.position.values()) == 6
    assert 0 <= step.freshness[0] < 60
    assert follow()[1] == step
    send(servers, topic, *((key, envelope("c", after=row(key, "x"))) for key in range(100, 400)))
    assert len(follow()[0]) == 302


def test_what_a_topic_no_longer_has_and_an_emptied_table_end_in_a_full_load(
    servers, topic, zones, tmp_path
):
    from confluent_kafka.admin import AdminClient

    follow = follower(zones, rm.changes.debezium(servers, topic, key="id"), tmp_path / "s")
    follow()
    send(servers, topic, *((1, envelope("u", after=row(1, f"{n}"))) for n in range(5)))
    admin = AdminClient({"bootstrap.servers": servers})
    for number in (0, 1):
        consumer = confluent.Consumer({"bootstrap.servers": servers, "group.id": "test"})
        end = consumer.get_watermark_offsets(confluent.TopicPartition(topic, number))[1]
        consumer.close()
        where = confluent.TopicPartition(topic, number, end)
        admin.delete_records([where])[confluent.TopicPartition(topic, number)].result()
    rows, step = follow()
    assert rows == [(1, "a"), (2, "b"), (3, "c")]  # as the table has it
    assert (step.counts["gaps"], step.counts["full_loads"]) == (1, 2)
    send(servers, topic, (None, envelope("t")))
    step = follow()[1]
    assert (step.counts["gaps"], step.counts["full_loads"]) == (2, 3)
    feed = DebeziumFeed(rm.changes.debezium(servers, topic, key="id").feed, ("id",), zones.schema())
    with pytest.raises(TableGap, match=r"does not have offset 99; it has \d+ to \d+. The table is"):
        feed.read({"0": 99, "1": 0}, ["id"], 10)
    said = r"changes.debezium: there is no topic 'nowhere'"
    nowhere = rm.changes.debezium(servers, "nowhere", key="id").feed
    with pytest.raises(TableGap, match=said):
        DebeziumFeed(nowhere, ("id",), zones.schema()).start()


def test_a_message_that_is_no_change_is_an_error(servers, topic, zones, tmp_path):
    follow = follower(zones, rm.changes.debezium(servers, topic, key="id"), tmp_path / "s")
    follow()
    send(servers, topic, (1, row(1, "unwrapped")))
    with pytest.raises(TableInvalid, match=r"is no change \(partition \d, offset 0\); its fields"):
        follow()


def test_a_broker_that_does_not_answer_is_unavailable(zones, monkeypatch):
    monkeypatch.setattr("rivermouth.tables.changes.debezium._PATIENCE", 0.5)
    (port,) = kafka.free_ports(1)
    hidden = {"sasl.password": "secret"}
    changes = rm.changes.debezium(f"127.0.0.1:{port}", "zones", key="id", settings=hidden)
    assert "secret" not in repr(changes)
    with pytest.raises(TableUnavailable, match=r"topic 'zones' of 127.0.0.1:\d+ cannot be read"):
        DebeziumFeed(changes.feed, ("id",), zones.schema()).start()


NOON = dt.datetime(2026, 1, 1, 12)


@pytest.mark.parametrize(
    ("value", "kind", "told", "expected"),
    [
        (1767268800000, pa.timestamp("us"), {"name": "io.debezium.time.Timestamp"}, NOON),
        (1767268800000000, pa.timestamp("us"), {"name": "io.debezium.time.MicroTimestamp"}, NOON),
        (1767268800000000, pa.timestamp("us"), {}, NOON),
        ("2026-01-01T12:00:00Z", pa.timestamp("us", "UTC"), {}, NOON.replace(tzinfo=dt.UTC)),
        ("2026-01-01T13:00:00+01:00", pa.timestamp("us"), {}, NOON),
        (20454, pa.date32(), {}, dt.date(2026, 1, 1)),
        ("2026-01-01", pa.date32(), {}, dt.date(2026, 1, 1)),
        ("AMg=", pa.decimal128(9, 2), {"type": "bytes"}, Decimal("2.00")),
        ("2.50", pa.decimal128(9, 2), {"type": "string"}, Decimal("2.50")),
        (2.5, pa.decimal128(9, 2), {}, Decimal("2.5")),
        ("AQI=", pa.binary(), {}, b"\x01\x02"),
        ({"a": 1}, pa.string(), {}, '{"a": 1}'),
        (7, pa.int64(), {}, 7),
        (None, pa.decimal128(9, 2), {}, None),
    ],
)  # fmt: skip
def test_values_come_in_the_columns_type(value, kind, told, expected):
    assert _value(value, kind, told) == expected


def test_geometries_come_from_their_wkb():
    shape = shapely.Point(1, 2).wkb
    told = {"wkb": base64.b64encode(shape).decode(), "srid": 4326}
    assert _value(told, geometry_field("shape").type, {}) == shape
