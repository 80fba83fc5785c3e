"""Routing: by hash, by paper A's Algorithm 2 and by ours; its Figures 11 and 12 at four skews.

First the kernels alone, six partitions with a cache each: load CV, rows cached and hits (Figure
11), and whether one cache for two workers does better than one each. Then in Spark, six partitions
on two cores: load CV, load, throughput and latency by skew (Figure 12), what routing costs where
there is no skew, counts balanced against time balanced on an incremental cache, and a stream whose
hot keys move twice.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from tests.support.servers import postgres_server

import rivermouth as rm
from benchmarks.harness import session, streams
from benchmarks.harness.experiment import SEED, interleave, progress, save
from benchmarks.harness.runner import Runner
from benchmarks.harness.zipf import Ints, Zipf
from benchmarks.suites.cache.cache import SKEWS
from benchmarks.suites.keys import keyed
from rivermouth.kernels.cache.key_cache import KeyCache
from rivermouth.kernels.keys.encoding import EncodedKeys
from rivermouth.kernels.skew.hotspots import Reservoir, Rule, load_cv
from rivermouth.tables.skew.routing_store import KEY, RoutingState, TaskStats, next_state

RUNS, PARTITIONS = 3, 6
KEYS, CYCLE, CYCLES = 10_000_000, 100_000, 20
WORKERS = 2
#: in Spark: rows of the table, records a micro-batch (a cycle) and micro-batches
ROWS, BATCH, FILES, WARM = 1_000_000, 100_000, 12, 4
WANDERING = (8, 8, 8)  #: micro-batches between two moves of the hot keys
WAYS = ("hash", "algorithm2", "ours")


# -- kernels alone


class Simulated:
    """A routed stream without Spark: the same decisions, taken between batches of one cycle."""

    def __init__(self, way: str, seed: int) -> None:
        self._way, self._state = way, RoutingState(PARTITIONS)
        self._routing = rm.by_hotspot(cycle=CYCLE, split=way != "algorithm2")
        self._random = np.random.default_rng((SEED, seed))

    def route(self, keys: Ints) -> Ints:
        """The partition of each record of a cycle; what was seen decides for the next."""
        hashed = _mixed(keys)
        found = self._by_rule(hashed)
        if self._way != "hash":
            seen = [self._seen(part, hashed[found == part]) for part in np.unique(found)]
            self._state = next_state(self._state, seen, self._routing)
        return found

    def _by_rule(self, hashed: Ints) -> Ints:
        if not self._state.version:
            return hashed % PARTITIONS
        rule = Rule(pa.table({KEY: pa.array(self._state.keys)}), np.array(self._state.share))
        draw = self._random.random(len(hashed))
        return rule.partitions(pa.table({KEY: hashed}), draw).astype(np.int64)

    def _seen(self, partition: int, hashed: Ints) -> TaskStats:
        reservoir = Reservoir(
            self._routing.sample // PARTITIONS, int(self._random.integers(1 << 31))
        )
        reservoir.add(pa.table({KEY: hashed}), np.zeros(len(hashed)))
        sample = reservoir.sample()
        assert sample is not None
        keys = sample.keys.column(KEY).to_numpy()
        return TaskStats(int(partition), len(hashed), 0, 1.0, 0.0, keys, sample.count, sample.cost)


def _mixed(keys: Ints) -> Ints:
    """Keys strewn over all long numbers, as Spark's hash strews them."""
    mixed = keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return (mixed ^ (mixed >> np.uint64(32))).view(np.int64)


def partitioned(z: float, keys: int, cycles: int) -> list[dict[str, Any]]:
    """Figure 11 by kernels: load CV, cached rows and hit ratio with a cache for each partition."""
    zipf, rows = Zipf(z, keys), []
    for way in WAYS:
        stream = Simulated(way, seed=1)
        caches: list[KeyCache] = []
        spreads, hits, loads = [], 0, np.zeros(PARTITIONS)
        for cycle in range(cycles):
            if cycle == cycles // 4:  # rows that an earlier rule sent elsewhere would stay for long
                caches = [KeyCache(rows=keys // 100, policy="lru") for _ in range(PARTITIONS)]
            asked = zipf.draw(CYCLE, stream=cycle)
            found = stream.route(asked)
            won = [_hits(cache, asked[found == part]) for part, cache in enumerate(caches)]
            if cycle >= cycles // 2:  # the rule stands and the caches are warm
                loads = np.bincount(found, minlength=PARTITIONS)
                spreads.append(load_cv(loads))
                hits += sum(won)
        rows.append(
            {
                "z": z,
                "case": way,
                "load_cv": statistics.median(spreads),
                "worst_load_cv": max(spreads),
                "cached_rows": sum(cache.entries for cache in caches),
                "hit_ratio": hits / (CYCLE * (cycles - cycles // 2)),
                "loads": loads.tolist(),
            }
        )
    return rows


def shared(z: float, keys: int, cycles: int) -> list[dict[str, Any]]:
    """Two workers of a host that take partitions as Spark gives them: own caches, or one for both.

    Both keep the same number of rows together; which worker has which partition is drawn anew for
    each batch, as it is in Spark.
    """
    zipf, rows = Zipf(z, keys), []
    for way in ("none", "hash", "ours"):
        for name, size in (("one each", WORKERS), ("one for both", 1)):
            random = np.random.default_rng((SEED, 2))
            stream = Simulated("hash" if way == "none" else way, seed=2)
            caches = [KeyCache(rows=keys // 100 // size, policy="lru") for _ in range(size)]
            hits = 0
            for cycle in range(cycles):
                asked = zipf.draw(CYCLE, stream=cycle)
                part = (
                    random.integers(0, PARTITIONS, CYCLE) if way == "none" else stream.route(asked)
                )
                worker = random.permutation(PARTITIONS)[part] % size
                won = sum(_hits(cache, asked[worker == n]) for n, cache in enumerate(caches))
                hits += won if cycle >= cycles // 2 else 0
            ratio = hits / (CYCLE * (cycles - cycles // 2))
            rows.append({"z": z, "case": way, "caches": name, "hit_ratio": ratio})
    return rows


def _hits(cache: KeyCache, keys: Ints) -> int:
    before = cache.counts["hits"]
    if len(keys):
        batch = cache.lookup(EncodedKeys(keys), 0.0)
        ones = np.ones(len(batch.missed), np.int64)
        cache.load(batch, count=ones, size=8 * ones, chunk=0, start=np.cumsum(ones), now=0.0)
        cache.commit(batch, 0.0)
    return int(cache.counts["hits"]) - before


# -- in Spark


def in_spark(runner: Runner, rows: int, batch: int, files: int, runs: int) -> list[dict[str, Any]]:
    """Figures 11 and 12 in Spark."""
    table = str(keyed.items(rows))
    cases = {}
    for z in SKEWS:
        stream = keyed.skewed(rows, batch, files, z=z, absent=0)
        for way in ("none", *WAYS):
            options = {"table": table, "way": way, "partitions": PARTITIONS, "cycle": batch}
            cases[z, way] = stream.case(runner, "routed", files=files, **options)
    with progress("routing", len(cases) * (1 + runs)) as step:
        named = {f"{z}, {way}": case for (z, way), case in cases.items()}
        found = interleave(named, runs=runs, step=step)
    return [row | {"z": z, "case": way} for (z, way), row in zip(cases, found, strict=True)]


def cost(runner: Runner, rows: int, batch: int, files: int, runs: int) -> list[dict[str, Any]]:
    """What routing costs where there is nothing to route: even keys, small batches and large."""
    cases, about = {}, []
    for size in (batch, 5 * batch):
        stream = keyed.even(rows, size, files)
        for way in ("none", "hash", "ours"):
            options = {"table": str(keyed.items(rows)), "way": way, "partitions": PARTITIONS}
            case = stream.case(runner, "routed", files=files, **options, cycle=size)
            cases[f"{size}, {way}"] = case
            about.append({"case": way, "batch": size})
    with progress("without skew", len(cases) * (2 + runs)) as step:
        found = interleave(cases, runs=runs, warmup=2, step=step)
    return [row | one for row, one in zip(found, about, strict=True)]


def weighed(runner: Runner, rows: int, batch: int, files: int, runs: int) -> list[dict[str, Any]]:
    """Balance of counts and of time, where keys that are not in hand are fetched from a server."""
    cases = {}
    with postgres_server() as server:
        keyed.items_in(server.url, rows)
        numbers = itertools.count(1)
        for way in ("hash", "ours", "cost"):
            options = {"url": server.url, "rows": rows // 100, "way": way, "cycle": batch}

            def once(options: dict[str, Any] = options) -> dict[str, Any]:
                # keys that no run before had, as in a stream that goes on
                stream = keyed.skewed(rows, batch, files, z=1.10, absent=0, part=next(numbers))
                run = stream.case(runner, "routed", files=files, partitions=PARTITIONS, **options)
                return dict(run())

            cases[way] = once
        with progress("by count and by cost", len(cases) * (1 + runs)) as step:
            found = interleave(cases, runs=runs, step=step)
    return [row | {"case": way} for way, row in zip(cases, found, strict=True)]


def wandering(runner: Runner, rows: int, batch: int, stays: Sequence[int]) -> list[dict[str, Any]]:
    """Load CV and load per partition in each micro-batch of a stream whose hot keys move."""
    stream = keyed.wandering(rows, batch, stays, z=1.10)
    found = []
    for way in WAYS:
        options = {"table": str(keyed.items(rows)), "way": way, "partitions": PARTITIONS}
        answer = runner.ask(
            case="routed", folder=str(stream.folder), files=sum(stays),
            options=options | {"cycle": batch},
        )  # fmt: skip
        for number, loads in enumerate(answer["loads"]):
            row = {"case": way, "batch": number, "loads": loads, "load_cv": load_cv(loads)}
            found.append(row | {"moved": number in np.cumsum(stays)[:-1]})
    return found


def main() -> None:
    """Leave the parts that are named, or all, as ``routing_PART``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS_OF_IT], default=[])
    parser.add_argument("--quick", action="store_true", help="small inputs, one run: a smoke test")
    given = parser.parse_args()
    about = {"quick": given.quick, "seed": SEED, "data": "seeded", "conf": streams.CONF}
    for part in given.parts or PARTS_OF_IT:
        print(save(f"routing_{part}", PARTS_OF_IT[part](quick=given.quick), **about), flush=True)


def _partitioned(*, quick: bool) -> list[dict[str, Any]]:
    keys, cycles = (100_000, 4) if quick else (KEYS, CYCLES)
    return [row for z in SKEWS for row in partitioned(z, keys, cycles)]


def _shared(*, quick: bool) -> list[dict[str, Any]]:
    keys, cycles = (100_000, 4) if quick else (KEYS, CYCLES)
    return [row for z in SKEWS for row in shared(z, keys, cycles)]


def _spark(
    measure: Callable[[Runner, int, int, int, int], list[dict[str, Any]]], *, quick: bool
) -> list[dict[str, Any]]:
    """What `measure` finds in a session that has compiled what it will need."""
    rows, batch, files, runs = (50_000, 5_000, 3, 1) if quick else (ROWS, BATCH, FILES, RUNS)
    with session.start(cores=2) as runner:
        options = {"table": str(keyed.items(rows)), "way": "ours", "partitions": PARTITIONS}
        keyed.even(rows, batch, WARM).case(runner, "routed", files=WARM, **options, cycle=batch)()
        return measure(runner, rows, batch, files, runs)


def _over_time(
    runner: Runner, rows: int, batch: int, files: int, runs: int
) -> list[dict[str, Any]]:
    return wandering(runner, rows, batch, (2, 2, 2) if files < FILES else WANDERING)


PARTS_OF_IT = {
    "partitions": _partitioned,
    "shared": _shared,
    "skews": partial(_spark, in_spark),
    "cost": partial(_spark, cost),
    "weighed": partial(_spark, weighed),
    "time": partial(_spark, _over_time),
}


if __name__ == "__main__":
    main()
