"""A real Kafka: real-time mode, whose rows come as they are sent, a kill, a declared pipeline."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import confluent_kafka
import pyarrow.parquet as pq
import pytest
from benchmarks.harness import kafka
from benchmarks.harness.kafka_traffic import Traffic, create_topics, write_bodies
from benchmarks.suites.table_join.restart import CHECKPOINT, driver, kill_and_restart

SQUARES = {"west": (0, 0), "east": (2, 0)}  # by their lower left corners; sides of 1
POINTS = [(0.5, 0.5), (2.25, 0.75), (1.5, 0.5), (2.999, 0.001), (-7.0, 200.0)]
DISTRICTS = ["west", "east", None, "east", None]


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with ExitStack() as stack:
        try:
            kafka.client_python()
            address = stack.enter_context(kafka.broker())
        except kafka.KafkaMissing as missing:
            if os.environ.get("RIVERMOUTH_REQUIRE_SERVERS") == "1":
                raise
            pytest.skip(str(missing))
        yield address


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "squares.geojson"
    features = [_square(name, *corner) for name, corner in SQUARES.items()]
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return path


@pytest.fixture
def bodies(tmp_path: Path) -> Path:
    return write_bodies(tmp_path / "bodies", [{"lon": lon, "lat": lat} for lon, lat in POINTS])


@pytest.mark.server
@pytest.mark.spark
def test_rows_of_a_native_join_come_while_their_batch_is_open(bootstrap, table, bodies, tmp_path):
    topics = create_topics(bootstrap)
    road = Traffic(bootstrap, topics, bodies=bodies, rate=200, count=400, folder=tmp_path)
    query = driver(bootstrap, topics, "native", table=table, folder=tmp_path, interval=600)
    with query as alive, road:
        road.open(alive=alive)
        arrivals = road.arrivals(alive=alive)
        committed = list((tmp_path / CHECKPOINT / "commits").glob("[0-9]*"))
    assert committed == []
    assert [arrival["number"] for arrival in arrivals] == list(range(400))
    assert [arrival.get("district") for arrival in arrivals] == DISTRICTS * 80


@pytest.mark.server
@pytest.mark.slow
@pytest.mark.spark
def test_a_query_killed_in_a_batch_and_restarted_loses_nothing(bootstrap, table, bodies, tmp_path):
    outcome = kill_and_restart(bootstrap, "native", table=table, bodies=bodies, folder=tmp_path)
    counts = outcome.counts()
    assert counts["arrived"] == counts["sent"]
    # Kafka's sink gives a row at least once: the batch that was cut short comes again, no other
    assert counts["committed"] > 0
    assert counts["redone"] == 0
    for arrival in outcome.arrivals:
        assert arrival.get("district") == DISTRICTS[arrival["number"] % len(DISTRICTS)]


PIPELINE = """
spark: {{spark.jars: "{jars}", spark.driver.memory: 1g}}
sources:
  taxis:
    kafka:
      topic: {source}
      servers: "${{BROKER}}"
      schema: taxi int, lon double, lat double
      starting: earliest
      records_per_batch: 3
  sent: {{kafka: {{topic: {source}, servers: "${{BROKER}}", stream: false}}}}
tables:
  squares: {{geojson: squares.geojson}}
steps:
  placed:
    join_table:
      events: taxis
      table: squares
      on: {{within: [{{point: [lon, lat]}}, geometry]}}
      how: left
      columns: [district]
sinks:
  placed: {{kafka: {{frame: placed, topic: {target}, servers: "${{BROKER}}", key: taxi}}}}
  sent: {{files: {{frame: sent, path: sent}}}}
"""


@pytest.mark.server
@pytest.mark.spark
def test_a_declared_pipeline_reads_from_kafka_and_writes_to_it(bootstrap, table, tmp_path):
    topics = create_topics(bootstrap)
    values = [{"taxi": n, "lon": lon, "lat": lat} for n, (lon, lat) in enumerate(POINTS)]
    _send(bootstrap, topics.source, *map(json.dumps, values), "no JSON")
    path = tmp_path / "placed.yaml"
    jars = kafka.connector_jars()
    path.write_text(PIPELINE.format(jars=jars, source=topics.source, target=topics.target))
    program = "import sys; from rivermouth.cli import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", program, "run", str(path), "--once"],
        env={**os.environ, "BROKER": bootstrap}, capture_output=True, text=True, timeout=500,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[-6000:]
    found = _received(bootstrap, topics.target, len(POINTS) + 1)
    expected = [
        {**value, **({} if district is None else {"district": district})}
        for value, district in zip(values, DISTRICTS, strict=True)
    ]
    keyed = [(str(n), value) for n, value in enumerate(expected)]
    assert sorted(found, key=str) == sorted([*keyed, (None, {})], key=str)
    sent = pq.read_table(tmp_path / "sent")
    assert {"key", "value", "topic", "partition", "offset", "timestamp"} == set(sent.column_names)
    assert sorted(sent["value"].to_pylist()) == sorted([*map(json.dumps, values), "no JSON"])
    assert len(list((tmp_path / "checkpoints/placed/placed/commits").glob("[0-9]*"))) == 2


def _send(bootstrap: str, topic: str, *values: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce(topic, value=value)
    assert producer.flush(60) == 0


def _received(bootstrap: str, topic: str, count: int) -> list[tuple[str | None, object]]:
    """Keys and values of so many records; fewer where they do not come within two minutes."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: list[tuple[str | None, object]] = []
    until = time.monotonic() + 120
    while len(found) < count and time.monotonic() < until:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            key = message.key()
            found.append((key if key is None else key.decode(), json.loads(message.value())))
    consumer.close()
    return found


def test_without_maven_the_message_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setattr(kafka, "CACHE", tmp_path)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(kafka.KafkaMissing, match=r"there is no `mvn` to bring them. Install Maven"):
        kafka.connector_jars()


def _square(name: str, x: float, y: float) -> dict[str, object]:
    ring = [[x, y], [x + 1, y], [x + 1, y + 1], [x, y + 1], [x, y]]
    return {
        "type": "Feature",
        "properties": {"district": name},
        "geometry": {"type": "Polygon", "coordinates": [ring]},
    }
