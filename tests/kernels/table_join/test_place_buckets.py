"""Space in buckets: any cut, any shapes, and each pair comes once, as the slow oracle says."""

import numpy as np
import pyarrow as pa
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kernels.table_join.test_matching import (
    KINDS,
    PLACES,
    SPHERE,
    column,
    expected,
    rows,
)  # fmt: skip
from tests.support.examples import examples
from tests.support.shapes import pool

import rivermouth as rm
from rivermouth.errors import TableInvalid
from rivermouth.kernels.spatial.space_cut import ByteSample, SpaceCut, fit
from rivermouth.kernels.table_join import matching, place_buckets
from rivermouth.kernels.table_join.place_buckets import CrossingMatcher, OpenBucket

LOCAL = [on for on in PLACES if place_buckets.is_local(on)]
NUMBER = pa.field("number", pa.int64())


def any_cut(rng, count, dims=2, low=0.0, high=8.0):
    """Dividing values on the grid of the shapes, so that many lie exactly on them."""
    values = rng.integers(int(low), int(high) + 1, count - 1).astype(float)
    return SpaceCut(rng.integers(0, dims, count - 1), values)


class Bucketed:
    """A table in buckets in memory; `pairs` joins events as the tasks of a join do."""

    def __init__(self, on, table, cut):
        self.on, self.cut = on, cut
        columns = {name: column(name, table) for name in table[0]}
        self.kinds = {name: kept.type for name, kept in columns.items()}
        columns["number"] = pa.array(range(len(table)))
        there, boxes = place_buckets.table_boxes(on, columns, where="test")
        self.rows = {bucket: there[chosen] for bucket, chosen in cut.parts(boxes)}
        self.columns = columns
        self.crossing = CrossingMatcher(on, cut, self.open, [NUMBER])

    def open(self, bucket):
        index = pa.array(self.rows.get(bucket, []), pa.int64())
        part = {name: kept.take(index) for name, kept in self.columns.items()}
        made = matching.prepare(self.on, part, where="test")
        return OpenBucket(matching.Matcher(None, self.on, part, made), part)

    def pairs(self, left):
        columns = {name: column(name, left) for name in left[0]}
        boxes = place_buckets.event_boxes(self.on, columns)
        alone, across = self.cut.alone(boxes)
        home, found, seen = self.cut.home(boxes), [], list(across)
        for bucket, chosen in alone:
            seen += list(chosen)
            assert (home[chosen] == bucket).all()
            opened = self.open(bucket)
            part = {name: kept.take(pa.array(chosen)) for name, kept in columns.items()}
            pairs = opened.matcher.match(part)
            numbers = opened.columns["number"].take(pa.array(pairs.right)).to_pylist()
            found += zip(chosen[pairs.left].tolist(), numbers, strict=True)
        assert sorted(seen) == list(range(len(left)))
        part = {name: kept.take(pa.array(across)) for name, kept in columns.items()}
        pairs, taken = self.crossing.match(part, boxes[across])
        assert (np.diff(pairs.left) >= 0).all()
        numbers = taken["number"].take(pa.array(pairs.right)).to_pylist()
        return sorted([*found, *zip(across[pairs.left].tolist(), numbers, strict=True)])


def truth(on, left, table):
    return sorted((event, row) for event, row, _ in expected(on, left, table))


@pytest.mark.parametrize("table_kind", KINDS)
@pytest.mark.parametrize("left_kind", KINDS)
@given(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 9))
@settings(max_examples=examples(6), deadline=None)
def test_each_pair_comes_once_whatever_the_cut(left_kind, table_kind, seed, count):
    rng = np.random.default_rng(seed)
    spanning = [shapely.box(-1, -1, 9, 9), shapely.LineString([(0, 0), (8, 8)])]
    shapes, events = pool(seed, 9, table_kind), pool(seed + 1, 10, left_kind)
    table = rows("b", [*shapes, shapes[0], *spanning], [None] * 12)
    left = rows("a", [*events, events[0], *spanning], [None] * 13)
    for on in LOCAL:
        assert Bucketed(on, table, any_cut(rng, count)).pairs(left) == truth(on, left, table), on


@given(
    st.lists(st.tuples(*[st.one_of(st.none(), st.floats(-1, 9, width=16))] * 2), min_size=1),
    st.integers(0, 2**32 - 1),
    st.integers(1, 9),
)
@settings(max_examples=examples(30), deadline=None)
def test_points_find_everything_in_one_bucket(spots, seed, count):
    left = [{"x": x, "y": y} for x, y in [*spots, (float("nan"), 1.0), (float("inf"), 1.0)]]
    table = rows("b", pool(seed, 10), [None] * 10)
    cut = any_cut(np.random.default_rng(seed), count)
    for make in (rm.within, rm.covered_by, rm.intersects, rm.dwithin):
        bound = {"distance": 1.5} if make is rm.dwithin else {}
        bucketed = Bucketed(make(rm.point("x", "y"), "b", **bound), table, cut)
        assert bucketed.pairs(left) == truth(bucketed.on, left, table)
        assert bucketed.crossing.replicated_rows == 0


@given(
    st.lists(st.tuples(st.floats(-200, 200, width=16), st.floats(-95, 95, width=16)), min_size=1),
    st.sampled_from([0.0, 1000.5, 500_000.5, 5_000_000.5, 3e7]),
    st.integers(0, 2**32 - 1),
    st.integers(2, 9),
)
@settings(max_examples=examples(25), deadline=None)
def test_the_sphere_is_cut_around_poles_and_antimeridian(spots, meters, seed, count):
    rng = np.random.default_rng(seed)
    cut = SpaceCut(rng.integers(0, 3, count - 1), rng.uniform(-1, 1, count - 1).round(1))
    left = [{"x": x, "y": y} for x, y in [*spots, (180.0, 0.0), (-180.0, 0.0), (0.0, 90.0)]]
    shapes = [None if text is None else shapely.from_wkt(text) for text in SPHERE]
    for right, table in (
        ("b", rows("b", shapes, [None] * len(shapes))),
        (rm.point("u", "v"), [{"u": event["x"] + 360, "v": event["y"]} for event in left]),
    ):
        on = rm.dwithin(rm.point("x", "y"), right, meters=meters)
        assert Bucketed(on, table, cut).pairs(left) == truth(on, left, table)


def skewed(seed, count):
    """Boxes mostly in one corner, some rows with a thousand times the bytes of others."""
    rng = np.random.default_rng(seed)
    centre, half = rng.exponential(1.0, (count, 2)) ** 3, rng.exponential(0.0005, (count, 2))
    return np.hstack([centre - half, centre + half]), 100 * np.exp(rng.normal(0, 1.5, count))


@pytest.mark.parametrize("buckets", [2, 7, 32])
def test_buckets_hold_about_as_many_bytes(buckets):
    boxes, sizes = skewed(buckets, 60_000)
    sample = ByteSample(4_000)
    for start in range(0, len(boxes), 7_000):
        sample.add(boxes[start : start + 7_000], sizes[start : start + 7_000])
        assert len(sample) <= 4_000
    held = np.zeros(buckets)
    for bucket, chosen in sample.cut(buckets).parts(boxes):
        held[bucket] = sizes[chosen].sum()
    assert held.max() < 1.4 * held.mean()
    assert held.sum() < 1.3 * sizes.sum()  # copies included
    strip = boxes[:, 0] // (boxes[:, 0].max() / buckets)
    assert np.bincount(strip.clip(0).astype(int)).max() > len(boxes) / 2  # what a grid would do


@given(
    st.lists(
        st.tuples(st.sampled_from([0.0, 1.0, 2.0]), st.sampled_from([0.0, 5.0, np.inf])),
        min_size=0, max_size=20,
    ),
    st.integers(1, 12),
)  # fmt: skip
@settings(max_examples=examples(60), deadline=None)
def test_rows_that_cannot_be_told_apart_leave_buckets_empty(spots, buckets):
    boxes = np.array([[x, y, x, y] for x, y in spots]).reshape(-1, 4)
    cut = fit(boxes, np.ones(len(boxes)), buckets)
    assert cut.buckets == buckets
    assert SpaceCut.of(cut.described()).value.tolist() == cut.value.tolist()
    home, parts = cut.home(boxes), list(cut.parts(boxes))
    assert sorted(np.concatenate([np.empty(0, int), *(of for _, of in parts)])) == [
        *range(len(boxes))
    ]
    for bucket, of in parts:
        assert (home[of] == bucket).all()


def test_shapes_that_are_everywhere_are_not_written_everywhere():
    """Where cutting space does not divide the rows, they stay together."""
    boxes = np.repeat([[0.0, 0.0, 1.0, 1.0]], 50, axis=0)
    parts = list(fit(boxes, np.ones(50), 16).parts(boxes))
    assert [len(of) for _, of in parts] == [50]


def test_a_row_that_no_index_is_made_of_is_named_by_its_number():
    table = {"b": pa.array([None, shapely.Point(1, 1).wkb, b"nonsense"])}
    with pytest.raises(TableInvalid, match="the first is row 702: not WKB"):
        place_buckets.table_boxes(rm.within("a", "b"), table, where="zones", first_row=700)
