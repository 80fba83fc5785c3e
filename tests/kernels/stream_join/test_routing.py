"""Where the rows of a stream join go: evenly, always the same way, and pairs to one bucket."""

import numpy as np
import pytest
from tests.kernels.stream_join.test_stream_join import sides
from tests.support.stream_joins import Buckets, interval, left, near, stream_join

import rivermouth as rm


def test_far_cells_spread_evenly_over_buckets():
    rng = np.random.default_rng(1)
    rows = left(*((n, 0, *xy) for n, xy in enumerate((rng.random((20_000, 2)) * 300).tolist())))
    counts = np.bincount(near(buckets=8).routed(0, rows).bucket, minlength=8)
    assert counts.max() < 1.2 * counts.mean()


def test_the_bucket_of_a_row_does_not_change():
    """A checkpoint's rows are found in their bucket by every process and version."""
    rows = left((1, 0, 0, 0), (2, 5, 90, -3), (3, 9, -1e6, 7))
    assert near(buckets=16).routed(0, rows).bucket.tolist() == [0, 6, 2]
    assert near(buckets=16, salts=4).routed(0, rows).bucket.tolist() == [0, 6, 5]


@pytest.mark.parametrize("buckets", [1, 2, 3, 7, 12, 32])
def test_on_a_lattice_every_pair_meets_in_one_bucket_and_no_bucket_has_much_more(buckets):
    rows = sides(3, "polygons", count=600)
    join = stream_join(
        rm.intersects("a", "b"), interval("0 seconds", "0 seconds"), *(r.schema for r in rows),
        columns={},
    )  # fmt: skip
    found = Buckets(join, buckets)
    height, width = found.routing.lattice
    assert height * width <= buckets < (height + 1) * (width + 1)
    sent, loads = [], np.zeros(buckets)
    for side, name in enumerate(("l", "r")):
        routed = found.routed(side, rows[side])
        loads += np.bincount(routed.bucket, minlength=buckets)
        to = {}
        for row, bucket in zip(
            routed.rows.column(name).to_pylist(), routed.bucket.tolist(), strict=True
        ):
            to.setdefault(row, set()).add(bucket)
        sent.append(to)
    assert {len(to) for to in sent[0].values()} == {width}
    assert {len(to) for to in sent[1].values()} == {height}
    assert {len(one & two) for one in sent[0].values() for two in sent[1].values()} == {1}
    assert loads.max() < 1.7 * loads[: height * width].mean()
