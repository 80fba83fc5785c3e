"""Salting of skewed cells: the same pairs whatever is salted, and a load that evens out."""

import copy
import dataclasses
import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.support.stream_joins import SECOND, in_disorder, interval, left, near, right, windows

import rivermouth as rm
from rivermouth.errors import StateError
from rivermouth.kernels.stream_join.salting import (
    SaltChange,
    SaltingContext,
    SaltSchedule,
    SkewTracker,
)
from rivermouth.kernels.stream_join.times import TimeBounds
from rivermouth.testing import assert_same_rows

TWO = interval("-2 seconds", "2 seconds")


def test_every_cell_can_be_salted():
    rng = np.random.default_rng(1)
    xy = rng.random((4000, 2)) / 2
    rows = left(*((n, n / 1000, *one) for n, one in enumerate(xy.tolist())))
    plain, salted = near(buckets=8), near(buckets=8, salts=8)
    loads = [np.bincount(b.routed(0, rows).bucket, minlength=8) for b in (plain, salted)]
    assert loads[0].max() == 4000
    assert loads[1].max() < 700


def half_in_one_cell(seed, seconds, rows=40, share=0.5):
    """A batch for each time; half of the rows of both sides are in one cell of a large city."""
    step = seconds.step
    rng = np.random.default_rng(seed)
    for second in seconds:
        xy = rng.random((2, rows, 2)) * 800
        xy[rng.random((2, rows)) < share] = rng.random(2) * 8
        times = second + np.sort(rng.random((2, rows)), axis=1) * step
        ids = second * rows + np.arange(rows)
        yield tuple(
            side(*zip(ids.tolist(), times[n].tolist(), *xy[n].T.tolist(), strict=True))
            for n, side in enumerate((left, right))
        )


def tracking(**asked):
    return near(TWO, buckets=8, enough=25, **asked)


def test_a_skewed_cell_is_salted_as_long_as_it_is_skewed():
    """The same pairs as ever, and no bucket has much more than its share."""
    salted, plain = tracking(), near(TWO, buckets=8)
    loads = []
    for batch in half_in_one_cell(1, range(40)):
        loads.append(np.bincount(salted.routed(0, batch[0]).bucket, minlength=8).max() / 40)
        assert_same_rows(salted.feed(*batch), plain.feed(*batch))
    assert loads[0] > 0.5
    assert np.mean(loads[-10:]) < 0.3
    assert sum(report["state"]["salted_cells"] for report in salted.reports[-8:]) == 1
    for batch in half_in_one_cell(2, range(40, 90), share=0):
        assert_same_rows(salted.feed(*batch), plain.feed(*batch))
    assert salted.schedule == SaltSchedule()


@pytest.mark.parametrize(
    "when",
    [
        interval("-3 seconds", "3 seconds"),
        interval("-5 seconds", "0 seconds"),
        interval("0 seconds", "4 seconds"),
        interval("0 seconds", "0 seconds"),
        interval("-6 seconds", "-2 seconds"),
        interval("2 seconds", "5 seconds"),
        windows(rm.tumbling("5 seconds")),
        windows(rm.sliding("6 seconds", every="2 seconds")),
        windows(rm.sliding("5 seconds", every="3 seconds")),
        windows(rm.sliding("5 seconds", every="3 seconds", start="1 second")),
    ],
    ids=str,
)
def test_whatever_is_decided_the_pairs_are_the_same(when, monkeypatch):
    """Salts change at random, again and again, and rows come in disorder."""
    rng = np.random.default_rng(5)
    monkeypatch.setattr(SkewTracker, "_wanted", lambda *_: int(rng.choice([1, 3, 8])))
    asked = {"how": "left", "lateness": "8 seconds"}
    salted, plain = near(when, buckets=8, enough=1, **asked), near(when, buckets=8, **asked)
    batches = zip(*half_in_one_cell(6, range(0, 150, 3), rows=8, share=1), strict=True)
    both = [pa.Table.from_batches(side).combine_chunks().to_batches()[0] for side in batches]
    both = [in_disorder(rng, side, time, 8) for side, time in zip(both, "tu", strict=True)]
    known = set()
    for begin in range(0, len(both[0]), 8):
        parts = [side.slice(begin, 8) for side in both]
        assert_same_rows(salted.feed(*parts), plain.feed(*parts))
        known |= set(salted.schedule.changes)
    assert len(known) > 2


def test_changes_matter_as_long_as_a_row_that_may_come_could_depend_on_them():
    """Cell 0 has one salt after time 200; a row of time 202 may be joined with one of time 199."""
    changes = (SaltChange(0, 100, 4, 0), SaltChange(0, 200, 1, 5))
    published = []
    salting = SaltingContext(9, lambda *args: published.append(args))
    for watermark, known in ((203, False), (204, True)):
        tracker = SkewTracker(0, 8, TimeBounds(-3, 3), SaltSchedule(changes))
        for used in ([], changes[1:]):
            if known:
                tracker.check([{"changes": used, "rows": 0}], salting, watermark)
            else:
                with pytest.raises(StateError, match="not salted by the changes"):
                    tracker.check([{"changes": used, "rows": 0}], salting, watermark)
    assert published == [(0, changes), (0, changes)]


def count(tracker, rows, others, pairs, *, elsewhere=0):
    """Rows of cell 0, and of a cell whose home is another bucket."""
    cell_keys = np.concatenate([np.zeros(rows, np.int64), np.full(elsewhere, 1 << 33)])
    notes = [{"changes": (), "rows": 1000}]
    tracker.count(cell_keys, np.zeros(len(cell_keys), np.int64), notes, others, pairs)


def test_the_number_of_salts_follows_the_shares_and_pairs_of_a_cell():
    def wanted(**counts):
        tracker = SkewTracker(0, 4, TimeBounds(-3, 3))
        count(tracker, **counts)
        tracker.decide(SaltingContext(0, lambda *_: None), 100, 0)
        return [change.salts for change in tracker.schedule.changes]

    assert wanted(rows=500, others=500, pairs=50_000) == [2]  # a share is 250
    assert wanted(rows=900, others=900, pairs=50_000) == [4]
    assert wanted(rows=900, others=900, pairs=9_000) == [3]  # the pairs are worth two replicas
    assert wanted(rows=900, others=900, pairs=900) == []
    assert wanted(rows=250, others=500, pairs=50_000) == []
    # the pairs are those of rows that another bucket's cell sent here
    assert wanted(rows=500, others=500, pairs=9_000, elsewhere=4500) == []
    # few shapes with many points
    assert wanted(rows=900, others=3, pairs=1800) == [4]


def test_a_cell_with_two_salts_has_one_when_half_a_share_is_left():
    for rows, salts in ((130, [2]), (120, [2, 1])):
        schedule = SaltSchedule((SaltChange(0, -9, 2, 0),))
        tracker = SkewTracker(0, 4, TimeBounds(-3, 3), schedule)
        count(tracker, rows=rows // 2, others=200, pairs=0)
        tracker.decide(SaltingContext(1, lambda *_: None), 100, -20)
        assert [change.salts for change in tracker.schedule.changes] == salts


def test_a_cell_has_one_change_at_a_time():
    """Where the newest time stands still, what was decided for it stands."""
    tracker = SkewTracker(0, 4, TimeBounds(-3, 3))
    salting = SaltingContext(0, lambda *_: None)
    for pairs in (50_000, 0, 50_000):
        count(tracker, rows=900, others=900, pairs=pairs)
        tracker.decide(salting, 100, 0)
        assert tracker.schedule.changes == (SaltChange(0, 103, 4, 0),)
    count(tracker, rows=900, others=900, pairs=0)
    tracker.decide(salting, 101, 0)
    assert [change.salts for change in tracker.schedule.changes] == [4, 1]


@pytest.mark.parametrize("lateness", [0, 20 * SECOND])
def test_a_join_begins_to_track_skew_over_the_state_that_it_has(lateness):
    """Also where fewer rows are late from then on: the newest time is known all the same."""
    asked = {"lateness": 20 * SECOND}
    salted, plain = (near(TWO, buckets=8, **asked) for _ in "ab")
    newest = 0
    for number, batch in enumerate(half_in_one_cell(7, range(40))):
        if number == 12:
            salted.enough = 25
            for one in (salted, plain):
                one.join = dataclasses.replace(one.join, lateness=(lateness, lateness))
            salted.feed(batch[0].slice(0, 0), batch[1].slice(0, 0), forget=True)
            assert {json.loads(store["meta"])["seen"] for store in salted.stores} == {newest}
        newest = max(
            pc.max(side.column(time)).value for side, time in zip(batch, "tu", strict=True)
        )
        assert_same_rows(salted.feed(*batch, forget=number == 12), plain.feed(*batch))
    assert salted.schedule.changes
    assert salted.feed() == []  # a timer: no task has sent anything


def test_a_batch_that_runs_again_assigns_its_rows_as_before():
    """What was decided in it is published by then, but does not apply yet."""
    buckets = tracking(how="left")
    for batch in half_in_one_cell(3, range(30)):
        stores, number = copy.deepcopy(buckets.stores), buckets.batch
        once = buckets.feed(*batch)
        published = copy.deepcopy(buckets.published)
        buckets.stores, buckets.batch = stores, number
        assert_same_rows(buckets.feed(*batch, forget=True), once)
        assert buckets.published == published
    assert buckets.schedule.changes


@pytest.mark.parametrize("there", ["nothing", "others", "of more buckets"])
def test_changes_that_are_lost_or_of_another_query_are_restored_from_the_state(there):
    """Nothing is emitted by wrong salting; each bucket restores its own and asks for a restart."""
    buckets, plain = tracking(), near(TWO, buckets=8)
    batches = list(half_in_one_cell(3, range(31)))
    for batch in batches[:-1]:
        buckets.feed(*batch)
        plain.feed(*batch)
    if there == "nothing":
        buckets.published = {}
    elif there == "others":
        for seed in range(4, 8):
            other = tracking()
            for batch in half_in_one_cell(seed, range(30)):
                other.feed(*batch)
            buckets.published |= other.published
    else:
        buckets.published[0] = [SaltChange(cell << 33, 0, 8, 0) for cell in range(8)]
    stores, errors = buckets.stores, []
    for _ in range(8):
        buckets.stores = copy.deepcopy(stores)
        try:
            rows = buckets.feed(*batches[-1], forget=True)
        except StateError as error:
            errors.append(str(error))
        else:
            break
    assert errors
    assert all("Restart the query" in text for text in errors)
    assert_same_rows(rows, plain.feed(*batches[-1]))


def test_a_query_that_does_not_track_skew_refuses_a_state_that_was_salted():
    buckets = tracking()
    batches = list(half_in_one_cell(3, range(31)))
    for batch in batches[:-1]:
        buckets.feed(*batch)
    buckets.enough = None
    with pytest.raises(StateError, match="salts skewed cells"):
        buckets.feed(*batches[-1], forget=True)


def test_a_skewed_key_is_salted_where_there_is_no_geometry():
    salted, plain = (
        near(TWO, buckets=8, enough=enough, on=rm.keys({"x": "v"})) for enough in (25, None)
    )
    for second in range(20):
        sides = [
            side(*((second * 40 + n, second, float(n % 5 if n % 2 else 7), 0.0) for n in range(40)))
            for side in (left, right)
        ]
        assert_same_rows(salted.feed(*sides), plain.feed(*sides))
    assert salted.schedule.changes
