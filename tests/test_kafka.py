"""Real-time mode through a real Kafka: rows come as they are sent, and a kill loses none."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

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
