"""Rows as one batch, or an error where Arrow would make several of them."""

import pyarrow as pa
import pytest

from rivermouth.errors import StateError
from rivermouth.kernels.arrays import one_batch


@pytest.mark.parametrize("chunks", [0, 1, 3])
def test_all_rows_are_in_the_batch(chunks):
    chunk = pa.array(["a", None, "b"])
    batch = one_batch(pa.table({"name": pa.chunked_array([chunk] * chunks, pa.string())}))
    assert batch.column(0).to_pylist() == ["a", None, "b"] * chunks


def test_more_text_than_one_batch_holds_is_an_error_and_no_row_is_left_out():
    chunk = pa.array([b"x" * (1 << 20)] * 64)
    table = pa.table({"shape": pa.chunked_array([chunk] * 33)})  # one buffer, 33 times
    with pytest.raises(StateError) as error:
        one_batch(table)
    assert str(error.value) == (
        "join: one bucket holds more than 2 GiB of column 'shape' at once; "
        f"2,112 rows of {table.nbytes:,} bytes. "
        "Leave the column out, or take more buckets=, which in a stream needs another checkpoint."
    )


def test_numbers_may_have_any_size():
    column = pa.chunked_array([pa.nulls(10, pa.int64())] * 2)
    assert one_batch(pa.table({"n": column})).num_rows == 20
