"""Metres from points to shapes: any shape, anywhere, against the slow oracle and what is known."""

import math

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.shapes import array

from rivermouth.kernels.spatial import edge_tree
from rivermouth.kernels.spatial.sphere import RADIUS
from rivermouth.testing import sphere

DEGREE = math.radians(1) * RADIUS

#: drawn over longitude and latitude: simple, across the antimeridian, around and through the poles
SHAPES = array(
    [
        shapely.box(0, 0, 10, 10),
        shapely.box(170, -5, 190, 5),
        shapely.box(0, -90, 30, 90),
        shapely.box(-180, -90, 180, 90),
        *map(
            shapely.from_wkt,
            [
                "POLYGON ((179 0, -179 0, -179 1, 179 1, 179 0))",
                "POLYGON ((-180 -60, -90 -65, 0 -60, 90 -70, 180 -60, "
                "180 -90, -180 -90, -180 -60))",
                "POLYGON ((0 80, 90 75, 180 80, -90 70, 0 80))",
                "POLYGON ((0 -80, -90 -75, 180 -80, 90 -70, 0 -80), "
                "(0 -85, 90 -86, 180 -87, -90 -86, 0 -85))",
                "POLYGON ((0 60, 90 60, 180 60, 0 60))",
                "POLYGON ((30 80, 0 90, -30 80, 30 80))",
                "POLYGON ((10 20, 60 20, 60 70, 10 70, 10 20), "
                "(20 30, 20 50, 50 50, 50 30, 20 30))",
                "LINESTRING (0 80, 180 80)",
                "LINESTRING (-170 10, 170 20, 160 -40)",
                "MULTIPOINT (0 90, 12 12)",
                "GEOMETRYCOLLECTION (POINT (1 2), POLYGON ((20 0, 30 0, 30 10, 20 0)))",
            ],
        ),
    ]
)  # fmt: skip
CORNERS = [(0, 90), (77, -90), (-180, 0), (179.5, 0.5), (15, 89.9999), (5, 5), (0, 5), (90, 61)]


def distances(tree, lon, lat):
    """Each probe with each row, by the search for the nearest."""
    left, right, metres = tree.nearest(lon, lat, len(SHAPES), None)
    found = np.full((len(lon), len(SHAPES)), np.nan)
    found[left, right] = metres
    return found


TREE = edge_tree.build(SHAPES, sphere=True)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=examples(4), deadline=None)
def test_any_point_and_any_shape_are_as_far_apart_as_the_oracle_says(seed):
    """To a metre, in which the oracle draws its arcs."""
    rng = np.random.default_rng(seed)
    spots = [CORNERS[seed % len(CORNERS)], *rng.uniform((-180, -90), (180, 90), (3, 2)).tolist()]
    lon, lat = np.array(spots, dtype=float).T.copy()
    points = shapely.points(lon, lat)
    truth = [[sphere.distance(point, shape) for shape in SHAPES] for point in points]
    assert distances(TREE, lon, lat) == pytest.approx(np.array(truth), abs=1.0)


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 1e5, 5e6]))
@settings(max_examples=examples(20), deadline=None)
def test_all_ways_to_ask_agree(seed, limit):
    rng = np.random.default_rng(seed)
    lon = np.concatenate([rng.uniform(-180, 180, 30), [spot[0] for spot in CORNERS]])
    lat = np.concatenate([rng.uniform(-90, 90, 30), [spot[1] for spot in CORNERS]])
    found = distances(TREE, lon, lat)
    row, probe = np.meshgrid(np.arange(len(SHAPES)), np.arange(len(lon)))
    pairs = TREE.distances(lon[probe.ravel()], lat[probe.ravel()], row.ravel())
    assert np.array_equal(pairs.reshape(found.shape), found)
    left, right = TREE.within(lon, lat, limit)
    assert np.array_equal(np.column_stack([left, right]), np.argwhere(found <= limit))


@pytest.mark.parametrize("turn", [0.0, 53.0, 180.0, -179.75])
def test_turning_the_earth_changes_nothing(turn):
    rng = np.random.default_rng(2)
    lon, lat = rng.uniform(-179, 179, 200), rng.uniform(-89, 89, 200)
    moved = shapely.transform(SHAPES, lambda xy: np.add(xy, (turn, 0)))
    on = (lon + turn + 180) % 360 - 180
    tree = edge_tree.build(moved, sphere=True)
    assert distances(tree, on, lat) == pytest.approx(distances(TREE, lon, lat), abs=1e-6)


@pytest.mark.parametrize(
    ("spot", "shape", "metres"),
    [
        ((0, 1), "LINESTRING (-1 0, 1 0)", DEGREE),
        ((3, 0), "LINESTRING (-1 0, 1 0)", 2 * DEGREE),
        ((-179, 0), "LINESTRING (178 0, 179 0)", 2 * DEGREE),
        ((90, 89), "LINESTRING (0 80, 180 80)", DEGREE),
        ((0, -89), "POINT (123 -90)", DEGREE),
        ((11, 0), "POLYGON ((0 0, 10 0, 10 10, 0 10, 0 0))", DEGREE),
        ((-179.5, 0.5), "POLYGON ((179 0, -179 0, -179 1, 179 1, 179 0))", 0.0),
        ((-20, 89.5), "POLYGON ((0 80, 90 80, 180 80, -90 80, 0 80))", 0.0),
        # the pole lies in the hole of a ring around it
        ((0, 90), "POLYGON ((0 60, 120 60, -120 60, 0 60), (0 88, 120 88, -120 88, 0 88))", None),
    ],
)
def test_distances_that_are_known(spot, shape, metres):
    tree = edge_tree.build(array([shapely.from_wkt(shape)]), sphere=True)
    (found,) = tree.nearest(np.array([spot[0]]) * 1.0, np.array([spot[1]]) * 1.0, 1, None)[2]
    if metres is None:  # to the middle of the hole's nearest arc
        metres = RADIUS * math.atan(math.tan(math.radians(2)) * math.cos(math.radians(60)))
    assert found == pytest.approx(metres, abs=1e-6)


def test_a_hundred_thousand_points_at_borders_lie_on_them():
    """Points of arcs are within a few nanometres, and beside them as far as they were moved."""
    rng = np.random.default_rng(7)
    shape = spiky_ring(rng)
    tree = edge_tree.build(array([shape]), sphere=True)
    xy = shapely.get_coordinates(shape)
    e, share = rng.integers(0, 4000, 100_000), rng.random(100_000)
    a, b = (vectors(xy[at]) for at in (e, e + 1))
    on = a + share[:, None] * (b - a)
    on /= np.linalg.norm(on, axis=1)[:, None]
    assert tree.nearest(*degrees(on), 1, None)[2].max() < 1e-8
    normal = np.cross(a, b)
    normal /= np.linalg.norm(normal, axis=1)[:, None]
    moved = on + 1e-3 / RADIUS * normal * rng.choice([-1, 1], len(on))[:, None]
    metres = tree.nearest(*degrees(moved / np.linalg.norm(moved, axis=1)[:, None]), 1, None)[2]
    assert metres.max() < 1e-3 + 1e-8
    is_in = metres == 0
    assert 0.4 < is_in.mean() < 0.6
    # few are near another edge than the one they were moved from
    assert np.mean(np.abs(metres[~is_in] - 1e-3) < 1e-8) > 0.99


def spiky_ring(rng):
    """A star of 4,000 arcs over the antimeridian."""
    turn = (np.arange(4000) + rng.uniform(0, 0.8, 4000)) / 4000 * 2 * np.pi
    ring = np.column_stack([np.cos(turn), np.sin(turn)]) * rng.uniform(3, 9, 4000)[:, None]
    return shapely.Polygon(np.add(ring, (178.0, 75.0)))


def vectors(xy):
    """Unit vectors of places in degrees."""
    lon, lat = np.radians(xy).T
    return np.column_stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)])


def degrees(vectors):
    """Longitudes and latitudes of vectors, of any length."""
    lon = np.degrees(np.arctan2(vectors[:, 1], vectors[:, 0]))
    return lon, np.degrees(np.arctan2(vectors[:, 2], np.hypot(vectors[:, 0], vectors[:, 1])))
