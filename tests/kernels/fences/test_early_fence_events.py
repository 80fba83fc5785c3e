"""Early fence events: after every micro-batch the changelog is what the slow oracle says."""

from __future__ import annotations

import numpy as np
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kernels.fences.test_fence_events import BOX, IN, OUT, SHAPES, found, hysteresis, track
from tests.support.examples import examples
from tests.support.fences import (
    IDENTITY,
    FenceBuckets,
    expected,
    fence_table,
    flushed,
    plain,
    query,
)
from tests.support.trajectories import compacted, cut, in_disorder, positions

from rivermouth.kernels.fences.query import Hysteresis

asked = st.builds(
    query,
    early=st.just(True),
    min_inside=hysteresis,
    min_outside=hysteresis,
    dwell=st.sampled_from([None, 0, 3_000_000, 9_000_000]),
    gap=st.sampled_from([None, 4_000_000, 12_000_000]),
    first_inside=st.booleans(),
)


def seen(batches):
    """Rows (id, name, seconds, x, y) of some batches."""
    return [
        (row["id"], row["name"], row["t"].timestamp(), row["x"], row["y"])
        for batch in batches
        for row in batch.to_pylist()
    ]


@given(
    found=found, asked=asked, buckets=st.integers(1, 3), batches=st.integers(1, 8),
    seed=st.integers(0, 999),
)  # fmt: skip
def test_after_every_micro_batch_the_changelog_is_the_truth_so_far(
    found, asked, buckets, batches, seed
):
    random = np.random.default_rng(seed)
    stream = FenceBuckets(asked, fence_table(SHAPES), buckets)
    parts, log = cut(random, in_disorder(random, positions(found), 3_000_000), batches), []
    for number, batch in enumerate(parts):
        log += stream.feed(batch, forget=bool(random.integers(2)))
        so_far = compacted(log, IDENTITY)
        assert plain(so_far) == expected(seen(parts[: number + 1]), SHAPES, asked)
    assert stream.counts["late"] == 0
    changes = stream.counts["inserts"] + stream.counts["updates"] + stream.counts["deletes"]
    assert changes == stream.counts["rows_out"] == len(log)


@settings(max_examples=examples(25))
@given(found=found, asked=asked, seed=st.integers(0, 999))
def test_final_events_are_not_repeated_and_leave_the_state(found, asked, seed):
    random = np.random.default_rng(seed)
    for last in (True, False):
        stream = FenceBuckets(asked, fence_table(SHAPES), 2)
        for batch in cut(random, in_disorder(random, positions(found), 3_000_000), 4):
            stream.feed(batch)
        if last:
            assert flushed(stream) == []
        else:
            later = stream.feed(positions([(9, "z", 1000, 50.0, 50.0)]))
            assert {row["event"] for row in later} <= {"lost", "exit"}  # after the gap
            state = [report["state"]["revisable"] for report in stream.reports[-2:]]
            assert sum(state) <= 1  # the last position's object, which may be lost


@settings(max_examples=examples(25))
@given(found=found, asked=asked, buckets=st.integers(1, 3))
def test_a_batch_frame_gives_inserts_of_revision_zero(found, asked, buckets):
    stream = FenceBuckets(asked, fence_table(SHAPES), buckets)
    rows = stream.feed(positions(found), last=True)
    assert {(row["change"], row["revision"]) for row in rows} <= {("insert", 0)}
    assert plain(rows) == expected(found, SHAPES, asked)


def told(rows):
    return [
        (row["change"], row["revision"], row["event"], row["t"].timestamp(), row["seconds_inside"])
        for row in sorted(rows, key=lambda row: (row["t"], row["event"]))
    ]


def test_events_come_at_once_and_a_late_position_puts_them_right():
    stream = FenceBuckets(query(early=True, lateness=60), fence_table(BOX))
    assert told(stream.feed(positions(track(OUT, IN)))) == [("insert", 0, "enter", 10, None)]
    out = [(1, "v", 30, 20.0, 5.0)]
    assert told(stream.feed(positions(out))) == [("insert", 0, "exit", 30, 20.0)]
    early = [(1, "v", 5, 4.0, 5.0)]
    assert told(stream.feed(positions(early))) == [
        ("insert", 0, "enter", 5, None), ("delete", 1, "enter", 10, None),
        ("update", 1, "exit", 30, 25.0),
    ]  # fmt: skip
    between = [(1, "v", 7, 20.0, 5.0)]
    assert told(stream.feed(positions(between), forget=True)) == [
        ("insert", 0, "exit", 7, 2.0), ("insert", 2, "enter", 10, None),
        ("update", 2, "exit", 30, 20.0),
    ]  # fmt: skip
    assert flushed(stream) == []


def test_what_came_early_is_not_repeated_when_it_is_final():
    stream = FenceBuckets(query(early=True, lateness=15), fence_table(BOX))
    rows = [
        row for one in track(OUT, IN, IN, OUT, OUT, OUT) for row in stream.feed(positions([one]))
    ]
    assert told(rows) == [("insert", 0, "enter", 10, None), ("insert", 0, "exit", 30, 20.0)]
    assert stream.reports[-1]["counts"]["exit"] == 1  # counted when it is final
    assert stream.reports[-1]["state"]["revisable"] == 0


def test_an_object_is_lost_early_and_found_again():
    stream = FenceBuckets(query(early=True, lateness=100, gap=30_000_000), fence_table(BOX))
    stream.feed(positions(track(IN, IN)))
    other = lambda t: [(2, "v", t, 50.0, 50.0)]  # noqa: E731
    assert stream.feed(positions(other(39))) == []
    assert told(stream.feed(positions(other(40)), forget=True)) == [("insert", 0, "lost", 40, 10.0)]
    assert stream.feed(positions(other(45))) == []
    assert told(stream.feed(positions([(1, "v", 35, 5.0, 5.0)]))) == [
        ("delete", 1, "lost", 40, 10.0)
    ]
    assert told(stream.feed(positions(other(70)))) == [("insert", 0, "lost", 65, 35.0)]


def test_a_fence_that_is_removed_puts_right_what_was_said():
    shapes = {"a": BOX["a"], "b": shapely.box(-1, -1, 30, 30)}
    asked = query(early=True, min_outside=Hysteresis(9), lateness=5)
    stream = FenceBuckets(asked, fence_table(shapes))
    log = stream.feed(positions(track(IN, IN)))
    stream.table = fence_table({"b": shapes["b"]}, version=2)
    log += stream.feed(positions([(1, "v", 20, 5.0, 5.0), (1, "v", 30, 5.0, 5.0)]))
    log += flushed(stream)
    said = [(row["zone"], row["event"], row["reason"]) for row in compacted(log, IDENTITY)]
    assert sorted(said) == [
        ("a", "enter", "first_seen"), ("a", "exit", "fence_removed"), ("b", "enter", "first_seen"),
    ]  # fmt: skip


def test_the_state_stays_small_over_many_micro_batches():
    stream = FenceBuckets(query(early=True, lateness=5, gap=20_000_000), fence_table(SHAPES))
    random, sizes = np.random.default_rng(2), []
    for number in range(120):
        rows = [
            (int(random.integers(20)), "v", number + float(random.integers(4)),
             float(random.integers(20)) / 2, float(random.integers(20)) / 2)
            for _ in range(5)
        ]  # fmt: skip
        stream.feed(positions(rows), forget=number % 9 == 0)
        sizes.append(stream.reports[-1]["state"]["revisable"])
    assert max(sizes[60:]) <= 20
    assert stream.stored_values() < 60
