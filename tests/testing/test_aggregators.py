from dataclasses import dataclass

import numpy as np
import pytest

from rivermouth.testing import check_aggregator


@dataclass(frozen=True)
class Total:
    column: str = "v"
    result: str = "double"

    def lift(self, values):
        return (values.astype(float),)

    def combine(self, one, other):
        return (one[0] + other[0],)

    def invert(self, whole, part):
        return (whole[0] - part[0],)

    def lower(self, state):
        return state[0]


def test_a_sum_keeps_the_rules():
    check_aggregator(Total(), [1.0, 2.0, 4.0])


@pytest.mark.parametrize(
    ("part", "broken", "rule"),
    [
        ("lift", lambda self, values: (values - values.sum(),), "lift takes each value by itself"),
        ("lift", lambda self, values: [values], "lift gives a tuple of arrays"),
        ("lift", lambda self, values: (values[:1],), "lift gives arrays of 3"),
        ("combine", lambda self, one, two: (one[0] - two[0],), "combine is commutative"),
        ("combine", lambda self, one, two: ((one[0] + two[0]) / 2,), "combine is associative"),
        (
            "combine",
            lambda self, one, two: (np.full(len(one[0]), one[0].sum() + two[0].sum()),),
            "combine goes element by element",
        ),
        ("invert", lambda self, whole, part: whole, "invert takes out what combine put in"),
    ],
)
def test_a_broken_rule_is_named(part, broken, rule):
    other = type("Other", (Total,), {part: broken})
    with pytest.raises(AssertionError, match=rule):
        check_aggregator(other(), [1.0, 2.0, 4.0])
