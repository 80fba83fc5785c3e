"""What the incremental cache holds and what that saves: hits, lookups per second, statements.

First the kernel alone: the hit ratios of both policies over Zipf keys, by what part of the keys is
held, and how many lookups a core does beside an OrderedDict asked record by record. Then the cache
on a PostgreSQL of its own, beside one statement per record and one per batch without a cache, and a
stream of keys most of which the table does not have beside one whose keys are all there. One core,
no Spark.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
from tests.support.servers import postgres

import rivermouth as rm
from benchmarks.harness.experiment import (
    SEED,
    Measures,
    cpu_seconds,
    interleave,
    progress,
    save,
)
from benchmarks.harness.zipf import Ints, Zipf
from rivermouth.kernels.cache.key_cache import KeyCache
from rivermouth.kernels.keys.encoding import EncodedKeys, encode
from rivermouth.spec.caches import Incremental
from rivermouth.tables.cache.fetching import LookupSpec
from rivermouth.tables.cache.incremental import IncrementalCache

RUNS = 3
BATCH = 10_000  #: rows of an Arrow batch, Spark's default
KEYS = 10_000_000
WARM_PARTS = 8  #: parts of the stream that go through a cache before it is measured
SKEWS = (0.98, 1.04, 1.10, 1.16)
PARTS = (0.001, 0.003, 0.01, 0.03, 0.1)  #: of the keys, held
POLICIES = ("lru", "s3fifo")
#: on the store: policies with the part of the keys they hold, and the part that is not there
HELD = (("lru", 0.01), ("s3fifo", 0.001), ("s3fifo", 0.01), ("s3fifo", 0.03))
ABSENT = (0.0, 0.9)
_ON = rm.keys({"key": "id"})
_LEFT = pa.schema([("key", pa.int64())])


# -- the kernel


def hit_ratios(keys: int, records: int) -> list[dict[str, Any]]:
    """The hit ratio of the second half of a stream, by skew, part of the keys held and policy."""
    rows = []
    for z in SKEWS:
        zipf = Zipf(z, keys)
        stream = zipf.draw(2 * records, stream=0)
        for part in PARTS:
            held = round(part * keys)
            about = {"z": z, "part": part, "held": held, "most": zipf.share(held)}
            rows += [about | _hits(stream, held, policy) for policy in POLICIES]
    return rows


def _hits(stream: Ints, rows: int, policy: str) -> dict[str, Any]:
    cache, records = KeyCache(rows=rows, policy=policy), len(stream) // 2
    before = _fed(cache, stream[:records])["hits"]
    start = time.process_time()
    hits = _fed(cache, stream[records:])["hits"] - before
    rate = records / (time.process_time() - start)
    return {"case": policy, "hit_ratio": hits / records, "lookups_per_cpu_s": rate}


def _fed(cache: KeyCache, stream: Ints) -> dict[str, int]:
    """A stream through the kernel, each missing key one row."""
    for start in range(0, len(stream), BATCH):
        batch = cache.lookup(EncodedKeys(stream[start : start + BATCH]), 0.0)
        ones = np.ones(len(batch.missed), np.int64)
        cache.load(batch, count=ones, size=8 * ones, chunk=0, start=np.cumsum(ones), now=0.0)
        cache.commit(batch, 0.0)
    return cache.counts


def lookups(held_keys: int, records: int, runs: int) -> list[dict[str, Any]]:
    """Lookups that all hit, per second of one core, by kind of key and policy."""
    asked = np.random.default_rng(SEED).integers(0, held_keys, records)
    kinds = {
        "a number": [pa.array(asked)],
        "a string": [pa.array(asked).cast(pa.string())],
        "a number and a string": [pa.array(asked), pa.array(asked).cast(pa.string())],
    }
    cases: dict[str, Callable[[], Measures]] = {}
    for kind, columns in kinds.items():
        for policy in POLICIES:
            cases[f"{kind}, {policy}"] = _all_hit(KeyCache(rows=held_keys, policy=policy), columns)
    cases["a number, OrderedDict"] = _ordered_dict(asked)
    return [row | {"keys": held_keys} for row in interleave(cases, runs=runs)]


def _all_hit(cache: KeyCache, columns: list[pa.Array]) -> Callable[[], Measures]:
    def once() -> Measures:
        start = time.process_time()
        for first in range(0, len(columns[0]), BATCH):
            batch = cache.lookup(encode([column[first : first + BATCH] for column in columns]), 0.0)
            ones = np.ones(len(batch.missed), np.int64)
            cache.load(batch, count=ones, size=ones, chunk=0, start=np.cumsum(ones), now=0.0)
            cache.commit(batch, 0.0)
        return {"lookups_per_cpu_s": len(columns[0]) / (time.process_time() - start)}

    return once


def _ordered_dict(asked: Ints) -> Callable[[], Measures]:
    held = OrderedDict.fromkeys(asked.tolist(), 0)

    def once() -> Measures:
        start = time.process_time()
        for first in range(0, len(asked), BATCH):
            for key in asked[first : first + BATCH].tolist():
                if key in held:
                    held.move_to_end(key)
        return {"lookups_per_cpu_s": len(asked) / (time.process_time() - start)}

    return once


# -- the cache on a store


def make_table(url: str, keys: int) -> None:
    """One row a key, as a dimension table has: an id, a name, a number."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE items AS SELECT n::int8 AS id, 'item ' || n AS name,"
            f" n % 97 / 7.0::float8 AS price FROM generate_series(0, {keys - 1}) AS n"
        )
        connection.execute("ALTER TABLE items ADD PRIMARY KEY (id)")
        connection.execute("VACUUM ANALYZE items")


def on_store(url: str, keys: int, records: int, runs: int) -> list[dict[str, Any]]:
    """Records per second with the cache and without."""
    zipf, source = Zipf(1.10, keys), rm.tables.postgres(url, "items")
    columns, table = ("name", "price"), source.schema()
    streams = Streams(zipf, records)
    cases: dict[str, Callable[[], Measures]] = {}
    for (policy, part), absent in itertools.product(HELD, ABSENT):
        settings = rm.incremental(rows=round(part * keys), policy=policy, missing_ttl=None)
        cache = _cache(source, columns, table, settings)
        name = f"{policy}, {100 * part:g} % held, {absent:.0%} absent"
        cases[name] = _through(cache, streams, keys, absent)
    cases["a statement per batch, no cache"] = _asked_by_batch(source, columns, streams, 20)
    with psycopg.connect(url, autocommit=True) as connection:
        cases["a statement per record"] = _asked_by_record(connection, streams, 5_000)
        return _measured(cases, keys, runs)


def _measured(
    cases: dict[str, Callable[[], Measures]], keys: int, runs: int
) -> list[dict[str, Any]]:
    with progress("store", len(cases) * (runs + 1)) as step:
        return [row | {"keys": keys} for row in interleave(cases, runs=runs, step=step)]


class Streams:
    """Parts of one long stream; each case goes through them in the same order."""

    def __init__(self, zipf: Zipf, records: int) -> None:
        self._zipf, self.records = zipf, records

    def part(self, number: int) -> Ints:
        """The part of this number."""
        return self._zipf.draw(self.records, stream=number)


def _cache(
    source: Any, columns: tuple[str, ...], table: pa.Schema, settings: Incremental
) -> IncrementalCache:
    return IncrementalCache(LookupSpec(source, _ON, None, columns, _LEFT, table), settings)


def _through(
    cache: IncrementalCache, streams: Streams, keys: int, absent: float
) -> Callable[[], Measures]:
    """A part of the stream through the cache; the first parts only warm it."""
    numbers = iter(range(1, 1000))

    def next_part() -> Ints:
        part = streams.part(next(numbers))
        # whether a key is absent depends on the key, so that it stays so
        return np.where(part % 10 < round(10 * absent), part + keys, part)

    def feed(part: Ints) -> int:
        found = 0
        for _, rows in cache.each(_batches(part, BATCH), dict):
            found += len(rows.pairs.left)
            for column in rows.table.values():
                column.take(pa.array(rows.pairs.right))
        return found

    for _ in range(WARM_PARTS):
        feed(next_part())

    def once() -> Measures:
        part, before = next_part(), cache.counts
        measures = _Clock()
        found = feed(part)
        rates = measures.of(len(part))
        after = {name: value - before[name] for name, value in cache.counts.items()}
        return rates | {
            "hit_ratio": (after["hits"] + after["negative_hits"]) / len(part),
            "rows_per_record": found / len(part),
            "statements": after["loads"],
        }

    return once


def _asked_by_batch(
    source: Any, columns: tuple[str, ...], streams: Streams, most: int
) -> Callable[[], Measures]:
    def once() -> Measures:
        part = streams.part(0)[: BATCH * most]
        found, measures = 0, _Clock()
        for batch in _batches(part, BATCH):
            found += len(source.lookup(_ON, columns, batch)[0])
        return measures.of(len(part)) | _uncached(found, len(part), -(-len(part) // BATCH))

    return once


def _asked_by_record(
    connection: psycopg.Connection[Any], streams: Streams, most: int
) -> Callable[[], Measures]:
    """The plain form: a prepared statement for each record, on one connection."""

    def once() -> Measures:
        part = streams.part(0)[:most]
        found, measures = 0, _Clock()
        with connection.cursor(binary=True) as cursor:
            for key in part.tolist():
                cursor.execute("SELECT name, price FROM items WHERE id = %s", [key], prepare=True)
                found += len(cursor.fetchall())
        return measures.of(len(part)) | _uncached(found, len(part), len(part))

    return once


def _uncached(found: int, records: int, statements: int) -> dict[str, float]:
    return {"hit_ratio": 0.0, "rows_per_record": found / records, "statements": statements}


class _Clock:
    """Time since it was made: of the wall, of this process's CPU, and of that and the server's."""

    def __init__(self) -> None:
        self._began = self._now()

    def of(self, records: int) -> dict[str, float]:
        """Records per second of each."""
        names = ("records_per_s", "records_per_cpu_s", "records_per_cpu_s_with_store")
        passed = (now - began for now, began in zip(self._now(), self._began, strict=True))
        return {name: records / seconds for name, seconds in zip(names, passed, strict=True)}

    def _now(self) -> tuple[float, float, float]:
        return time.perf_counter(), time.process_time(), cpu_seconds(os.getpid())


def _batches(keys: Ints, size: int) -> Iterator[dict[str, pa.Array]]:
    for first in range(0, len(keys), size):
        yield {"key": pa.array(keys[first : first + size])}


def main() -> None:
    """Leave ``cache_hits``, ``cache_lookups`` and ``cache_store``, or those that are named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS_OF_IT)}; all if none")
    parser.add_argument("--quick", action="store_true", help="small inputs, one run: a smoke test")
    given = parser.parse_args()
    keys, runs = (100_000, 1) if given.quick else (KEYS, RUNS)
    about = {"quick": given.quick, "seed": SEED, "data": f"seeded; Zipf over {keys:,} keys"}
    gc.disable()
    for part in given.parts or PARTS_OF_IT:
        print(save(f"cache_{part}", PARTS_OF_IT[part](keys, runs, quick=given.quick), **about))


def _hit_ratios(keys: int, _: int, *, quick: bool) -> list[dict[str, Any]]:
    return hit_ratios(keys, 40_000 if quick else 10_000_000)


def _lookups(keys: int, runs: int, *, quick: bool) -> list[dict[str, Any]]:
    return lookups(keys // 100, 40_000 if quick else 2_000_000, runs)


def _on_store(keys: int, runs: int, *, quick: bool) -> list[dict[str, Any]]:
    with postgres() as url:
        make_table(url, keys)
        return on_store(url, keys, 20_000 if quick else 500_000, runs)


PARTS_OF_IT = {"hits": _hit_ratios, "lookups": _lookups, "store": _on_store}


if __name__ == "__main__":
    main()
