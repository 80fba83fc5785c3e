"""Metres between shapes: any two, anywhere, against the slow oracle and what is known."""

import math

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kernels.spatial.test_sphere_edges import SHAPES, degrees, spiky_ring, vectors
from tests.support.examples import examples
from tests.support.shapes import array

from rivermouth.kernels.spatial import sphere_pairs
from rivermouth.kernels.spatial.sphere import RADIUS
from rivermouth.testing import sphere

DEGREE = math.radians(1) * RADIUS
#: where small shapes are drawn: anywhere, by the antimeridian, by the poles
CENTRES = [(10, 50), (180, 0), (-179.9, 30), (0, 89.5), (120, -89.5), (-60, -30)]


def small(rng, centre):
    """A point, a line or a polygon of a few kilometres, drawn around a point of the sphere."""
    lon, lat = centre
    around = np.sort(rng.uniform(0, 2 * math.pi, 5))
    far = rng.uniform(0.01, 0.2, 5)
    shift = rng.uniform(-0.2, 0.2, 2)
    up = np.clip(lat + shift[0] + far * np.sin(around), -90, 90)
    along = lon + (shift[1] + far * np.cos(around)) / max(math.cos(math.radians(lat)), 0.02)
    xy = np.column_stack([along, up])
    return [shapely.Point(xy[0]), shapely.LineString(xy[:3]), shapely.Polygon(xy).convex_hull][
        rng.integers(3)
    ]


def found(one, other):
    """Each shape of one with each of the other."""
    left, right = sphere_pairs.build(array(one)), sphere_pairs.build(array(other))
    li, ri = (n.ravel() for n in np.meshgrid(np.arange(len(one)), np.arange(len(other))))
    shown = left.distances(li, right, ri, math.inf)
    assert right.distances(ri, left, li, math.inf) == pytest.approx(shown, abs=1e-6)
    return shown.reshape(len(other), len(one)).T


@given(st.integers(0, 2**32 - 1), st.sampled_from(CENTRES))
@settings(max_examples=examples(12), deadline=None)
def test_any_two_small_shapes_are_as_far_apart_as_the_oracle_says(seed, centre):
    rng = np.random.default_rng(seed)
    one, other = ([small(rng, centre) for _ in range(4)] for _ in range(2))
    truth = [[sphere.shape_distance(a, b) for b in other] for a in one]
    assert found(one, other) == pytest.approx(np.array(truth), abs=1.0)


def test_any_two_large_shapes_are_as_far_apart_as_the_oracle_says():
    truth = [[sphere.shape_distance(a, b) for b in SHAPES] for a in SHAPES]
    assert found(SHAPES, SHAPES) == pytest.approx(np.array(truth), abs=1.0)


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 2e3, 2e4, 1e6, math.inf]))
@settings(max_examples=examples(12), deadline=None)
def test_boxes_lose_no_pair_that_is_near_enough(seed, limit):
    rng = np.random.default_rng(seed)
    one, other = (
        array([small(rng, CENTRES[n % len(CENTRES)]) for n in range(20)]) for _ in range(2)
    )
    truth = found(one, other) <= limit
    left, right = sphere_pairs.build(one), sphere_pairs.build(other)
    li, ri = left.near(np.arange(20), right, limit)
    near = left.distances(li, right, ri, limit) <= limit
    shown = np.zeros_like(truth)
    shown[li[near], ri[near]] = True
    assert (shown == truth).all()


@pytest.mark.parametrize(
    ("one", "other", "degrees"),
    [
        ("LINESTRING (-1 0, 1 0)", "LINESTRING (0 -1, 0 1)", 0),
        ("LINESTRING (-1 0, 1 0)", "LINESTRING (-1 1, -1 2, 1 2)", 1),
        ("LINESTRING (179 0, -179 0)", "LINESTRING (180 -1, 180 1)", 0),
        ("LINESTRING (179 0, -179 0)", "LINESTRING (-178 0, -170 0)", 1),
        ("LINESTRING (0 89, 180 89)", "LINESTRING (90 89, -90 89)", 0),  # both over the pole
        ("POLYGON ((0 88, 120 88, -120 88, 0 88))", "POINT (50 90)", 0),
        ("POLYGON ((0 88, 120 88, -120 88, 0 88))", "LINESTRING (0 89, 90 89.5)", 0),  # inside
        ("POLYGON ((0 0, 8 0, 8 8, 0 8, 0 0))", "POLYGON ((2 2, 3 2, 3 3, 2 3, 2 2))", 0),
        ("POLYGON ((178 -1, -178 -1, -178 1, 178 1, 178 -1))", "LINESTRING (-177 0, -160 0)", 1),
        ("LINESTRING (3 50, 3 56)", "POINT (3 53)", 0),
        ("LINESTRING (3 50, 3 56)", "LINESTRING (3 53, 7 53)", 0),
        ("MULTIPOINT (0 0, 20 0)", "LINESTRING (22 0, 30 0)", 2),
        ("POINT (0 0)", "POINT (180 0)", 180),
    ],
)
def test_what_is_known(one, other, degrees):
    shapes = [[shapely.from_wkt(one)], [shapely.from_wkt(other)]]
    assert found(*shapes)[0, 0] == pytest.approx(degrees * DEGREE, abs=1e-3)


def test_none_is_nowhere():
    left = sphere_pairs.build(array([None, shapely.Point(0, 0)]))
    assert [n.tolist() for n in left.near(np.arange(2), left, math.inf)] == [[1], [1]]


def test_a_hundred_thousand_segments_at_a_border_touch_it_or_are_as_far_as_they_were_moved():
    """Of 10 cm, along the normal of the border's arc: from it outwards, or from 1 mm beside it."""
    rng = np.random.default_rng(11)
    shape = spiky_ring(rng)
    xy = shapely.get_coordinates(shape)
    e, share = rng.integers(0, len(xy) - 1, 100_000), rng.random(100_000)
    a, b = (vectors(xy[at]) for at in (e, e + 1))
    on = a + share[:, None] * (b - a)
    on /= np.linalg.norm(on, axis=1)[:, None]
    normal = np.cross(a, b)
    normal *= rng.choice([-1, 1], len(on))[:, None] / np.linalg.norm(normal, axis=1)[:, None]
    ring = sphere_pairs.build(array([shape]))

    def metres(beside):
        """From the ring to segments that begin so far beside it."""
        ends = [
            np.column_stack(degrees(on + far / RADIUS * normal)) for far in (beside, beside + 0.1)
        ]
        lines = sphere_pairs.build(shapely.linestrings(np.stack(ends, axis=1)))
        rows = np.arange(len(on))
        return lines.distances(rows, ring, np.zeros_like(rows), math.inf)

    assert metres(0.0).max() < 2e-8
    beside = metres(1e-3)
    is_in = beside == 0
    assert 0.4 < is_in.mean() < 0.6
    assert beside.max() < 1e-3 + 2e-8
    # few are near another edge than the one they were moved from
    assert np.mean(np.abs(beside[~is_in] - 1e-3) < 2e-8) > 0.99
