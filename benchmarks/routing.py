"""Routing: by hash, by paper A's Algorithm 2 and by ours; its Figures 11 and 12 at four skews.

First the kernels alone, six partitions with a cache each: DS, rows cached and hits (Figure 11), and
whether one cache for two workers does better than one each. Then in Spark, six partitions on two
cores: DS, load, throughput and latency by skew (Figure 12), what routing costs where there is no
skew, counts balanced against time balanced on an incremental cache, and a stream whose hot keys
move twice.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from tests.servers import postgres_server

import rivermouth as rm
from benchmarks import keyed, ours, streams
from benchmarks.cache import SKEWS
from benchmarks.harness import SEED, arguments, interleave, progress, save
from benchmarks.zipf import Ints, Zipf
from rivermouth.kernels.encoding import Keys
from rivermouth.kernels.holding import Holding
from rivermouth.kernels.routing import Reservoir, Rule, deviation
from rivermouth.tables.board import KEY, Seen, State, decided

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
        self._way, self._state = way, State(PARTITIONS)
        self._routing = rm.by_hotspot(cycle=CYCLE, split=way != "algorithm2")
        self._random = np.random.default_rng((SEED, seed))

    def route(self, keys: Ints) -> Ints:
        """The partition of each record of a cycle; what was seen decides for the next."""
        hashed = _mixed(keys)
        found = self._by_rule(hashed)
        if self._way != "hash":
            seen = [self._seen(part, hashed[found == part]) for part in np.unique(found)]
            self._state = decided(self._state, seen, self._routing)
        return found

    def _by_rule(self, hashed: Ints) -> Ints:
        if not self._state.version:
            return hashed % PARTITIONS
        rule = Rule(pa.table({KEY: pa.array(self._state.keys)}), np.array(self._state.share))
        draw = self._random.random(len(hashed))
        return rule.partitions(pa.table({KEY: hashed}), draw).astype(np.int64)

    def _seen(self, partition: int, hashed: Ints) -> Seen:
        reservoir = Reservoir(
            self._routing.sample // PARTITIONS, int(self._random.integers(1 << 31))
        )
        reservoir.add(pa.table({KEY: hashed}), np.zeros(len(hashed)))
        sample = reservoir.sample()
        assert sample is not None
        keys = sample.keys.column(KEY).to_pylist()
        count, missed = sample.count.tolist(), sample.cost.tolist()
        return Seen(int(partition), len(hashed), 0, 1.0, 0.0, keys, count, missed)


def _mixed(keys: Ints) -> Ints:
    """Keys strewn over all long numbers, as Spark's hash strews them."""
    mixed = keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(32))) * np.uint64(0xD6E8FEB86659FD93)
    return (mixed ^ (mixed >> np.uint64(32))).view(np.int64)


def partitioned(z: float, keys: int, cycles: int) -> list[dict[str, Any]]:
    """Figure 11 by kernels: DS, cached rows and hit ratio with a cache for each partition."""
    zipf, rows = Zipf(z, keys), []
    for way in WAYS:
        stream = Simulated(way, seed=1)
        caches: list[Holding] = []
        spreads, hits, loads = [], 0, np.zeros(PARTITIONS)
        for cycle in range(cycles):
            if cycle == cycles // 4:  # rows that an earlier rule sent elsewhere would stay for long
                caches = [Holding(rows=keys // 100, policy="lru") for _ in range(PARTITIONS)]
            asked = zipf.draw(CYCLE, stream=cycle)
            found = stream.route(asked)
            won = [_hits(cache, asked[found == part]) for part, cache in enumerate(caches)]
            if cycle >= cycles // 2:  # the rule stands and the caches are warm
                loads = np.bincount(found, minlength=PARTITIONS)
                spreads.append(deviation(loads))
                hits += sum(won)
        rows.append(
            {
                "z": z,
                "case": way,
                "ds": statistics.median(spreads),
                "worst_ds": max(spreads),
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
            caches = [Holding(rows=keys // 100 // size, policy="lru") for _ in range(size)]
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


def _hits(cache: Holding, keys: Ints) -> int:
    before = cache.counts["hits"]
    if len(keys):
        batch = cache.find(Keys(keys), 0.0)
        ones = np.ones(len(batch.asked), np.int64)
        cache.fill(batch, count=ones, size=8 * ones, chunk=0, start=np.cumsum(ones), now=0.0)
        cache.settle(batch, 0.0)
    return int(cache.counts["hits"]) - before


# -- in Spark


def in_spark(
    runner: ours.Runner, rows: int, batch: int, files: int, runs: int
) -> list[dict[str, Any]]:
    """Figures 11 and 12 in Spark, and the same without skew."""
    table = str(keyed.items(rows))
    cases = {}
    for z in (None, *SKEWS):
        stream = (
            keyed.even(rows, batch, files)
            if z is None
            else keyed.skewed(rows, batch, files, z=z, absent=0)
        )
        for way in ("none", "hash", "ours") if z is None else ("none", *WAYS):
            options = {"table": table, "way": way, "partitions": PARTITIONS, "cycle": batch}
            cases[z, way] = stream.case(runner, "routed", files=files, **options)
    with progress("routing", len(cases) * (1 + runs)) as step:
        named = {f"{z}, {way}": case for (z, way), case in cases.items()}
        found = interleave(named, runs=runs, step=step)
    return [row | {"z": z, "case": way} for (z, way), row in zip(cases, found, strict=True)]


def weighed(
    runner: ours.Runner, rows: int, batch: int, files: int, runs: int
) -> list[dict[str, Any]]:
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


def wandering(
    runner: ours.Runner, rows: int, batch: int, stays: Sequence[int]
) -> list[dict[str, Any]]:
    """DS and load per partition, micro-batch by micro-batch, of a stream whose hot keys move."""
    stream = keyed.wandering(rows, batch, stays, z=1.10)
    found = []
    for way in WAYS:
        options = {"table": str(keyed.items(rows)), "way": way, "partitions": PARTITIONS}
        answer = runner.ask(
            case="routed", folder=str(stream.folder), files=sum(stays),
            options=options | {"cycle": batch},
        )  # fmt: skip
        for number, loads in enumerate(answer["loads"]):
            row = {"case": way, "batch": number, "loads": loads, "ds": deviation(loads)}
            found.append(row | {"moved": number in np.cumsum(stays)[:-1]})
    return found


def main() -> None:
    """Leave ``routing`` and its ``_partitions``, ``_shared``, ``_weighed`` and ``_time``."""
    given = arguments(__doc__)
    quick = given.quick
    keys, cycles = (100_000, 4) if quick else (KEYS, CYCLES)
    about = {"quick": quick, "seed": SEED}
    zipf = {"data": f"seeded; Zipf over {keys:,} keys, {CYCLE:,} records a cycle"}
    found = [row for z in SKEWS for row in partitioned(z, keys, cycles)]
    print(save("routing_partitions", found, **about, **zipf))
    found = [row for z in SKEWS for row in shared(z, keys, cycles)]
    print(save("routing_shared", found, **about, **zipf))
    rows, batch, files = (50_000, 5_000, 3) if quick else (ROWS, BATCH, FILES)
    runs = given.runs or (1 if quick else RUNS)
    with ours.start(cores=2) as runner:
        options = {"table": str(keyed.items(rows)), "way": "ours", "partitions": PARTITIONS}
        keyed.even(rows, batch, WARM).case(runner, "routed", files=WARM, **options, cycle=batch)()
        lines = in_spark(runner, rows, batch, files, runs)
        print(save("routing", lines, **about, data="seeded", conf=streams.CONF))
        lines = weighed(runner, rows, batch, files, runs)
        print(save("routing_weighed", lines, **about, data="seeded; Zipf 1.10", conf=streams.CONF))
        moves = wandering(runner, rows, batch, (2, 2, 2) if quick else WANDERING)
        print(save("routing_time", moves, **about, data="seeded; Zipf 1.10", conf=streams.CONF))


if __name__ == "__main__":
    main()
