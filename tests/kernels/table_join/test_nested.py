"""What each left row found, as one value: against plain lists."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from rivermouth.kernels.table_join import nested


@st.composite
def pairs(draw):
    count = draw(st.integers(1, 12))
    left = draw(st.lists(st.integers(0, count - 1), max_size=20))
    return count, left, draw(st.lists(st.none() | st.text(), min_size=20, max_size=20))


def columns(left, names):
    """A column with nulls, and one that tells the pairs apart."""
    brought = pa.array(names[: len(left)], pa.string())
    return {"name": brought, "pair": pa.array(range(len(left)), pa.int64())}


@given(pairs())
def test_lists_have_the_pairs_of_each_row_in_their_order(case):
    count, left, names = case
    found = nested.lists(np.array(left, np.int64), count, columns(left, names))
    assert found.to_pylist() == [
        [{"name": names[n], "pair": n} for n, owner in enumerate(left) if owner == row]
        for row in range(count)
    ]


@given(pairs())
def test_structs_are_null_where_nothing_was_found(case):
    count, left, names = case
    left = list(dict.fromkeys(left))
    found = nested.structs(np.array(left, np.int64), count, columns(left, names))
    assert found.to_pylist() == [
        {"name": names[left.index(row)], "pair": left.index(row)} if row in left else None
        for row in range(count)
    ]


@given(pairs())
def test_matched_says_which_rows_found_something(case):
    count, left, _ = case
    matched = nested.matched(np.array(left, np.int64), count)
    assert matched.tolist() == [row in left for row in range(count)]
