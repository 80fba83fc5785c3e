"""Every condition against the slow oracle: any index, any cut into batches, the same pairs."""

import numpy as np
import pyarrow as pa
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.shapes import polygons, pool, spots

import rivermouth as rm
from rivermouth.errors import PlanError, TableInvalid
from rivermouth.kernels.table_join import by_geometry, matching
from rivermouth.spec.conditions import split
from rivermouth.testing import oracle

TOPOLOGY = [
    rm.within, rm.contains, rm.intersects, rm.covers, rm.covered_by, rm.touches, rm.crosses,
    rm.overlaps, rm.equals, rm.disjoint,
]  # fmt: skip
PLACES = [
    *(predicate("a", "b") for predicate in TOPOLOGY),
    rm.relate("a", "b", "T*F**F***"),
    rm.relate("a", "b", "FF*FF****"),
    rm.relate("a", "b", "****T****"),
    rm.dwithin("a", "b", distance=0),
    rm.dwithin("a", "b", distance=2),
    rm.nearest("a", "b"),
    rm.nearest("a", "b", k=3),
    rm.nearest("a", "b", k=2, distance=1.5),
]


def wkb(shapes):
    return [None if shape is None else shapely.to_wkb(shape) for shape in shapes]


def matched(on, left, table, index=None, cut=None):
    """The pairs that the kernels find, the batch cut in two if asked."""
    equal, place, _ = split(on)
    arrays = {name: column(name, table) for name in table[0]} if table else {}
    made = matching.prepare(place, arrays, where="test", index=index, keys=equal)
    matcher = matching.Matcher(equal, place, arrays, made)
    found = []
    for start, stop in [(0, len(left))] if cut is None else [(0, cut), (cut, len(left))]:
        part = left[start:stop]
        if part:
            pairs = matcher.match({name: column(name, part) for name in part[0]})
            far = [None] * len(pairs.left) if pairs.distance is None else pairs.distance.tolist()
            found += zip((pairs.left + start).tolist(), pairs.right.tolist(), far, strict=True)
    return found


def column(name, rows):
    kinds = {"a": pa.binary(), "b": pa.binary(), "k": pa.int64()}
    return pa.array([row[name] for row in rows], kinds.get(name, pa.float64()))


def expected(on, left, table):
    numbered = [{**row, "row": number} for number, row in enumerate(table)]
    return [
        (event, row["row"], distance)
        for event, values in enumerate(left)
        for row, distance in oracle.matches(values, numbered, on)
    ]


def rows(name, shapes, keys):
    return [{name: w, "k": k} for w, k in zip(wkb(shapes), keys, strict=False)]


KINDS = ["any", "polygons", "points"]


@pytest.mark.parametrize("table_kind", KINDS)
@pytest.mark.parametrize("left_kind", KINDS)
@given(seed=st.integers(0, 2**32 - 1), cut=st.integers(0, 12))
@settings(max_examples=4, deadline=None)
def test_places_equal_the_oracle(left_kind, table_kind, seed, cut):
    left = rows("a", pool(seed, 12, left_kind), [None] * 12)
    table = rows("b", pool(seed + 1, 10, table_kind), [None] * 10)
    for on in PLACES:
        truth = expected(on, left, table)
        assert matched(on, left, table, cut=cut) == truth, on
        assert matched(on, left, table, index="strtree") == truth, on


@pytest.mark.parametrize("few", [0, 1000], ids=["places first", "keys first"])
@pytest.mark.parametrize("table_kind", KINDS)
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=4, deadline=None)
def test_places_and_keys_equal_the_oracle(table_kind, few, seed):
    rng = np.random.default_rng(seed)
    keys = [None if key == 3 else key for key in rng.integers(0, 4, 40).tolist()]
    left = rows("a", pool(seed, 12), keys[:20])
    table = rows("b", pool(seed + 1, 14, table_kind), keys[20:])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(by_geometry, "_FEW", few)
        for on in (place & rm.keys("k") for place in PLACES):
            assert matched(on, left, table) == expected(on, left, table), on


@given(st.lists(polygons(), min_size=1, max_size=5), st.lists(spots, min_size=1, max_size=9))
@settings(max_examples=examples(60), deadline=None)
def test_the_papers_tree_gives_the_same_rows(shapes, where):
    on = rm.covered_by(rm.point("x", "y"), "b")
    left = [{"x": x, "y": y} for x, y in where]
    table = rows("b", shapes, [None] * 9)
    assert matched(on, left, table, index="rtree") == expected(on, left, table)


@given(
    st.lists(st.tuples(*[st.one_of(st.none(), st.floats(-200, 200, width=16))] * 2), min_size=1),
    st.lists(st.tuples(st.floats(-200, 200, width=16), st.floats(-95, 95, width=16)), min_size=1),
    st.sampled_from([rm.dwithin, rm.nearest]),
)
@settings(max_examples=examples(80), deadline=None)
def test_the_sphere_equals_the_oracle(left, table, make):
    on = make(rm.point("x", "y"), rm.point("u", "v"), meters=5_000_000.5)
    left = [{"x": x, "y": y} for x, y in left]
    table = [{"u": u, "v": v} for u, v in table]
    found, truth = matched(on, left, table), expected(on, left, table)
    if make is rm.dwithin:
        assert found == truth
    else:  # rows equally far but for the last bit may change places
        assert [(e, pytest.approx(d, abs=1e-6)) for e, _, d in found] == [
            (e, d) for e, _, d in truth
        ]


def test_what_has_no_place_is_counted_by_its_reason():
    on = rm.within("a", "b")
    table = {"b": pa.array([shapely.box(0, 0, 9, 9).wkb])}
    bow = shapely.from_wkt("POLYGON ((0 0, 1 1, 1 0, 0 1, 0 0))").wkb
    odd = [None, b"nonsense", shapely.Polygon().wkb, bow, shapely.Point(1, 1).wkb]
    matcher = matching.Matcher(None, on, table, matching.prepare(on, table, where="test"))
    pairs = matcher.match({"a": pa.array(odd)})
    assert pairs.left.tolist() == [4]
    assert pairs.reject_counts == {"null": 1, "unreadable": 1, "empty": 1, "invalid": 1}


def test_a_foreign_srid_is_no_place():
    on = rm.within("a", "b")
    table = {"b": pa.array([shapely.box(0, 0, 9, 9).wkb])}
    made = matching.prepare(on, table, where="test")
    matcher = matching.Matcher(None, on, table, made, srid=4326)
    shape = shapely.set_srid(shapely.Point(1, 1), 3857)
    left = [shapely.to_wkb(shape, include_srid=True), shapely.Point(1, 1).wkb]
    pairs = matcher.match({"a": pa.array(left)})
    assert (pairs.left.tolist(), pairs.reject_counts) == ([1], {"srid": 1})
    carried = pa.array([{"srid": 3857, "wkb": left[1]}, {"srid": 4326, "wkb": left[1]}, None])
    pairs = matcher.match({"a": carried})
    assert (pairs.left.tolist(), pairs.reject_counts) == ([1], {"null": 1, "srid": 1})


def test_an_index_that_cannot_serve_is_refused_by_name():
    table = {"b": pa.array([shapely.Point(1, 1).wkb])}
    with pytest.raises(PlanError, match=r"^zones: index='cells' cannot serve this condition") as e:
        matching.prepare(rm.within("a", "b"), table, where="zones", index="cells")
    assert str(e.value).endswith("Leave index out, or use one of ['strtree'].")


SPHERE = [
    "POLYGON ((0 0, 10 0, 10 10, 0 10, 0 0))",
    "MULTIPOLYGON (((170 -5, 190 -5, 190 5, 170 5, 170 -5)), ((20 60, 40 60, 30 70, 20 60)))",
    "POLYGON ((-180 -60, -90 -65, 0 -60, 90 -70, 180 -60, 180 -90, -180 -90, -180 -60))",
    "LINESTRING (-170 10, 170 20, 160 -40)",
    "POINT (30 30)",
    None,
    "POLYGON ((0 80, 0 95, 10 80, 0 80))",
    "POLYGON ((10 20, 60 20, 60 70, 10 70, 10 20), (20 30, 20 50, 50 50, 50 30, 20 30))",
]


@pytest.mark.parametrize("few", [0, 1000], ids=["geometries first", "keys first"])
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=3, deadline=None)
def test_metres_to_shapes_equal_the_oracle(few, seed):
    """Polygons, lines and points, across the antimeridian and around a pole; bounds in metres."""
    rng = np.random.default_rng(seed)
    table = rows("b", [shape and shapely.from_wkt(shape) for shape in SPHERE], [1, 2] * 4)
    spots = [*rng.uniform((-180, -90), (180, 90), (6, 2)).tolist(), [5, 5], [-180, 0], [7, -90]]
    left = [{"x": x, "y": y, "k": k} for (x, y), k in zip(spots, [1, 2, 3] * 3, strict=True)]
    here = rm.point("x", "y")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(by_geometry, "_FEW", few)
        for on in (rm.dwithin(here, "b", meters=2e6), rm.nearest(here, "b", k=3, metric="sphere")):
            for asked in (on, on & rm.keys("k")):
                found, truth = matched(asked, left, table), expected(asked, left, table)
                assert [pair[:2] for pair in found] == [pair[:2] for pair in truth], asked
                far = [(pair[2] or 0.0) for pair in truth]
                assert [(pair[2] or 0.0) for pair in found] == pytest.approx(far, abs=1.0)


def test_a_shape_among_the_events_is_not_measured_in_metres():
    table = {"b": pa.array([shapely.box(0, 0, 1, 1).wkb])}
    on = rm.dwithin("a", "b", meters=1e9)
    matcher = matching.Matcher(None, on, table, matching.prepare(on, table, where="test"))
    pairs = matcher.match({"a": pa.array([shapely.box(0, 0, 1, 1).wkb, shapely.Point(9, 9).wkb])})
    assert (pairs.left.tolist(), pairs.reject_counts) == ([1], {"not_a_point": 1})


@pytest.mark.parametrize("edge", ["0 10, 180 -10, 90 60", "-180 5, 180 5, 0 60"])
def test_edges_without_a_shorter_arc_are_refused(edge):
    shape = shapely.from_wkt(f"POLYGON (({edge}, {edge.split(',')[0]}))")
    table = {"b": pa.array([shapely.box(0, 0, 1, 1).wkb, shape.wkb])}
    with pytest.raises(TableInvalid, match="1 shapes of column 'b' have an edge between opposite"):
        matching.prepare(rm.dwithin("a", "b", meters=1), table, where="zones")


def test_an_uneven_table_gets_a_tree():
    """One far shape makes every cell hold all the others."""
    near = [shapely.Point(x, y).buffer(0.4) for x in range(12) for y in range(12)]
    shapes = np.array([*near, shapely.box(1e9, 1e9, 1e9 + 1, 1e9 + 1)])
    table = {"b": pa.array(shapely.to_wkb(shapes))}
    assert matching.prepare(rm.within("a", "b"), table, where="test").kind == "strtree"
    even = {"b": pa.array(shapely.to_wkb(np.array(near)))}
    assert matching.prepare(rm.within("a", "b"), even, where="test").kind == "cells"


def test_one_point_of_the_sphere_has_one_distance_however_it_is_written():
    """Longitudes 180, -180 and 540, and any at a pole: ties by row, found within 0 metres."""
    there = [(180, 10), (-180, 10), (540, 10), (77, 90), (-3, 90), (1e9, -90)]
    table = [{"x": x, "y": y, "k": 1} for x, y in there]
    here = [(-900, 10), (12, 90), (179, -90), (179.5, 10)]
    left = [{"lon": lon, "lat": lat, "k": 1} for lon, lat in here]
    a, b = rm.point("lon", "lat"), rm.point("x", "y")
    same = [[0, 1, 2], [3, 4], [5], []]
    nearest = [[0, 1, 2], [3, 4, 0], [5, 0, 1], [0, 1, 2]]
    for on, found in (
        (rm.dwithin(a, b, meters=0), same),
        *((rm.nearest(a, b, k=k, metric="sphere"), [own[:k] for own in nearest]) for k in (1, 3)),
    ):
        truth = [(n, row) for n, rows in enumerate(found) for row in rows]
        for condition in (on, on & rm.keys("k")):
            assert [pair[:2] for pair in matched(condition, left, table)] == truth
            assert [pair[:2] for pair in expected(condition, left, table)] == truth
