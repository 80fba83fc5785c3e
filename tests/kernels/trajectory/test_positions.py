"""Positions in event-time order: whatever the order of arrival, the cut and the buckets."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.trajectories import Buckets, cut, in_disorder, positions

from rivermouth.kernels.trajectory.objects import NEVER, Objects
from rivermouth.kernels.trajectory.positions import ordered
from rivermouth.kernels.trajectory.processor import Folded
from rivermouth.kernels.trajectory.query import Trajectory

GAP = 5_000_000


@dataclass
class Steps:
    """Numbers each object's positions, says when one was missed, and forgets idle objects."""

    carry = pa.schema({"count": pa.int64(), "last": pa.int64(), "seen": pa.list_(pa.float64())})
    seen: Counter[str] = field(default_factory=Counter)

    def counts(self):
        return dict(self.seen)

    def sketch(self):
        return None

    def fold(self, released):
        results, carry, deadline, keep = [], [], [], []
        times = released.rows.column("t").to_pylist()
        x = released.rows.column("x").to_pylist()
        objects, before = released.objects.to_pylist(), released.carry.to_pylist()
        for k, one in enumerate(objects):
            begin, end = released.starts[k : k + 2]
            count, last, seen = before[k].values() if released.known[k] else (0, None, [])
            for row in range(begin, end):
                if last is not None and times[row] - last > GAP:
                    results.append({**one, "what": "lost", "at": last + GAP, "n": count})
                    count, seen = 0, []
                count, last, seen = count + 1, times[row], [*seen, x[row]]
                results.append({**one, "what": "seen", "at": last, "n": count, "x": sum(seen)})
            gone = last + GAP < released.watermark
            if gone:
                results.append({**one, "what": "lost", "at": last + GAP, "n": count})
            carry.append({"count": count, "last": last, "seen": seen})
            deadline.append(last + GAP)
            keep.append(not gone)
        self.seen.update(seen=len(times))
        return Folded(
            pa.Table.from_pylist(results, OUTPUT), pa.Table.from_pylist(carry, self.carry),
            np.array(deadline), np.array(keep, bool),
        )  # fmt: skip


OUTPUT = pa.schema(
    {"id": pa.int64(), "name": pa.string(), "what": pa.string(), "at": pa.int64(),
     "n": pa.int64(), "x": pa.float64()}
)  # fmt: skip
QUERY = Trajectory(
    by=("id", "name"),
    time="t",
    positions=pa.schema(
        {"id": pa.int64(), "name": pa.string(), "t": pa.int64(), "x": pa.float64(),
         "y": pa.float64()}
    ),
    tie_break=("x", "y"),
    lateness=3_000_000,
    output=OUTPUT,
)  # fmt: skip

rows = st.lists(
    st.tuples(
        st.integers(0, 3), st.sampled_from(["a", "b"]), st.integers(0, 30), st.integers(0, 2)
    ),
    max_size=25,
).map(lambda found: [(one, name, t, float(x), 0.0) for one, name, t, x in found])


def by_hand(found):
    """The same, position by position."""
    newest = max((t for _, _, t, _, _ in found), default=0) * 1_000_000
    expected = []
    for who in sorted({(one, name) for one, name, *_ in found}):
        count, last, total = 0, None, 0.0
        mine = sorted((t * 1_000_000, x) for one, name, t, x, _ in found if (one, name) == who)
        for t, x in mine:
            if last is not None and t - last > GAP:
                expected.append((*who, "lost", last + GAP, count, None))
                count, total = 0, 0.0
            count, last, total = count + 1, t, total + x
            expected.append((*who, "seen", t, count, total))
        if last + GAP < newest + 1:
            expected.append((*who, "lost", last + GAP, count, None))
    return Counter(expected)


@given(found=rows, buckets=st.integers(1, 3), batches=st.integers(1, 6), seed=st.integers(0, 99))
def test_any_order_within_the_lateness_any_cut_any_buckets(found, buckets, batches, seed):
    random = np.random.default_rng(seed)
    stream = Buckets(QUERY, Steps, buckets)
    results = []
    for batch in cut(random, in_disorder(random, positions(found), QUERY.lateness), batches):
        results += stream.feed(batch, forget=bool(random.integers(2)))
    results += stream.feed(positions([]), last=True)
    assert stream.counts["late"] == 0
    assert Counter(tuple(row.values()) for row in results) == by_hand(found)


def test_a_batch_frame_gives_the_same():
    found = [(1, "a", 7, 1.0, 0.0), (1, "a", 3, 2.0, 0.0), (2, "b", 20, 0.0, 0.0)]
    results = Buckets(QUERY, Steps, 2).feed(positions(found), last=True)
    assert Counter(tuple(row.values()) for row in results) == by_hand(found)


def test_a_late_position_is_counted_and_changes_nothing():
    stream = Buckets(QUERY, Steps, 1)
    stream.feed(positions([(1, "a", 10, 0.0, 0.0)]))
    assert stream.feed(positions([(1, "a", 6, 0.0, 0.0), (1, "a", 7, 0.0, 0.0)])) == []
    assert stream.counts["late"] == 1
    results = stream.feed(positions([]), last=True)
    assert [row["at"] for row in results] == [7_000_000, 10_000_000]


def test_late_and_rejected_positions_can_be_rows():
    record = pa.struct([(f.name, f.type) for f in positions([]).schema])
    output = pa.schema(
        [("kind", pa.string()), *OUTPUT, ("record", record), ("reason", pa.string())]
    )
    query = Trajectory(**{**vars(QUERY), "output": output})
    stream = Buckets(query, Steps, 2, now=100_000_000, max_future=0)
    unusable = [
        (1, "a", None, 0.0, 0.0), (1, "a", 200, 0.0, 0.0), (None, "a", 9, 0.0, 0.0),
        (1, "a", 9, float("nan"), 0.0),
    ]  # fmt: skip
    found = stream.feed(positions([(1, "a", 20, 0.0, 0.0), *unusable]))
    found += stream.feed(positions([(1, "a", 9, 4.0, 0.0)]))
    assert [(row["kind"], row["reason"]) for row in found] == [
        ("rejected", "null_time"), ("future", "future"), ("rejected", "null_key"),
        ("rejected", "invalid_geometry"), ("late", None),
    ]  # fmt: skip
    assert found[-1]["record"]["x"] == 4.0
    assert stream.counts == Counter(rows_in=6, rows_out=0, late=1, future=1)
    assert stream.rejected == {"null_time": 1, "null_key": 1, "invalid_geometry": 1}


def test_idle_objects_leave_the_state():
    stream = Buckets(QUERY, Steps, 1)
    for number in range(400):
        stream.feed(positions([(number, "a", number, 0.0, 0.0)]), forget=number % 7 == 0)
    state = stream.reports[-1]["state"]
    assert state["objects"] <= 6
    assert state["positions"] <= 4
    assert stream.stored_values() < 40


def test_when_no_input_comes_for_the_timeout_everything_is_released():
    query = Trajectory(**{**vars(QUERY), "idle_timeout": 1_000_000})
    stream = Buckets(query, Steps, 1, now=20_000_000)
    assert stream.feed(positions([(1, "a", 10, 0.0, 0.0)])) == []
    stream.now = 21_000_000
    assert [row["what"] for row in stream.feed(positions([]), input_came=False)] == ["seen"]
    stream.feed(positions([(1, "a", 10, 0.0, 0.0)]))
    assert stream.counts["late"] == 1  # that second was over


@pytest.mark.parametrize("seed", range(3))
def test_objects_in_a_log_are_those_in_a_dict(seed):
    random = np.random.default_rng(seed)
    carry = pa.schema({"value": pa.int64()})
    store, expected = {}, {}
    objects = Objects(store, ["name"], carry)
    for number in range(200):
        if random.integers(5) == 0:
            objects = Objects(store, ["name"], carry, objects.kept())
        names = [str(one) for one in np.unique(random.integers(0, 60, random.integers(1, 40)))]
        table = pa.table({"name": names})
        slots = objects.slots(table)
        rows, known = objects.rows(slots)
        assert known.tolist() == [name in expected for name in names]
        if known.any():
            values = [expected[name][0] for name in names if name in expected]
            assert rows.column("value").to_pylist() == values
        keep = random.random(len(names)) < 0.7
        deadline = random.integers(number, number + 50, len(names))
        values = random.integers(0, 1000, len(names))
        objects.put(slots, table, pa.table({"value": values}), deadline, keep)
        for k, name in enumerate(names):
            expected.pop(name, None)
            if keep[k]:
                expected[name] = (int(values[k]), int(deadline[k]))
        due = objects.due(number)
        late = sorted(name for name, (_, when) in expected.items() if when < number)
        if len(due):
            assert sorted(objects.rows(due)[0].column("name").to_pylist()) == late
        else:
            assert late == []
        assert len(objects) == len(expected)


def test_outdated_rows_are_rewritten():
    store = {}
    objects = Objects(store, ["id"], pa.schema({"value": pa.int64()}))
    ids = pa.table({"id": np.arange(1000)})
    for number in range(50):
        slots = objects.slots(ids)
        value = pa.table({"value": np.full(1000, number)})
        objects.put(slots, ids, value, np.full(1000, NEVER), np.ones(1000, bool))
    assert objects.rows(objects.slots(ids))[0].column("value").to_pylist() == [49] * 1000
    assert sum(len(value) for value in store.values()) < 8 * 1000 * 64


def test_ties_are_ordered_by_value():
    table = pa.table({"at": [1, 1, 1, 0], "x": [2.0, None, 1.0, 9.0], "n": [0, 1, 2, 3]})
    found, _ = ordered(table, np.zeros(4, np.int64), time="at", tie_break=["x"])
    assert found.column("n").to_pylist() == [3, 2, 0, 1]
