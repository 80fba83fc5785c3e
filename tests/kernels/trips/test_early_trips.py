"""Early trips: after every micro-batch the changelog is what the slow oracle says."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kernels.trips.test_trip_fold import SECOND, buckets_of, plain, streams, truth
from tests.support.examples import examples
from tests.support.trajectories import compacted, cut, in_disorder, positions

from rivermouth.kernels.trips.segmentation import Segmentation

IDENTITY = ("id", "name", "begin")


def shown(log):
    """What a log amounts to, as the oracle shows it."""
    rows = compacted(log, IDENTITY)
    return plain({k: v for k, v in row.items() if k not in ("change", "revision")} for row in rows)


@settings(max_examples=examples(60))
@given(
    streams(), st.integers(0, 4), st.integers(1, 3), st.integers(1, 6), st.sampled_from([0, 1.5]),
    st.integers(0, 2**32),
)  # fmt: skip
def test_after_every_micro_batch_the_changelog_is_the_truth_so_far(
    case, lateness, count, parts, min_length, seed
):
    rows, how = case
    random = np.random.default_rng(seed)
    batch = positions(rows)
    made = buckets_of(how, count, lateness=lateness, min_length=min_length, early=True)
    arrived = in_disorder(random, batch, lateness * SECOND) if len(batch) else batch
    log, so_far = [], []
    for part in cut(random, arrived, parts):
        log += made.feed(part, forget=bool(random.integers(2)))
        so_far.append(part)
        assert shown(log) == plain(truth(pa.Table.from_batches(so_far), how, min_length))
    assert made.counts["late"] == 0


def told(rows):
    return [
        (row["change"], row["revision"], row["kind"], row["begin"].timestamp(), row["length"])
        for row in sorted(rows, key=lambda row: row["begin"])
    ]


def test_an_open_row_is_revised_as_positions_come():
    how = Segmentation(gap=60 * SECOND, radius=2.0, duration=10 * SECOND)
    stream = buckets_of(how, lateness=30, early=True)
    at = lambda t, x: stream.feed(positions([(1, "v", t, float(x), 0.0)]))  # noqa: E731
    assert told(at(0, 0)) == [("insert", 0, "point", 0, 0.0)]
    assert told(at(10, 50)) == [("update", 1, "move", 0, 50.0)]
    assert told(at(25, 51)) == [("insert", 0, "stay", 10, 1.0)]
    assert told(at(5, 10)) == [("update", 2, "move", 0, 50.0)]  # one more position
    assert told(at(15, 90)) == [("update", 3, "move", 0, 129.0), ("delete", 1, "stay", 10, 1.0)]
    assert at(1000, 0) != []
    assert stream.reports[-1]["state"]["revisable"] == 1
    assert stream.reports[-1]["counts"]["moves"] == 1
