"""Ranges and newest rows against the oracle: any type, any index, any key, the same rows."""

import datetime as dt
import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples

import rivermouth as rm
from rivermouth.errors import ConditionError, PlanError
from rivermouth.kernels.papers import skip_lists
from rivermouth.kernels.table_join import by_range, matching
from rivermouth.spec.conditions import split
from rivermouth.testing import oracle

LEAST, MOST = -(2**63), 2**63 - 1
INTS = [0, 1, 2, 3, -1, -4, MOST, MOST - 1, LEAST, LEAST + 1]
FLOATS = [0.0, -0.0, 0.1, 0.2, 0.30000000000000004, 1e308, -1e308, math.inf, -math.inf, math.nan]
DAYS = [dt.date(2020, 2, 29) + dt.timedelta(days) for days in (0, 1, 2, 5, -737_000)]
TIMES = [dt.datetime(2020, 1, 1) + dt.timedelta(microseconds=n) for n in (0, 1, 2, 10**6, -1)]
CENTS = [Decimal(n).scaleb(-2) for n in (0, 1, -1, 150, 151, -(10**15))]
LARGE = [*CENTS, Decimal(10) ** 25, Decimal(10) ** 25 + 1, -(Decimal(10) ** 25), Decimal("0.005")]
HOURS = [dt.timedelta(hours=n) for n in (0, 1, -1, 10**9, -(10**9))]
MICROSECONDS = [dt.timedelta(microseconds=n) for n in (1, -1)]
OFFSETS = [Decimal(n) for n in ("0.005", "-0.005", "1e24", "-1e24", "1e30", "-1e30")]
OFFSETS += [0, 1, -1, 2, -2]

#: the table's type, the event's, values of the table, of the events, and offsets
TYPES = [
    (
        pa.int64(),
        pa.int64(),
        INTS,
        INTS,
        [0, 1, -1, -2, 2**62, -(2**62), 2**64, -(2**64), -(2**63), 3.0],
    ),
    (pa.int32(), pa.int64(), [0, 5, -5], INTS, [0, 1, -1, 2**40, -(2**40)]),
    (pa.float64(), pa.float64(), FLOATS, FLOATS, [0, 0.1, 0.2, 1e308, -1e308, -0.1, -0.2]),
    (pa.float64(), pa.float32(), FLOATS, [0.0, 0.5, -math.inf, math.nan], [0, 0.1, 1, -0.1, -1]),
    (
        pa.date32(),
        pa.date32(),
        DAYS,
        DAYS,
        [dt.timedelta(days=n) for n in (0, 1, 4, 10**8, -1, -4, -(10**8))],
    ),
    (pa.timestamp("us"), pa.timestamp("us"), TIMES, TIMES, [*HOURS, *MICROSECONDS]),
    (pa.decimal128(18, 2), pa.decimal128(18, 2), CENTS, CENTS, OFFSETS),
    (pa.decimal128(18, 2), pa.decimal128(38, 4), CENTS, LARGE, OFFSETS),
    (pa.decimal128(38, 4), pa.decimal128(18, 2), LARGE, CENTS, OFFSETS),
    (pa.decimal128(38, 4), pa.decimal128(38, 6), LARGE, LARGE, OFFSETS),
]


@st.composite
def questions(draw):
    """(condition, table, events): columns of both and the rows that they hold."""
    theirs, ours, values, asked, offsets = draw(st.sampled_from(TYPES))
    by = draw(st.sampled_from([None, "k"]))
    none, key = st.none(), st.sampled_from(["a", "b", None])
    table = draw(st.lists(st.tuples(none | st.sampled_from(values), key), max_size=16))
    events = draw(st.lists(st.tuples(none | st.sampled_from(asked), key), max_size=10))
    on = rm.asof("v", "w", by=by)
    if draw(st.booleans()):
        ends = draw(st.lists(st.sampled_from(offsets), min_size=2, max_size=2))
        lower, upper = sorted(ends, key=oracle._ordered)
        on = rm.between("v", "w", lower=lower, upper=upper, by=by)
    return on, columns("w", theirs, table), columns("v", ours, events)


def columns(name, kind, rows):
    return {
        name: pa.array([value for value, _ in rows], kind),
        "k": pa.array([key for _, key in rows], pa.string()),
    }


def rows_of(columns):
    return pa.table(columns).to_pylist()


def expected(on, table, left):
    rows = [{**row, "row": number} for number, row in enumerate(rows_of(table))]
    return [
        (number, row["row"])
        for number, event in enumerate(rows_of(left))
        for row, _ in sorted(oracle.matches(event, rows, on), key=lambda match: match[0]["row"])
    ]


def matcher_of(on, table, index=None):
    equal, place, span = split(on)
    made = matching.prepare(place, table, where="test", index=index, keys=equal, span=span)
    kept = {name: np.array(array) for name, array in made.arrays.items()}
    return matching.Matcher(equal, place, table, matching.Index(made.kind, kept), span=span)


@given(questions())
@settings(max_examples=examples(300), deadline=None)
def test_every_index_gives_the_oracles_rows(drawn):
    on, table, left = drawn
    truth = expected(on, table, left)
    for index in (None, *by_range.INDEXES):
        found = matcher_of(on, table, index).match(left)
        assert found.left.dtype == found.right.dtype == np.int64
        assert (np.diff(found.left) >= 0).all()
        assert sorted(zip(found.left.tolist(), found.right.tolist(), strict=True)) == truth, index


@pytest.mark.parametrize("index", by_range.INDEXES)
@pytest.mark.parametrize("by", [None, "k"])
def test_long_runs(index, by):
    """Many rows a key, so that every step of a search and of a walk is taken."""
    rng = np.random.default_rng(3)
    table = {"w": pa.array(rng.integers(0, 500, 2000)), "k": pa.array(rng.integers(0, 3, 2000))}
    left = {"v": pa.array(rng.integers(-20, 520, 300)), "k": pa.array(rng.integers(0, 4, 300))}
    value, key = (column.to_numpy() for column in table.values())
    asked, asked_key = (column.to_numpy()[:, None] for column in left.values())
    same = (asked_key == key) if by else np.ones((300, 2000), bool)

    found = matcher_of(rm.between("v", "w", lower=-9, upper=4, by=by), table, index).match(left)
    truth = np.nonzero(same & (value >= asked - 9) & (value <= asked + 4))
    assert sorted(zip(found.left.tolist(), found.right.tolist(), strict=True)) == sorted(
        zip(*(part.tolist() for part in truth), strict=True)
    )
    newest = matcher_of(rm.asof("v", "w", by=by), table, index).match(left)
    before = np.where(same & (value <= asked), value * 2000 + np.arange(2000), -1).max(axis=1)
    assert newest.left.tolist() == np.flatnonzero(before >= 0).tolist()
    assert newest.right.tolist() == (before[before >= 0] % 2000).tolist()


def test_what_is_in_no_range_is_counted():
    on = rm.between("v", "w", lower=0, upper=0, by="k")
    table = {"w": pa.array([1.0]), "k": pa.array(["a"])}
    left = {"v": pa.array([1.0, None, math.nan, 1.0]), "k": pa.array(["a", "a", None, None])}
    found = matcher_of(on, table).match(left)
    assert (found.left.tolist(), found.right.tolist()) == ([0], [0])
    assert found.reject_counts == {"null_key": 2, "null_value": 2}
    equal, place, span = split(on)
    assert matching.reject_counts(equal, place, left, srid=0, span=span) == found.reject_counts


def test_columns_without_an_order_of_distances_are_refused():
    with pytest.raises(ConditionError, match="a column of type string has no ranges"):
        matcher_of(rm.asof("v", "w"), {"w": pa.array(["a"])})


def test_an_index_that_cannot_serve_is_refused_by_name():
    with pytest.raises(PlanError, match=r"^test: index='cells' cannot serve this condition") as e:
        matcher_of(rm.asof("v", "w"), {"w": pa.array([1])}, "cells")
    assert str(e.value).endswith("use one of ['sorted', 'skiplist', 'ideal_skiplist'].")


def seek_counts(count, seed=None):
    """The comparisons of a search for every value of 0 ... count - 1."""
    group, place = np.zeros(count, np.int32), np.arange(count)
    usable = np.ones(count, dtype=bool)
    if seed is None:
        made = skip_lists.build(group, 1, place, usable, ideal=True)
    else:
        made = skip_lists.build(group, 1, place, usable, ideal=False, seed=seed)
    return made.comparisons(group, place)


def test_ideal_heights_save_a_quarter_of_the_fresh_comparisons():
    drawn = [seek_counts(1 << 12, seed) for seed in range(10)]
    ideal = seek_counts(1 << 12)
    assert 0.70 < ideal.fresh.mean() / np.mean([count.fresh.mean() for count in drawn]) < 0.80
    assert 0.80 < ideal.looks.mean() / np.mean([count.looks.mean() for count in drawn]) < 0.90


def test_ideal_lists_do_not_vary_and_drawn_ones_do():
    assert (seek_counts(1000).looks == seek_counts(1000).looks).all()
    assert np.var([seek_counts(1000, seed).looks.mean() for seed in range(10)]) > 0.05
    assert (seek_counts(1000, 7).looks == seek_counts(1000, 7).looks).all()


def test_the_papers_search_for_12_among_12():
    """Figure 8(a): from the head to 8, from 8 to 12; a search that does not end there goes on."""
    assert skip_lists.ideal_heights(12).tolist() == [1, 2, 1, 3, 1, 2, 1, 4, 1, 2, 1, 3]
    counts = seek_counts(12)
    assert (counts.until_equal[11], counts.fresh[11], counts.looks[11]) == (2, 4, 6)
