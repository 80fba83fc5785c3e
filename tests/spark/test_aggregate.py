"""Aggregates on Spark: a batch frame, a stream in any cut, behind a join, restarted."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F

import rivermouth as rm
from rivermouth.errors import ColumnError, DefinitionError
from rivermouth.testing.recompute import by_window, differences, recompute

EVENTS = """
    arrival | at timestamp_ntz    | road | cars int | speed double
    1       | 2026-01-01 00:00:01 | a    | 3        | 50.5
    2       | 2026-01-01 00:00:04 | b    | 1        | 30
    3       | 2026-01-01 00:00:09 | a    | 4        | null
    4       | 2026-01-01 00:00:02 | a    | 5        | 70
    5       | 2026-01-01 00:00:21 | null | 2        | 10
    6       | 2026-01-01 00:00:03 | b    | 7        | 20
    7       | null                | b    | 9        | 20
    8       | 2999-01-01 00:00:00 | b    | 9        | 20
    9       | 2026-01-01 00:00:33 | a    | 1        | 44
"""
SUMMARY = rm.summary(
    by="road", time="at", window=rm.sliding("10 seconds", every="5 seconds"),
    n=rm.count(), cars=rm.sum("cars"), mean=rm.mean("speed"), p90=rm.quantile("speed", 0.9),
    kinds=rm.count_distinct("cars"), last=rm.max("at"),
)  # fmt: skip
TEN = rm.fixed("10 seconds")


def values(frame):
    """The results of an aggregate, in the form of the truth."""
    rows = frame.where("kind = 'row'") if "kind" in frame.columns else frame
    return by_window(rows.toArrow(), SUMMARY)


def truth(frame):
    table = frame.where("at < '2900-01-01'").toArrow()
    return recompute(table, SUMMARY)


def drained(frame, folder):
    """All that a stream gives until its source is empty, and the query."""
    query = (
        frame.writeStream.format("parquet").option("path", f"{folder}/out")
        .option("checkpointLocation", f"{folder}/log").trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    return frame.sparkSession.read.schema(frame.schema).parquet(f"{folder}/out"), query


@pytest.mark.quick
def test_the_results_of_a_batch_frame_are_exact(spark):
    frame = rm.testing.frame(spark, EVENTS)
    result = rm.aggregate(frame, SUMMARY, slack=TEN, late="rows")
    assert differences(values(result), truth(frame)) == []
    rows = result.where("kind = 'row'").select("coverage", "slack", "revision").distinct().collect()
    assert [tuple(row) for row in rows] == [(1.0, 0.0, 0)]
    rejected = rm.rejected(result).select("kind", "cars").orderBy("kind").collect()
    assert [tuple(row) for row in rejected] == [("future", 9), ("rejected", 9)]


@pytest.mark.quick
def test_windows_start_where_they_are_told_to(spark):
    frame = rm.testing.frame(spark, EVENTS).where("at < '2900-01-01'")
    window = rm.sliding("10 seconds", every="5 seconds", start="-3500 milliseconds")
    asked = rm.summary(by="road", time="at", window=window, cars=rm.sum("cars"))
    keys = ["road", "window_start", "window_end"]
    given = F.window("at", "10 seconds", "5 seconds", "1500 milliseconds")
    theirs = frame.groupBy("road", given.alias("w")).agg(F.sum("cars").alias("cars"))
    theirs = theirs.select("road", "w.start", "w.end", "cars").orderBy("road", "start").collect()
    ours = rm.aggregate(frame, asked)
    assert ours.select(*keys, "cars").orderBy(*keys).collect() == theirs
    early = rm.aggregate(frame.where("cars != 5"), asked)
    fixed = rm.correct(early, frame, asked, late=frame.where("cars = 5"))
    after = early.join(fixed, keys, "anti").unionByName(fixed)
    assert fixed.count() == 2
    assert {*after.select(*keys, "cars").collect()} == {*theirs}


def test_results_that_lack_an_aggregate_are_not_corrected(spark):
    frame = rm.testing.frame(spark, EVENTS)
    results = rm.aggregate(frame, SUMMARY).drop("p90")
    with pytest.raises(ColumnError, match="the results have no column 'p90'"):
        rm.correct(results, frame, SUMMARY)


@pytest.mark.quick
def test_late_records_are_only_counted_by_default(spark):
    frame = rm.testing.frame(spark, EVENTS)
    result = rm.aggregate(frame, SUMMARY)
    assert result.columns == [
        "road", "window_start", "window_end", "n", "cars", "mean", "p90", "kinds", "last",
        "records", "coverage", "slack", "revision",
    ]  # fmt: skip
    assert differences(values(result), truth(frame)) == []
    with pytest.raises(ColumnError, match="the frame has no column 'kind'"):
        rm.rejected(result)


MIDNIGHT = int(dt.datetime(2026, 1, 1, tzinfo=dt.UTC).timestamp()) * 1_000_000


@pytest.mark.parametrize("late", ["rows", "count"])
@pytest.mark.parametrize("cuts", [1, 3, 100])
def test_a_stream_emits_what_has_waited_long_enough(spark, tmp_path, cuts, late):
    """Row by row the sixth record comes too late for the windows that end by 00:00:11."""
    frame = rm.testing.frame(spark, EVENTS)
    events = rm.testing.stream(spark, EVENTS, cuts=cuts)
    stream = rm.aggregate(events, SUMMARY, slack=TEN, late=late, buckets=2)
    rows, query = drained(stream, tmp_path)
    exact, found = truth(frame), values(rows)
    closed = [key for key in exact if key[1] <= MIDNIGHT + 13_000_000]
    touched = [("b", MIDNIGHT + start) for start in (-5_000_000, 0)] if cuts == 1 else []
    assert sorted(found, key=str) == sorted(closed, key=str)
    wrong = {text.partition(":")[0] for text in differences(found, {k: exact[k] for k in closed})}
    assert wrong == set(map(str, touched))
    if late == "rows":
        records = rm.rejected(rows).where("kind = 'late'").collect()
        assert [row.cars for row in records] == [7] * (cuts == 1)
    counts = rm.metrics(query)["operators"]["aggregate"]
    assert counts["rows_in"] == 9
    assert (counts["late"], counts["future"]) == (cuts == 1, 1)
    assert counts["counts"]["on_time"] + counts["late"] + counts["future"] == 8
    assert counts["rejected"] == {"null_time": 1}


def test_a_late_record_comes_out_once_and_counts_in_its_open_windows(spark, tmp_path):
    events = """
        arrival | at timestamp        | v int
        1       | 2026-01-01 00:00:08 | 1
        2       | 2026-01-01 00:00:11 | 2
        3       | 2026-01-01 00:00:07 | 4
        4       | 2026-01-01 00:00:30 | 8
    """
    summary = rm.summary(
        time="at", window=rm.sliding("10 seconds", every="5 seconds"), v=rm.sum("v")
    )
    stream = rm.aggregate(
        rm.testing.stream(spark, events, cuts=1), summary, slack=rm.fixed("0 seconds"), late="rows"
    )
    found, _ = drained(stream, tmp_path)
    results = found.where("kind = 'row'").orderBy("window_start")
    ends = [(row.window_end.second, row.v) for row in results.collect()]
    assert ends == [(10, 1), (15, 7), (20, 2)]
    late = rm.rejected(found).collect()
    assert [(row.kind, row.v) for row in late] == [("late", 4)]


@pytest.mark.quick
def test_state_lasts_over_a_restart(spark, tmp_path):
    first = rm.testing.frame(spark, EVENTS).where("at < '2900-01-01'").coalesce(1)
    folder = tmp_path / "events"
    source = rm.testing.replay(first.where("at < '2026-01-01 00:00:10'"), path=folder)
    drained(rm.aggregate(source, SUMMARY, slack=TEN), tmp_path)
    first.where("at >= '2026-01-01 00:00:10'").write.mode("append").parquet(str(folder))
    rows, _ = drained(rm.aggregate(source, SUMMARY, slack=TEN), tmp_path)
    found = values(rows)
    assert found
    exact = truth(first)
    assert differences(found, {key: exact[key] for key in found}) == []


@pytest.mark.quick
def test_columns_that_the_summary_does_not_name_are_not_read(spark):
    frame = rm.testing.frame(spark, EVENTS).where("at < '2900-01-01'")
    failing = frame.withColumn("a.b", F.raise_error(F.lit("was read")))
    summary = rm.summary(by="road", time="at", window=rm.tumbling("1 hour"), cars=rm.sum("cars"))
    found = rm.aggregate(failing, summary).select("road", "cars").collect()
    assert sorted(map(tuple, found), key=str) == [("a", 13), ("b", 8), (None, 2)]


def test_it_works_behind_a_join(spark, tmp_path):
    roads = pa.table({"road": ["a", "b"], "zone": ["inner", "outer"]})
    path = tmp_path / "roads.parquet"
    pq.write_table(roads, path)
    summary = rm.summary(by="zone", time="at", window=rm.tumbling("10 seconds"), n=rm.count())

    def zones(events):
        joined = rm.join_table(events, rm.tables.parquet(str(path)), on=rm.keys("road"))
        return rm.aggregate(joined, summary, slack=rm.fixed("1 second"))

    batch = zones(rm.testing.frame(spark, EVENTS))
    stream, _ = drained(zones(rm.testing.stream(spark, EVENTS)), tmp_path / "stream")
    exact, found = (
        sorted((row.zone, row.window_start, row.n) for row in each.collect())
        for each in (batch, stream)
    )
    assert found == [row for row in exact if row[1] < dt.datetime(2026, 1, 1, 0, 0, 30)]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"time": "road"}, r"^aggregate: time names column 'road', which is of type string\. Cast"),
        ({"by": "lane"}, r"^aggregate: summary names column 'lane', which is not among the events"),
        ({"n": rm.sum("road")}, r"^summary: n=sum\('road'\) is asked of a column of type string"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(spark, change, sentence):
    frame = rm.testing.frame(spark, EVENTS)
    definition = {"time": "at", "window": rm.tumbling("1 second"), "n": rm.count()} | change
    with pytest.raises(DefinitionError, match=sentence):
        rm.aggregate(frame, rm.summary(**definition))


def test_groups_must_have_types_that_can_be_told_apart(spark):
    frame = rm.testing.frame(spark, EVENTS).withColumn("both", F.struct("road", "cars"))
    summary = rm.summary(by="both", time="at", window=rm.tumbling("1 second"), n=rm.count())
    with pytest.raises(ColumnError, match="by names column 'both'"):
        rm.aggregate(frame, summary)
