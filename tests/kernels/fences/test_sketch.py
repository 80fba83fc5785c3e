"""What a map of fence events shows."""

import pyarrow as pa
import pytest

from rivermouth.kernels.fences.query import FenceQuery
from rivermouth.kernels.fences.sketch import NEWEST, EventSketch
from rivermouth.kernels.trajectory.query import Trajectory
from rivermouth.spec.conditions import Point

AT = pa.timestamp("us", "UTC")
POSITIONS = pa.schema([("cab", pa.int32()), ("at", pa.int64()), ("x", "f8"), ("y", "f8")])


def sketch(*fences):
    trajectory = Trajectory(("cab",), "at", POSITIONS, ("x", "y"), 0, POSITIONS, None)
    query = FenceQuery(trajectory, ("x", "y"), fences, frozenset({"enter"}))
    return EventSketch(query, Point("x", "y"))


def events(seconds, **fences):
    count = len(seconds)
    return pa.table(
        {
            "cab": pa.array([7] * count, pa.int32()),
            "at": pa.array([second * 1_000_000 for second in seconds], pa.int64()).cast(AT),
            "x": [float(second) for second in seconds],
            "y": [0.5] * count,
            **fences,
            "event": ["enter"] * count,
        }
    )


def test_the_newest_of_several_tables_are_kept_in_order():
    made = sketch("rank", "zone")
    made.add(events([5, 1], rank=[1, 2], zone=["a", None]))
    made.add(events(list(range(10, 30)), rank=[1] * 20, zone=["b"] * 20))
    made.add(events([], rank=pa.array([], pa.int64()), zone=pa.array([], pa.string())))
    made.add(events([25], rank=[1], zone=["a"]))
    report = made.report()
    assert report["per_fence"] == {"1, b": 20, "1, a": 2, "2": 1}
    assert [event["at"] for event in report["newest"]] == [29, 28, 27, 26, 25, 25, 24, 23]
    assert len(report["newest"]) == NEWEST
    first = {"at": 29.0, "object": "7", "event": "enter", "fence": "1, b", "x": 29.0, "y": 0.5}
    assert report["newest"][0] == first


def test_a_position_that_cannot_be_drawn_fails_nothing():
    made = sketch("zone")
    drawn = events([1, 2], zone=["a", "a"])
    made.add(drawn.set_column(2, "x", pa.array([None, 2.0])))
    made.add(drawn.set_column(2, "x", pa.array([float("nan"), 2.0])))
    report = made.report()
    assert report["per_fence"] == {"a": 4}
    assert all(event["x"] == 2.0 for event in report["newest"])


@pytest.mark.parametrize(
    ("fences", "label"),
    [({}, ""), ({"rank": [4]}, "4"), ({"code": [b"\xff"]}, "b'\\xff'")],
    ids=["none", "number", "bytes"],
)
def test_fences_of_any_columns_have_a_label(fences, label):
    made = sketch(*fences)
    made.add(events([1], **fences))
    assert made.report()["per_fence"] == {label: 1}
