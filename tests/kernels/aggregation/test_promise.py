"""How often a promise was missed, and the wait that keeps it."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

from rivermouth.kernels.aggregation.promise import (
    RunningShare,
    enough_wait,
    first_kept,
    learned_wait,
    share_bounds,
)

FAST = settings(max_examples=examples(100), deadline=None)
DELTA = 0.05


def test_bounds_hold_for_independent_windows():
    random = np.random.default_rng(3)
    above, draws = 0, 400
    for _ in range(draws):
        missed = random.binomial(25, DELTA, 40)
        bounds = share_bounds(np.full(40, 25), missed, 1000)
        above += bounds.high < DELTA
    assert above / draws < 0.08  # 5 %, give or take


def test_bounds_hold_for_windows_that_miss_together():
    """Runs of 25 windows miss, in which an interval for independent windows would be off often."""
    random = np.random.default_rng(4)
    off, naive, draws = 0, 0, 400
    for _ in range(draws):
        runs = random.random(160) < DELTA  # of 4000 windows, in blocks of 100
        missed = runs.reshape(40, 4).sum(axis=1) * 25
        off += share_bounds(np.full(40, 100), missed, 4000).high < DELTA
        share = missed.sum() / 4000
        naive += share + 1.645 * math.sqrt(share * (1 - share) / 4000) < DELTA
    assert off / draws < 0.12
    assert naive / draws > 0.3


def test_where_nothing_was_missed_windows_that_share_records_count_once():
    alone = share_bounds(np.full(20, 50), np.zeros(20, int), 1000)
    sharing = share_bounds(np.full(20, 50), np.zeros(20, int), 100)
    assert alone.low == sharing.low == 0
    assert alone.high < sharing.high < 0.03


def test_few_blocks_have_no_bounds():
    assert share_bounds(np.full(9, 50), np.zeros(9, int), 450) is None


@FAST
@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 3)), max_size=300), st.integers(1, 5))
def test_a_running_share_counts_all_and_stays_small(windows, length):
    windows = [(results, min(results, missed)) for results, missed in windows]
    share = RunningShare(length, overlap=length)
    for results, missed in windows:
        share.add(results, missed)
    assert sum(share.results) == sum(results for results, _ in windows)
    assert sum(share.missed) == sum(missed for _, missed in windows)
    assert len(share.results) == len(share.missed) <= 40
    assert share.windows == len(windows)
    again = RunningShare(**dataclasses.asdict(share))
    assert again == share
    assert share.revise(2.0) <= sum(share.results)
    assert share.share <= 1


@FAST
@given(st.lists(st.integers(0, 10**6), min_size=20, max_size=400), st.integers(1, 5))
def test_enough_is_enough_for_all_but_delta(waits, overlap):
    waits = np.array(waits)
    wait = enough_wait(waits, DELTA, overlap)
    assert wait in waits
    assert (waits > wait).mean() <= DELTA
    assert enough_wait(3 * waits, DELTA, overlap) == 3 * wait  # no unit matters


def test_more_is_needed_where_long_waits_come_together():
    random = np.random.default_rng(5)
    apart = np.where(random.random(3000) < 0.04, random.uniform(1e6, 9e6, 3000), 1e5).astype(int)
    together = np.concatenate([np.sort(apart)[-120:], np.sort(apart)[:-120]])
    assert enough_wait(together, DELTA, 1) > enough_wait(apart, DELTA, 1)


def rows(waits):
    return np.arange(len(waits)), np.asarray(waits, np.int64), np.zeros(len(waits))


def test_nothing_is_learned_before_enough_windows_have_settled():
    assert learned_wait(*rows([5] * 99), DELTA, 5) is None
    assert learned_wait(*rows([5] * 100), DELTA, 5) == math.ceil(1.1 * 5)


def test_the_wait_follows_delays_that_grow():
    """A quantile of all 3,000 windows would be 10 s behind."""
    grow = np.linspace(1e6, 8e6, 3000)
    assert learned_wait(*rows(grow), DELTA, 5) >= 8e6


def test_misses_make_the_wait_longer():
    window, wait, _ = rows([10_000] * 600)
    waits = [
        learned_wait(window, wait, np.full(600, share), DELTA, 5) for share in (0, 0.03, 0.05, 1)
    ]
    assert waits == [11_000, 11_000, 13_200, 16_500]


def test_so_many_windows_are_kept_as_are_looked_at():
    assert first_kept(np.arange(5000), DELTA, 5) == 2000
    assert first_kept(np.repeat(np.arange(5000), 40), DELTA, 5) == 3750  # at most 50,000 rows


@pytest.mark.parametrize("kind", ["bursts", "steady"])
def test_a_followed_wait_keeps_the_promise(kind):
    """The rule by itself: each window's wait is known 20 windows later; seeded."""
    random = np.random.default_rng(9)
    count = 6000
    needed = random.lognormal(11, 0.5, count)
    if kind == "bursts":
        begin = np.flatnonzero(random.random(count) < 1 / 150)
        for at in begin:
            length = int(min(60, 6 * random.random() ** (-1 / 1.5)))
            run = np.arange(int(at), min(count, int(at) + length))
            needed[run] = np.maximum(needed[run], (at + length - run) * 2e5)
    needed = needed.astype(np.int64)
    missed, wait = np.zeros(count), None
    for now in range(0, count, 5):
        known = max(0, now - 20)
        if known:
            part = slice(max(0, known - 3000), known)
            wait = learned_wait(np.arange(count)[part], needed[part], missed[part], DELTA, 5)
        batch = slice(now, now + 5)
        missed[batch] = needed[batch] > (needed[: now + 1].max() if wait is None else wait)
    assert missed[600:].mean() <= DELTA
    steps = itertools.pairwise(np.linspace(600, count, 4).astype(int))
    assert max(missed[a:b].mean() for a, b in steps) <= 2 * DELTA
