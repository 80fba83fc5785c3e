"""What (eps, delta) asks for, and the controller that holds it."""

from __future__ import annotations

import json

import numpy as np
import pytest

import rivermouth as rm
from rivermouth.kernels.aggregation.control import (
    DelayHistogram,
    SettledWindow,
    SlackController,
)
from rivermouth.kernels.aggregation.thresholds import (
    WindowStats,
    of_mean,
    of_quantile,
    of_sum,
    of_variance,
    required_coverage,
)

EPS = DELTA = 0.05
DRAWS = 4000


def drawn(values, share, random):
    """Which records of how many windows were there, each with the same chance."""
    return random.random((DRAWS, len(values))) < share


@pytest.mark.parametrize("count", [500, 2000])
@pytest.mark.parametrize("spread", [0.0, 0.5, 1.5])
def test_a_sum_of_that_share_keeps_its_promise(count, spread):
    random = np.random.default_rng(7)
    values = np.full(count, 5.0)
    if spread:
        values = random.gamma(1 / spread**2, 5 * spread**2, count)
    stats = WindowStats(count, values.mean(), values.var())
    share = of_sum(EPS * values.sum(), DELTA, stats)
    sums = (drawn(values, share, random) * values).sum(axis=1)
    missed = (np.abs(sums - values.sum()) >= EPS * values.sum()).mean()
    assert missed <= DELTA
    assert share > 1 - EPS  # the smaller root lies below, and misses nearly always


def test_a_mean_of_that_share_keeps_its_promise():
    random = np.random.default_rng(7)
    values = random.gamma(4.0, 1.25, 500)
    share = of_mean(EPS * values.mean(), DELTA, WindowStats(500, values.mean(), values.var()))
    inside = drawn(values, share, random)
    means = (inside * values).sum(axis=1) / inside.sum(axis=1)
    assert (np.abs(means - values.mean()) >= EPS * values.mean()).mean() <= DELTA + 0.01


def test_a_median_of_that_share_keeps_its_promise():
    random = np.random.default_rng(7)
    values = np.arange(400.0)
    inside = drawn(values, of_quantile(EPS, DELTA, WindowStats(400)), random)
    ranks = np.array([np.median(values[row]) / len(values) for row in inside])
    assert (np.abs(ranks - 0.5) >= EPS).mean() <= DELTA


def test_several_aggregates_need_the_largest_share():
    window = rm.tumbling("1 second")
    one = rm.summary(time="t", window=window, mean=rm.mean("v"))
    two = rm.summary(time="t", window=window, mean=rm.mean("v"), total=rm.sum("v"))
    low = rm.summary(time="t", window=window, low=rm.min("v"))
    stats = {"v": WindowStats(500, 10.0, 25.0), None: WindowStats(500)}
    assert required_coverage(two, rm.quality(), stats) == of_sum(0.05 * 5000, 0.05, stats["v"])
    assert required_coverage(one, rm.quality(), stats) < required_coverage(two, rm.quality(), stats)
    assert required_coverage(low, rm.quality(delta=0.1), stats) == 0.9


def test_a_mean_near_zero_needs_all_records_or_an_absolute_error():
    stats = {"v": WindowStats(500, 0.0, 25.0)}
    summary = rm.summary(time="t", window=rm.tumbling("1 second"), total=rm.sum("v"))
    assert required_coverage(summary, rm.quality(), stats) == 1
    assert required_coverage(summary, rm.quality(eps=100.0, absolute=True), stats) < 0.85


def test_a_variance_needs_more_where_tails_are_heavy():
    assert of_variance(EPS, DELTA, WindowStats(500, kurtosis=9)) > of_variance(
        EPS, DELTA, WindowStats(500, kurtosis=3)
    )


def test_the_largest_delay_is_forgotten():
    delays = DelayHistogram(memory=100)
    delays.add(np.array([7]), 0)
    delays.add(np.array([3]), 150)
    assert delays.largest == 7
    delays.add(np.array([2]), 250)
    assert delays.largest == 3
    delays.add(np.array([1]), 1000)
    assert delays.largest == 1


def test_delays_have_quantiles_and_tell_the_coverage_to_expect():
    delays = DelayHistogram(memory=10**9)
    delays.add(np.array([0] * 90 + [1000] * 10), 0)
    assert delays.quantile(0.9) == 0
    assert delays.quantile(0.95) == 1000
    assert delays.coverage(slack=0, size=100) == pytest.approx(0.9)
    assert delays.coverage(slack=2000, size=100) == 1


PD = rm.quality(controller="pd")


def settled(coverage, count=1, missed=0):
    return [SettledWindow(k, coverage, missed, 1) for k in range(count)]


def test_alpha_stays_between_nothing_and_the_largest_delay():
    control = SlackController.of(PD)
    control.delays.add(np.array([1_000_000]), 0)
    assert control.k_us == 1_000_000  # until the first window has settled
    for coverage in (1.0, 1.0, 0.2, 0.1):
        control.settle(settled(coverage, 300), 0.97)
        assert 0 <= control.k_us <= 1_000_000
    assert control.k_us == 1_000_000
    control.settle(settled(1.0, 3000), 0.97)
    assert control.k_us == 0


def test_the_derivative_term_follows_the_change_of_the_error():
    """Formula (1) by hand; with the other sign alpha would rise while the error falls."""
    control = SlackController.of(PD)
    control.delays.add(np.array([0] * 50 + [1_000_000] * 50), 0)
    control.settle(settled(0.90), 0.97)  # starts warm, at the delay of the required share: 1
    control.alpha = 0.5
    control.settle(settled(0.94), 0.97)
    assert control.alpha == pytest.approx(0.5 + 0.2 * 0.03 + 4.0 * (0.03 - 0.07))
    assert control.alpha < 0.5
    control.settle(settled(0.93), 0.97)
    assert control.alpha == pytest.approx(0.346 + 0.2 * 0.04 + 4.0 * (0.04 - 0.03))


def test_a_controller_is_kept_as_text():
    control = SlackController.of(rm.quality(), overlap=5)
    control.delays.add(np.array([5, 0, 70]), 3)
    control.settle(settled(0.9, missed=1))
    control.wait, control.sampled = 20, 7
    again = SlackController.of(control.slack, json.loads(json.dumps(control.kept())), overlap=5)
    assert again == control


@pytest.mark.parametrize("slack", [rm.quality(), PD])
def test_what_the_first_version_kept_of_delays_is_read(slack):
    histogram = {"memory": 10, "begun": 3, "largest_now": 70, "largest_before": 0, "seen": {"0": 1}}
    kept = {"delays": histogram, "waits": histogram, "alpha": 0.5, "before": 0.1, "learned": 0.3}
    control = SlackController.of(slack, kept, overlap=5)
    assert control.k_us == (35 if slack is PD else 70)  # waits are learned anew
    assert control.share.windows == 0


def test_k_is_the_learned_wait_and_at_most_half_more_than_the_largest_delay():
    control = SlackController.of(rm.quality())
    control.delays.add(np.array([1000]), 0)
    assert control.k_us == 1000
    control.wait = 300
    assert control.k_us == 300
    control.wait = 2000
    assert control.k_us == 1500
