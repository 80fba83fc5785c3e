"""PostgreSQL's binary values, against struct."""

import struct

import numpy as np
import pytest

from rivermouth.kernels.length_prefixed import as_numbers, locate, pack


def written(rows, head=b""):
    """Rows of values, None for null, as the wire has them."""
    out = b""
    for row in rows:
        out += head
        for value in row:
            out += struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value
    return np.frombuffer(out, np.uint8)


ROWS = [(b"\x01\x02", b"abc"), (None, b""), (b"\xff\xfe", None), (b"\x00\x00", b"z" * 300)]


@pytest.mark.parametrize("head", [b"", b"\x00\x02"])
def test_values_are_found_behind_their_sizes(head):
    data = written(ROWS, head)
    starts, sizes = locate(data, len(head), 2, len(ROWS))
    for row, values in enumerate(ROWS):
        for column, value in enumerate(values):
            start, size = starts[column, row], sizes[column, row]
            found = None if size < 0 else data[start : start + size].tobytes()
            assert found == value


def test_numbers_are_turned_around_and_texts_put_together():
    data = written(ROWS)
    starts, sizes = locate(data, 0, 2, len(ROWS))
    assert as_numbers(data, starts[0], sizes[0], np.int16).tolist() == [258, 0, -2, 0]
    assert as_numbers(data, starts[0], sizes[0], np.int32) is None  # of another width
    ends = np.concatenate([[0], np.cumsum(np.maximum(sizes[1], 0))])
    assert pack(data, starts[1], ends).tobytes() == b"abc" + b"z" * 300


def test_no_rows_are_no_rows():
    starts, sizes = locate(written([]), 2, 3, 0)
    assert starts.shape == sizes.shape == (3, 0)
