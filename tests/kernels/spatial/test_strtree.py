"""Shapes in shapely's tree: what no other index is built for."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import shapely
from tests.support.shapes import array

from rivermouth.kernels.spatial.geometry import from_wkb
from rivermouth.kernels.spatial.strtree import StrTree
from rivermouth.spec.conditions import INVERSE

BOXES = shapely.box([0, 5, 20], [0, 5, 20], [1, 6, 21], [1, 6, 21])


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("limit", [None, 3.0])
def test_a_shape_whose_distance_overflows_is_as_far_as_can_be(k, limit):
    probe = shapely.points([0.5, 1e300, 7.0], [0.5, 1e300, 7.0])
    given = from_wkb(pa.array(shapely.to_wkb(probe)))
    left, right, distance = StrTree(BOXES).nearest(given, k, limit)
    with np.errstate(over="ignore"):
        far = shapely.distance(BOXES[:, None], probe).T
    order = np.argsort(far, axis=1, kind="stable")[:, :k]
    expected = [
        (row, column, far[row, column])
        for row in range(len(probe))
        for column in order[row]
        if limit is None or far[row, column] <= limit
    ]
    assert list(zip(left, right, distance, strict=True)) == expected


@pytest.mark.parametrize("shapes", [[], [None], [shapely.Polygon()], [None, shapely.Point()]])
def test_nothing_is_near_a_table_without_shapes(shapes):
    given = from_wkb(pa.array(shapely.to_wkb(BOXES)))
    tree = StrTree(array(shapes))
    assert [found.tolist() for found in tree.within(given, 9.0)] == [[], []]
    assert [found.tolist() for found in tree.nearest(given, 2, None)] == [[], [], []]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("limit", [None, 1.0])
def test_the_nearest_shape_is_not_lost_by_the_last_bit(seed, limit):
    """GEOS's search for the nearest and its test for a distance round in different ways."""
    rng = np.random.default_rng(seed)
    lines = shapely.linestrings(rng.normal(rng.uniform(0, 10, (30, 1, 2)), 1, (30, 3, 2)))
    probe = shapely.linestrings(rng.normal(rng.uniform(0, 10, (800, 1, 2)), 0.2, (800, 2, 2)))
    probe[::2] = shapely.points(rng.uniform(0, 10, (400, 2)))
    given = from_wkb(pa.array(shapely.to_wkb(probe)))
    left, right, distance = StrTree(lines).nearest(given, 1, limit)
    far = shapely.distance(lines[:, None], probe)
    found = np.flatnonzero(far.min(axis=0) <= (np.inf if limit is None else limit))
    assert left.tolist() == found.tolist()
    assert right.tolist() == far.argmin(axis=0)[found].tolist()
    assert distance.tolist() == far.min(axis=0)[found].tolist()


HOLLOW = {
    "MULTIPOINT ((0 0), EMPTY)": "MULTIPOINT (0 0)",
    "MULTIPOINT (EMPTY, (0 0), (9 9))": "MULTIPOINT (0 0, 9 9)",
    "MULTILINESTRING (EMPTY, (0 0, 0 1))": "LINESTRING (0 0, 0 1)",
    "MULTIPOLYGON (((0 0, 1 0, 1 1, 0 0)), EMPTY)": "POLYGON ((0 0, 1 0, 1 1, 0 0))",
    "GEOMETRYCOLLECTION (POINT (0.5 0.5), POLYGON EMPTY)": "POINT (0.5 0.5)",
    "GEOMETRYCOLLECTION (POINT EMPTY, MULTIPOINT ((0 0), EMPTY))": "MULTIPOINT (0 0)",
    "GEOMETRYCOLLECTION (POINT (0 0), GEOMETRYCOLLECTION (POINT EMPTY))": "POINT (0 0)",
}


@pytest.mark.parametrize("predicate", sorted(set(INVERSE) - {"disjoint"}))
def test_empty_members_change_nothing(predicate):
    """GEOS 3.14 ends the process when a prepared polygon contains such a point of its boundary."""
    given = from_wkb(pa.array(shapely.to_wkb(shapely.from_wkt(list(HOLLOW)))))
    assert given.valid.all()
    shapes = np.append(BOXES, shapely.from_wkt(list(HOLLOW.values())))
    holds = getattr(shapely, INVERSE[predicate])
    plain = shapely.from_wkt(list(HOLLOW.values()))
    expected = np.argwhere([[holds(shape, probe) for shape in shapes] for probe in plain])
    left, right = StrTree(shapely.from_wkb(shapely.to_wkb(shapes))).match(given, predicate)
    assert np.stack([left, right], axis=1).tolist() == expected.tolist()
