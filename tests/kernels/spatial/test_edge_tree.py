"""Distances from points to any shape: shapely's to the last bit, ties by row, each row once."""

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.shapes import array, pool

from rivermouth.kernels.spatial import edge_tree
from rivermouth.kernels.spatial.edge_tree import EdgeTree


def nested_loops(shapes, points, k, limit):
    """The nearest rows of each point, by distance, then row."""
    found = []
    for number, point in enumerate(points):
        far = [(shapely.distance(point, shape), row) for row, shape in enumerate(shapes) if shape]
        near = sorted(pair for pair in far if limit is None or pair[0] <= limit)[:k]
        found += [(number, row, distance) for distance, row in near]
    return found


def probed(tree, points, k, limit):
    x, y = (np.array([getattr(point, axis) for point in points]) for axis in "xy")
    return list(zip(*(part.tolist() for part in tree.nearest(x, y, k, limit)), strict=True))


def star(rng, vertices, at=(0.0, 0.0), size=1.0):
    """A rough polygon around a point that does not cross itself."""
    turn = (np.arange(vertices) + rng.uniform(0, 0.8, vertices)) / vertices * 2 * np.pi
    reach = size * rng.uniform(0.3, 1.0, vertices)
    ring = np.column_stack([np.cos(turn), np.sin(turn)]) * reach[:, None]
    return shapely.Polygon(ring + at)


def nested(shape):
    """A collection in a collection, with an empty part."""
    inner = shapely.GeometryCollection([shape, shapely.Point(), shapely.Point(4, 4)])
    return shapely.GeometryCollection([shapely.MultiPoint([(0, 0), (8, 8)]), inner])


@given(seed=st.integers(0, 2**32 - 1), k=st.integers(1, 12), limit=st.sampled_from([None, 0, 1.5]))
@settings(max_examples=examples(40), deadline=None)
def test_the_nearest_of_any_shapes_are_those_of_nested_loops(seed, k, limit):
    """On a small grid where points lie on borders and distances are equal all the time."""
    rng = np.random.default_rng(seed)
    shapes = [s for s in pool(seed, 12) if s is None or not s.is_empty]
    shapes = array([s if s is None or rng.integers(4) else nested(s) for s in shapes])
    points = [shapely.Point(xy) for xy in rng.integers(-2, 11, (12, 2)).astype(float)]
    assert probed(edge_tree.build(shapes), points, k, limit) == nested_loops(
        shapes, points, k, limit
    )


@given(seed=st.integers(0, 2**32 - 1), limit=st.sampled_from([0.0, 1.0, 2.5, 5**0.5, 0.8**0.5]))
@settings(max_examples=examples(40), deadline=None)
def test_within_a_distance_of_any_shapes_is_by_shapelys_distance(seed, limit):
    rng = np.random.default_rng(seed)
    shapes = array([s for s in pool(seed, 12) if s is None or not s.is_empty])
    x, y = rng.integers(-2, 11, (2, 12)).astype(float)
    left, right = edge_tree.build(shapes).within(x, y, limit)
    truth = [
        (number, row)
        for number, point in enumerate(shapely.points(x, y))
        for row, shape in enumerate(shapes)
        if shape is not None and point.distance(shape) <= limit
    ]
    assert list(zip(left.tolist(), right.tolist(), strict=True)) == truth


def test_a_hundred_thousand_points_at_borders_have_shapelys_distances():
    """Vertices, points on edges and a hair beside them, of polygons with thousands of vertices."""
    rng = np.random.default_rng(5)
    hole = shapely.Polygon(star(rng, 2000).exterior, [star(rng, 500, size=0.29).exterior])
    shapes = array([hole, star(rng, 3000, (1.5, 0.2)), star(rng, 40, (0.2, 1.6), 0.4)])
    lines = shapely.get_coordinates(shapes)
    ends = rng.integers(0, len(lines) - 1, 100_000)
    share = np.where(rng.integers(3, size=len(ends)) == 0, 0.0, rng.random(len(ends)))
    xy = lines[ends] + share[:, None] * (lines[ends + 1] - lines[ends])
    xy *= 1 + np.array([0.0, 1e-16, -3e-16, 1e-12, 1e-6])[rng.integers(5, size=len(ends))][:, None]
    x, y = np.ascontiguousarray(xy[:, 0]), np.ascontiguousarray(xy[:, 1])
    points, tree = shapely.points(x, y), edge_tree.build(shapes)
    shapely.prepare(shapes)
    truth = np.column_stack([shapely.distance(shape, points) for shape in shapes])
    left, right, distance = tree.nearest(x, y, 3, None)
    assert np.array_equal(truth[left, right], distance)
    assert np.array_equal(right.reshape(-1, 3), np.argsort(truth, axis=1, kind="stable"))
    for limit in (0.0, float(np.median(truth[:, 1])), float(truth[7, 2])):
        left, right = tree.within(x, y, limit)
        assert np.array_equal(np.column_stack([left, right]), np.argwhere(truth <= limit))


def test_many_shapes_in_any_order_of_the_probes():
    rng = np.random.default_rng(3)
    shapes = array([star(rng, 9, at, 0.1) for at in rng.random((300, 2))])
    x, y = rng.random((2, 500)) * 1.4 - 0.2
    tree = edge_tree.build(shapes)
    truth = shapely.distance(shapely.points(x, y)[:, None], shapes[None, :])
    for order in (np.arange(500), rng.permutation(500)):
        left, right, distance = tree.nearest(x[order], y[order], 5, None)
        near = np.argsort(truth[order], axis=1, kind="stable")[:, :5]
        assert np.array_equal(right.reshape(-1, 5), near)
        assert np.array_equal(distance, truth[order][left, right])


def test_a_rows_parts_count_once():
    pair = shapely.MultiPolygon([shapely.box(0, 0, 1, 1), shapely.box(2, 0, 3, 1)])
    tree = edge_tree.build(array([pair, shapely.Point(1.5, 3), None, shapely.LineString()]))
    x, y = np.array([1.5, 2.5]), np.array([0.5, 0.5])
    assert tree.within(x, y, 9.0)[1].tolist() == [0, 1, 0, 1]
    left, right, distance = tree.nearest(x, y, 4, None)
    assert (left.tolist(), right.tolist()) == ([0, 0, 1, 1], [0, 1, 0, 1])
    assert distance.tolist() == [0.5, 2.5, 0.0, pytest.approx(7.25**0.5)]


def test_the_tree_is_arrays_and_nothing_else():
    tree = edge_tree.build(array([shapely.box(0, 0, 1, 1)]))
    mapped = EdgeTree(**{name: np.array(value) for name, value in vars(tree).items()})
    assert mapped.nearest(np.array([2.0]), np.array([0.5]), 1, None)[2].tolist() == [1.0]
    empty = edge_tree.build(array([None, shapely.Polygon()]))
    assert empty.nearest(np.array([2.0]), np.array([0.5]), 1, None)[1].tolist() == []
    assert empty.within(np.array([2.0]), np.array([0.5]), 1.0)[1].tolist() == []


@pytest.mark.parametrize("size", [1e149, 1e100, 1e80, 1e-80, 1e-100, 1e-149])
def test_shapes_of_any_size_are_searched_alike(size):
    rng = np.random.default_rng(6)
    shapes = array([star(rng, 9, at, 0.3) for at in rng.random((40, 2))])
    shapes = shapely.transform(shapes, lambda xy: xy * size)
    x, y = rng.random((2, 200)) * size
    truth = shapely.distance(shapely.points(x, y)[:, None], shapes[None, :])
    tree, limit = edge_tree.build(shapes), float(np.median(truth))
    assert edge_tree.can_index(shapes)
    left, right, distance = tree.nearest(x, y, 5, None)
    near = np.argsort(truth, axis=1, kind="stable")[:, :5]
    assert np.array_equal(np.sort(truth[left, right].reshape(-1, 5)), distance.reshape(-1, 5))
    assert np.array_equal(distance.reshape(-1, 5), np.take_along_axis(truth, near, axis=1))
    left, right = tree.within(x, y, limit)
    assert np.array_equal(np.column_stack([left, right]), np.argwhere(truth <= limit))


@pytest.mark.parametrize("size", [1e200, 1e-200])
def test_shapes_whose_squares_are_no_numbers_are_not_for_it(size):
    assert edge_tree.can_index(array([shapely.box(0, 0, 1, 1), shapely.Point(1, 1)]))
    assert not edge_tree.can_index(array([shapely.box(0, 0, size, size)]))
