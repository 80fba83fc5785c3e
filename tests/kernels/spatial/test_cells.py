import json
import pathlib

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.shapes import array, coordinates, polygons, pool

from rivermouth.kernels.papers import rtree
from rivermouth.kernels.spatial import cells

DATA = pathlib.Path(__file__).parents[4] / "shared" / "data"
HALVES = st.integers(-2, 18).map(lambda half: half / 2)


def truth(shapes, x, y, predicate):
    points = shapely.points(x, y)[:, None]
    holds = getattr(shapely, predicate)(points, np.asarray(shapes, dtype=object)[None, :])
    return pairs(np.nonzero(holds))


def pairs(found):
    return list(zip(*(part.tolist() for part in found), strict=True))


@given(st.integers(0, 2**32 - 1), st.integers(0, 6))
@settings(max_examples=examples(60), deadline=None)
def test_any_cell_size_gives_shapelys_answer(seed, count):
    shapes = array([*pool(seed, count, "polygons"), None])
    # half steps: every vertex, many points of edges, and a margin around the extent
    x, y = (half.ravel() for half in np.meshgrid(np.arange(-1, 9.5, 0.5), np.arange(-1, 9.5, 0.5)))
    for predicate in cells.PREDICATES:
        expected = truth(shapes, x, y, predicate)
        for size in (None, 1, 2, 3, 7, 16):
            assert pairs(cells.build(shapes, size).match(x, y, predicate)) == expected, size
        assert pairs(rtree.build(shapes).match(x, y, predicate)) == expected


@given(st.lists(polygons(), min_size=1, max_size=3), st.integers(0, 2**32 - 1))
@settings(max_examples=examples(30), deadline=None)
def test_points_a_hair_from_the_boundary(shapes, seed):
    """Points on edges as near as doubles come, and their neighbours on all sides."""
    rng = np.random.default_rng(seed)
    turned = [shapely.affinity.rotate(shape, rng.uniform(0, 360), (0.1, 0.2)) for shape in shapes]
    ends, _ = cells.edges_of(array(turned))
    t = rng.uniform(size=len(ends))
    x = ends[:, 0] + t * (ends[:, 2] - ends[:, 0])
    y = ends[:, 1] + t * (ends[:, 3] - ends[:, 1])
    x = np.concatenate([x, np.nextafter(x, np.inf), np.nextafter(x, -np.inf)])
    y = np.concatenate([y, np.nextafter(y, -np.inf), np.nextafter(y, np.inf)])
    for predicate in ("within", "intersects", "touches"):
        expected = truth(turned, x, y, predicate)
        assert pairs(cells.build(array(turned)).match(x, y, predicate)) == expected


@pytest.mark.parametrize("name", ["beijing_districts_wgs84", "nyc_taxi_zones"])
def test_boundary_points_of_real_shapes_agree_with_shapely_to_the_last_one(name):
    path = DATA / f"{name}.geojson"
    if not path.exists():
        pytest.skip(f"{path} is not here")
    features = json.loads(path.read_text())["features"]
    shapes = array([shapely.from_geojson(json.dumps(f["geometry"])) for f in features])
    ends, _ = cells.edges_of(shapes)
    middle = (ends[:, :2] + ends[:, 2:]) / 2
    third = ends[:, :2] * 0.7 + ends[:, 2:] * 0.3
    x, y = np.concatenate([ends[:, :2], middle, third]).T.copy()
    assert len(x) > 100_000
    index = cells.build(shapes)
    for predicate, test in (("within", shapely.contains_xy), ("intersects", shapely.intersects_xy)):
        left, right = index.match(x, y, predicate)
        for row, shape in enumerate(shapes):
            shapely.prepare(shape)
            found = np.zeros(len(x), dtype=bool)
            found[left[right == row]] = True
            assert (found == test(shape, x, y)).all(), (predicate, row)


def test_no_shapes_and_no_points_are_ordinary():
    empty = cells.build(array([None, shapely.Polygon()]))
    assert pairs(empty.match(np.array([0.0]), np.array([0.0]), "within")) == []
    square = cells.build(array([shapely.box(0, 0, 1, 1)]))
    assert pairs(square.match(np.empty(0), np.empty(0), "within")) == []


@given(
    st.lists(st.tuples(coordinates, coordinates), min_size=2, max_size=2, unique=True),
    HALVES,
    HALVES,
)
@settings(deadline=None)
def test_points_outside_the_extent_match_nothing(corners, x, y):
    box = shapely.MultiPoint(corners).envelope.buffer(1, join_style="mitre")
    index = cells.build(array([box]))
    expected = truth([box], [x], [y], "intersects")
    assert pairs(index.match(np.array([x]), np.array([y]), "intersects")) == expected
    assert pairs(index.match(np.array([1e300]), np.array([-1e300]), "intersects")) == []
