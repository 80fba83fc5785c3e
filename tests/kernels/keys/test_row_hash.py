"""Codes of keys: equal keys have equal codes, whatever type of their family a column has."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from rivermouth.kernels.keys.row_hash import codes, same

FAMILIES = {
    "integers": ([1, -1, 2**31 - 1, 0], [pa.int32(), pa.int64()]),
    "reals": ([0.0, -0.0, 1.5, -2.25], [pa.float32(), pa.float64()]),
    "decimals": (
        [Decimal("1.50"), Decimal("-7"), Decimal("0.25"), Decimal("9.75")],
        [pa.decimal128(5, 2), pa.decimal128(38, 10), pa.decimal128(18, 4)],
    ),
    "wide decimals": (
        [Decimal(n).scaleb(-2) for n in (10**36 + 1, -(10**36), 25, 10**36)],
        [pa.decimal128(38, 2), pa.decimal128(38, 3), pa.decimal256(40, 4)],
    ),
    "texts": (["", "a", "ä", "a much longer text"], [pa.string(), pa.large_string()]),
    "times": ([0, 1, -1, 10**15], [pa.timestamp("us"), pa.timestamp("us", "UTC")]),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_equal_keys_have_equal_codes_in_all_types_of_a_family(family):
    values, kinds = FAMILIES[family]
    columns = [pa.array(values).cast(kind) for kind in kinds]
    for one in columns:
        for other in columns:
            assert (codes([one]) == codes([other])).all()
            i, j = (part.ravel() for part in np.meshgrid(range(4), range(4)))
            expected = [values[a] == values[b] for a, b in zip(i, j, strict=True)]
            assert same([one], i, [other], j).tolist() == expected


def test_several_columns_make_one_code_and_their_order_counts():
    a, b = pa.array([1, 2, 1]), pa.array(["x", "x", "y"])
    assert len(set(codes([a, b]).tolist())) == 3
    swapped = codes([pa.array([2, 1]), pa.array([1, 2])])
    assert swapped[0] != swapped[1]


def test_codes_do_not_change_between_processes():
    """They decide where rows are in a checkpoint."""
    assert codes([pa.array([7]), pa.array(["cab"])]).tolist() == [-377579354124180063]
