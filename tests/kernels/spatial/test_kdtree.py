import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

from rivermouth.kernels.spatial import kdtree
from rivermouth.kernels.spatial.sphere import RADIUS, great_circle

SMALL = st.integers(0, 6).map(float)
LON = st.sampled_from([-180.0, -179.9, -90.0, 0.0, 0.1, 90.0, 179.9, 180.0, 200.0])
LAT = st.sampled_from([-90.0, -89.9, -45.0, 0.0, 0.1, 45.0, 89.9, 90.0])


def plane(a, b):
    return math.sqrt((a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2)


def sphere(a, b):
    return great_circle(*a, *b)


def arrays(points):
    x, y = np.array(points, dtype=float).reshape(-1, 2).T
    return np.ascontiguousarray(x), np.ascontiguousarray(y)


@pytest.mark.parametrize(("spot", "apart"), [((SMALL, SMALL), plane), ((LON, LAT), sphere)])
@given(data=st.data(), k=st.integers(1, 6))
@settings(max_examples=examples(40), deadline=None)
def test_near_and_nearest_equal_the_plain_loop(spot, apart, data, k):
    table = data.draw(st.lists(st.tuples(*spot), max_size=40))
    asked = data.draw(st.lists(st.tuples(*spot), min_size=1, max_size=6))
    unit = 1.0 if apart is plane else RADIUS / 3
    limit = data.draw(st.sampled_from([0.0, 1.0, 2.0, math.sqrt(2), 3.2])) * unit
    tree = kdtree.build(*arrays(table), np.arange(len(table)), sphere=apart is sphere)
    distance = [[apart(a, b) for b in table] for a in asked]

    left, right = tree.within(*arrays(asked), limit)
    expected = [
        (i, j) for i in range(len(asked)) for j in range(len(table)) if distance[i][j] <= limit
    ]
    assert list(zip(left.tolist(), right.tolist(), strict=True)) == expected

    for cut in (None, limit):
        left, right, found = tree.nearest(*arrays(asked), k, cut)
        expected = [
            (i, j, distance[i][j])
            for i in range(len(asked))
            for j in sorted(range(len(table)), key=lambda j: (distance[i][j], j))[:k]
            if cut is None or distance[i][j] <= cut
        ]
        assert list(zip(left.tolist(), right.tolist(), found.tolist(), strict=True)) == expected


def test_the_antimeridian_and_the_poles_are_places_like_any_other():
    tree = kdtree.build(*arrays([(179.999, 0.0), (0.0, 89.999)]), np.arange(2), sphere=True)
    left, right = tree.within(*arrays([(-179.999, 0.0), (180.0, 89.999)]), 300.0)
    assert list(zip(left.tolist(), right.tolist(), strict=True)) == [(0, 0), (1, 1)]


def test_the_distance_is_the_one_of_the_stated_sphere():
    assert great_circle(0.0, 0.0, 90.0, 0.0) == pytest.approx(RADIUS * math.pi / 2, rel=1e-15)
    assert great_circle(0.0, 0.0, 180.0, 0.0) == pytest.approx(RADIUS * math.pi, rel=1e-15)
