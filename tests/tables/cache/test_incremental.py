"""The incremental cache against the oracle, on a table in memory: any batching, size and policy."""

import datetime as dt
import threading
import time
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.memory_store import MemoryTable

import rivermouth as rm
from rivermouth.errors import TableInvalid, TableMissing, TableUnavailable
from rivermouth.kernels.table_join.assemble import assemble
from rivermouth.spec.conditions import split
from rivermouth.tables.cache.fetching import LookupSpec
from rivermouth.tables.cache.incremental import IncrementalCache, shared
from rivermouth.tables.cache.retry import RetryPolicy
from rivermouth.testing import oracle

NAN = float("nan")


def spec(source, on, left, columns=("v",)):
    equal, _, span = split(on)
    return LookupSpec(source, equal, span, tuple(columns), left, source.schema())


def cache_for(source, on, left, columns=("v",), retry=None, **settings):
    cache = rm.incremental(**settings)
    retry = retry or RetryPolicy(source.name, cache.attempts, sleep=lambda _: None)
    return IncrementalCache(spec(source, on, left, columns), cache, retry=retry)


def joined(batch, rows, how, columns=("v",)):
    pairs = [(name, name) for name in columns]
    found = assemble(batch, rows.pairs, how, rows.table, pairs)
    return pa.RecordBatch.from_arrays(list(found.values()), list(found)).to_pylist()


def batches_of(events, schema, cuts):
    table = pa.Table.from_pylist(events, schema)
    ends = sorted({min(cut, len(events)) for cut in cuts} | {len(events)})
    return [
        pa.RecordBatch.from_arrays(
            [table[name].combine_chunks() for name in schema.names], schema.names
        ).slice(start, end - start)
        for start, end in zip([0, *ends[:-1]], ends, strict=True)
        if end > start
    ]


def as_set(rows):
    return sorted(repr(sorted(row.items())) for row in rows)


def columns_of(batch):
    return {name: batch.column(name) for name in batch.schema.names}


# -- the same rows as the oracle's

KEYS = st.one_of(st.none(), st.integers(0, 5))
NAMES = st.one_of(st.none(), st.sampled_from(["", "a", "ab", "b\0"]))
WHOLE = st.one_of(st.none(), st.integers(-6, 6))
REAL = st.one_of(
    st.none(), st.sampled_from([NAN, -np.inf, np.inf, -0.0, 0.0]), st.integers(-6, 6).map(float)
)
START = dt.datetime(2008, 2, 3)
TIMES = st.one_of(st.none(), st.integers(-6, 6).map(lambda n: START + dt.timedelta(minutes=n)))
DAYS = st.one_of(st.none(), st.integers(-6, 6).map(lambda n: START.date() + dt.timedelta(days=n)))
CENTS = st.one_of(st.none(), st.integers(-600, 600).map(lambda n: Decimal(n).scaleb(-2)))
DIGITS = [n * sign for n in (0, 1, 10**19, 10**33 - 1, 10**33) for sign in (1, -1)]
#: more digits than 64 bits hold, at two scales
WIDE = st.one_of(st.none(), st.sampled_from(DIGITS).map(lambda n: Decimal(f"{n}e-4")))
FINE = st.one_of(WIDE, st.sampled_from(DIGITS).map(lambda n: Decimal(f"{10 * n + 5}e-5")))

CONDITIONS = {
    "number": (rm.keys("k"), {}, {}),
    "words": (rm.keys({"name": "label"}), {}, {}),
    "both": (rm.keys({"k": "k", "name": "label"}), {}, {}),
    "reals": (rm.keys({"x": "at"}), {"x": REAL}, {"at": REAL}),
    "range": (rm.between("x", "at", lower=-2, upper=1, by="k"), {"x": WHOLE}, {"at": WHOLE}),
    "float range": (rm.between("x", "at", lower=-1.5, upper=0, by="k"), {"x": REAL}, {"at": REAL}),
    "times": (
        rm.between("x", "at", lower="-2 minutes", upper="0 seconds", by={"name": "label"}),
        {"x": TIMES}, {"at": TIMES},
    ),
    "days": (rm.between("x", "at", lower="-1 day", upper="1 day"), {"x": DAYS}, {"at": DAYS}),
    "decimals": (
        rm.between("x", "at", lower=Decimal("-0.5"), upper=Decimal("1.25"), by="k"),
        {"x": CENTS}, {"at": CENTS},
    ),
    "asof": (rm.asof("x", "at", by="k"), {"x": TIMES}, {"at": TIMES}),
    "asof of all": (rm.asof("x", "at"), {"x": REAL}, {"at": REAL}),
    "wide keys": (rm.keys({"x": "at"}), {"x": FINE}, {"at": WIDE}),
    "wide and other keys": (rm.keys({"x": "at", "k": "k"}), {"x": FINE}, {"at": WIDE}),
    "wide range": (
        rm.between("x", "at", lower=Decimal("-0.00005"), upper=Decimal("1e28"), by="k"),
        {"x": FINE}, {"at": WIDE},
    ),
    "wide asof": (rm.asof("x", "at", by="k"), {"x": FINE}, {"at": WIDE}),
    "wide asof of all": (rm.asof("x", "at"), {"x": WIDE}, {"at": FINE}),
}  # fmt: skip
TYPES = {
    WHOLE: pa.int64(), REAL: pa.float64(), TIMES: pa.timestamp("us"), DAYS: pa.date32(),
    CENTS: pa.decimal128(12, 2), WIDE: pa.decimal128(38, 4), FINE: pa.decimal128(38, 5),
}  # fmt: skip


@pytest.mark.parametrize("case", CONDITIONS)
@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_the_rows_are_the_oracles(case, data):
    on, left_more, right_more = CONDITIONS[case]
    left = {"k": KEYS, "name": NAMES, **left_more}
    right = {"k": KEYS, "label": st.one_of(st.none(), NAMES), **right_more, "v": st.integers(0, 9)}
    left_schema, right_schema = schema_of(left), schema_of(right)
    events = data.draw(st.lists(st.fixed_dictionaries(left), max_size=25))
    rows = data.draw(st.lists(st.fixed_dictionaries(right), max_size=15))
    events = pa.Table.from_pylist(events, left_schema).to_pylist()  # decimals of one scale
    how = data.draw(st.sampled_from(["inner", "left", "semi", "anti"]))
    columns = ("v",) if how in ("inner", "left") else ()
    cache = cache_for(
        MemoryTable(pa.Table.from_pylist(rows, right_schema)),
        on,
        left_schema,
        columns,
        rows=data.draw(st.integers(1, 12)),
        ttl=data.draw(st.sampled_from([None, "1 second", "3 seconds"])),
        missing_ttl=data.draw(st.sampled_from([None, "1 second"])),
        policy=data.draw(st.sampled_from(["lru", "s3fifo"])),
    )
    batches = batches_of(events, left_schema, data.draw(st.lists(st.integers(1, 25), max_size=6)))
    clock = iter(range(1000))
    found = [
        row
        for batch, met in cache.each(batches, columns_of, clock=lambda: next(clock))
        for row in joined(batch, met, how, columns)
    ]
    expected = oracle.join_table(events, rows, on=on, how=how, columns=columns)
    assert as_set(found) == as_set(expected)


def schema_of(columns):
    known = {"k": pa.int64(), "name": pa.string(), "label": pa.string(), "v": pa.int64()}
    return pa.schema([(name, known.get(name) or TYPES[kind]) for name, kind in columns.items()])


# -- how often the store is asked

LEFT = pa.schema([("k", pa.int64())])


def table_of(*keys, **more):
    columns = {"k": pa.array(keys, pa.int64()), "v": pa.array([f"v{key}" for key in keys])}
    return MemoryTable(pa.table(columns | more))


def ask(cache, *keys, now=0.0):
    """What each record meets: a list of values."""
    batch = pa.record_batch({"k": pa.array(keys, pa.int64())})
    rows = cache.lookup(columns_of(batch), now)
    values = rows.table["v"].to_pylist()
    met = [[] for _ in keys]
    for record, row in zip(rows.pairs.left.tolist(), rows.pairs.right.tolist(), strict=True):
        met[record].append(values[row])
    return met


def test_a_batchs_missing_keys_are_asked_for_by_one_statement():
    source = table_of(1, 2, 2, 3)
    cache = cache_for(source, rm.keys("k"), LEFT, rows=100)
    assert ask(cache, 1, 2, 1, None, 9) == [["v1"], ["v2", "v2"], ["v1"], [], []]
    assert ask(cache, 3, 2, 9) == [["v3"], ["v2", "v2"], []]
    assert source.weather.asked == [[(1,), (2,), (9,)], [(3,)]]
    assert {name: cache.counts[name] for name in ("misses", "hits", "negative_hits", "loads")} == {
        "misses": 4, "hits": 2, "negative_hits": 1, "loads": 2,
    }  # fmt: skip
    assert (cache.counts["entries"], cache.counts["rows"]) == (4, 4)


def test_absent_keys_are_asked_for_once_until_their_time_is_over():
    source = table_of(1)
    cache = cache_for(source, rm.keys("k"), LEFT, rows=1000, missing_ttl="1 minute")
    for moment in range(60):
        ask(cache, *range(100, 200), now=float(moment))
    assert len(source.weather.asked) == 1
    ask(cache, *range(100, 200), now=60.0)
    assert len(source.weather.asked) == 2


def test_rows_are_read_anew_when_they_are_too_old():
    source = table_of(1)
    cache = cache_for(source, rm.keys("k"), LEFT, rows=10, ttl="10 seconds")
    assert [ask(cache, 1, now=moment) for moment in (0.0, 9.9, 10.0)] == [[["v1"]]] * 3
    assert len(source.weather.asked) == 2
    assert cache.counts["expired"] == 1


def test_very_many_missing_keys_are_asked_for_in_parts():
    source = table_of(*range(0, 45_000, 3))
    cache = cache_for(source, rm.keys("k"), LEFT, rows=100_000)
    found = ask(cache, *range(45_000))
    assert found == [[f"v{key}"] if key % 3 == 0 else [] for key in range(45_000)]
    assert [len(keys) for keys in source.weather.asked] == [20_000, 20_000, 5_000]


def test_a_key_with_more_rows_than_are_kept_is_served_each_time():
    source = table_of(1, 1, 1, 2)
    cache = cache_for(source, rm.keys("k"), LEFT, rows=2)
    for _ in range(3):
        assert ask(cache, 1, 2) == [["v1"] * 3, ["v2"]]
    assert source.weather.asked == [[(1,), (2,)], [(1,)], [(1,)]]
    assert (cache.counts["uncacheable"], cache.counts["rows"]) == (3, 1)


def test_rows_that_nobody_holds_do_not_pile_up():
    source = table_of(*range(30_000))
    cache = cache_for(source, rm.keys("k"), LEFT, rows=500, policy="lru")
    for first in range(0, 30_000, 1000):
        ask(cache, *range(first, first + 1000))
    chunks = cache._chunks.chunks
    assert sum(chunk.rows for chunk in chunks) <= 2 * 500 + 10_000
    assert len(chunks) < 10
    assert ask(cache, *range(29_500, 30_000)) == [[f"v{key}"] for key in range(29_500, 30_000)]
    assert cache.counts["hits"] == 500


def test_the_bound_in_bytes_is_kept():
    text = pa.array(["x" * 1000 for _ in range(5000)])
    source = MemoryTable(pa.table({"k": pa.array(range(5000)), "v": text}))
    cache = cache_for(source, rm.keys("k"), LEFT, bytes="64 KB")
    for first in range(0, 5000, 50):
        ask(cache, *range(first, first + 50))
        assert cache.counts["bytes"] <= 64 << 10
        assert sum(chunk.nbytes for chunk in cache._chunks.chunks) < 2 << 20
    assert 50 < cache.counts["entries"] < 64


# -- beside other work


def test_while_one_batch_is_fetched_the_one_before_is_finished():
    source = table_of(*range(100))
    cache = cache_for(source, rm.keys("k"), LEFT, rows=100)
    batches = [pa.record_batch({"k": pa.array([n, n + 1])}) for n in range(0, 10, 2)]
    deadline = time.monotonic() + 30
    for number, _ in enumerate(cache.each(batches, columns_of)):
        # whoever takes the rows is busy with them until the store is asked for the next
        while len(source.weather.asked) < min(number + 2, len(batches)):
            assert time.monotonic() < deadline, "the next batch is not fetched meanwhile"
            time.sleep(0.01)
    assert source.weather.most_at_work == 1


def test_a_batch_that_needs_no_fetch_comes_before_the_next_is_there():
    cache = cache_for(table_of(1), rm.keys("k"), LEFT, rows=10)
    ask(cache, 1)
    taken = []

    def batches():
        for number in range(3):
            taken.append(number)
            yield pa.record_batch({"k": pa.array([1])})

    for number, _ in enumerate(cache.each(batches(), columns_of)):
        assert taken == list(range(number + 1))


def test_who_stops_early_leaves_a_sound_cache():
    source = table_of(*range(10))
    cache = cache_for(source, rm.keys("k"), LEFT, rows=100)
    batches = [pa.record_batch({"k": pa.array([n])}) for n in range(10)]
    each = cache.each(batches, columns_of)
    next(each)
    each.close()
    assert ask(cache, *range(10)) == [[f"v{key}"] for key in range(10)]
    assert cache._under_way is None


def test_a_fetch_that_cannot_be_started_leaves_a_sound_cache(monkeypatch):
    cache = cache_for(table_of(1), rm.keys("k"), LEFT, rows=100)

    def no_more_threads(_):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_more_threads)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            ask(cache, 1)
    assert ask(cache, 1) == [["v1"]]


def test_threads_share_one_cache():
    source = table_of(*range(200))
    source.weather.delay = 0.001
    cache = cache_for(source, rm.keys("k"), LEFT, rows=50)
    wrong = []

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(30):
            keys = rng.integers(0, 250, 20).tolist()
            expected = [[f"v{key}"] if key < 200 else [] for key in keys]
            if ask(cache, *keys) != expected:
                wrong.append(keys)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert source.weather.most_at_work == 1


def test_all_tasks_of_a_process_share_a_cache_and_other_questions_do_not():
    source = table_of(1)
    one, settings = spec(source, rm.keys("k"), LEFT), rm.incremental(rows=5)
    assert shared(one, settings) is shared(spec(source, rm.keys("k"), LEFT), settings)
    assert shared(one, settings) is not shared(one, rm.incremental(rows=6))
    words = pa.schema([("k", pa.string())])
    assert shared(one, settings) is not shared(spec(source, rm.keys("k"), words), settings)


# -- when the store does not answer


def test_a_store_that_comes_back_is_asked_again_after_pauses_that_grow():
    source = table_of(1)
    source.weather.fails = 4
    pauses = []
    retry = RetryPolicy(source.name, 5, sleep=pauses.append, chance=lambda: 0.5)
    cache = cache_for(source, rm.keys("k"), LEFT, retry=retry)
    assert ask(cache, 1) == [["v1"]]
    assert pauses == [0.25, 0.5, 1.0, 2.0]
    assert (cache.counts["retries"], cache.counts["loads"]) == (4, 1)


def test_a_store_that_stays_away_is_a_clear_failure():
    source = table_of(1, 2)
    source.weather.fails = 99
    cache = cache_for(source, rm.keys("k"), LEFT, attempts=3)
    with pytest.raises(
        TableUnavailable,
        match=r"memory: fetching 2 keys failed 3 times within 0\.\d s; the last error is: "
        r"memory: it is down\. Wait\. Restore the store and start the query again, it goes on "
        r"where it was; or give incremental\(\) more attempts=, or on_unavailable='miss'\.",
    ):
        ask(cache, 1, 2)
    source.weather.fails = 0
    assert ask(cache, 1, 2) == [["v1"], ["v2"]]


def test_on_unavailable_miss_records_go_on_without_rows_and_are_counted():
    source = table_of(1, 2)
    cache = cache_for(source, rm.keys("k"), LEFT, attempts=2, on_unavailable="miss")
    ask(cache, 1)
    source.weather.fails = 99
    assert ask(cache, 1, 2, 2) == [["v1"], [], []]
    assert (cache.counts["failed_lookups"], cache.counts["hits"]) == (2, 1)
    source.weather.fails = 0
    assert ask(cache, 1, 2) == [["v1"], ["v2"]]


def test_a_store_that_is_known_to_be_down_costs_no_more_pauses():
    source = table_of(1)
    source.weather.fails = 99
    pauses = []
    retry = RetryPolicy(source.name, 3, sleep=pauses.append)
    cache = cache_for(source, rm.keys("k"), LEFT, retry=retry, on_unavailable="miss")
    ask(cache, 1)
    assert (len(pauses), len(source.weather.asked)) == (2, 3)
    ask(cache, 1)
    assert (len(pauses), len(source.weather.asked)) == (2, 4)


@pytest.mark.parametrize("on_unavailable", ["fail", "miss"])
@pytest.mark.parametrize("kind", [TableMissing, TableInvalid])
def test_what_waiting_cannot_mend_is_raised_at_once(kind, on_unavailable):
    source = table_of(1)
    source.weather.fails, source.weather.error = 1, kind("memory", "it is no more")
    cache = cache_for(source, rm.keys("k"), LEFT, on_unavailable=on_unavailable)
    with pytest.raises(kind, match="it is no more"):
        ask(cache, 1)
    assert len(source.weather.asked) == 1


def test_an_error_of_the_next_batch_does_not_cost_this_one():
    source = table_of(1, 2)
    cache = cache_for(source, rm.keys("k"), LEFT, attempts=1)
    first = cache.begin({"k": pa.array([1])}, 0.0)
    first.fetch.join()
    source.weather.fails = 1
    second = cache.begin({"k": pa.array([1, 2])}, 0.0)
    assert len(cache.finish(first).pairs.left) == 1
    with pytest.raises(TableUnavailable):
        cache.finish(second)
    assert ask(cache, 1, 2) == [["v1"], ["v2"]]


def test_a_column_that_changed_its_type_is_named():
    source = table_of(1)
    stale = spec(source, rm.keys("k"), LEFT)
    changed = MemoryTable(pa.table({"k": pa.array([1]), "v": pa.array([1.5])}))
    cache = IncrementalCache(
        LookupSpec(changed, stale.keys, None, stale.columns, LEFT, stale.table), rm.incremental()
    )
    with pytest.raises(
        TableInvalid,
        match=r"memory: column 'v' was of type string when the join was defined; now it is double"
        r"\. Define the join anew\.",
    ):
        ask(cache, 1)


def test_an_answer_that_cannot_be_right_is_an_error():
    class Wrong(MemoryTable):
        def lookup(self, condition, columns, left):
            numbers, rows = super().lookup(condition, columns, left)
            return numbers + 7, rows

    cache = cache_for(Wrong(table_of(1).table), rm.keys("k"), LEFT)
    with pytest.raises(TableInvalid, match="its answer for 1 keys cannot be right"):
        ask(cache, 1)


# -- ranges


def test_a_long_run_is_not_copied_for_each_record():
    count = 200_000
    table = pa.table(
        {"at": pa.array(np.arange(count)[::-1]), "v": pa.array(np.arange(count)[::-1])}
    )
    left = pa.schema([("x", pa.int64())])
    on = rm.between("x", "at", lower=-1, upper=1)
    cache = cache_for(MemoryTable(table), on, left, rows=count)
    x = np.random.default_rng(1).integers(1, count - 1, 10_000)
    cache.lookup({"x": pa.array(x)}, 0.0)
    began = time.process_time()
    rows = cache.lookup({"x": pa.array(x)}, 0.0)
    assert time.process_time() - began < 0.5
    values = rows.table["v"].take(pa.array(rows.pairs.right)).to_numpy()
    assert values.tolist() == (x[:, None] + [-1, 0, 1]).ravel().tolist()


def test_whole_numbers_saturate_at_the_ends():
    most, least = 2**63 - 1, -(2**63)
    table = pa.table({"at": pa.array([most, least, 0]), "v": pa.array([1, 2, 3])})
    left = pa.schema([("x", pa.int64())])
    on = rm.between("x", "at", lower=-(2**64), upper=5)
    cache = cache_for(MemoryTable(table), on, left, rows=10)
    rows = cache.lookup({"x": pa.array([most, least])}, 0.0)
    values = rows.table["v"].take(pa.array(rows.pairs.right)).to_pylist()
    assert list(zip(rows.pairs.left.tolist(), values, strict=True)) == [
        (0, 2), (0, 3), (0, 1), (1, 2),
    ]  # fmt: skip
