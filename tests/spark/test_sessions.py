"""Sessions on Spark: a batch frame, a stream in any cut, restarted, corrected."""

from __future__ import annotations

import datetime as dt
import random

import pytest

import rivermouth as rm
from rivermouth.errors import DefinitionError
from rivermouth.spark.correct import session_corrections
from rivermouth.testing.recompute import by_window, differences, recompute

pytestmark = pytest.mark.spark

BEGIN = dt.datetime(2026, 11, 16, tzinfo=dt.UTC)
SCHEMA = "road string, at timestamp, cars bigint"
SUMMARY = rm.summary(
    by="road", time="at", window=rm.session("6 seconds"), n=rm.count(), cars=rm.sum("cars"),
    middle=rm.median("cars"), best=rm.top(2, by="cars"),
)  # fmt: skip
ALL = rm.summary(time="at", window=rm.session("2 seconds"), n=rm.count(), cars=rm.sum("cars"))


def records(count, *, seed):
    """Records with pauses, of which some come up to 20 places too late, with null roads."""
    rng = random.Random(seed)
    at, rows = 0.0, []
    for _ in range(count):
        at += rng.choice([0.5, 1, 2, 4])
        row = rng.choice(["a", "b", None]), BEGIN + dt.timedelta(seconds=at), rng.randrange(10)
        rows.append(row)
    order = sorted(range(count), key=lambda i: i + (rng.random() < 0.3) * rng.uniform(0, 20))
    return [rows[i] for i in order]


@pytest.fixture(scope="module")
def events(spark):
    return spark.createDataFrame(records(200, seed=4), SCHEMA).coalesce(1)


def drained(frame, folder):
    query = (
        frame.writeStream.format("parquet").option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "check")).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    return frame.sparkSession.read.schema(frame.schema).parquet(str(folder / "out")), query


def values(frame, summary):
    """The results in the form of the truth; those that were deleted have no records."""
    return by_window(frame.where("records > 0").toArrow(), summary)


def newest(*frames):
    """One row for each session: that of the highest revision."""
    rows = {}
    for frame in frames:
        for row in frame.collect():
            key = (
                row["road"] if "road" in frame.columns else None,
                row.window_start,
                row.window_end,
            )
            if key not in rows or row.revision > rows[key].revision:
                rows[key] = row
    return [row for row in rows.values() if row.records]


@pytest.mark.quick
@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("summary", [SUMMARY, ALL], ids=["groups", "all"])
def test_after_correction_a_stream_has_the_sessions_of_a_batch(
    spark, events, tmp_path, summary, is_stream
):
    truth = recompute(events.toArrow(), summary)
    if not is_stream:
        found = rm.aggregate(events, summary)
        assert differences(values(found, summary), truth) == []
        assert {(row.coverage, row.slack) for row in found.collect()} == {(1.0, 0.0)}
        return
    stream = rm.testing.replay(events, cuts=25)
    live = rm.aggregate(stream, summary, slack=rm.fixed("1 second"), late="rows", buckets=2)
    out, query = drained(live, tmp_path)
    out = out.cache()
    results = out.where("kind = 'row'").drop("kind", "record", "reason")
    late = rm.rejected(out).where("kind = 'late'")
    counts = rm.metrics(query)["operators"]["aggregate"]
    assert counts["late"] == late.count() > 5
    assert counts["counts"]["on_time"] + counts["late"] == 200
    assert differences(values(results, summary), truth)
    # what `exact` corrects while sessions are open: those whose records were emitted or late
    closed = session_corrections(results, events, summary, late, early=results)
    made = by_window(closed.where("records > 0").toArrow(), summary)
    assert made
    assert differences(made, {key: truth[key] for key in made}) == []
    for given in (late, None):
        fixed = rm.correct(results, events, summary, late=given).cache()
        assert {row.revision for row in fixed.collect()} == {1}
        assert fixed.where("records = 0").count() > 0  # joined to others
        table = spark.createDataFrame(newest(results, fixed), results.schema)
        wrong = differences(values(table, summary), truth)
        if given is not None:
            assert {*made} <= {*by_window(fixed.where("records > 0").toArrow(), summary)}
        open_ = [text for text in wrong if not text.endswith("not emitted")]
        assert open_ == []
        assert given is not None or wrong == []
        both = results.unionByName(fixed)
        assert rm.correct(both, events, summary, late=given).count() == 0


@pytest.mark.quick
def test_open_sessions_last_over_a_restart(spark, events, tmp_path):
    ordered = events.orderBy("at").coalesce(1)
    folder, middle = tmp_path / "events", BEGIN + dt.timedelta(seconds=150)
    source = rm.testing.replay(ordered.where(ordered.at < middle), path=folder)

    def sessions():
        return rm.aggregate(source, SUMMARY)

    drained(sessions(), tmp_path)
    ordered.where(ordered.at >= middle).write.mode("append").parquet(str(folder))
    rows, _ = drained(sessions(), tmp_path)
    truth = recompute(events.toArrow(), SUMMARY)
    found = values(rows, SUMMARY)
    assert any(key[1] < middle.timestamp() * 1e6 < key[2] for key in found)
    assert differences(found, {key: truth[key] for key in found}) == []
    assert len(found) >= len(truth) - 3


def test_what_cannot_be_done_with_sessions_is_said(events):
    with pytest.raises(
        DefinitionError,
        match=r"^aggregate: rm\.quality cannot be promised for sessions; a late record changes "
        r"which sessions there are, not only their values\. Use slack=rm\.max_delay\(\)",
    ):
        rm.aggregate(events, SUMMARY, slack=rm.quality())
    with pytest.raises(
        DefinitionError, match=r"^join_window: two streams cannot be joined by sessions; which"
    ):
        rm.join_window(
            events, events, on=rm.keys("road"), time="at", window=rm.session("1 minute"),
            columns={"more": "cars"},
        )  # fmt: skip


@pytest.mark.server
def test_a_store_of_sessions_ends_exact_and_so_do_its_changes(
    spark, events, tmp_path, postgres_url
):
    sink = rm.tables.postgres(postgres_url, "sessions_of_roads")
    running = rm.exact(
        rm.testing.replay(events, cuts=20), SUMMARY, store=tmp_path / "store", sink=sink,
        slack=rm.fixed("1 second"), span="1 second",
    ).start(availableNow=True)  # fmt: skip
    running.awaitTermination()
    truth = recompute(events.toArrow(), SUMMARY)
    results = running.results().cache()
    assert differences(by_window(results.toArrow(), SUMMARY), truth) == []
    assert {row.status for row in results.select("status").distinct().collect()} == {"exact"}
    table, changes = {}, [row.change for row in running.changelog().collect()]
    assert set(changes) >= {"insert", "delete"}
    for row in running.changelog().collect():
        key = row.road, row.window_start, row.window_end
        assert (row.change == "insert") == (key not in table)
        table[key] = row.records
    held = {key: count for key, count in table.items() if count}
    assert sorted(held.values()) == sorted(value["n"] for value in truth.values())
    assert running.promise()["windows"] == running.changelog().where("revision = 0").count()
    rows = sink.read(["road", "window_start", "window_end", "n"]).to_pylist()
    assert {(row["road"], row["window_start"], row["window_end"]): row["n"] for row in rows} == {
        (key[0], *(at.astimezone(dt.UTC) for at in key[1:])): count for key, count in held.items()
    }
