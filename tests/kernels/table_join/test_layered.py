"""A table in layers against the slow oracle over the rows that are there: the same pairs."""

import datetime as dt
import itertools
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kernels.table_join.test_matching import KINDS, PLACES, column, rows
from tests.support.shapes import pool

import rivermouth as rm
from rivermouth.kernels.arrays import packed_bits
from rivermouth.kernels.table_join import by_geometry, matching
from rivermouth.kernels.table_join.layered import Layer, LayeredMatcher
from rivermouth.spec.conditions import split
from rivermouth.testing import oracle


def layered(on, tables, gone, hidden=None):
    """The matcher over layers of Arrow columns, of which some rows are gone."""
    keys, spatial, span = split(on)
    layers = []
    for number, columns in enumerate(tables):
        index = matching.prepare(spatial, columns, where="test", keys=keys, span=span)
        matcher = matching.Matcher(keys, spatial, columns, index, span=span)
        bits = packed_bits(gone[number]) if gone[number].any() else None
        layers.append(Layer(matcher, columns, bits, None if hidden is None else hidden[number]))
    return LayeredMatcher(layers, spatial=spatial, span=span)


def cuts(rng, count, layers):
    """How many rows each of some layers has; a layer may be empty."""
    edges = np.sort(rng.integers(0, count + 1, layers - 1))
    return np.diff([0, *edges, count])


def found(on, left, table, kinds, seed, layers, lost):
    """The pairs with the live rows' numbers, and the live rows."""
    rng = np.random.default_rng(seed)
    sizes, gone = cuts(rng, len(table), layers), rng.random(len(table)) < lost
    edges = np.cumsum([0, *sizes])
    parts = [table[a:b] for a, b in itertools.pairwise(edges)]
    columns = [{name: kinds(name, part) for name in table[0]} for part in parts]
    masks = [gone[a:b] for a, b in itertools.pairwise(edges)]
    matcher = layered(on, columns, masks)
    pairs = matcher.match({name: kinds(name, left) for name in left[0]})
    live = np.cumsum(~gone) - 1
    assert not gone[pairs.right].any()
    far = [None] * len(pairs.left) if pairs.distance is None else pairs.distance.tolist()
    numbers = live[pairs.right].tolist()
    got = list(zip(pairs.left.tolist(), numbers, far, strict=True))
    there = [row for row, is_gone in zip(table, gone, strict=True) if not is_gone]
    names = list(table[0])
    taken = matcher.take(names, pairs.right)
    for name in names:  # as if they were one table
        whole = kinds(name, there).take(pa.array(numbers, pa.int64()))
        assert taken[name].to_pylist() == whole.to_pylist()
    return got, there


def expected(on, left, table):
    numbered = [{**row, "row": number} for number, row in enumerate(table)]
    return [
        (event, row["row"], distance)
        for event, values in enumerate(left)
        for row, distance in oracle.matches(values, numbered, on)
    ]


@pytest.mark.parametrize("lost", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("table_kind", KINDS)
@pytest.mark.parametrize("left_kind", ["any", "points"])
@given(seed=st.integers(0, 2**32 - 1), layers=st.integers(1, 4))
@settings(max_examples=3, deadline=None)
def test_places_equal_the_oracle(left_kind, table_kind, lost, seed, layers):
    left = rows("a", pool(seed, 10, left_kind), [None] * 10)
    table = rows("b", pool(seed + 1, 16, table_kind), [None] * 16)
    for on in PLACES:
        got, there = found(on, left, table, column, seed, layers, lost)
        assert got == expected(on, left, there), on


@pytest.mark.parametrize("few", [0, 1000], ids=["places first", "keys first"])
@pytest.mark.parametrize("table_kind", ["any", "points"])
@given(seed=st.integers(0, 2**32 - 1), layers=st.integers(1, 4), lost=st.sampled_from([0.2, 0.7]))
@settings(max_examples=4, deadline=None)
def test_places_and_keys_equal_the_oracle(table_kind, few, seed, layers, lost):
    rng = np.random.default_rng(seed)
    keys = [None if key == 3 else key for key in rng.integers(0, 4, 40).tolist()]
    left = rows("a", pool(seed, 12), keys[:20])
    table = rows("b", pool(seed + 1, 20, table_kind), keys[20:])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(by_geometry, "_FEW", few)
        for on in (place & rm.keys("k") for place in PLACES):
            got, there = found(on, left, table, column, seed, layers, lost)
            assert got == expected(on, left, there), on


@given(seed=st.integers(0, 2**32 - 1), layers=st.integers(1, 4), lost=st.sampled_from([0.0, 0.5]))
@settings(max_examples=20, deadline=None)
def test_the_nearest_on_the_sphere_are_those_that_are_there(seed, layers, lost):
    rng = np.random.default_rng(seed)

    def spots(names, count):
        xy = zip(rng.uniform(-180, 180, count), rng.uniform(-90, 90, count), strict=True)
        return [dict(zip(names, each, strict=True)) for each in xy]

    on = rm.nearest(rm.point("x", "y"), rm.point("u", "v"), k=2, metric="sphere")
    left, table = spots("xy", 6), spots("uv", 30)
    got, there = found(on, left, table, column, seed, layers, lost)
    assert [pair[:2] for pair in got] == [pair[:2] for pair in expected(on, left, there)]


RANGES = {
    "long": (pa.int64(), [*range(6), None], (-1, 2)),
    "double": (pa.float64(), [0.0, -0.0, 1.5, 2.0, float("nan"), None], (-0.5, 1.0)),
    "decimal": (
        pa.decimal128(30, 2), [Decimal(n) / 4 for n in range(6)] + [None],
        (Decimal("-0.5"), Decimal(1)),
    ),
    "timestamp": (
        pa.timestamp("us"), [dt.datetime(2026, 1, 1, 12, n) for n in range(6)] + [None],
        ("-1 minute", "2 minutes"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("by", [None, "k"])
@pytest.mark.parametrize("kind", RANGES)
@given(seed=st.integers(0, 2**32 - 1), layers=st.integers(1, 4), lost=st.sampled_from([0.0, 0.4]))
@settings(max_examples=12, deadline=None)
def test_ranges_equal_the_oracle(kind, by, seed, layers, lost):
    dtype, values, (lower, upper) = RANGES[kind]
    rng = np.random.default_rng(seed)

    def drawn(name, count):
        return [
            {name: values[rng.integers(len(values))], "k": int(rng.integers(3))}
            for _ in range(count)
        ]

    def kinds(name, some):
        return pa.array([row[name] for row in some], pa.int64() if name == "k" else dtype)

    left, table = drawn("v", 8), drawn("w", 24)
    between = rm.between("v", "w", lower=lower, upper=upper, by=by)
    got, there = found(between, left, table, kinds, seed, layers, lost)
    assert sorted(got) == sorted(expected(between, left, there))
    newest = rm.asof("v", "w", by=by)
    got, there = found(newest, left, table, kinds, seed, layers, lost)
    assert got == expected(newest, left, there)


def test_an_end_hides_what_came_before_it_and_not_what_comes_after():
    tables = [{"w": pa.array([1, 4])}, {"w": pa.array([2])}]
    none, end = np.zeros(2, dtype=bool), np.ones(1, dtype=bool)
    matcher = layered(rm.asof("v", "w"), tables, [none, ~end], hidden=[none, end])
    pairs = matcher.match({"v": pa.array([0, 1, 2, 3, 4])})
    assert list(zip(pairs.left.tolist(), pairs.right.tolist(), strict=True)) == [(1, 0), (4, 1)]


def test_what_cannot_match_is_counted_once_however_many_layers_there_are():
    tables = [{"w": pa.array([1])}, {"w": pa.array([2])}]
    kept = [np.zeros(1, dtype=bool)] * 2
    matcher = layered(rm.asof("v", "w"), tables, kept)
    assert matcher.match({"v": pa.array([None, 3])}).reject_counts == {"null_value": 1}
