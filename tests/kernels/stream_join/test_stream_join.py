"""Two streams in space and time against the oracle: any order, cut, bucket, cell and bin."""

import dataclasses
from functools import partial

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
    interval,
    left,
    near,
    right,
    run,
    stream_join,
    windows,
)

import rivermouth as rm
from rivermouth.kernels.stream_join import output_buffer
from rivermouth.kernels.stream_join.salting import SkewTracker
from rivermouth.spec.conditions import Nearest
from rivermouth.spec.windows import sliding, tumbling
from rivermouth.testing import assert_same_rows
from rivermouth.testing.stream_joins import join_interval, join_window

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
METRES = [
    rm.dwithin("a", "b", meters=150_000),
    rm.dwithin(rm.point("lon", "lat"), "b", meters=100_000),
    rm.dwithin("a", rm.point("lon", "lat"), meters=100_000),
    rm.nearest("a", "b", k=2, metric="sphere"),
    rm.nearest(rm.point("lon", "lat"), "b", meters=300_000),
    rm.nearest("a", rm.point("lon", "lat"), k=2, meters=300_000),
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
WINDOWS += [sliding("5 seconds", every="3 seconds", start="1234 milliseconds")]
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


def moved_by(lon, lat):
    """Rows with their shapes and points elsewhere on the sphere."""

    def move(batch):
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        shape = "a" if "a" in columns else "b"
        shapes = shapely.from_wkb(columns[shape].to_numpy(zero_copy_only=False))
        shapes = shapely.transform(shapes, lambda xy: np.add(xy, (lon, lat)))
        columns[shape] = pa.array(shapely.to_wkb(shapes), pa.binary())
        columns["lon"] = pc.add(columns["lon"], float(lon))
        columns["lat"] = pc.add(columns["lat"], float(lat))
        return pa.RecordBatch.from_pydict(columns)

    return move


def apart(batch, seed):
    """Rows with each shape a little elsewhere: two formulas tell equally far ones by rounding."""
    if "b" not in batch.schema.names:
        return batch
    shapes = shapely.from_wkb(batch["b"].to_numpy(zero_copy_only=False))
    shifts = np.random.default_rng(seed).random((len(shapes), 2)) / 100
    moved = [
        shape and shapely.transform(shape, partial(np.add, shift))
        for shape, shift in zip(shapes, shifts, strict=True)
    ]
    column = batch.schema.get_field_index("b")
    return batch.set_column(column, "b", pa.array(shapely.to_wkb(moved), pa.binary()))


#: by the antimeridian, and up to a pole
WHERE = {"antimeridian": moved_by(176, 40), "pole": moved_by(0, 82)}

how_cut = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**32 - 1),
        "kind": st.sampled_from(["any", "points", "polygons"]),
        "how": st.sampled_from(["inner", "left", "right", "full", "semi", "anti"]),
        "keyed": st.booleans(),
        "buckets": st.integers(1, 5),
        "cell": st.sampled_from([None, 0.7, 3.0, 50.0]),
        "salts": st.sampled_from([None, 1, 3]),
        "bin": st.sampled_from([None, SECOND, 4 * SECOND, 100 * SECOND]),
        "lateness": st.sampled_from([0, 3, 50]),
        "batches": st.integers(1, 6),
        "repeats": st.sampled_from([0, 2, 1000]),  # pairs a row from which on they are encoded
        "index": st.sampled_from([None, "bands", "binrtree"]),  # of points
        "salting": st.booleans(),  # whether the salts of cells change now and then
    }
)


def check(on, when, truth, cut, moved=lambda batch: batch):
    """The join over these rows, however they are cut, gives the truth and leaves nothing."""
    left, right = map(moved, sides(cut["seed"], cut["kind"]))
    how = "left" if isinstance(on, Nearest) and cut["how"] in ("right", "full") else cut["how"]
    columns = {} if how in ("semi", "anti") else COLUMNS
    on = on & rm.keys("k") if cut["keyed"] else on
    join = stream_join(
        on, when, left.schema, right.schema, how=how, columns=columns,
        lateness=cut["lateness"] * SECOND, width=cut["bin"], index=cut["index"],
    )  # fmt: skip
    buckets = Buckets(join, cut["buckets"], cell=cut["cell"], salts=cut["salts"])
    rng = np.random.default_rng(cut["seed"])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(output_buffer, "_REPEATS", cut["repeats"])
        if cut["salting"] and buckets.routing.home_side is not None:
            buckets.enough = 1
            patched.setattr(
                SkewTracker, "_wanted", lambda *_: int(rng.integers(1, cut["buckets"] + 1))
            )
        found = run(buckets, left, right, rng, lateness=cut["lateness"], batches=cut["batches"])
    expected = truth(left.to_pylist(), right.to_pylist(), on=on, time=("t", "u"),
                     how=how, columns=columns)  # fmt: skip
    assert_same_rows(_rounded(found), _rounded(expected))
    assert buckets.values == 0


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

    waits = isinstance(on, Nearest) or cut["how"] in ("semi", "anti")
    check(on, windows(window, early=early and not waits), truth, cut)


@pytest.mark.parametrize("on", METRES, ids=str)
@given(between=st.sampled_from(INTERVALS), where=st.sampled_from(["", *WHERE]), cut=how_cut)
@settings(max_examples=6, deadline=None)
def test_metres_between_shapes_equal_the_oracle(on, between, where, cut):
    """Also across the antimeridian, where shapes are drawn beyond 180 degrees, and by a pole."""

    def truth(left, right, **asked):
        return join_interval(left, right, between=between, **asked)

    def moved(batch):
        batch = apart(batch, cut["seed"]) if isinstance(on, Nearest) else batch
        return WHERE[where](batch) if where else batch

    check(on, interval(*between), truth, cut, moved)


@pytest.mark.parametrize("on", METRES[3:5], ids=str)
@given(window=st.sampled_from(WINDOWS), cut=how_cut)
@settings(max_examples=4, deadline=None)
def test_metres_between_shapes_in_windows_equal_the_oracle(on, window, cut):
    def truth(left, right, **asked):
        return join_window(left, right, window=window, **asked)

    check(on, windows(window), truth, cut, partial(apart, seed=cut["seed"]))


def emitted(rows):
    return sorted((row["l"], row["r"]) for row in rows)


def test_a_pair_comes_as_soon_as_both_rows_are_there():
    buckets = near(lateness="1 minute")
    assert emitted(buckets.feed(left((1, 0, 0, 0)), right())) == []
    assert emitted(buckets.feed(left(), right((7, 3, 0, 1), (8, 3, 0, 1.5), (9, 6, 0, 0)))) == [
        (1, 7)
    ]
    assert emitted(buckets.feed(left((2, 5, 0, 1)), right())) == [(2, 7), (2, 8), (2, 9)]


def test_a_window_join_emits_when_the_window_closes_or_at_once_if_early():
    late, early = (
        near(windows(tumbling("10 seconds"))),
        near(windows(tumbling("10 seconds"), early=True)),
    )
    one = left((1, 2, 0, 0)), right((7, 9, 0, 1))
    assert emitted(late.feed(*one)) == []
    assert emitted(early.feed(*one)) == [(1, 7)]
    still_open = left((2, 9, 50, 0)), right((8, 9, 90, 0))
    assert emitted(late.feed(*still_open)) == emitted(early.feed(*still_open)) == []
    past = left((3, 10, 50, 0)), right((9, 10, 90, 0))
    assert emitted(late.feed(*past)) == [(1, 7)]
    assert emitted(early.feed(*past)) == []


def test_a_left_row_without_a_partner_is_emitted_once_none_can_come():
    buckets = near(how="left", lateness="2 seconds")
    assert emitted(buckets.feed(left((1, 0, 0, 0)), right((7, 7, 9, 9)))) == []
    # the watermark is 5 = 7 - 2: a right row of that time may still come for (1, 0)
    assert emitted(buckets.feed(left((2, 7, 50, 0)), right())) == []
    assert buckets.feed(left((3, 8, 50, 0)), right((8, 8, 9, 9)))[0]["l"] == 1


def test_rows_of_either_side_without_a_partner_are_emitted_once_none_can_come():
    buckets = near(interval("-5 seconds", "0 seconds"), how="full", buckets=4, lateness="2 seconds")
    assert emitted(buckets.feed(left((1, 0, 0, 0)), right((7, 0, 0, 1)))) == [(1, 7)]
    assert emitted(buckets.feed(left((2, 3, 50, 0)), right((8, 3, 90, 9)))) == []
    # a left row waits for right rows of its own time at most, a right row for left ones of 5 later
    rows = buckets.feed(left((3, 10, 50, 0)), right((9, 10, 90, 9)))
    assert [(row["l"], row["r"]) for row in rows] == [(2, None)]
    rows = buckets.feed(left((4, 11, 50, 0)), right((10, 11, 90, 9)))
    assert [(row["l"], row["r"]) for row in rows] == [(None, 8)]
    counts = [report["counts"] for report in buckets.reports]
    assert sum(count.get("right_unmatched", 0) for count in counts) == 1


def test_late_rows_are_counted_once_and_emitted_if_asked_for():
    quiet, emitting = near(buckets=4, salts=3), near(buckets=4, salts=3, late_rows=True)
    for buckets in (quiet, emitting):
        buckets.feed(left((1, 100, 0, 0)), right((7, 90, 0, 0)))
    # the slower side's 90 is the watermark: 90 itself is not late, 89 is
    batch = left((2, 89, 0, 0), (3, 90, 0, 0)), right((8, 60, 0, 0), (9, 90, 0, 0))
    assert emitted(quiet.feed(*batch)) == [(3, 7), (3, 9)]
    rows = emitting.feed(*batch)
    kinds = sorted((row["kind"], row["side"], row["l"], row["r"]) for row in rows if row["side"])
    assert kinds == [("late", "left", 2, None), ("late", "right", None, 8)]
    assert sum(report["counts"].get("late", 0) for report in quiet.reports) == 2
    assert emitted(row for row in rows if row["kind"] == "row") == [(3, 7), (3, 9)]


def test_unusable_rows_are_rejected_and_future_rows_do_not_move_the_watermark():
    now = 1000 * SECOND
    buckets = near(buckets=3, late_rows=True, max_future=60 * SECOND)
    odd = left((1, None, 0, 0), (2, 990, None, 0), (3, 5000, 0, 0), (4, 1060, 0, 0))
    rows = buckets.feed(odd, right((7, 999, 0, 0)), now=now)
    assert sorted((row["kind"], row["l"]) for row in rows) == [
        ("future", 3), ("rejected", 1), ("rejected", 2),
    ]  # fmt: skip
    rejected = {}
    for report in buckets.reports:
        rejected |= report["rejected"]
    assert rejected == {"null_time": 1, "invalid_geometry": 1}
    counts = [report["counts"] for report in buckets.reports]
    assert sum(count["future"] for count in counts) == 1
    assert sum(count["rows_in"] for count in counts) == 5
    # had 5000 moved the watermark, this would be late
    assert emitted(buckets.feed(left((5, 999, 0, 0)), right(), now=now)) == [(5, 7)]


def test_a_left_row_without_a_geometry_is_emitted_at_once_per_window():
    buckets = near(windows(sliding("10 seconds", every="5 seconds")), how="left")
    rows = buckets.feed(left((1, 7, None, 0)), right())
    assert sorted(row["window_start"] for row in rows) == [at(0), at(5)]
    assert [report["rejected"] for report in buckets.reports] == [{"invalid_geometry": 1}]
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
    assert buckets.values == 1


def test_large_batches_leave_no_large_values():
    buckets = near(lateness="1 hour", width=3600 * SECOND)
    rows = left(*((n, 0, n % 100, n // 100) for n in range(60_000)))
    buckets.feed(rows, right())
    values = [len(v) for name, v in buckets.stores[0].items() if name != "meta"]
    assert len(values) >= 4
    assert max(values) < 1 << 20
    assert emitted(buckets.feed(left(), right((7, 0, 3, 4)), forget=True)) == sorted(
        (x + 100 * y, 7) for x, y in [(3, 4), (2, 4), (4, 4), (3, 3), (3, 5)]
    )


def test_an_idle_side_does_not_hold_back_the_watermark():
    join = dataclasses.replace(near(how="left").join, idle_timeout=60 * SECOND)
    buckets = Buckets(join)
    buckets.feed(left((1, 0, 0, 0)), right((7, 0, 9, 9)), now=NOW)
    assert emitted(buckets.feed(left((2, 100, 0, 0)), right(), now=NOW + 59 * SECOND)) == []
    rows = buckets.feed(left((3, 101, 0, 0)), right(), now=NOW + 61 * SECOND)
    assert [row["l"] for row in rows] == [1]
    # and when both are idle, everything is emitted
    rows = buckets.feed(left(), right(), now=NOW + 200 * SECOND)
    assert sorted(row["l"] for row in rows) == [2, 3]
    assert buckets.values == 0


def test_a_batch_frame_is_one_call_over_everything():
    buckets = near(how="left", buckets=2)
    rows = buckets.feed(left((1, 0, 0, 0), (2, 900, 5, 5)), right((7, 4, 0, 1)), last=True)
    assert sorted((row["l"], row["r"]) for row in rows) == [(1, 7), (2, None)]
    assert buckets.stores == [{}, {}]


def test_the_nearest_shape_may_be_just_as_far_as_allowed():
    rng = np.random.default_rng(1)
    starts = rng.random((2, 200, 2)) * 100
    lines = shapely.linestrings(np.stack([starts, starts + rng.random((2, 200, 2))], axis=2))
    distances = np.asarray(shapely.distance(*lines))
    # GEOS does not find all of these when asked for shapes within the distance that it measures
    found = [
        (shapely.STRtree([one]).query(other, predicate="dwithin", distance=far)).size
        for one, other, far in zip(lines[1], lines[0], distances, strict=True)
    ]
    assert min(found) == 0
    for pair in np.flatnonzero(np.array(found) == 0):
        one, other = (
            pa.RecordBatch.from_pydict(
                {names[0]: [1], names[1]: pa.array([at(0)], TIME), names[2]: [shapely.to_wkb(line)]}
            )
            for names, line in zip(["lta", "rub"], lines[:, pair], strict=True)
        )
        on = rm.nearest("a", "b", distance=float(distances[pair]))
        joined = stream_join(on, interval("0 seconds", "0 seconds"), one.schema, other.schema,
                             columns={"r": "r"})  # fmt: skip
        rows = run(Buckets(joined), one, other, rng, lateness=0, batches=1)
        assert emitted(rows) == [(1, 1)]
