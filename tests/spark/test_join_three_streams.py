"""Three streams by two joins, one after the other: the rows of three loops, and a bounded state."""

import datetime as dt

import numpy as np
import pyarrow as pa
import pytest

import rivermouth as rm
from rivermouth.testing import assert_same_rows, replay, rows
from rivermouth.testing import stream_joins as oracle

pytestmark = pytest.mark.spark

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
BATCHES, ROWS = 12, 20  # micro-batches of a minute, and the rows of each stream in it
STREAMS = {"l": ("l", "t", "x", "y"), "r": ("r", "u", "v", "w"), "c": ("c", "s", "p", "q")}
FIRST = {
    "on": rm.dwithin(rm.point("x", "y"), rm.point("v", "w"), distance=1.5),
    "time": ("t", "u"),
    "columns": ["r", "u", "v", "w"],
}
SECOND = {
    "on": rm.dwithin(rm.point("v", "w"), rm.point("p", "q"), distance=1.5),
    "time": ("u", "s"),
    "columns": ["c", "s"],
}
BETWEEN, OTHER = ("-20 seconds", "10 seconds"), ("-15 seconds", "15 seconds")


def made(names, seed):
    """Rows of several minutes, in an order in which none is more than five seconds late."""
    rng = np.random.default_rng(seed)
    seconds = np.sort(rng.uniform(0, 60 * BATCHES, ROWS * BATCHES))
    seconds = seconds[np.argsort(seconds + rng.uniform(0, 5, len(seconds)))]
    xy = rng.integers(0, 8, (len(seconds), 2)).astype(float)
    return [
        dict(zip(names, (n, NOON + dt.timedelta(seconds=round(at, 3)), *p), strict=True))
        for n, (at, p) in enumerate(zip(seconds.tolist(), xy.tolist(), strict=True))
    ]


@pytest.fixture(scope="module")
def streams():
    return [made(names, seed) for seed, names in enumerate(STREAMS.values())]


def joined(spark, engine, streams, second, **when):
    frames = [
        spark.createDataFrame(pa.Table.from_pylist(part)).selectExpr(*names)
        for part, names in zip(streams, STREAMS.values(), strict=True)
    ]
    if engine == "stream":
        frames = [replay(frame, cuts=ROWS) for frame in frames]
    left, right, third = frames
    pairs = rm.join_interval(
        left, right, **FIRST, between=BETWEEN, lateness="10 seconds", buckets=2
    )
    # a pair has the right row's time: up to 20 seconds before the left's, and both may be late
    return second(pairs, third, **SECOND, **when, lateness=("1 minute", "10 seconds"), buckets=2)


@pytest.mark.parametrize("window", [None, rm.tumbling("30 seconds")], ids=["interval", "window"])
@pytest.mark.parametrize("engine", ["batch", "stream"])
def test_two_joins_of_three_streams_are_three_loops(spark, engine, window, streams):
    pairs = oracle.join_interval(*streams[:2], **FIRST, between=BETWEEN)
    if window is None:
        result = joined(spark, engine, streams, rm.join_interval, between=OTHER)
        truth = oracle.join_interval(pairs, streams[2], **SECOND, between=OTHER)
    else:
        result = joined(spark, engine, streams, rm.join_window, window=window, early=True)
        truth = oracle.join_window(pairs, streams[2], **SECOND, window=window)
    assert len(truth) > 100
    assert_same_rows(rows(result), truth)


def test_the_state_of_both_joins_stays_as_long_as_their_intervals(spark, streams):
    triples = joined(spark, "stream", streams, rm.join_interval, between=OTHER)
    query = (
        triples.writeStream.format("memory").queryName("triples").trigger(availableNow=True).start()
    )
    query.awaitTermination()
    values = [
        sum(state["numRowsTotal"] for state in progress["stateOperators"])
        for progress in query.recentProgress
        if progress["stateOperators"]
    ]
    assert len(values) >= BATCHES
    assert max(values[6:]) <= 1.5 * max(values[2:6])
    operators = rm.metrics(query)["operators"]
    assert sorted(operators) == ["join_interval", "join_interval#2"]
    kept = [operators[name]["state"] for name in sorted(operators)]
    # of 240 rows a side those of the last minutes: replicas included
    assert max(kept[0]["left_rows"], kept[0]["right_rows"]) < 3 * ROWS
    assert kept[1]["right_rows"] < 5 * ROWS
