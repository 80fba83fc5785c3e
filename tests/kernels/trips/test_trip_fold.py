"""Moves and stays in buckets: any order within the lateness, cut and buckets, each row once."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.examples import examples
from tests.support.trajectories import SCHEMA, TIME, Buckets, at, cut, in_disorder, positions

import rivermouth as rm
from rivermouth.kernels.trajectory.query import Trajectory
from rivermouth.kernels.trajectory.routing import PositionRouter
from rivermouth.kernels.trips.fold import Coordinates, TripFold, Trips, X, Y
from rivermouth.kernels.trips.segmentation import Segmentation
from rivermouth.kernels.trips.track_log import TrackLog
from rivermouth.testing.tracks import Fleet, tracks
from rivermouth.testing.trips import trips

SECOND = 1_000_000
POINT = rm.point("x", "y")


def buckets_of(
    how, count=1, *, lateness=0, min_length=0.0, late_rows=False, idle_timeout=None, early=False
):
    by, time = ("id", "name"), "t"
    made = Trips(by, time, how, min_length, TIME)
    columns = tuple(SCHEMA.names) if late_rows else (*by, time)
    output = [*((name, SCHEMA.field(name).type) for name in by), *made.fields()]
    if early:
        output = [("change", pa.string()), *output, ("revision", pa.int64())]
    record = [("record", pa.struct(list(SCHEMA))), ("reason", pa.string())]
    query = Trajectory(
        by,
        time,
        pa.schema([(name, SCHEMA.field(name).type) for name in by]
                  + [(time, pa.int64()), (X, pa.float64()), (Y, pa.float64())]),
        (X, Y),
        lateness * SECOND,
        pa.schema(output + (record if late_rows else [])),
        idle_timeout,
        closes=True,
        identity=(*by, "begin") if early else (),
    )  # fmt: skip

    def router():
        enrich = Coordinates(POINT, columns, 0, how.on_sphere)
        return PositionRouter(
            by, time, POINT, SCHEMA, count, 0, on_sphere=how.on_sphere, only_points=True,
            enrich=enrich,
        )  # fmt: skip

    return Buckets(query, lambda: TripFold(made), count, router=router, log=TrackLog)


def truth(batch, how, min_length=0.0):
    return trips(
        batch.to_pylist(), by=["id", "name"], time="t", point=POINT,
        gap=dt.timedelta(microseconds=how.gap),
        stop=None if how.radius is None else (how.radius, dt.timedelta(microseconds=how.duration)),
        min_length=min_length, metric="sphere" if how.on_sphere else "planar",
    )  # fmt: skip


def plain(rows):
    """Rows that can be compared: paths as WKT, lengths rounded, in order."""
    made = []
    for row in rows:
        path = row["path"]
        path = shapely.from_wkb(path) if isinstance(path, bytes) else path
        length = round(row["length"], 6)
        made.append(tuple({**row, "path": path.wkt, "length": length}.values()))
    return sorted(made, key=str)


FAR = [(9, "z", 10_000, 0.0, 0.0)]  # moves the watermark past all others


@st.composite
def streams(draw):
    steps = st.tuples(
        st.integers(0, 2), st.sampled_from("ab"), st.integers(0, 3), st.integers(-2, 2),
        st.integers(-1, 1),
    )  # fmt: skip
    rows, now = [], {}
    for who, name, pause, dx, dy in draw(st.lists(steps, max_size=60)):
        time, x, y = now.get((who, name), (0, 0, 0))
        now[who, name] = time + pause, x + dx, y + dy  # a pause of 0: two places at one time
        rows.append((who, name, *now[who, name]))
    how = Segmentation(
        gap=draw(st.integers(1, 4)) * SECOND,
        radius=draw(st.sampled_from([None, 0.0, 1.0, 2.5])),
        duration=draw(st.integers(1, 8)) * SECOND,
    )
    rows = sorted(rows, key=lambda row: row[2])
    return [(*row[:3], float(row[3]), float(row[4])) for row in rows], how


@settings(max_examples=examples(150))
@given(
    streams(), st.integers(0, 4), st.integers(1, 3), st.integers(1, 6), st.sampled_from([0, 1.5]),
    st.integers(0, 2**32),
)  # fmt: skip
def test_any_order_cut_and_buckets_give_the_rows_of_the_oracle(
    case, lateness, count, parts, min_length, seed
):
    rows, how = case
    random = np.random.default_rng(seed)
    batch = positions(rows)
    expected = plain(truth(batch, how, min_length))
    made = buckets_of(how, count, lateness=lateness, min_length=min_length)
    arrived = in_disorder(random, batch, lateness * SECOND) if len(batch) else batch
    found = []
    for part in cut(random, arrived, parts):
        found += made.feed(part, forget=bool(random.integers(2)))
    found += made.feed(positions(FAR))
    assert plain(row for row in found if row["id"] != 9) == expected
    assert made.counts["rows_in"] == len(rows) + 1
    assert made.counts["late"] == 0


@pytest.mark.parametrize("on_sphere", [False, True])
def test_a_batch_frame_gives_the_same_rows_and_keeps_nothing(on_sphere):
    made = tracks(Fleet(silent=0.5), objects=5, seconds=9000, seed=4)
    scale = 1e-5 if on_sphere else 1.0
    batch = positions(
        [
            (row["object"], "a", row["at"].timestamp(), row["x"] * scale, row["y"] * scale)
            for row in made.to_pylist()
        ]
    )
    how = Segmentation(300 * SECOND, 30.5, 120 * SECOND, on_sphere)
    expected = plain(truth(batch, how))
    whole = buckets_of(how, 2)
    assert plain(whole.feed(batch, last=True)) == expected
    assert whole.stored_values() == 0
    kinds = [row[2] for row in expected]
    assert kinds.count("stay") > 20
    # a stream in order, a few positions at a time, of workers that forget now and then
    stream = buckets_of(how, 2)
    found = []
    for k in range(0, len(batch), 20):
        found += stream.feed(batch.slice(k, 20), forget=k % 100 == 0)
    found += stream.feed(positions([(9, "z", 10**10, 0.0, 0.0)]))
    assert plain(row for row in found if row["id"] != 9) == expected


def test_idle_objects_leave_the_state():
    how = Segmentation(gap=10 * SECOND, radius=1.0, duration=5 * SECOND)
    made = buckets_of(how)
    for start in range(0, 1000, 100):
        rows = [
            (who, "a", start + step, float(step), 0.0) for step in range(5) for who in range(50)
        ]
        made.feed(positions(rows))
    state = made.reports[-1]["state"]
    # the newest positions wait; of those before, the objects that are still expected
    assert state["objects"] == 50
    assert state["open_positions"] == 200
    made.feed(positions(FAR))
    assert made.reports[-1]["state"] == {"positions": 1, "objects": 0, "open_positions": 0}
    assert not [key for key in made.stores[0] if key.startswith("t/")]


def test_a_long_move_is_written_once_not_again_in_each_micro_batch():
    """Many micro-batches of one position of one move: bytes written grow evenly."""
    how = Segmentation(gap=10 * SECOND)
    made = buckets_of(how)
    written = Written()
    made.stores = [written]
    sizes = []
    for k in range(400):
        found = made.feed(positions([(1, "a", k, float(k), 0.0)]))
        assert not found
        sizes.append(written.bytes)
    first, second = sizes[199], sizes[399] - sizes[199]
    assert second < 1.5 * first
    (row,) = made.feed(positions([(1, "a", 2000, 0.0, 0.0)]))
    assert (row["positions"], row["length"], row["kind"]) == (400, 399.0, "move")


class Written(dict):
    """A store that counts the bytes written to it, manifests left out."""

    bytes = 0

    def __setitem__(self, key, value):
        if key != "meta":
            self.bytes += len(value)
        super().__setitem__(key, value)


def test_finished_positions_do_not_stay_behind_an_open_move():
    """One object moves on and on; the others' short trips come and go and must not pile up."""
    how = Segmentation(gap=3 * SECOND)
    made = buckets_of(how)
    for k in range(400):
        rows = [(0, "a", k, float(k), 0.0)]
        rows += [(1 + k // 5, "b", k, float(i), float(i)) for i in range(30) if k % 5 != 4]
        rows += [(100_000 + 50 * (k // 5) + i, "c", k, float(i), 0.0) for i in range(50)
                 if k % 5 != 4]  # fmt: skip
        made.feed(positions(rows))
    log = made.caches[0]["trajectory"].log
    assert log.sizes()["open_positions"] < 1000
    assert len(log._segments) < 2 * len(log) + 5000  # 25,000 came


def test_late_future_and_unusable_positions_are_rows_on_request():
    how = Segmentation(gap=5 * SECOND, radius=1.0, duration=5 * SECOND)
    made = buckets_of(how, lateness=2, late_rows=True)
    made.now = 100 * SECOND
    rows = [(1, "a", 50, 0.0, 0.0), (1, "a", 51, 5.0, 0.0), (1, "a", 40, 1.0, 1.0)]
    found = made.feed(positions(rows[:2]))
    found += made.feed(positions([
        rows[2], (2, "a", 1000, 0.0, 0.0), (3, None, 51, 0.0, 0.0), (4, "a", 51, float("nan"), 0.0),
        (5, "a", None, 0.0, 0.0), (6, "a", 51, 0.0, None),
    ]))  # fmt: skip
    kinds = {row["record"]["id"]: (row["kind"], row["reason"]) for row in found}
    assert kinds == {
        1: ("late", None),
        2: ("future", "future"),
        3: ("rejected", "null_key"),
        4: ("rejected", "invalid_geometry"),
        5: ("rejected", "null_time"),
        6: ("rejected", "invalid_geometry"),
    }
    assert dict(made.rejected) == {"null_key": 1, "invalid_geometry": 2, "null_time": 1}
    assert (made.counts["late"], made.counts["future"], made.counts["rows_in"]) == (1, 1, 8)
    (row,) = made.feed(positions([(7, "z", 90, 0.0, 0.0)]))
    assert (row["kind"], row["record"], row["positions"]) == ("move", None, 2)


def test_an_idle_timeout_ends_all_rows():
    how = Segmentation(gap=60 * SECOND, radius=1.0, duration=5 * SECOND)
    made = buckets_of(how, lateness=30, idle_timeout=10 * SECOND)
    made.now = 30 * SECOND
    walk = [(1, "a", k, 0.0, float(k // 10)) for k in range(21)]
    assert made.feed(positions(walk)) == []
    made.now = 41 * SECOND
    found = made.feed(positions([]), input_came=False)
    assert [(row["kind"], row["positions"]) for row in found] == [("stay", 20), ("move", 2)]
    assert made.reports[-1]["state"] == {"positions": 0, "objects": 0, "open_positions": 0}


def test_counts():
    how = Segmentation(gap=5 * SECOND, radius=1.0, duration=5 * SECOND)
    made = buckets_of(how, min_length=10.0)
    rows = [(1, "a", 0, 0.0, 0.0), (1, "a", 0, -1.0, 0.0), (1, "a", 1, 5.0, 0.0)]
    found = made.feed(positions(rows), last=True)
    assert found == []  # 6 long, and 10 were asked for
    counts = made.reports[-1]["counts"]
    assert (counts["same_time"], counts["too_short"], counts["moves"]) == (1, 1, 0)


@pytest.mark.parametrize("on_sphere", [False, True])
def test_of_a_column_of_geometries_only_points_are_positions(on_sphere):
    shapes = [shapely.Point(-0.0, 1), shapely.box(0, 0, 1, 1), None, shapely.Point(361, 2)]
    wkb = [None if shape is None else shape.wkb for shape in shapes]
    batch = pa.RecordBatch.from_pydict(
        {"id": pa.array([1, 2, 3, 4]), "t": pa.array([at(5)] * 4, TIME), "spot": wkb}
    )
    router = PositionRouter(
        ("id",), "t", "spot", batch.schema, 1, 0, on_sphere=on_sphere, only_points=True,
        enrich=Coordinates("spot", ("id", "t"), 0, on_sphere),
    )  # fmt: skip
    routed = router.route(batch, 10**18)
    sent = routed.rows.to_pydict()
    assert (sent["id"], sent[Y]) == ([1, 4], [1.0, 2.0])
    assert str(sent[X]) == ("[0.0, 1.0]" if on_sphere else "[0.0, 361.0]")
    assert routed.rejected.column("reason").to_pylist() == ["invalid_geometry"] * 2
