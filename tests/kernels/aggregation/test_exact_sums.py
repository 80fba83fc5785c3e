"""Sums without rounding, compared with fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rivermouth.kernels.aggregation import exact_sums
from rivermouth.kernels.aggregation.exact_sums import Limbs

FINITE = st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.lists(FINITE, max_size=30)
PLAIN = settings(deadline=None)  # the first example compiles


def nearest(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def lifted(values, *, squared=False):
    array = np.array(values, np.float64)
    return exact_sums.lift_doubles(array, np.zeros(len(array), np.int64), 1, squared=squared)


@PLAIN
@given(VALUES)
def test_a_sum_of_doubles_is_the_double_nearest_to_the_truth(values):
    found = exact_sums.to_doubles(lifted(values), exact_sums.DOUBLE)[0]
    assert found == nearest(sum(map(Fraction, values), Fraction()))


@PLAIN
@given(st.lists(FINITE, min_size=1, max_size=30))
def test_a_mean_of_doubles_is_rounded_once(values):
    count = np.array([len(values)])
    found = exact_sums.to_doubles(lifted(values), exact_sums.DOUBLE, count)[0]
    assert found == nearest(sum(map(Fraction, values), Fraction()) / len(values))


def test_a_mean_of_doubles_is_not_that_of_a_rounded_sum():
    values = [2.0**53, 1.0, 0.0]
    found = exact_sums.to_doubles(lifted(values), exact_sums.DOUBLE, np.array([3]))[0]
    assert found == (2**53 + 1) // 3
    assert found != math.fsum(values) / 3


DIVISORS = st.one_of(st.integers(1, 2**63 - 1), st.sampled_from([10, 10**9, 2**32 - 1, 2**32]))


@PLAIN
@given(st.integers(-(2**127), 2**127 - 1), st.lists(DIVISORS, max_size=4), st.integers(-1200, 900))
def test_a_quotient_is_the_double_nearest_to_the_truth(value, divisors, unit):
    low, high = np.array([value & (2**64 - 1)], np.uint64), np.array([value >> 64], np.int64)
    limbs = exact_sums.lift_integers(low, high, np.zeros(1, np.int64), 1)
    found = exact_sums.to_doubles(limbs, unit, *divisors)[0]
    assert found == nearest(Fraction(value, math.prod(divisors)) * Fraction(2) ** unit)


@PLAIN
@given(VALUES, VALUES)
def test_what_was_added_can_be_taken_away(values, more):
    whole, part = lifted([*values, *more]), lifted(more)
    wide = np.zeros((2, 80), np.int64)
    for row, limbs in enumerate((whole, part)):
        wide[row, limbs.first : limbs.first + limbs.array.shape[1]] = limbs.array[0]
    rest = Limbs(0, wide[:1] - wide[1:]).carried()
    assert exact_sums.to_doubles(rest, exact_sums.DOUBLE)[0] == nearest(
        sum(map(Fraction, values), Fraction())
    )


@PLAIN
@given(st.lists(FINITE, min_size=2, max_size=20))
def test_a_variance_is_the_double_nearest_to_the_truth(values):
    n = len(values)
    terms = list(map(Fraction, values))
    truth = (n * sum(x * x for x in terms) - sum(terms) ** 2) / (n * (n - 1))
    found = exact_sums.variances(np.array([n]), lifted(values), lifted(values, squared=True))[0]
    assert found == nearest(truth)


@PLAIN
@given(st.lists(st.integers(-(2**127), 2**127 - 1), max_size=20))
def test_integers_are_added_exactly_or_found_not_to_fit(values):
    low = np.array([value & (2**64 - 1) for value in values], np.uint64)
    high = np.array([value >> 64 for value in values], np.int64)
    limbs = exact_sums.lift_integers(low, high, np.zeros(len(values), np.int64), 1)
    least, most, fits = exact_sums.to_integers(limbs)
    truth = sum(values)
    assert fits[0] == (-(2**127) <= truth < 2**127)
    if fits[0]:
        assert (int(most[0]) << 64) + int(least[0]) == truth
