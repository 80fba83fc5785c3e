"""Points near points in time: the sorted join and the paper's trees against every pair."""

import itertools
import math

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

from rivermouth.kernels.papers import bin_rtree
from rivermouth.kernels.stream_join import band_join
from rivermouth.kernels.stream_join.times import TimeBounds
from rivermouth.testing.sphere import great_circle

numbers = st.one_of(st.integers(-4, 4).map(float), st.floats(-1e6, 1e6), st.floats(-1e300, 1e300))
rows = st.lists(st.tuples(numbers, numbers, st.integers(-9, 9), st.integers(0, 1)), max_size=9)
lonlat = st.tuples(
    st.one_of(st.floats(-540, 540), st.sampled_from([-180.0, 180.0, 179.99, -179.99, 0.0])),
    st.one_of(st.floats(-90, 90), st.sampled_from([-90.0, 90.0, 89.99])),
    st.integers(-9, 9),
    st.integers(0, 1),
)


def columns(found):
    x, y, time, code = (np.array(part) for part in zip(*found, strict=True)) if found else [[]] * 4
    return (
        np.asarray(x, float), np.asarray(y, float), np.asarray(time, np.int64),
        np.asarray(code, np.int64),
    )  # fmt: skip


def built(found, limit, *, sphere=False, width=4):
    return band_join.build(*columns(found), limit=limit, sphere=sphere, width=width)


def by_trees(probe, build, limit, bounds, *, sphere=False):
    """The same by paper C's trees, which know no keys."""
    one, other = (bin_rtree.build(*columns(part)[:3], sphere=sphere) for part in (probe, build))
    pairs = []
    for li, ri, tested in bin_rtree.join(one, other, limit, bounds):
        assert tested >= len(li)
        pairs += zip(li.tolist(), ri.tolist(), strict=True)
    return sorted((i, j) for i, j in pairs if probe[i][3] == build[j][3])


def joined(probe, build, limit, bounds, *, sphere=False, most=1 << 18):
    """By bands; by trees it is the same."""
    one, other = built(probe, limit, sphere=sphere), built(build, limit, sphere=sphere)
    pairs = []
    for li, ri, _ in band_join.join(one, other, limit, bounds, most=most):
        pairs += zip(li.tolist(), ri.tolist(), strict=True)
    assert by_trees(probe, build, limit, bounds, sphere=sphere) == sorted(pairs)
    return sorted(pairs)


def expected(probe, build, bounds, is_near):
    return [
        (i, j)
        for (i, a), (j, b) in itertools.product(enumerate(probe), enumerate(build))
        if a[3] == b[3]
        and bounds.lower <= b[2] - a[2] <= bounds.upper
        and bounds.first <= b[2] <= bounds.last
        and is_near(a, b)
    ]


@given(rows, rows, st.sampled_from([0.0, 1.0, 1.5, 1e-9, 1e5, 1e299]), st.integers(1, 5))
@settings(max_examples=examples(200), deadline=None)
def test_the_plane_equals_every_pair(probe, build, limit, most):
    bounds = TimeBounds(-3, 5, -6, 8)

    def is_near(a, b):
        with np.errstate(over="ignore"):
            return shapely.dwithin(shapely.Point(a[:2]), shapely.Point(b[:2]), limit)

    assert joined(probe, build, limit, bounds, most=most) == expected(probe, build, bounds, is_near)


@given(st.lists(lonlat, max_size=9), st.lists(lonlat, max_size=9), st.floats(0, 2.1e7))
@settings(max_examples=examples(200), deadline=None)
def test_the_sphere_equals_every_pair(probe, build, limit):
    bounds = TimeBounds(-3, 5)
    edge = 1e-6  # metres: two formulas may disagree there

    def distance(a, b):
        return great_circle(shapely.Point(a[:2]), shapely.Point(b[:2]))

    found = set(joined(probe, build, limit, bounds, sphere=True))
    assert found <= set(expected(probe, build, bounds, lambda a, b: distance(a, b) <= limit + edge))
    assert found >= set(expected(probe, build, bounds, lambda a, b: distance(a, b) <= limit - edge))


@pytest.mark.parametrize("limit", [100.0, 5_000.0, 3_000_000.0])
def test_around_a_pole_and_the_antimeridian(limit):
    rng = np.random.default_rng(1)
    step = math.degrees(limit / 6_371_008.7714)
    pole = [(float(x), 90 - abs(float(y)) * step, 0, 0) for x, y in
            zip(rng.uniform(-180, 180, 150), rng.normal(size=150), strict=True)]  # fmt: skip
    line = [(180 + float(x) * step, float(y) * step, 0, 0) for x, y in rng.normal(size=(150, 2))]
    for points in (pole, line):
        truth = expected(points, points, TimeBounds(0, 0), lambda a, b: great_circle(
            shapely.Point(a[:2]), shapely.Point(b[:2])) <= limit)  # fmt: skip
        assert joined(points, points, limit, TimeBounds(0, 0), sphere=True) == truth
