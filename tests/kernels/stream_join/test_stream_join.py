"""Two streams in space and time against the oracle: any order, cut, bucket, cell and bin."""

import copy
import dataclasses
import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.shapes import pool
from tests.support.stream_joins import (
    NOW,
    SECOND,
    TIME,
    Buckets,
    at,
    in_disorder,
    interval,
    meeting,
    run,
    windows,
)

import rivermouth as rm
from rivermouth.errors import StateError
from rivermouth.kernels.skew.salting import Crowds, Learning, Step, Watch
from rivermouth.kernels.stream_join import output_buffer
from rivermouth.kernels.stream_join.times import Span
from rivermouth.spec.windows import sliding, tumbling
from rivermouth.testing import assert_same_rows
from rivermouth.testing.meetings import join_interval, join_window

SHAPES = [
    *(make("a", "b") for make in (
        rm.within, rm.contains, rm.intersects, rm.covers, rm.covered_by, rm.touches, rm.crosses,
        rm.overlaps, rm.equals,
    )),
    rm.relate("a", "b", "T*F**F***"),
    rm.dwithin("a", "b", distance=0),
    rm.dwithin("a", "b", distance=2),
    rm.nearest("a", "b", k=2),
    rm.nearest("a", "b", k=2, distance=1.5),
]  # fmt: skip
POINTS = [
    rm.dwithin(rm.point("x", "y"), rm.point("v", "w"), distance=1.5),
    rm.dwithin(rm.point("lon", "lat"), rm.point("lon", "lat"), meters=200_000),
    rm.nearest(rm.point("x", "y"), rm.point("v", "w"), k=2),
    rm.nearest(rm.point("lon", "lat"), rm.point("lon", "lat"), meters=200_000),
    rm.within(rm.point("x", "y"), "b"),
    rm.intersects("a", rm.point("v", "w")),
    rm.dwithin(rm.point("x", "y"), "b", distance=1),
    rm.nearest(rm.point("x", "y"), "b", distance=3),
]
INTERVALS = [
    ("-3 seconds", "3 seconds"),
    ("-5 seconds", "0 seconds"),
    ("0 seconds", "4 seconds"),
    ("0 seconds", "0 seconds"),
    ("-6 seconds", "-2 seconds"),
    ("2 seconds", "5 seconds"),
]
WINDOWS = [tumbling("5 seconds"), sliding("6 seconds", every="2 seconds")]
WINDOWS += [sliding("5 seconds", every="3 seconds")]
COLUMNS = {"r": "r", "rk": "k", "ru": "u"}


def sides(seed, kind, count=24, span=20):
    """Rows with points, shapes, keys and times, some of them without one or the other."""
    rng = np.random.default_rng(seed)

    def side(names, shift):
        xy = rng.integers(0, 9, (count, 2)).astype(float)
        xy[rng.random(count) < 0.05] = np.nan
        times = rng.integers(-span // 2, span // 2, count)
        shapes = pool(seed + shift, count, kind)
        return pa.RecordBatch.from_arrays(
            [
                pa.array(range(count), pa.int64()),
                pa.array([None if rng.random() < 0.03 else at(int(t)) for t in times], TIME),
                pa.array([None if s is None else shapely.to_wkb(s) for s in shapes], pa.binary()),
                pa.array(xy[:, 0], from_pandas=True),
                pa.array(xy[:, 1], from_pandas=True),
                # on the sphere no two are equally far: two formulas tell them apart by rounding
                *(
                    pa.array(numbers + rng.random(count) / 100, from_pandas=True)
                    for numbers in xy.T
                ),
                pa.array([None if key == 3 else key for key in rng.integers(0, 4, count).tolist()]),
            ],
            [*names, "lon", "lat", "k"],
        )

    return side(["l", "t", "a", "x", "y"], 0), side(["r", "u", "b", "v", "w"], 1)


how_cut = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**32 - 1),
        "kind": st.sampled_from(["any", "points", "polygons"]),
        "how": st.sampled_from(["inner", "left"]),
        "keyed": st.booleans(),
        "buckets": st.integers(1, 5),
        "cell": st.sampled_from([None, 0.7, 3.0, 50.0]),
        "spread": st.sampled_from([None, 1, 3]),
        "bin": st.sampled_from([None, SECOND, 4 * SECOND, 100 * SECOND]),
        "lateness": st.sampled_from([0, 3, 50]),
        "batches": st.integers(1, 6),
        "repeats": st.sampled_from([0, 2, 1000]),  # pairs a row from which on they are folded
        "learn": st.booleans(),  # whether spots are spread and gathered now and then
    }
)


def check(on, when, truth, cut):
    """The join over these rows, however they are cut, gives the truth and leaves nothing."""
    left, right = sides(cut["seed"], cut["kind"])
    on = on & rm.keys("k") if cut["keyed"] else on
    asked = meeting(
        on, when, left.schema, right.schema, how=cut["how"], columns=COLUMNS,
        lateness=cut["lateness"] * SECOND, width=cut["bin"],
    )  # fmt: skip
    buckets = Buckets(asked, cut["buckets"], cell=cut["cell"], spread=cut["spread"])
    rng = np.random.default_rng(cut["seed"])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(output_buffer, "_REPEATS", cut["repeats"])
        if cut["learn"] and buckets.routing.single is not None:
            buckets.learn = 1
            patched.setattr(Watch, "_wanted", lambda *_: int(rng.integers(1, cut["buckets"] + 1)))
        found = run(buckets, left, right, rng, lateness=cut["lateness"], batches=cut["batches"])
    expected = truth(left.to_pylist(), right.to_pylist(), on=on, time=("t", "u"),
                     how=cut["how"], columns=COLUMNS)  # fmt: skip
    assert_same_rows(_rounded(found), _rounded(expected))
    assert buckets.held == 0


def _rounded(rows):
    """Great circles by two formulas differ in the last digits."""

    def distance(row):
        far = row.get("distance")
        return {} if far is None else {"distance": round(far, 5)}

    return [{**row, **distance(row)} for row in rows]


@pytest.mark.parametrize("on", [*SHAPES, *POINTS], ids=str)
@given(between=st.sampled_from(INTERVALS), cut=how_cut)
@settings(max_examples=6, deadline=None)
def test_intervals_equal_the_oracle(on, between, cut):
    def truth(left, right, **asked):
        return join_interval(left, right, between=between, **asked)

    check(on, interval(*between), truth, cut)


@pytest.mark.parametrize("on", [*SHAPES, *POINTS], ids=str)
@given(window=st.sampled_from(WINDOWS), early=st.booleans(), cut=how_cut)
@settings(max_examples=6, deadline=None)
def test_windows_equal_the_oracle(on, window, early, cut):
    def truth(left, right, **asked):
        return join_window(left, right, window=window, **asked)

    is_nearest = isinstance(on, rm.nearest("a", "b").__class__)
    check(on, windows(window, early=early and not is_nearest), truth, cut)


def points(names, rows):
    """Rows of (id, seconds, x, y)."""
    ids, times, x, y = zip(*rows, strict=True) if rows else ((), (), (), ())
    return pa.RecordBatch.from_arrays(
        [
            pa.array(ids, pa.int64()),
            pa.array([None if t is None else at(t) for t in times], TIME),
            pa.array(x, pa.float64()),
            pa.array(y, pa.float64()),
        ],
        names,
    )


def left(*rows):
    return points(["l", "t", "x", "y"], rows)


def right(*rows):
    return points(["r", "u", "v", "w"], rows)


NEAR = rm.dwithin(rm.point("x", "y"), rm.point("v", "w"), distance=1)
FIVE = ("-5 seconds", "5 seconds")


def near(when=None, *, buckets=1, **asked):
    when = interval(*FIVE) if when is None else when
    routed = {
        name: asked.pop(name) for name in ("cell", "spread", "future", "learn") if name in asked
    }
    made = meeting(NEAR, when, left().schema, right().schema, columns={"r": "r"}, **asked)
    return Buckets(made, buckets, **routed)


def told(rows):
    return sorted((row["l"], row["r"]) for row in rows)


def test_a_pair_comes_as_soon_as_both_rows_are_there():
    buckets = near(lateness="1 minute")
    assert told(buckets.feed(left((1, 0, 0, 0)), right())) == []
    assert told(buckets.feed(left(), right((7, 3, 0, 1), (8, 3, 0, 1.5), (9, 6, 0, 0)))) == [(1, 7)]
    assert told(buckets.feed(left((2, 5, 0, 1)), right())) == [(2, 7), (2, 8), (2, 9)]


def test_a_window_join_speaks_when_the_window_closes_or_at_once_if_asked():
    late, early = (
        near(windows(tumbling("10 seconds"))),
        near(windows(tumbling("10 seconds"), early=True)),
    )
    one = left((1, 2, 0, 0)), right((7, 9, 0, 1))
    assert told(late.feed(*one)) == []
    assert told(early.feed(*one)) == [(1, 7)]
    still_open = left((2, 9, 50, 0)), right((8, 9, 90, 0))
    assert told(late.feed(*still_open)) == told(early.feed(*still_open)) == []
    past = left((3, 10, 50, 0)), right((9, 10, 90, 0))
    assert told(late.feed(*past)) == [(1, 7)]
    assert told(early.feed(*past)) == []


def test_a_left_row_that_found_nothing_comes_once_nothing_can_come():
    buckets = near(how="left", lateness="2 seconds")
    assert told(buckets.feed(left((1, 0, 0, 0)), right((7, 7, 9, 9)))) == []
    # the clock stands at 5 = 7 - 2: a right row of that time may still come for (1, 0)
    assert told(buckets.feed(left((2, 7, 50, 0)), right())) == []
    assert buckets.feed(left((3, 8, 50, 0)), right((8, 8, 9, 9)))[0]["l"] == 1


def test_late_rows_are_counted_once_and_told_if_asked_for():
    quiet, telling = near(buckets=4, spread=3), near(buckets=4, spread=3, late_rows=True)
    for buckets in (quiet, telling):
        buckets.feed(left((1, 100, 0, 0)), right((7, 90, 0, 0)))
    # the slower side's 90 is the clock: 90 itself is not late, 89 is
    batch = left((2, 89, 0, 0), (3, 90, 0, 0)), right((8, 60, 0, 0), (9, 90, 0, 0))
    assert told(quiet.feed(*batch)) == [(3, 7), (3, 9)]
    rows = telling.feed(*batch)
    kinds = sorted((row["kind"], row["side"], row["l"], row["r"]) for row in rows if row["side"])
    assert kinds == [("late", "left", 2, None), ("late", "right", None, 8)]
    assert sum(report["counts"].get("late", 0) for report in quiet.reports) == 2
    assert told(row for row in rows if row["kind"] == "row") == [(3, 7), (3, 9)]


def test_what_cannot_take_part_is_rejected_and_the_future_moves_no_clock():
    now = 1000 * SECOND
    buckets = near(buckets=3, late_rows=True, future=60 * SECOND)
    odd = left((1, None, 0, 0), (2, 990, None, 0), (3, 5000, 0, 0), (4, 1060, 0, 0))
    rows = buckets.feed(odd, right((7, 999, 0, 0)), now=now)
    assert sorted((row["kind"], row["l"]) for row in rows) == [
        ("future", 3), ("rejected", 1), ("rejected", 2),
    ]  # fmt: skip
    aside = {}
    for report in buckets.reports:
        aside |= report["rejected"]
    assert aside == {"null_time": 1, "no_place": 1}
    counts = [report["counts"] for report in buckets.reports]
    assert sum(count["future"] for count in counts) == 1
    assert sum(count["rows_in"] for count in counts) == 5
    # had 5000 moved the clock, this would be late
    assert told(buckets.feed(left((5, 999, 0, 0)), right(), now=now)) == [(5, 7)]


def test_a_left_row_without_a_place_comes_out_at_once_per_window():
    buckets = near(windows(sliding("10 seconds", every="5 seconds")), how="left")
    rows = buckets.feed(left((1, 7, None, 0)), right())
    assert sorted(row["window_start"] for row in rows) == [at(0), at(5)]
    assert [report["rejected"] for report in buckets.reports] == [{"no_place": 1}]
    assert buckets.reports[0]["counts"]["rows_in"] == 1


def test_the_state_stays_flat_on_a_long_steady_stream():
    buckets = near(buckets=2, lateness="2 seconds", how="left")
    rng, sizes = np.random.default_rng(1), []
    for second in range(120):
        xy = rng.integers(0, 30, (2, 20, 2)).tolist()
        buckets.feed(
            left(*((n, second, *p) for n, p in enumerate(xy[0]))),
            right(*((n, second, *p) for n, p in enumerate(xy[1]))),
        )
        sizes.append(sum(len(value) for store in buckets.stores for value in store.values()))
    assert max(sizes[60:]) <= 1.1 * max(sizes[20:60])


def test_small_batches_leave_no_small_values():
    buckets = near(lateness="1 hour", width=3600 * SECOND)
    for number in range(200):
        buckets.feed(left((number, number, number, 0)), right())
    assert buckets.held == 1


def test_large_batches_leave_no_large_values():
    buckets = near(lateness="1 hour", width=3600 * SECOND)
    rows = left(*((n, 0, n % 100, n // 100) for n in range(60_000)))
    buckets.feed(rows, right())
    values = [len(v) for name, v in buckets.stores[0].items() if name != "meta"]
    assert len(values) >= 4
    assert max(values) < 1 << 20
    assert told(buckets.feed(left(), right((7, 0, 3, 4)), forget=True)) == sorted(
        (x + 100 * y, 7) for x, y in [(3, 4), (2, 4), (4, 4), (3, 3), (3, 5)]
    )


def test_a_crowded_cell_can_be_spread_over_buckets():
    rng = np.random.default_rng(1)
    spots = rng.random((4000, 2)) / 2
    rows = left(*((n, n / 1000, *spot) for n, spot in enumerate(spots.tolist())))
    one, many = near(buckets=8), near(buckets=8, spread=8)
    crowd = [np.bincount(b.routed(0, rows).bucket, minlength=8) for b in (one, many)]
    assert crowd[0].max() == 4000
    assert crowd[1].max() < 700


def half_in_one_cell(seed, seconds, rows=40, crowd=0.5):
    """A batch for each time; half of the rows of both sides are in one cell of a large city."""
    step = seconds.step
    rng = np.random.default_rng(seed)
    for second in seconds:
        spots = rng.random((2, rows, 2)) * 800
        spots[rng.random((2, rows)) < crowd] = rng.random(2) * 8
        times = second + np.sort(rng.random((2, rows)), axis=1) * step
        ids = second * rows + np.arange(rows)
        yield tuple(
            side(*zip(ids.tolist(), times[n].tolist(), *spots[n].T.tolist(), strict=True))
            for n, side in enumerate((left, right))
        )


def crowding(buckets=8, **asked):
    return near(interval("-2 seconds", "2 seconds"), buckets=buckets, learn=25, **asked)


def test_a_crowded_cell_is_spread_and_gathered_again_while_the_stream_flows():
    """The same pairs as ever, and no bucket has much more than its share."""
    spread, still = crowding(), near(interval("-2 seconds", "2 seconds"), buckets=8)
    loads = []
    for batch in half_in_one_cell(1, range(40)):
        loads.append(np.bincount(spread.routed(0, batch[0]).bucket, minlength=8).max() / 40)
        assert_same_rows(spread.feed(*batch), still.feed(*batch))
    assert loads[0] > 0.5
    assert np.mean(loads[-10:]) < 0.3
    assert sum(report["state"]["salted_cells"] for report in spread.reports[-8:]) == 1
    for batch in half_in_one_cell(2, range(40, 90), crowd=0):
        assert_same_rows(spread.feed(*batch), still.feed(*batch))
    assert spread.crowds == Crowds()


@pytest.mark.parametrize("when", [*INTERVALS, *WINDOWS], ids=str)
def test_whatever_is_decided_the_pairs_are_the_same(when, monkeypatch):
    """Spread and gathered at random, again and again, in disorder."""
    rng = np.random.default_rng(5)
    monkeypatch.setattr(Watch, "_wanted", lambda *_: int(rng.choice([1, 3, 8])))
    when = interval(*when) if isinstance(when, tuple) else windows(when)
    asked = {"how": "left", "lateness": "8 seconds"}
    learned, still = near(when, buckets=8, learn=1, **asked), near(when, buckets=8, **asked)
    batches = zip(*half_in_one_cell(6, range(0, 150, 3), rows=8, crowd=1), strict=True)
    both = [pa.Table.from_batches(side).combine_chunks().to_batches()[0] for side in batches]
    both = [in_disorder(rng, side, time, 8) for side, time in zip(both, "tu", strict=True)]
    known = set()
    for begin in range(0, len(both[0]), 8):
        parts = [side.slice(begin, 8) for side in both]
        assert_same_rows(learned.feed(*parts), still.feed(*parts))
        known |= set(learned.crowds.steps)
    assert len(known) > 2


def test_steps_matter_as_long_as_a_row_that_may_come_could_ask_for_them():
    """Spot 0 is gathered after time 200; a row of time 202 may meet one of time 199."""
    steps = (Step(0, 100, 4, 0), Step(0, 200, 1, 5))
    said = []
    learning = Learning(9, lambda *told: said.append(told))
    for reached, known in ((203, False), (204, True)):
        watch = Watch(0, 8, Span(-3, 3), Crowds(steps))
        for told in ([], steps[1:]):
            if known:
                watch.check([{"steps": told, "rows": 0}], learning, reached)
            else:
                with pytest.raises(StateError, match="not dealt by the rules"):
                    watch.check([{"steps": told, "rows": 0}], learning, reached)
    assert said == [(0, steps), (0, steps)]


def counted(watch, rows, others, pairs, *, elsewhere=0, spot=0, at=0):
    """Rows of a spot, dealt by what the watch knows, and of other buckets' spots."""
    own = np.full(rows, spot)
    guests = np.full(elsewhere, 1 << 33)
    spots, notes = np.concatenate([own, guests]), [{"steps": (), "rows": 1000}]
    watch.count(spots, np.full(len(spots), at), notes, others, pairs)


def test_what_is_spread_has_shares_and_pairs_that_are_worth_it():
    def wanted(**counts):
        said = []
        watch = Watch(0, 4, Span(-3, 3))
        counted(watch, **counts)
        watch.decide(Learning(0, lambda *told: said.extend(told[1])), 100, 0)
        return [step.spread for step in said]

    assert wanted(rows=500, others=500, pairs=50_000) == [2]  # a share is 250
    assert wanted(rows=900, others=900, pairs=50_000) == [4]
    assert wanted(rows=900, others=900, pairs=9_000) == [3]  # the pairs are worth two copies
    assert wanted(rows=900, others=900, pairs=900) == []
    assert wanted(rows=250, others=500, pairs=50_000) == []
    # the pairs of rows that are dealt to this bucket only for they are crowded elsewhere
    assert wanted(rows=500, others=500, pairs=9_000, elsewhere=4500) == []
    # few shapes meet many points
    assert wanted(rows=900, others=3, pairs=1800) == [4]


def test_a_spot_over_two_buckets_is_gathered_when_half_a_share_is_left():
    for rows, steps in ((130, 1), (120, 2)):
        said = []
        watch = Watch(0, 4, Span(-3, 3), Crowds((Step(0, -9, 2, 0),)))
        counted(watch, rows=rows // 2, others=200, pairs=0)
        watch.decide(Learning(1, lambda *told, said=said: said.extend(told[1])), 100, -20)
        assert len(watch.steps.steps) == steps
    assert [step.spread for step in said] == [2, 1]


def test_a_spot_has_one_step_at_a_time():
    """Where the newest time stands still, what was decided for it stands."""
    watch = Watch(0, 4, Span(-3, 3))
    learning = Learning(0, lambda *_: None)
    for pairs in (50_000, 0, 50_000):
        counted(watch, rows=900, others=900, pairs=pairs)
        watch.decide(learning, 100, 0)
        assert watch.steps.steps == (Step(0, 103, 4, 0),)
    counted(watch, rows=900, others=900, pairs=0)
    watch.decide(learning, 101, 0)
    assert [step.spread for step in watch.steps.steps] == [4, 1]


@pytest.mark.parametrize("lateness", [0, 20 * SECOND])
def test_a_join_begins_to_learn_over_the_state_that_it_has(lateness):
    """Also where fewer rows are late from then on: the newest time is known all the same."""
    asked = {"lateness": 20 * SECOND}
    learned, still = (near(interval("-2 seconds", "2 seconds"), buckets=8, **asked) for _ in "ab")
    newest = 0
    for number, batch in enumerate(half_in_one_cell(7, range(40))):
        if number == 12:
            learned.learn = 25
            for one in (learned, still):
                one.asked = dataclasses.replace(one.asked, lateness=(lateness, lateness))
            learned.feed(batch[0].slice(0, 0), batch[1].slice(0, 0), forget=True)
            assert {json.loads(store["meta"])["seen"] for store in learned.stores} == {newest}
        newest = max(
            pc.max(side.column(time)).value for side, time in zip(batch, "tu", strict=True)
        )
        assert_same_rows(learned.feed(*batch, forget=number == 12), still.feed(*batch))
    assert learned.crowds.steps
    assert learned.feed() == []  # a timer's step: no task has said anything


def test_a_batch_that_runs_again_deals_its_rows_as_before():
    """What was decided in it is known, then, but does not count yet."""
    buckets = crowding(how="left")
    for batch in half_in_one_cell(3, range(30)):
        stores, number = copy.deepcopy(buckets.stores), buckets.batch
        once = buckets.feed(*batch)
        folder = copy.deepcopy(buckets.folder)
        buckets.stores, buckets.batch = stores, number
        assert_same_rows(buckets.feed(*batch, forget=True), once)
        assert buckets.folder == folder
    assert buckets.crowds.steps


@pytest.mark.parametrize("there", ["nothing", "others", "of more buckets"])
def test_rules_that_are_lost_or_of_another_query_are_put_right(there):
    """Nothing is told by the wrong rules; each bucket puts its own right and has one start anew."""
    buckets, still = crowding(), near(interval("-2 seconds", "2 seconds"), buckets=8)
    batches = list(half_in_one_cell(3, range(31)))
    for batch in batches[:-1]:
        buckets.feed(*batch)
        still.feed(*batch)
    if there == "nothing":
        buckets.folder = {}
    elif there == "others":
        for seed in range(4, 8):
            other = crowding()
            for batch in half_in_one_cell(seed, range(30)):
                other.feed(*batch)
            buckets.folder |= other.folder
    else:
        buckets.folder[0] = [Step(spot << 33, 0, 8, 0) for spot in range(8)]
    stores, said = buckets.stores, []
    for _ in range(8):
        buckets.stores = copy.deepcopy(stores)
        try:
            rows = buckets.feed(*batches[-1], forget=True)
        except StateError as error:
            said.append(str(error))
        else:
            break
    assert said
    assert all("Start the query again" in text for text in said)
    assert_same_rows(rows, still.feed(*batches[-1]))


def test_a_query_that_does_not_learn_refuses_a_state_that_was_spread():
    buckets = crowding()
    batches = list(half_in_one_cell(3, range(31)))
    for batch in batches[:-1]:
        buckets.feed(*batch)
    buckets.learn = None
    with pytest.raises(StateError, match="learns crowded places"):
        buckets.feed(*batches[-1], forget=True)


def test_far_cells_spread_evenly_over_buckets():
    rng = np.random.default_rng(1)
    rows = left(*((n, 0, *spot) for n, spot in enumerate((rng.random((20_000, 2)) * 300).tolist())))
    counts = np.bincount(near(buckets=8).routed(0, rows).bucket, minlength=8)
    assert counts.max() < 1.2 * counts.mean()


def test_an_idle_side_holds_nobody_up_where_that_is_asked_for():
    asked = dataclasses.replace(near(how="left").asked, idle=60 * SECOND)
    buckets = Buckets(asked)
    buckets.feed(left((1, 0, 0, 0)), right((7, 0, 9, 9)), now=NOW)
    assert told(buckets.feed(left((2, 100, 0, 0)), right(), now=NOW + 59 * SECOND)) == []
    rows = buckets.feed(left((3, 101, 0, 0)), right(), now=NOW + 61 * SECOND)
    assert [row["l"] for row in rows] == [1]
    # and when both are silent, everything is told
    rows = buckets.feed(left(), right(), now=NOW + 200 * SECOND)
    assert sorted(row["l"] for row in rows) == [2, 3]
    assert buckets.held == 0


def test_a_batch_frame_is_one_step_over_everything():
    buckets = near(how="left", buckets=2)
    rows = buckets.feed(left((1, 0, 0, 0), (2, 900, 5, 5)), right((7, 4, 0, 1)), last=True)
    assert sorted((row["l"], row["r"]) for row in rows) == [(1, 7), (2, None)]
    assert buckets.stores == [{}, {}]


def test_where_rows_live_does_not_change():
    """A checkpoint's rows are found where they were left, by every process and version."""
    spots = left((1, 0, 0, 0), (2, 5, 90, -3), (3, 9, -1e6, 7))
    assert near(buckets=16).routed(0, spots).bucket.tolist() == [0, 6, 2]
    assert near(buckets=16, spread=4).routed(0, spots).bucket.tolist() == [0, 6, 5]
