"""Events packed by partition and unpacked, without Spark: any rule, cut into batches and order."""

import itertools
import json
import uuid
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

import rivermouth as rm
from rivermouth.kernels.skew.hotspots import partitions_of
from rivermouth.kernels.state.bucketing import decode, encode
from rivermouth.spark.engines import hotspots
from rivermouth.spark.engines.hotspots import Hotspots, SampledStep, _unpacked
from rivermouth.spark.engines.partitioning import ROUTE
from rivermouth.spec.locations import Location
from rivermouth.tables.cache.batch_versions import MicroBatch
from rivermouth.tables.files import write_json
from rivermouth.tables.shared_folder import SharedFolder
from rivermouth.tables.skew.routing_store import RoutingState, TaskStats

KEYS = st.sampled_from([-(2**63), -(2**63) + 1, -7, -1, 0, 1, 2, 3, 2**62, 2**63 - 1])
SHARES = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]) | st.floats(0, 1)
DRAWS = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, 1 << 18, 1 << 19, -1, -(1 << 19)])
SIZES = st.lists(st.integers(0, 9), max_size=12)


@dataclass(frozen=True)
class Drawn:
    """Events, how they are cut into batches, and the rule that they are routed by."""

    rows: pa.Table
    batches: list[pa.RecordBatch]
    state: RoutingState
    packed_rows: int

    def route(self) -> list[int]:
        """The partition of each event: how many bounds it lies behind."""
        keys, drawn = (self.rows.column(n).to_numpy() for n in (hotspots.ROUTE_KEY, hotspots._DRAW))
        state = self.state
        if not state.version:
            return (keys % state.partitions).tolist()
        draw = drawn % hotspots._DRAWS / hotspots._DRAWS
        bounds = list(zip(state.keys, state.share, strict=True))
        found = [
            sum(key > bound or (key == bound and at >= share) for bound, share in bounds)
            for key, at in zip(keys.tolist(), draw.tolist(), strict=True)
        ]
        of_arrays = partitions_of(keys, draw, np.array(state.keys, np.int64), np.array(state.share))
        assert found == of_arrays.tolist()
        return found


@st.composite
def routed(draw):
    sizes = draw(SIZES)
    keys = draw(st.lists(KEYS, min_size=sum(sizes), max_size=sum(sizes)))
    drawn = draw(st.lists(DRAWS, min_size=sum(sizes), max_size=sum(sizes)))
    rows = pa.table(
        {
            "id": pa.array(range(len(keys)), pa.int64()),
            "name": pa.array([None if n % 5 == 4 else f"event {n}" for n in range(len(keys))]),
            hotspots.ROUTE_KEY: pa.array(keys, pa.int64()),
            hotspots._DRAW: pa.array(drawn, pa.int64()),
        }
    )
    ends = np.cumsum([0, *sizes]).tolist()
    cut = itertools.pairwise(ends)
    batches = [_batch(rows.slice(begin, end - begin)) for begin, end in cut]
    partitions = draw(st.integers(1, 7))
    bounds = sorted(draw(st.lists(st.tuples(KEYS, SHARES), max_size=partitions - 1)))
    state = RoutingState(
        partitions,
        draw(st.integers(0, 1)),
        tuple(key for key, _ in bounds),
        tuple(share for _, share in bounds),
    )
    return Drawn(rows, batches, state, draw(st.sampled_from([1, 5, 1 << 16])))


def _batch(rows):
    columns = [column.combine_chunks() for column in rows.columns]
    return pa.RecordBatch.from_arrays(columns, rows.schema.names)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("routing")


@pytest.fixture
def limit(monkeypatch):
    """Sets how many rows are put together."""
    return lambda rows: monkeypatch.setattr(hotspots, "_PACKED_ROWS", rows)


def given_rule(folder, state):
    """The routing of a query of its own, with this rule."""
    name = uuid.uuid4().hex
    write_json(f"{folder}/{name}/rule.json", vars(state))
    routing = rm.by_hotspot(partitions=state.partitions)
    return Hotspots(routing, state.partitions, SharedFolder(Location(str(folder))), name)


def packed(drawn, folder, patch):
    """The messages of a task in a micro-batch, each with its partition, as they are sent."""
    patch.setattr(hotspots, "micro_batch", lambda: MicroBatch("query", 7))
    patch.setattr(hotspots, "freeze_gc", lambda: None)
    patch.setattr(hotspots, "_PACKED_ROWS", drawn.packed_rows)
    return list(given_rule(folder, drawn.state).pack(iter(drawn.batches)))


@given(routed(), st.data())
@settings(max_examples=examples(150), deadline=None)
def test_every_event_comes_back_once_in_the_partition_of_its_rule(folder, drawn, data):
    with pytest.MonkeyPatch.context() as patch:
        sent = packed(drawn, folder, patch)
        for batch in sent:
            of = batch.column(ROUTE).to_pylist()
            assert of == sorted(set(of)), "a message for each partition that has any"
        messages = [pair for batch in sent for pair in zip(*_columns(batch), strict=True)]
        expected = drawn.rows.drop_columns([hotspots._DRAW]).to_pylist()
        route = drawn.route()
        assert {to for to, _ in messages} == set(route)
        for partition in set(route):
            here = [message for to, message in messages if to == partition]
            cut = data.draw(st.integers(0, len(here)))
            got = [
                row
                for part in (here[:cut], here[cut:])
                for rows in _unpacked(_as_spark_sends(partition, part))
                for row in rows.to_pylist()
            ]
            own = [row for row, to in zip(expected, route, strict=True) if to == partition]
            assert got == own, "in the order in which they came"


def _columns(batch):
    return batch.column(ROUTE).to_pylist(), batch.column(hotspots._MESSAGE).to_pylist()


def _as_spark_sends(partition, messages):
    columns = [pa.array([partition] * len(messages), pa.int32()), pa.array(messages, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, [ROUTE, hotspots._MESSAGE])


@given(routed())
@settings(max_examples=examples(60), deadline=None)
def test_tasks_of_a_batch_follow_its_rule_after_a_newer_one_is_made(folder, drawn):
    """A task that runs again sends the same messages."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hotspots, "micro_batch", lambda: MicroBatch("query", 7))
        patch.setattr(hotspots, "freeze_gc", lambda: None)
        routing = given_rule(folder, drawn.state)
        first = list(routing.pack(iter(drawn.batches)))
        newer = RoutingState(drawn.state.partitions, 2, (0,) * (drawn.state.partitions - 1))
        share = (0.5,) * len(newer.keys)
        write_json(f"{folder}/{routing.name}/rule.json", {**vars(newer), "share": share})
        assert list(routing.pack(iter(drawn.batches))) == first


def messages_of(sizes):
    """One partition's messages, of so many events each."""
    numbers, first = [], 0
    for size in sizes:
        keys = pa.array(range(first, first + size), pa.int64())
        numbers.append(encode(pa.table({"id": keys, hotspots.ROUTE_KEY: keys}), {}))
        first += size
    return _as_spark_sends(0, numbers)


@pytest.mark.parametrize("measure", ["rows", "bytes"])
def test_messages_are_decoded_as_they_are_needed(monkeypatch, measure):
    """A batch of many large messages is not decoded as a whole."""
    name, most = {"rows": ("_PACKED_ROWS", 50), "bytes": ("_PACKED_BYTES", 800)}[measure]
    monkeypatch.setattr(hotspots, name, most)
    decoded = []

    def counted(message):
        decoded.append(decode(message))
        return decoded[-1]

    monkeypatch.setattr(hotspots, "decode", counted)
    sizes, seen, ids = [20, 20, 20, 1, 130, 3] * 5, [], []
    for rows in _unpacked(messages_of(sizes)):
        seen.append(rows.num_rows)
        ids.extend(rows.column("id").to_pylist())
        assert sum(table.num_rows for table, _ in decoded) < len(ids) + 50 + 130
    assert ids == list(range(sum(sizes)))
    assert len(decoded) == len(sizes)
    assert len(seen) < len(sizes), "small messages are put together"
    assert max(seen) < 50 + 130


class Delayed:
    """A step that gives each batch back when it has begun the next one, as a cache does."""

    fetched = np.array([0])

    def __init__(self, ahead):
        self._ahead, self.rows = ahead, 0

    def batches(self, batches):
        waiting = []
        for batch in batches:
            self.rows += batch.num_rows
            waiting.append(batch)
            if len(waiting) > self._ahead:
                yield waiting.pop(0)
        yield from waiting

    def report(self) -> dict[str, Any]:
        return {"rows_in": self.rows, "seconds": 1.0}


@pytest.mark.parametrize("ahead", [0, 1])
def test_each_group_of_messages_is_sampled_once_when_it_is_finished(tmp_path, limit, ahead):
    limit(50)
    sizes = [20, 20, 20, 1, 130, 3]
    routing = given_rule(tmp_path, RoutingState(2))
    step = SampledStep(Delayed(ahead), routing)
    out = list(step.batches(iter([messages_of(sizes), messages_of([7])])))
    assert [batch.schema.names for batch in out] == [["id"]] * len(out)
    assert len(out) > 2
    assert step.report()["rows_in"] == sum(sizes) + 7
    (written,) = (tmp_path / routing.name / "seen").iterdir()
    stats = TaskStats.read(json.loads(written.read_text()))
    assert stats.count.sum() == pytest.approx(sum(sizes) + 7)
    assert stats.missed.sum() == pytest.approx(len(out)), "the first event of each group"
    first = sorted(batch.column("id")[0].as_py() for batch in out)
    assert np.repeat(stats.keys, stats.missed.round().astype(int)).tolist() == first
