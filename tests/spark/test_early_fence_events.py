"""Early fence events on Spark: what the log amounts to, and its correction by batch."""

import numpy as np
import pytest
from tests.spark.test_fence_events import (
    ASKED,
    CABS,
    CASES,
    EVENTS,
    HERE,
    RULES,
    SHAPES,
    SHOWN,
    frames,
    geojson,
    truth,
)
from tests.spark.test_fence_events import found as found  # a fixture
from tests.support.trajectories import compacted

import rivermouth as rm
from rivermouth.errors import RivermouthError
from rivermouth.testing import assert_same_rows, batches, frame, replay, rows, stream

pytestmark = pytest.mark.spark

_, _, INSIDE, MEETS = CASES["within"]
IDENTITY = ("cab", "t", "x", "y", "zone", "event")


def logged(spark, result, name):
    """What a stream has emitted, as a batch frame; a batch frame is one already."""
    if not result.isStreaming:
        return result
    query = result.writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
    query.awaitTermination()
    return spark.table(name)


@pytest.mark.parametrize("engine", ["batch", "stream"])
def test_the_log_amounts_to_the_oracles_events(spark, engine, found, tmp_path):
    arrived = sorted(found, key=lambda row: row[2] + 7 * row[2] % 200)
    given = frames(spark, "batch", arrived)
    result = rm.fence_events(
        given if engine == "batch" else replay(given, cuts=40),
        geojson(tmp_path / "zones.geojson", SHAPES),
        on=rm.within(HERE, "geometry"), by="cab", time="t", columns=["zone"], events=EVENTS,
        lateness="200 seconds", buckets=3, early=True, **RULES,
    )  # fmt: skip
    assert result.columns == [
        "change", "cab", "t", "x", "y", "zone", "event", "entered", "seconds_inside", "reason",
        "revision",
    ]  # fmt: skip
    log = logged(spark, result, "early_log")
    expected = truth(found, SHAPES, INSIDE, MEETS, EVENTS)
    assert_same_rows(rows(rm.compact(log).select(*SHOWN)), expected)
    told = sorted(rows(log), key=lambda row: row["revision"])
    assert len(compacted(told, IDENTITY)) == len(expected)  # revisions follow one another
    assert ("delete" in {row["change"] for row in told}) == (engine == "stream")


def test_events_come_with_the_micro_batch_that_brings_them(spark, tmp_path):
    table = geojson(tmp_path / "zones.geojson", SHAPES)
    cabs = stream(
        spark,
        """
        cab | at timestamp        | x double | y double
        1   | 2026-01-01 12:00:00 | -5       | 5
        1   | 2026-01-01 12:02:00 | 2        | 2
        1   | 2026-01-01 12:03:00 | 15       | 5
        1   | 2026-01-01 12:01:00 | 3        | 2
        1   | null                | 3        | 2
        """,
        cuts=[2, 1, 2],
    )
    result = rm.fence_events(cabs, table, lateness="5 minutes", early=True, late="rows", **ASKED)
    told = [
        [(row["kind"], row["change"], row["revision"], row["event"], row["at"] and row["at"].minute)
         for row in sorted(batch, key=lambda row: str(row["at"]))]
        for batch in batches(result)
    ]  # fmt: skip
    assert told == [
        [("row", "insert", 0, "enter", 2)],
        [("row", "insert", 0, "exit", 3)],
        [
            ("row", "insert", 0, "enter", 1), ("row", "delete", 1, "enter", 2),
            ("row", "update", 1, "exit", 3), ("rejected", None, None, None, None),
        ],
    ]  # fmt: skip


@pytest.fixture(scope="module")
def shuffled():
    """Forty cabs, each an example of its own, in any order at all; the last row ends them all."""
    random = np.random.default_rng(8)
    count = 40 * 24
    times = random.choice(8 * count, count, replace=False) // 8  # now and then the same
    xy = random.integers(0, 11, (count, 2)) / 2
    cabs = random.integers(40, size=count)
    made = zip(cabs.tolist(), times.tolist(), *xy.T.tolist(), strict=True)
    return [*((cab, "red", t, x, y) for cab, t, x, y in made), (99, "blue", 90_000, 500.0, 80.0)]


def test_positions_in_any_order_at_all_are_right_after_the_correction(spark, shuffled, tmp_path):
    table = geojson(tmp_path / "zones.geojson", SHAPES)
    positions = frames(spark, "batch", shuffled)
    asked = {
        "on": rm.within(HERE, "geometry"), "by": "cab", "time": "t", "columns": ["zone"],
        "events": EVENTS, "buckets": 2, **RULES,
    }  # fmt: skip
    told = rm.fence_events(
        replay(positions, cuts=240), table, lateness="300 seconds", early=True, late="rows", **asked
    )
    log = logged(spark, told, "wrong_log")
    late = rm.rejected(log).where("cab < 20")
    assert log.where("change = 'delete'").count() > 20
    assert late.count() > 100

    some = rm.correct_fence_events(log, positions, table, late=late, **asked)
    whole = rm.correct_fence_events(log, positions, table, lateness="20 seconds", **asked)
    changes = rows(whole)
    assert {row["change"] for row in changes} == {"insert", "update", "delete"}
    assert_same_rows(rows(some), [row for row in changes if row["cab"] < 20])
    fixed = log.drop("kind", "record").unionByName(whole)
    expected = truth(shuffled, SHAPES, INSIDE, MEETS, EVENTS)
    assert_same_rows(rows(rm.compact(fixed).select(*SHOWN)), expected)
    assert rows(rm.correct_fence_events(fixed, positions, table, **asked)) == []


@pytest.mark.since("4.2")  # GEOMETRY
def test_a_log_with_geometries_is_corrected(spark, found, tmp_path):
    table = geojson(tmp_path / "zones.geojson", SHAPES)
    positions = frames(spark, "batch", found).selectExpr("*", "st_geomfromwkb(spot) as here")
    asked = {"on": rm.within("here", "geometry"), "by": "cab", "time": "t", "buckets": 2}
    log = rm.fence_events(positions.where("second(t) < 50"), table, early=True, **asked)
    fixed = log.unionByName(rm.correct_fence_events(log, positions, table, **asked))
    events = rm.fence_events(positions, table, **asked)
    shown = ["cab", "t", "zone", "event", "seconds_inside", "st_asbinary(here) as spot"]
    assert_same_rows(rows(rm.compact(fixed).selectExpr(*shown)), rows(events.selectExpr(*shown)))


def test_a_checkpoint_of_final_events_is_not_one_of_early_events(spark, tmp_path):
    table, folder = geojson(tmp_path / "zones.geojson", SHAPES), tmp_path / "files"
    cabs = replay(frame(spark, CABS), cuts=9, path=folder)
    place = {"checkpointLocation": str(tmp_path / "checkpoint")}
    asked = {**ASKED, "lateness": "5 minutes", "buckets": 1}
    rows(rm.fence_events(cabs, table, **asked), **place)
    frame(spark, CABS).coalesce(1).write.mode("append").parquet(str(folder))
    with pytest.raises(Exception, match="the checkpoint's state is not this query's"):
        rows(rm.fence_events(cabs, table, early=True, **asked), **place)


def test_errors_at_definition(spark, tmp_path):
    table, cabs = geojson(tmp_path / "zones.geojson", SHAPES), frame(spark, CABS)
    log = rm.fence_events(cabs, table, early=True, **ASKED)
    final = rm.fence_events(cabs, table, **ASKED)
    with pytest.raises(RivermouthError, match="compact: the log has no column 'change'"):
        rm.compact(final)
    with pytest.raises(RivermouthError, match="correct_fence_events: positions is a streaming"):
        rm.correct_fence_events(log, stream(spark, CABS), table, **ASKED)
    with pytest.raises(RivermouthError, match="by names column 'cab', which is not among"):
        rm.correct_fence_events(log, cabs, table, late=cabs.drop("cab"), **ASKED)
    with pytest.raises(TypeError, match="unexpected keyword argument 'dwel'"):
        rm.correct_fence_events(log, cabs, table, dwel="1 minute", **ASKED)
    clash = {**ASKED, "columns": {"revision": "zone"}}
    with pytest.raises(RivermouthError, match="the result would have two columns 'revision'"):
        rm.fence_events(cabs, table, early=True, **clash)
