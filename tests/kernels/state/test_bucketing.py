"""Packed rows: whatever the batches and the order of handing over, every row arrives once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from rivermouth.kernels.keys import murmur
from rivermouth.kernels.state.bucket_keys import bucket_keys
from rivermouth.kernels.state.bucketing import Packer, Routed, arrivals
from rivermouth.kernels.state.pair_encoding import encoded, unpacked

BUCKETS = 3


def routed(numbers: list[int]) -> Routed:
    rows = pa.record_batch({"number": pa.array(numbers, pa.int64())})
    bucket = (np.array(numbers, np.int64) % BUCKETS).astype(np.int32)
    return Routed(rows, bucket, max(numbers, default=None))


batches = st.lists(st.lists(st.integers(0, 1000), max_size=8), max_size=5)


@given(tasks=st.lists(batches, min_size=1, max_size=3), held=st.integers(1, 20), data=st.data())
def test_each_row_reaches_its_bucket_once_and_in_order(tasks, held, data):
    sent: list[tuple[int, bytes]] = []
    for number, task in enumerate(tasks):
        packer = Packer(side=0, buckets=BUCKETS, task=number, rows=held)
        for batch in task:
            sent.extend(packer.add(routed(batch)))
        sent.extend(packer.end())
    sent = data.draw(st.permutations(sent))
    came = [number for task in tasks for batch in task for number in batch]
    for bucket in range(BUCKETS):
        messages = [message for to, message in sent if to == bucket]
        found = arrivals(messages, sides=1, now=5, last=False)
        rows = [n for table in found.sides[0] for n in table["number"].to_pylist()]
        assert rows == [number for number in came if number % BUCKETS == bucket]
        assert found.newest == (max(came, default=None),)


def test_rows_that_cannot_be_processed_come_to_one_bucket_with_their_side():
    rejected = pa.record_batch({"number": [1], "reason": ["null_time"]})
    packer = Packer(side=1, buckets=BUCKETS, task=0)
    nothing = routed([])
    sent = [*packer.add(Routed(nothing.rows, nothing.bucket, None, rejected)), *packer.end()]
    found = [
        arrivals([message for to, message in sent if to == bucket], sides=2, now=0, last=False)
        for bucket in range(BUCKETS)
    ]
    assert [len(one.rejected) for one in found] == [1, 0, 0]
    side, rows = found[0].rejected[0]
    assert side == 1
    assert rows.to_pylist() == [{"number": 1, "reason": "null_time"}]


def test_large_rows_are_unpacked_a_few_at_a_time():
    shapes = pa.record_batch({"shape": [b"x" * (1 << 22), b"y" * (1 << 22)]})
    at = np.arange(100) % 2
    table = pa.table({"shapes": encoded(shapes, at), "number": np.arange(100)})
    wanted = pa.schema({"number": pa.int64(), "shape": pa.binary()})
    batches = list(unpacked(table, wanted))
    assert max(batch.nbytes for batch in batches) <= 1 << 27
    assert [row for batch in batches for row in batch.column("number").to_pylist()] == [*range(100)]
    assert {batch.column("shape")[0].as_py()[:1] for batch in batches} <= {b"x", b"y"}


@given(buckets=st.integers(1, 64))
def test_bucket_keys_spread_over_every_divisor(buckets):
    keys = bucket_keys(buckets)
    assert len(set(keys)) == buckets
    assert 0 in keys
    for partitions in range(1, buckets + 1):
        if buckets % partitions == 0:
            counts = np.bincount(murmur.buckets([pa.array(keys)], partitions))
            assert set(counts) == {buckets // partitions}
