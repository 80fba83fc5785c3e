"""Which keys are held, against policies written one record at a time."""

import numpy as np
import pyarrow as pa
import pytest
from benchmarks.harness.zipf import Zipf
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.plain_caches import PlainLru, PlainS3Fifo

from rivermouth.errors import ConditionError
from rivermouth.kernels.cache.key_cache import ENTRY_BYTES, Holding
from rivermouth.kernels.keys.encoding import EncodedKeys, encode

PLAIN = {"lru": PlainLru, "s3fifo": PlainS3Fifo}
ONE_ROW = dict.fromkeys(range(1000), (1, 8))


def ask(held, keys, store, now=0.0, encoded=None):
    """Look up a batch and settle it; gives each record's number of rows."""
    return settle(held, *begin(held, keys, store, now, encoded), now)


def begin(held, keys, store, now=0.0, encoded=None):
    keys = np.asarray(keys, np.int64)
    batch = held.find(EncodedKeys(keys) if encoded is None else encoded, now)
    answers = [store[key] for key in keys[batch.asked].tolist()]
    count = np.array([rows for rows, _ in answers], np.int64)
    size = np.array([size for _, size in answers], np.int64)
    # a key's rows "start" at the key, so that a mix-up shows
    held.fill(batch, count=count, size=size, chunk=0, start=keys[batch.asked], now=now)
    return keys, batch


def settle(held, keys, batch, now=0.0):
    located = held.settle(batch, now)
    there = located.count > 0
    assert located.start[there].tolist() == keys[there].tolist()
    return located.count.tolist()


keys = st.lists(st.integers(0, 12), max_size=30)
stores = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 300)), min_size=13, max_size=13).map(
    lambda rows: dict(enumerate(rows))
)
bounds = st.one_of(
    st.fixed_dictionaries({"rows": st.integers(1, 14)}),
    st.fixed_dictionaries({"bytes": st.integers(1, 2500)}),
    st.fixed_dictionaries({"rows": st.integers(1, 14), "bytes": st.integers(1, 2500)}),
)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(["lru", "s3fifo"]), st.lists(keys, max_size=8), stores, bounds)
def test_any_batching_holds_what_records_one_by_one_would(policy, batches, store, bound):
    held = Holding(**bound, policy=policy)
    plain = PLAIN[policy](store, **bound)
    for batch in batches:
        counts = ask(held, batch, store)
        assert counts == [store[key][0] for key in batch]
        plain.batch(batch, now=0.0)
        assert held.codes() == plain.queues()
        rows, size = plain.weight(plain.held())
        empty = sum(store[key][0] == 0 for key in plain.held())
        assert (held.entries, held.rows, held.bytes) == (len(plain.held()), rows - empty, size)
        assert held.counts["evictions"] == plain.evictions


ages = st.one_of(st.none(), st.integers(1, 6))
moments = st.lists(st.tuples(st.integers(0, 3), keys, st.booleans()), max_size=8)


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(["lru", "s3fifo"]), moments, stores, bounds,
    st.fixed_dictionaries({"ttl": ages, "idle_ttl": ages, "missing_ttl": ages}),
)  # fmt: skip
def test_keys_leave_when_they_are_too_old(policy, moments, store, bound, ages):
    held = Holding(**bound, **ages, policy=policy)
    plain = PLAIN[policy](store, **bound, **ages)
    now = 0
    for passed, batch, sweep in moments:
        now += passed
        if sweep:
            held.expire(now)
            plain.expire(now)
        ask(held, batch, store, now)
        plain.batch(batch, now)
        assert held.codes() == plain.queues()
        assert held.counts["expired"] == plain.expired


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(["lru", "s3fifo"]), st.lists(keys, max_size=8), stores, bounds)
def test_looking_ahead_changes_nothing(policy, batches, store, bound):
    ahead, plain = Holding(**bound, policy=policy), PLAIN[policy](store, **bound)
    waiting = None
    for batch in [*batches, None]:
        begun = None if batch is None else begin(ahead, batch, store)
        if waiting is not None:
            assert settle(ahead, *waiting) == [store[key][0] for key in waiting[0].tolist()]
            plain.batch(waiting[0].tolist(), now=0.0)
        waiting = begun
    assert ahead.codes()["main"] == plain.queues()["main"]
    assert ahead.codes()["small"] == plain.queues()["small"]


@settings(max_examples=100, deadline=None)
@given(st.lists(keys, max_size=6), stores, bounds, st.data())
def test_batches_may_be_settled_in_any_order_or_not_at_all(batches, store, bound, data):
    held = Holding(**bound, policy="s3fifo")
    begun = [begin(held, batch, store) for batch in batches]
    for number in data.draw(st.permutations(range(len(begun)))):
        if data.draw(st.booleans()):
            assert settle(held, *begun[number]) == [store[key][0] for key in batches[number]]
        else:
            held.abandon(begun[number][1])
    for batch in batches:
        ask(held, batch, store)
    assert_is_sound(held)


def assert_is_sound(held):
    """Every entry in use can be found by its key, in one queue; the others are free."""
    entries = held._books.entries
    queued = sum(len(codes) for codes in held.codes().values())
    assert np.count_nonzero(entries["state"]) == queued
    assert int(held._books.queues["entries"][0]) == len(entries) - queued
    assert np.count_nonzero(held._books.slots >= 0) == queued


def test_a_key_is_one_load_within_a_batch():
    held = Holding(rows=10, policy="lru")
    ask(held, [5, 5, 6, 5, 6], {5: (2, 0), 6: (0, 0)})
    assert {name: held.counts[name] for name in ("misses", "hits", "negative_hits")} == {
        "misses": 2, "hits": 2, "negative_hits": 1,
    }  # fmt: skip


def test_what_left_within_a_batch_is_still_in_hand():
    held = Holding(rows=1, policy="lru")
    assert ask(held, [1, 2, 1, 2, 1], ONE_ROW) == [1] * 5
    assert (held.counts["misses"], held.counts["hits"], held.counts["evictions"]) == (2, 3, 4)
    assert held.codes()["main"] == [1]


def test_a_key_larger_than_the_bound_is_served_but_not_kept():
    held = Holding(rows=3, policy="s3fifo")
    assert ask(held, [1, 2, 1], {1: (4, 0), 2: (1, 0)}) == [4, 1, 4]
    assert held.codes()["small"] == [2]
    assert held.counts["uncacheable"] == 1
    assert ask(held, [1], {1: (4, 0)}) == [4]
    assert (held.counts["uncacheable"], held.counts["misses"]) == (2, 3)


def test_keys_that_were_not_answered_are_asked_for_again():
    held = Holding(rows=3, policy="lru")
    ask(held, [1], ONE_ROW)
    batch = held.find(EncodedKeys(np.array([1, 2, 2, 3])), now=0.0)
    held.fail(batch)
    assert held.settle(batch, now=0.0).count.tolist() == [1, 0, 0, 0]
    assert (held.counts["failed_lookups"], held.counts["hits"]) == (3, 1)
    assert held.find(EncodedKeys(np.array([1, 2, 3])), now=0.0).asked.tolist() == [1, 2]


def test_a_stream_of_absent_keys_asks_for_each_once():
    held = Holding(rows=100, missing_ttl=60, policy="s3fifo")
    absent = dict.fromkeys(range(50), (0, 0))
    asked = 0
    for turn in range(10):
        before = held.counts["misses"]
        ask(held, list(absent), absent, now=float(turn))
        asked += held.counts["misses"] - before
    assert asked == 50
    ask(held, list(absent), absent, now=60.0)
    assert held.counts["misses"] == 100


def test_many_keys_make_the_books_grow_and_none_is_lost():
    held = Holding(rows=1 << 20, policy="lru")
    many = np.random.default_rng(1).permutation(50_000).astype(np.int64)
    store = dict.fromkeys(many.tolist(), (1, 8))
    for part in np.array_split(many, 7):
        ask(held, part, store)
    assert held.entries == 50_000
    assert not len(held.find(EncodedKeys(many), now=0.0).asked)


words = st.lists(st.text("ab\0", max_size=20), max_size=12)


@settings(max_examples=200, deadline=None)
@given(st.lists(words, max_size=8), st.integers(1, 5))
@example([["", "\0", "\0\0", "a", "a\0"]], 5)
def test_keys_of_bytes_are_told_apart(batches, rows):
    held = Holding(rows=rows, policy="lru")
    numbers = {}
    plain = PlainLru(dict.fromkeys(range(1000), (1, 0)), rows=rows)
    for batch in batches:
        codes = [numbers.setdefault(word, len(numbers)) for word in batch]
        ask(held, codes, ONE_ROW, encoded=encode([pa.array(batch, pa.string())]))
        plain.batch(codes, 0.0)
        assert held.counts["evictions"] == plain.evictions


def test_equal_codes_of_different_bytes_are_different_keys():
    def clashing(*words):
        data = np.frombuffer("".join(words).encode(), np.uint8).copy()
        offsets = np.cumsum([0, *map(len, words)])
        return EncodedKeys(np.zeros(len(words), np.int64), data, offsets)

    held = Holding(rows=10, policy="lru")
    assert ask(held, [1, 2, 1, 3], ONE_ROW, encoded=clashing("ab", "ba", "ab", "a")) == [1] * 4
    assert (held.counts["misses"], held.counts["hits"]) == (3, 1)


@pytest.mark.parametrize(
    ("columns", "distinct"),
    [
        ([pa.array([0.0, -0.0, 1.0])], 2),
        ([pa.array(["a", "b", "a"]).dictionary_encode()], 2),
        ([pa.array(["a", "ab", "a"]), pa.array(["bc", "c", "bc"])], 2),
        ([pa.array([b"", b"\0", b""], pa.large_binary())], 2),
        ([pa.array(["x", "y", "x"], pa.string_view())], 2),
        ([pa.array([1, 1, 2], pa.int8()), pa.array([True, True, True])], 2),
        ([pa.array([1, 2, 1], pa.timestamp("us", "UTC"))], 2),
        ([pa.array([1, 2, 1], pa.date32())], 2),
        ([pa.array([2**64 - 1, 1, 2**64 - 1], pa.uint64())], 2),
        ([pa.array([1, 2, 1]).cast(pa.decimal128(30, 2))], 2),
        ([pa.array(["z", "a", "b", "a"])[1:]], 2),
        ([pa.array([9, 1, 2, 1]).cast(pa.decimal128(30, 2))[1:]], 2),
    ],
)
def test_keys_of_every_type(columns, distinct):
    held = Holding(rows=10, policy="lru")
    assert len(held.find(encode(columns), now=0.0).asked) == distinct


def test_a_type_that_cannot_be_a_key_is_named():
    with pytest.raises(ConditionError, match=r"keys of type list<.*> cannot be kept apart"):
        encode([pa.array([[1], [2]])])


def test_an_entry_is_charged_for_its_rows_its_key_and_itself():
    held = Holding(bytes=10_000, policy="lru")
    ask(held, [1], {1: (3, 100)}, encoded=encode([pa.array(["four"])]))
    assert held.bytes == 100 + 4 + ENTRY_BYTES


def test_hit_ratios_at_one_per_cent_of_zipf_keys():
    keys, records = 1_000_000, 2_000_000
    stream = Zipf(1.10, keys).draw(records, stream=0)
    ratio = {}
    for policy in ("lru", "s3fifo"):
        held = Holding(rows=keys // 100, policy=policy)
        for start in range(0, records, 10_000):
            if start == records // 2:
                before = held.counts["hits"]
            batch = held.find(EncodedKeys(stream[start : start + 10_000]), 0.0)
            ones = np.ones(len(batch.asked), np.int64)
            held.fill(batch, count=ones, size=ones, chunk=0, start=ones, now=0.0)
            held.settle(batch, 0.0)
        ratio[policy] = (held.counts["hits"] - before) / (records // 2)
    # an OrderedDict asked record by record hits 0.757 of the same; 10 M keys: .818 and .850
    assert ratio["lru"] == pytest.approx(0.762, abs=0.003)
    assert ratio["s3fifo"] == pytest.approx(0.806, abs=0.003)
