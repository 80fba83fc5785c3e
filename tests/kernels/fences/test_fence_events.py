"""Fence events against the slow oracle: any order, any cut, any buckets."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st
from tests.support.fences import (
    HERE,
    FenceBuckets,
    expected,
    fence_table,
    flushed,
    plain,
    query,
)
from tests.support.trajectories import SCHEMA, cut, in_disorder, positions

import rivermouth as rm
from rivermouth.errors import TableInvalid
from rivermouth.kernels.fences.query import Hysteresis
from rivermouth.kernels.fences.table import FenceTable, Ways
from rivermouth.kernels.table_join import matching
from rivermouth.testing.fences import border_walks

SHAPES = {
    "a": shapely.box(0, 0, 4, 4),
    "b": shapely.box(3, 3, 7, 7),  # overlaps the first
    "c": [shapely.box(8, 0, 9, 9), shapely.box(0, 8, 9, 9)],  # one fence of two rows
    "d": shapely.box(5, 0, 5.5, 9),  # thin: it is crossed
}
hysteresis = st.builds(Hysteresis, st.integers(1, 3), st.sampled_from([0, 0, 1_000_000, 4_000_000]))
asked = st.builds(
    query,
    min_inside=hysteresis,
    min_outside=hysteresis,
    dwell=st.sampled_from([None, 0, 3_000_000, 9_000_000]),
    gap=st.sampled_from([None, 4_000_000, 12_000_000]),
    first_inside=st.booleans(),
)
found = st.lists(
    st.tuples(
        st.integers(0, 1), st.sampled_from(["v", "w"]), st.integers(0, 40),
        st.integers(0, 19).map(lambda n: n / 2), st.integers(0, 19).map(lambda n: n / 2),
    ),
    max_size=30,
)  # fmt: skip


@given(
    found=found, asked=asked, buckets=st.integers(1, 3), batches=st.integers(1, 6),
    seed=st.integers(0, 999),
)  # fmt: skip
def test_any_order_within_the_lateness_any_cut_any_buckets(found, asked, buckets, batches, seed):
    random = np.random.default_rng(seed)
    stream = FenceBuckets(asked, fence_table(SHAPES), buckets)
    rows = []
    for batch in cut(random, in_disorder(random, positions(found), 3_000_000), batches):
        rows += stream.feed(batch, forget=bool(random.integers(2)))
    rows += flushed(stream)
    assert stream.counts["late"] == 0
    assert plain(rows) == expected(found, SHAPES, asked)
    assert stream.counts["rows_out"] == len(rows)


BOX = {"a": shapely.box(0, 0, 10, 10)}


def track(*places, every=10):
    """One object along places (x, y), so many seconds apart."""
    return [(1, "v", k * every, float(x), float(y)) for k, (x, y) in enumerate(places)]


def told(found, asked, shapes=BOX, **table):
    """The events of a batch frame, as (event, seconds, reason)."""
    stream = FenceBuckets(asked, fence_table(shapes, **table), **table)
    rows = stream.feed(positions(found), last=True)
    return [(row["event"], row["t"].timestamp(), row["reason"]) for row in rows]


IN, OUT = (5, 5), (20, 5)


def test_an_object_enters_dwells_and_leaves():
    asked = query(dwell=15_000_000)
    assert told(track(OUT, IN, IN, IN, OUT, OUT), asked) == [
        ("enter", 10, "entered"), ("dwell", 30, None), ("exit", 40, "left"),
    ]  # fmt: skip


def test_jitter_at_the_border_gives_no_event():
    jitter = track(OUT, IN, OUT, IN, IN, IN, OUT, IN, OUT, OUT)
    asked = query(min_inside=Hysteresis(2), min_outside=Hysteresis(2))
    assert told(jitter, asked) == [("enter", 30, "entered"), ("exit", 80, "left")]
    asked = query(min_inside=Hysteresis(1, 20_000_000), min_outside=Hysteresis(1, 10_000_000))
    assert told(jitter, asked) == [("enter", 30, "entered"), ("exit", 80, "left")]


def test_the_border_belongs_to_the_fence_as_the_condition_says():
    border = track(OUT, (10, 5), OUT)
    assert [event for event, *_ in told(border, query())] == []
    on = rm.covered_by(HERE, "shape")
    assert [event for event, *_ in told(border, query(), on=on)] == ["enter", "exit"]


def test_first_seen_inside_is_said_or_left_out():
    found = track(IN, IN, OUT)
    assert told(found, query()) == [("enter", 0, "first_seen"), ("exit", 20, "left")]
    assert told(found, query(first_inside=False)) == [("exit", 20, "left")]


def test_an_object_without_positions_is_lost_and_then_new():
    asked = query(gap=30_000_000)
    found = [(1, "v", 0, 5.0, 5.0), (1, "v", 100, 5.0, 5.0), (2, "v", 120, 50.0, 50.0)]
    assert told(found, asked) == [
        ("enter", 0, "first_seen"), ("lost", 30, None), ("enter", 100, "first_seen"),
    ]  # fmt: skip


def test_last_seen_outside_is_an_exit_even_if_it_was_not_long():
    asked = query(gap=30_000_000, min_outside=Hysteresis(5))
    found = [*track(IN, IN, OUT), (2, "v", 200, 50.0, 50.0)]
    assert told(found, asked)[1:] == [("exit", 20, "left")]


@pytest.mark.parametrize(
    ("on", "way", "crosses"),
    [
        (rm.within(HERE, "shape"), [(-5, 5), (15, 5)], True),
        (rm.within(HERE, "shape"), [(-5, 0), (15, 0)], False),  # along the border
        (rm.covered_by(HERE, "shape"), [(-5, 0), (15, 0)], True),
        (rm.dwithin(HERE, "shape", distance=2), [(-5, 12), (15, 12)], True),
        (rm.dwithin(HERE, "shape", distance=2), [(-5, 12.5), (15, 12.5)], False),
        (rm.within(HERE, "shape"), [(-5, 5), (-5, 5)], False),
    ],
)
def test_a_way_through_a_fence_that_no_position_is_in(on, way, crosses):
    assert told(track(*way), query(), on=on) == ([("cross", 10, None)] if crosses else [])


def test_ways_in_metres_are_measured_to_points_only():
    on, fences = rm.dwithin(HERE, "shape", meters=1000), pa.table({"fence": ["a"]})
    columns = {"shape": pa.array([shapely.box(0, 0, 1, 1).wkb])}
    index = matching.prepare(on, columns, where="zones")
    table = FenceTable(None, on, columns, fences, matching.Matcher(None, on, columns, index), 1)
    with pytest.raises(TableInvalid) as caught:
        table.met(Ways(np.zeros((1, 2)), np.ones((1, 2)), []))
    assert str(caught.value) == (
        "fence_events: column 'shape' holds shapes that are not points; the ways between positions "
        "are measured in metres to points only. Leave 'cross' out of events=, or use distance= in "
        "a projected plane."
    )


def test_within_meters_of_a_point_and_ways_along_great_circles():
    on = rm.dwithin(HERE, "shape", meters=1000)
    stands = {"pole": shapely.Point(0, 90), "line": shapely.Point(180, 0)}
    found = track((179.999, 0), (-170, 0), (170, 0), (0, 89), (180, 89), every=1)
    assert told(found, query(), shapes=stands, on=on) == [
        ("enter", 0, "first_seen"), ("exit", 1, "left"), ("cross", 2, None), ("cross", 4, None),
    ]  # fmt: skip
    # a kilometre beside a way of ten degrees, a little less and a little more
    beside = {"in": shapely.Point(5, 0.00899), "out": shapely.Point(5, 0.009)}
    found = track((0, 0), (10, 0))
    assert told(found, query(), shapes=beside, on=on) == [("cross", 10, None)]


def test_a_fence_that_is_removed_gives_an_exit_that_says_so():
    shapes = {"a": BOX["a"], "b": shapely.box(-1, -1, 30, 30)}
    stream = FenceBuckets(query(min_outside=Hysteresis(9)), fence_table(shapes))
    rows = stream.feed(positions(track(IN, IN)))
    stream.table = fence_table({"b": shapes["b"]}, version=2)
    rows += stream.feed(positions([(1, "v", 20, 5.0, 5.0), (1, "v", 30, 5.0, 5.0)]), forget=True)
    rows += flushed(stream)
    said = [(row["zone"], row["event"], row["t"].timestamp(), row["reason"]) for row in rows]
    assert sorted(said) == [
        ("a", "enter", 0, "first_seen"), ("a", "exit", 20, "fence_removed"),
        ("b", "enter", 0, "first_seen"),
    ]  # fmt: skip


def test_a_fence_whose_shape_changes_stays_the_same_fence():
    stream = FenceBuckets(query(), fence_table(BOX))
    rows = stream.feed(positions(track(IN, IN)))
    stream.table = fence_table({"a": shapely.box(4, 4, 30, 30)}, version=2)
    rows += stream.feed(positions([(1, "v", 20, 5.0, 5.0), (1, "v", 30, 20.0, 20.0)]))
    rows += stream.feed(positions([(1, "v", 40, 2.0, 2.0)]))
    rows += flushed(stream)
    assert [(row["event"], row["reason"]) for row in rows] == [
        ("enter", "first_seen"), ("exit", "left"),
    ]  # fmt: skip


def test_keys_and_ways():
    schema = SCHEMA.append(pa.field("town", pa.string()))
    on = rm.keys({"town": "city"}) & rm.within(HERE, "shape")
    shapes = {"a": BOX["a"], "b": BOX["a"]}
    table = fence_table(shapes, on=on, city=["bonn", "rome"])
    stream = FenceBuckets(query(keys=["town"]), table, on=on, schema=schema)
    found = positions(track((-5, 5), (15, 5), IN))
    towns = pa.array(["bonn", "bonn", "rome"])
    rows = stream.feed(
        pa.RecordBatch.from_arrays([*found.columns, towns], schema=schema), last=True
    )
    assert [(row["zone"], row["event"]) for row in rows] == [("a", "cross"), ("b", "enter")]


def test_fences_may_be_what_is_nearest():
    stands = {"a": shapely.Point(0, 0), "b": shapely.Point(10, 0)}
    on = rm.nearest(HERE, "shape")
    asked = query(events=frozenset({"enter", "exit"}))
    assert told(track((1, 0), (2, 0), (9, 0)), asked, shapes=stands, on=on) == [
        ("enter", 0, "first_seen"), ("enter", 20, "entered"), ("exit", 20, "left"),
    ]  # fmt: skip


def test_a_position_that_comes_twice_counts_once():
    asked = query(min_inside=Hysteresis(2))
    found = track(OUT, IN)
    assert told([*found, found[1]], asked) == []


def test_an_idle_object_leaves_the_state_and_others_stay():
    stream = FenceBuckets(query(gap=10_000_000, lateness=0), fence_table(BOX))
    for number in range(50):
        stream.feed(positions([(number, "v", number, 5.0, 5.0)]), forget=number % 3 == 0)
    assert stream.reports[-1]["state"]["objects"] <= 12
    assert sum(report["counts"].get("lost", 0) for report in stream.reports) >= 38


def test_what_is_shown_of_an_event():
    stream = FenceBuckets(query(), fence_table(BOX))
    rows = stream.feed(positions(track((3, 4), OUT)), last=True)
    entered, left = rows
    assert (entered["x"], entered["y"], entered["seconds_inside"]) == (3.0, 4.0, None)
    assert (left["x"], left["entered"], left["seconds_inside"]) == (20.0, entered["t"], 10.0)
    assert (left["id"], left["name"], left["zone"]) == (1, "v", "a")


@pytest.mark.parametrize(
    ("rules", "most"),
    [({}, 2000), ({"min_inside": Hysteresis(4), "min_outside": Hysteresis(1, 40_000_000)}, 120)],
)
def test_objects_that_follow_a_border(rules, most):
    walks = border_walks([BOX["a"]], objects=8, steps=250, speed=0.02, jitter=0.3)
    found = [
        (who, "v", at.timestamp(), x, y)
        for who, at, x, y in zip(*(column.to_pylist() for column in walks.columns), strict=True)
    ]
    asked = query(events=frozenset({"enter", "exit"}), **rules)
    random = np.random.default_rng(8)
    stream = FenceBuckets(asked, fence_table(BOX), 2)
    rows = []
    for batch in cut(random, in_disorder(random, positions(found), 3_000_000), 7):
        rows += stream.feed(batch, forget=bool(random.integers(2)))
    rows += flushed(stream)
    assert most / 3 < len(rows) < most
    same = [(one[0], *one[2:4]) for one in plain(rows)]
    assert same == [(one[0], *one[2:4]) for one in expected(found, BOX, asked)]
