"""check_table finds what is wrong with a table, and says it in a sentence."""

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pytest

import rivermouth as rm
from rivermouth.errors import PlanError
from rivermouth.spec.conditions import split
from rivermouth.testing import check_table, oracle

ROWS = pa.table(
    {
        "id": pa.array([1, 2, 2, None], pa.int64()),
        "word": pa.array(["a", "A", None, "b "]),
        "share": pa.array([0.5, float("nan"), None, -0.0]),
    }
)


@dataclass(frozen=True)
class Honest:
    """A table in memory that does as it should; `rows` is outside, as a database would be."""

    label: str = "honest"

    @property
    def name(self):
        return self.label

    @property
    def identity(self):
        return f"memory:{self.label}"

    def schema(self):
        return ROWS.schema

    def read(self, columns):
        return ROWS.select(columns)

    def lookup(self, condition, columns, left):
        if split(condition).range is not None:
            raise PlanError("memory", "ranges are not known")
        records = pa.table(dict(left)).to_pylist()
        table = [{**row, "": n} for n, row in enumerate(ROWS.to_pylist())]
        found = [
            (number, row[""])
            for number, record in enumerate(records)
            for row, _ in oracle.matches(record, table, condition)
        ]
        numbers = np.array([number for number, _ in found], np.int64)
        return numbers, ROWS.select(columns).take(pa.array([row for _, row in found], pa.int64()))


def test_an_honest_table_passes():
    check_table(Honest(), expected=ROWS, keys=["id", "word", ["id", "word"]], secrets=["s3cr3t"])


class Talkative(Honest):
    def __repr__(self):
        return "Talkative(password='s3cr3t')"


class Restless(Honest):
    @property
    def identity(self):
        return f"memory:{np.random.default_rng().random()}"


class Unequal(Honest):
    def __eq__(self, other):
        return self is other

    __hash__ = object.__hash__


class Generous(Honest):
    def read(self, columns):
        return ROWS


class Shuffled(Honest):
    def read(self, columns):
        return ROWS.select(columns).take([3, 2, 1, 0] if len(columns) == 1 else [0, 1, 2, 3])


class Mistyped(Honest):
    def read(self, columns):
        rows = ROWS.select(columns)
        return rows.cast(pa.schema([f.with_type(pa.large_string()) if f.name == "word" else f
                                    for f in rows.schema]))  # fmt: skip


class Odd(Honest):
    def schema(self):
        return pa.schema([("id", pa.duration("us")), ("id", pa.int64())])


class CaseBlind(Honest):
    def lookup(self, condition, columns, left):
        lowered = {
            name: pa.compute.utf8_lower(values) if values.type == pa.string() else values
            for name, values in left.items()
        }
        return super().lookup(condition, columns, lowered)


class Forgetful(Honest):
    def lookup(self, condition, columns, left):
        numbers, rows = super().lookup(condition, columns, left)
        _, first = np.unique(numbers, return_index=True)
        return numbers[first], rows.take(pa.array(first))


class Short(Honest):
    def lookup(self, condition, columns, left):
        numbers, rows = super().lookup(condition, columns, left)
        return numbers.astype(np.int32), rows


class Failing(Honest):
    def lookup(self, condition, columns, left):
        if not len(next(iter(left.values()))):
            raise ZeroDivisionError("nobody asked")
        return super().lookup(condition, columns, left)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (Talkative(), "its repr shows a secret"),
        (Restless(), "identity is another one each time"),
        (Unequal(), "pickled, it is not equal to itself; make it a frozen dataclass"),
        (replace(Honest(), label=""), "name is '', not a text"),
        (Generous(), "read(['id']) gives the columns ['id', 'word', 'share']"),
        (Shuffled(), "read(['id']) gives other rows, or another order, than read(['id', 'word',"),
        (Mistyped(), "gives column 'word' as large_string, schema() says string"),
        (Odd(), "schema() has 2 columns 'id'"),
        (Odd(), "column 'id' is duration[us], which Spark does not have"),
        (CaseBlind(), "for the record {'left_word': 'A'}, which does not match"),
        (Forgetful(), "lookup(keys(['id'])) leaves out row (2, None, None) for the record"),
        (Short(), "lookup(keys(['id'])) gives record numbers as int32, not as an array of int64"),
        (Failing(), "it fails with ZeroDivisionError: nobody asked"),
        (object(), "it has no name, no identity, no schema, no read"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_what_is_wrong_is_said(table, said):
    with pytest.raises(AssertionError) as caught:
        check_table(table, secrets=["s3cr3t"])
    assert str(caught.value).splitlines()[0].endswith("does not keep its promises:")
    assert said in str(caught.value)


def test_other_rows_than_expected_are_shown():
    with pytest.raises(AssertionError) as caught:
        check_table(Honest(), expected=ROWS.slice(1).select(["id"]))
    assert str(caught.value).endswith("- read(['id']) gives 4 rows, but 3 are expected")
    with pytest.raises(AssertionError) as caught:
        check_table(Honest(), expected=pa.table({"word": ["a", "a", None, "b "]}))
    assert str(caught.value).endswith("- row 1 is ('A',), but ('a',) is expected")


def test_it_is_public():
    assert rm.testing.check_table is check_table
