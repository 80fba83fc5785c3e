"""Keys of any type against plain equality: the same pairs, before and after they are kept."""

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
from rivermouth.kernels.keys import dictionaries, key_index
from rivermouth.kernels.table_join import matching

INTS = [0, 1, -1, 7, 2**31, -(2**31), 2**63 - 1, -(2**63), 2**62]
FLOATS = [0.0, -0.0, math.inf, -math.inf, math.nan, 1.5, 5e-324, 2.0**60]
TEXTS = ["", "a", "b", "aa", "é", "x" * 7, "x" * 8, "x" * 9, "x" * 8 + "y", "x" * 40, "\0", "a\0"]
BYTES = [b"", b"\0", b"\0\0", b"abc", b"\xff" * 16, b"\xff" * 17]
DAYS = [dt.date(1970, 1, 1), dt.date(1, 1, 1), dt.date(9999, 12, 31)]
TIMES = [dt.datetime(1970, 1, 1), dt.datetime(1969, 12, 31, 23, 59, 59, 999999)]
ZONED = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
CENTS = [Decimal(n).scaleb(-2) for n in (0, 1, -1, 150, 10**15)]
LARGE = [*CENTS, Decimal(10) ** 25, -(Decimal(10) ** 25), Decimal("1.2345")]

#: the table's type, the event's, and values of both
TYPES = [
    (pa.int64(), pa.int64(), INTS),
    (pa.int32(), pa.int64(), [0, 1, -5, 2**31 - 1, -(2**31)]),
    (pa.int8(), pa.uint16(), [0, 1, 127]),
    (pa.float64(), pa.float64(), FLOATS),
    (pa.float64(), pa.float32(), [0.0, -0.0, 1.5, math.nan, math.inf]),
    (pa.bool_(), pa.bool_(), [True, False]),
    (pa.date32(), pa.date64(), DAYS),
    (pa.timestamp("us"), pa.timestamp("us"), TIMES),
    (pa.timestamp("s", "UTC"), pa.timestamp("ns", "UTC"), [ZONED, ZONED - dt.timedelta(days=9e4)]),
    (pa.string(), pa.large_string(), TEXTS),
    (pa.large_string(), pa.string_view(), TEXTS),
    (pa.dictionary(pa.int8(), pa.string()), pa.string(), TEXTS),
    (pa.string(), pa.dictionary(pa.int32(), pa.large_string()), TEXTS),
    (pa.binary(), pa.binary_view(), BYTES),
    (pa.binary(3), pa.binary(), [b"abc", b"abd", b"\0\0\0"]),
    (pa.decimal128(18, 2), pa.decimal128(18, 2), CENTS),
    (pa.decimal128(18, 2), pa.decimal128(38, 5), LARGE),
    (pa.decimal128(38, 5), pa.decimal128(18, 2), CENTS),
    (pa.decimal128(38, 5), pa.decimal128(38, 9), LARGE),
]


def fits(value, kind):
    """Whether a value can stand in a column of this type as it is."""
    try:
        return arrow([value], kind)[0].as_py() == value or value != value
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return False


def arrow(values, kind):
    if pa.types.is_dictionary(kind):
        plain = pa.array(values, kind.value_type)
        return plain.dictionary_encode().cast(kind)
    return pa.array(values, kind)


def pairs(index, columns):
    left, right = index.expand(index.lookup(columns))
    assert left.dtype == right.dtype == np.int64
    return list(zip(left.tolist(), right.tolist(), strict=True))


def expected(left, table):
    """Rows of which all values are there and equal."""
    return [
        (i, j)
        for i, one in enumerate(left)
        for j, other in enumerate(table)
        if all(a is not None and a == b for a, b in zip(one, other, strict=True))
    ]


def kept(index, columns):
    """The index as another process would open it."""
    arrays = {name: np.array(array) for name, array in index.arrays().items()}
    return key_index.from_arrays(arrays, [column.type for column in columns])


@st.composite
def columns_of(draw, most_columns=3):
    """(types, table rows, event rows) of one to three columns."""
    kinds = draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=most_columns))
    rows = []
    for side in (0, 1):
        some = [
            st.none() | st.sampled_from([v for v in values if fits(v, sides[side])])
            for *sides, values in kinds
        ]
        rows.append(draw(st.lists(st.tuples(*some), max_size=14)))
    return [(table, left) for table, left, _ in kinds], *rows


@given(columns_of())
@settings(max_examples=examples(150), deadline=None)
def test_keys_of_any_types_equal_plain_equality(drawn):
    kinds, table, left = drawn
    theirs = [arrow([row[i] for row in table], kind) for i, (kind, _) in enumerate(kinds)]
    ours = [arrow([row[i] for row in left], kind) for i, (_, kind) in enumerate(kinds)]
    index = key_index.build(theirs)
    truth = expected(left, table)
    assert pairs(index, ours) == truth
    assert pairs(kept(index, theirs), ours) == truth
    if len(left) > 2:  # a part of a longer column, as Spark's batches may be
        part = [(i - 2, j) for i, j in truth if i >= 2]
        assert pairs(index, [column[2:] for column in ours]) == part
    assert index.count == len({row for row in table if expected([row], [row])})
    for group in range(index.count):
        members = index.rows[index.start[group] : index.start[group + 1]]
        assert (index.group[members] == group).all()
        assert (np.diff(members) > 0).all()


@pytest.mark.parametrize("spread", [1, 977, 2**40])
@pytest.mark.parametrize("repeats", [1, 7])
def test_many_keys_are_found_and_many_others_are_not(spread, repeats):
    """More than a block of them, close together and far apart, each once and several times."""
    rng = np.random.default_rng(5)
    values = rng.permutation(np.repeat(np.arange(3000) - 1500, repeats)) * spread
    asked = np.concatenate([values, values + 1, [2**63 - 1, -(2**63)]])
    found = key_index.build([pa.array(values)]).lookup([pa.array(asked)])
    first = {}
    for value in values.tolist():
        first.setdefault(value, len(first))
    assert found.tolist() == [first.get(value, key_index.NONE) for value in asked.tolist()]
    text = key_index.build([pa.array(values.astype(str).tolist())])
    assert text.lookup([pa.array(asked.astype(str).tolist())]).tolist() == found.tolist()


def alike(count):
    """Numbers whose hashes agree in the bits that choose the slot and in those that are kept."""
    mask = 2**64 - 1
    unfold = pow(int(dictionaries._FOLD), -1, 2**64)
    unmix = pow(int(dictionaries._MIX), -1, 2**64)
    for middle in range(count):
        folded = ((0xABCDEF << 40) | (middle << 32) | 0x12345678) * unfold & mask
        mixed = folded ^ (folded >> 32)
        value = mixed * unmix & mask
        yield value - 2**64 if value >= 2**63 else value


def test_values_whose_hashes_cannot_be_told_apart_are_told_apart():
    values = np.array(list(alike(60)))
    assert len({int(dictionaries.hash_int(value)) & 0xFFFFFFFF for value in values}) == 1
    form, codes = dictionaries.build_ints(values[:40])
    assert isinstance(form, dictionaries.IntDictionary)
    assert codes.tolist() == list(range(40))
    assert form.lookup(values).tolist() == [*range(40), *[key_index.NONE] * 20]


def test_few_distinct_values_take_little_room():
    numbers, _ = dictionaries.build_ints(np.repeat([1, 2**60, -(2**60)], 10_000))
    assert len(numbers.slots) == 8
    text = key_index.build([pa.array(["a", "b"] * 10_000)])
    assert len(text.columns[0].slots) == 8


def test_the_condition_is_answered_by_what_was_kept():
    table = {"k": pa.array([1, 2, 2, None]), "s": pa.array(["a", "b", "b", "c"])}
    equal = rm.keys({"k": "k", "t": "s"})
    made = matching.prepare(None, table, where="test", keys=equal)
    assert made.kind == "keys"
    left = {"k": pa.array([2, None, 1]), "t": pa.array(["b", "c", "b"])}
    found = matching.Matcher(equal, None, table, made).match(left)
    assert (found.left.tolist(), found.right.tolist()) == ([0, 0], [1, 2])
    assert found.reject_counts == {"null_key": 1}
    assert matching.reject_counts(equal, None, left, srid=0) == {"null_key": 1}


def test_types_without_equality_are_refused():
    with pytest.raises(ConditionError, match=r"a column of type list<.*> cannot be looked up"):
        key_index.build([pa.array([[1]])])


def test_an_index_of_places_cannot_serve_keys():
    keys, table = rm.keys("k"), {"k": pa.array([1])}
    with pytest.raises(PlanError, match=r"^zones: index='kdtree' cannot serve this condition"):
        matching.prepare(None, table, where="zones", index="kdtree", keys=keys)
