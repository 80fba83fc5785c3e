"""The store of a routed stream, without Spark: cycles, rules, restarts."""

import json
import os
import threading

import numpy as np
import pyarrow as pa
import pytest

import rivermouth as rm
from rivermouth.kernels.skew.hotspots import Reservoir, Rule, load_cv
from rivermouth.tables.cache.batch_versions import MicroBatch
from rivermouth.tables.skew import routing_store
from rivermouth.tables.skew.routing_store import KEY, RoutingStore, TaskStats

PARTITIONS = 6


def zipf(z, count, rng, shift=0):
    weight = np.arange(1, 10_001) ** -z
    rank = rng.choice(10_000, count, p=weight / weight.sum())
    return (rank + shift) * 2_654_435_761 % (1 << 62)  # strewn over the keys


def routed(state, keys, rng):
    """The partition of each key by the rule, or by its hash."""
    if not state.version:
        return keys % PARTITIONS
    cuts = pa.table({KEY: pa.array(state.keys)})
    return Rule(cuts, np.array(state.share)).partitions(
        pa.table({KEY: keys}), rng.random(len(keys))
    )


def one_batch(store, routing, keys, rng):
    """Route a batch, let its tasks note what they saw; its partitions' loads."""
    state = store.advance(routing, PARTITIONS)
    found = routed(state, keys, rng)
    for partition in np.unique(found):
        own = keys[found == partition]
        reservoir = Reservoir(routing.sample // PARTITIONS, int(rng.integers(1 << 31)))
        reservoir.add(pa.table({KEY: own}), np.zeros(len(own)))
        sample = reservoir.sample()
        store.add(
            TaskStats(
                int(partition), len(own), 0, 1e-6 * len(own), 0.0,
                sample.keys.column(KEY).to_numpy(), sample.count, sample.cost,
            )
        )  # fmt: skip
    return np.bincount(found, minlength=PARTITIONS)


@pytest.mark.parametrize("z", [0.98, 1.16])
def test_a_rule_balances_a_skewed_stream_and_follows_when_it_moves(z, tmp_path):
    store, rng = RoutingStore(str(tmp_path)), np.random.default_rng(1)
    routing = rm.by_hotspot(cycle=20_000, sample=12_000)
    shifts = [0] * 6 + [5000] * 6
    loads = [one_batch(store, routing, zipf(z, 10_000, rng, shift), rng) for shift in shifts]
    found = [load_cv(load) for load in loads]
    assert found[0] > 0.15, "a stream that hashing does not balance"
    assert max(found[3:6]) < 0.15
    assert found[6] > 0.15, "the hot keys have moved"
    assert max(found[10:]) < 0.15, "two cycles later it is balanced again"
    assert store.state(PARTITIONS).version == 2


def test_algorithm_2_leaves_a_heavy_key_where_it_is(tmp_path):
    rng = np.random.default_rng(2)
    ours, papers = (
        [
            load_cv(
                one_batch(RoutingStore(str(tmp_path / name)), routing, zipf(1.5, 10_000, rng), rng)
            )
            for _ in range(6)
        ][-1]
        for name, routing in (
            ("ours", rm.by_hotspot(cycle=20_000)),
            ("paper", rm.by_hotspot(cycle=20_000, split=False)),
        )
    )
    assert ours < 0.15 < papers


def test_a_cycle_ends_with_enough_records_and_not_before(tmp_path):
    store, rng = RoutingStore(str(tmp_path)), np.random.default_rng(3)
    routing = rm.by_hotspot(cycle=30_000)
    cycles = []
    for _ in range(7):
        one_batch(store, routing, zipf(1.1, 10_000, rng), rng)
        cycles.append(store.state(PARTITIONS).cycle)
    assert cycles == [0, 0, 0, 1, 1, 1, 2]
    state = store.state(PARTITIONS)
    assert sum(state.records) == 30_000
    assert state.load_cv == pytest.approx(load_cv(state.records))


def test_the_last_rule_is_there_for_who_starts_again(tmp_path):
    rng, routing = np.random.default_rng(4), rm.by_hotspot(cycle=10_000)
    for _ in range(3):
        one_batch(RoutingStore(str(tmp_path)), routing, zipf(1.1, 10_000, rng), rng)
    known = RoutingStore(str(tmp_path)).state(PARTITIONS)
    assert known.version >= 1
    assert RoutingStore(str(tmp_path)).advance(rm.by_hotspot(cycle=10**9), PARTITIONS) == known
    assert RoutingStore(str(tmp_path)).state(PARTITIONS + 1).version == 0, (
        "a rule for other partitions"
    )


def test_an_even_load_keeps_its_rule_and_a_dear_one_moves_it(tmp_path):
    """Half of the keys must be fetched, for 19 times the price of the others: 1 s and 19 s."""
    keys = list(range(100))
    for name, weight in (("count", "records"), ("cost", "cost")):
        store = RoutingStore(str(tmp_path / name))
        for partition in (0, 1):
            own = keys[partition * 50 : partition * 50 + 50]
            missed = [float(partition)] * 50
            fetching = 18.0 * partition
            store.add(
                TaskStats(partition, 50, 50 * partition, 1.0, fetching, own, [1.0] * 50, missed)
            )
        state = store.advance(rm.by_hotspot(cycle=100, weight=weight), 2)
        assert state.moved == (weight == "cost")
        assert state.keys == ((49,) if weight == "records" else (73,))
    assert json.loads((tmp_path / "cost" / "rule.json").read_text())["version"] == 1


def seen(store, records=100):
    """Two partitions with all of a cycle of 200."""
    for partition in (0, 1):
        sample = np.array([partition]), np.array([float(records)]), np.array([0.0])
        store.add(TaskStats(partition, records, 0, 0.1, 0.0, *sample))


def test_all_tasks_of_a_micro_batch_follow_one_rule_and_end_its_cycle_once(tmp_path):
    store, routing = RoutingStore(str(tmp_path)), rm.by_hotspot(cycle=200)
    seen(store)
    found, together = [], threading.Barrier(8)

    def ask():
        together.wait()
        found.append(store.of_batch(routing, 2, MicroBatch("q", 3)))

    tasks = [threading.Thread(target=ask) for _ in range(8)]
    for task in tasks:
        task.start()
    for task in tasks:
        task.join()
    assert len(found) == 8
    assert set(found) == {store.state(2)}
    assert found[0].cycle == found[0].version == 1


def test_a_task_that_runs_again_follows_the_rule_of_its_micro_batch_not_a_newer_one(tmp_path):
    store, routing = RoutingStore(str(tmp_path)), rm.by_hotspot(cycle=200)
    first = store.of_batch(routing, 2, MicroBatch("q", 0))
    seen(store)
    second = store.of_batch(routing, 2, MicroBatch("q", 1))
    assert (first.version, second.version) == (0, 1)
    assert store.of_batch(routing, 2, MicroBatch("q", 0)) == first
    assert store.of_batch(routing, 2, MicroBatch("other", 0)) == second
    for number in range(2, 6):
        store.of_batch(routing, 2, MicroBatch("q", number))
    kept = {path.stem for path in (tmp_path / "batches" / "q").iterdir()}
    assert kept == {"4", "5"}
    os.utime(tmp_path / "batches" / "other", (0, 0))
    store.of_batch(routing, 2, MicroBatch("new", 0))
    queries = {path.name for path in (tmp_path / "batches").iterdir()}
    assert queries == {"q", "new"}, "a query of long ago is forgotten"


def test_a_task_does_not_wait_long_for_one_that_has_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(routing_store, "_PATIENCE", 0.05)
    store, routing = RoutingStore(str(tmp_path)), rm.by_hotspot(cycle=200)
    seen(store)
    (tmp_path / "batches" / "q").mkdir(parents=True)
    (tmp_path / "batches" / "q" / "7.chooser").write_text("a task that was killed")
    assert store.of_batch(routing, 2, MicroBatch("q", 7)).version == 0
    assert store.of_batch(routing, 2, MicroBatch("q", 8)).version == 1


def test_statistics_of_an_earlier_version_are_read(tmp_path):
    own = {"keys": [4, 9], "count": [60.0, 40.0], "missed": [0.0, 0.0]}
    known = {"partition": 0, "records": 100, "fetched": 0, "seconds": 0.1, "fetching": 0.0, **own}
    (tmp_path / "seen").mkdir()
    (tmp_path / "seen" / "0-100-abc.json").write_text(json.dumps(known))
    state = RoutingStore(str(tmp_path)).advance(rm.by_hotspot(cycle=100), 2)
    assert (state.version, state.keys) == (1, (4,))
