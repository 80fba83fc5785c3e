"""The rules of others that routing is measured beside, against slow and obvious ones."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from benchmarks.harness.zipf import Zipf
from benchmarks.suites.routing.choices import HEAD, Choices
from hypothesis import given
from hypothesis import strategies as st

from rivermouth.kernels.skew.hotspots import load_cv

KEYS = st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 5), max_size=200)


def routed(keys, partitions, *, head, cuts=()):
    rule = Choices(partitions, head=head)
    parts = np.split(np.array(keys, np.int64), sorted(min(cut, len(keys)) for cut in cuts))
    return np.concatenate([rule.route(part) for part in parts]).tolist(), rule


@given(KEYS, st.integers(1, 9), st.booleans(), st.lists(st.integers(0, 200), max_size=3))
def test_every_record_has_a_partition_and_no_cut_changes_it(keys, partitions, head, cuts):
    found, rule = routed(keys, partitions, head=head, cuts=cuts)
    assert found == routed(keys, partitions, head=head)[0]
    assert np.bincount(found, minlength=partitions).tolist() == rule.loads.tolist()
    assert len(found) == len(keys)


@given(KEYS, st.integers(1, 9))
def test_a_key_of_partial_key_grouping_has_two_partitions_at_most(keys, partitions):
    found, _ = routed(keys, partitions, head=False)
    used = {(key, to) for key, to in zip(keys, found, strict=True)}
    assert max(Counter(key for key, _ in used).values(), default=0) <= 2


@given(KEYS, st.integers(1, 9))
def test_a_record_goes_to_the_lighter_of_its_partitions(keys, partitions):
    """With as many slots as there are keys, the sketch counts what is."""
    found, _ = routed(keys, partitions, head=True)
    pairs = {key: sorted(_candidates(key, partitions)) for key in keys}
    loads, seen = [0] * partitions, Counter()
    for at, (key, to) in enumerate(zip(keys, found, strict=True), start=1):
        seen[key] += 1
        if len({*keys}) <= 25 * partitions:
            anywhere = seen[key] * HEAD * partitions >= at
            among = range(partitions) if anywhere else pairs[key]
            assert loads[to] == min(loads[one] for one in among)
        loads[to] += 1


def _candidates(key, partitions):
    """Where a key can go: there first, and there when that is loaded."""
    alone = Choices(partitions, head=False)
    (one,) = alone.route(np.array([key])).tolist()
    alone.loads[:] = 0
    alone.loads[one] = 1
    return {one, *alone.route(np.array([key])).tolist()}


@pytest.mark.parametrize(
    ("z", "two", "any_"), [(0.98, 0.05, 0.05), (1.10, 0.05, 0.05), (1.4, 0.6, 0.05)]
)
def test_loads_by_skew(z, two, any_):
    """Two choices are enough until a key has more than two partitions' share."""
    keys = Zipf(z, 100_000).draw(50_000, stream=0)
    assert load_cv(routed(keys, 6, head=False)[1].loads) < two
    assert load_cv(routed(keys, 6, head=True)[1].loads) < any_
