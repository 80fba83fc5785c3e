"""Routing kernels: DS, samples that are unbiased and can be merged, cuts that balance any keys."""

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

from rivermouth.kernels.skew.hotspots import (
    Reservoir,
    Sample,
    algorithm2,
    even_bounds,
    load_cv,
    merged,
    partitions_of,
)

KEYS = {
    "numbers": st.integers(-5, 5).map(lambda n: (n,)),
    "text": st.sampled_from(["", "a", "B", "b", "ä", "zz"]).map(lambda text: (text,)),
    "days": st.integers(0, 6).map(lambda n: (dt.date(1969, 12, 29) + dt.timedelta(n),)),
    "number and text": st.tuples(st.integers(-2, 2), st.sampled_from(["a", "B", "ä"])),
}


def table(keys):
    return pa.table({f"k{n}": pa.array(column) for n, column in enumerate(zip(*keys, strict=True))})


def counted(keys):
    return Sample.of(table(keys), np.ones(len(keys)), np.ones(len(keys)))


def ordered(key):
    return tuple(part.encode() if isinstance(part, str) else part for part in key)


@st.composite
def streams(draw):
    kind = draw(st.sampled_from(sorted(KEYS)))
    return draw(st.lists(KEYS[kind], min_size=1, max_size=60)), draw(st.integers(1, 8))


@given(streams())
@settings(max_examples=examples(200), deadline=None)
def test_a_sample_of_all_counts_each_key_in_the_keys_order(drawn):
    keys, _ = drawn
    sample = counted(keys)
    found = [tuple(row.values()) for row in sample.keys.to_pylist()]
    assert found == sorted(set(keys), key=ordered)
    assert sample.count.tolist() == [keys.count(key) for key in found]
    halves = merged([counted(keys[: len(keys) // 2] or keys[:1]), counted(keys[len(keys) // 2 :])])
    assert halves.keys.equals(sample.keys)


@given(streams())
@settings(max_examples=examples(200), deadline=None)
def test_every_key_has_one_partition_and_a_split_one_its_neighbouring_ones(drawn):
    keys, count = drawn
    sample = counted(keys)
    for rule in (algorithm2(sample, count), even_bounds(sample, count)):
        low, high = (rule.partitions(table(keys), np.full(len(keys), u)) for u in (0.0, 1 - 1e-9))
        assert ((low >= 0) & (low <= high) & (high < count)).all()
        order = sorted(range(len(keys)), key=lambda n: ordered(keys[n]))
        assert (np.diff(low[order]) >= 0).all()
        assert (np.diff(high[order]) >= 0).all()
        split = {keys[n] for n in np.flatnonzero(low < high)}
        cuts = {tuple(row.values()) for row in rule.keys.to_pylist()}
        assert split <= cuts
        if rule.share.tolist() == [1.0] * len(rule.share):
            assert not split, "Algorithm 2 splits no key"


@given(
    st.lists(st.integers(-4, 4), min_size=1, max_size=60), st.integers(1, 8), st.integers(0, 2**32)
)
@settings(max_examples=examples(200), deadline=None)
def test_a_rule_on_integers_is_the_rule_on_any_keys(keys, count, seed):
    rows, draw = table([(key,) for key in keys]), np.random.default_rng(seed).random(len(keys))
    sample = Sample.of(rows, np.ones(len(keys)), np.ones(len(keys)))
    for rule in (algorithm2(sample, count), even_bounds(sample, count)):
        bounds = rule.keys.column(0).to_numpy()
        found = partitions_of(np.array(keys), draw, bounds, rule.share)
        assert found.tolist() == rule.partitions(rows, draw).tolist()


@given(streams())
@settings(max_examples=examples(200), deadline=None)
def test_even_cuts_give_every_partition_the_same_share(drawn):
    """Each key's records are taken as spread evenly over the draws."""
    keys, count = drawn
    rule = even_bounds(counted(keys), count)
    draws = (np.arange(1000) + 0.5) / 1000
    loads = np.zeros(count)
    for key in keys:
        found = rule.partitions(table([key] * len(draws)), draws)
        loads += np.bincount(found, minlength=count) / len(draws)
    assert loads == pytest.approx(np.full(count, len(keys) / count), abs=0.01 * len(keys) + 0.01)


def test_a_key_heavier_than_a_partition_is_spread_over_several():
    rule = even_bounds(counted([(1,)] * 80 + [(0,)] * 10 + [(2,)] * 10), 5)
    draws = np.random.default_rng(1).random(10_000)
    found = rule.partitions(table([(1,)] * 10_000), draws)
    assert np.bincount(found) / 10_000 == pytest.approx([0.125, 0.25, 0.25, 0.25, 0.125], abs=0.02)


def test_algorithm_2_cuts_where_the_running_count_reaches_the_mean():
    sample = counted([(1,)] * 5 + [(2,)] * 1 + [(3,)] * 6 + [(4,)] * 3)
    rule = algorithm2(sample, 3)
    assert rule.keys.column("k0").to_pylist() == [1, 3]
    assert rule.share.tolist() == [1.0, 1.0]


def test_costs_are_cut_where_they_are_to_be():
    sample = Sample.of(table([(n,) for n in range(4)]), np.ones(4), np.array([9.0, 1.0, 1.0, 1.0]))
    assert even_bounds(sample, 2, by="cost").keys.column("k0").to_pylist() == [0]
    assert even_bounds(sample, 2).keys.column("k0").to_pylist() == [1]


def test_of_nothing_there_is_no_rule():
    assert Reservoir(5, 1).sample() is None
    nothing = counted([(1,)])
    nothing = Sample(nothing.keys.slice(0, 0), nothing.count[:0], nothing.cost[:0])
    assert even_bounds(nothing, 3) is None
    assert algorithm2(nothing, 3) is None


def test_the_load_cv_is_that_of_a_sample():
    assert load_cv([1, 2, 3, 4]) == pytest.approx(np.std([1, 2, 3, 4], ddof=1) / 2.5)
    assert load_cv([5]) == load_cv([]) == load_cv([0, 0, 0]) == 0.0


def test_sampling_is_unbiased_wherever_the_stream_is_cut():
    """A thousand reservoirs of 20 out of 200 records: each record as often as the others."""
    keys = np.arange(200)
    hits = np.zeros(200)
    for seed in range(1000):
        reservoir = Reservoir(20, seed)
        for part in np.split(keys, [1, 15, 30, 120]):
            reservoir.add(pa.table({"k": part}), np.ones(len(part)))
        sample = reservoir.sample()
        assert sample.count.sum() == pytest.approx(200)
        hits[sample.keys.column("k").to_numpy()] += 1
    # 100 expected each, standard deviation 9.5: five of them
    assert np.abs(hits - 100).max() < 48
    assert hits.sum() == 20_000


def test_merged_reservoirs_weigh_as_much_as_the_streams_they_saw():
    many, few = Reservoir(50, 1), Reservoir(50, 2)
    many.add(pa.table({"k": np.zeros(9000, np.int64)}), np.ones(9000))
    few.add(pa.table({"k": np.ones(10, np.int64)}), np.full(10, 3.0))
    sample = merged([many.sample(), few.sample()])
    assert sample.count.tolist() == [9000, 10]
    assert sample.cost.tolist() == [9000, 30]
