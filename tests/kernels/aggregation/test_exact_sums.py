"""Sums without rounding, held against fractions."""

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


def lifted(values, lift=exact_sums.lift_doubles):
    array = np.array(values, np.float64)
    return lift(array, np.zeros(len(array), np.int64), 1)


@PLAIN
@given(VALUES)
def test_a_sum_of_doubles_is_the_double_nearest_to_the_truth(values):
    found = exact_sums.to_doubles(lifted(values), exact_sums.DOUBLE)[0]
    assert found == nearest(sum(map(Fraction, values), Fraction()))


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
def test_a_variance_does_not_cancel(values):
    n = len(values)
    terms = list(map(Fraction, values))
    truth = (n * sum(x * x for x in terms) - sum(terms) ** 2) / (n * (n - 1))
    found = exact_sums.variances(
        np.array([n]), lifted(values), lifted(values, exact_sums.lift_squares)
    )[0]
    assert math.isclose(found, nearest(truth), rel_tol=1e-15)


@PLAIN
@given(st.lists(st.integers(-(2**127), 2**127 - 1), max_size=20))
def test_whole_numbers_are_added_exactly_or_found_not_to_fit(values):
    low = np.array([value & (2**64 - 1) for value in values], np.uint64)
    high = np.array([value >> 64 for value in values], np.int64)
    limbs = exact_sums.lift_wholes(low, high, np.zeros(len(values), np.int64), 1)
    least, most, fits = exact_sums.to_wholes(limbs)
    truth = sum(values)
    assert fits[0] == (-(2**127) <= truth < 2**127)
    if fits[0]:
        assert (int(most[0]) << 64) + int(least[0]) == truth
