"""correct and exact: after them the table is that of a batch over all records."""

from __future__ import annotations

import datetime as dt
import random
import subprocess
import time

import pytest
from pyspark.errors import StreamingQueryException

import rivermouth as rm
from rivermouth.errors import DefinitionError, StateError
from rivermouth.spark.exact import corrector

pytestmark = pytest.mark.spark

BEGIN = dt.datetime(2026, 11, 16, tzinfo=dt.UTC)
SCHEMA = "road string, at timestamp, cars bigint"
VALUES = ["road", "window_start", "window_end", "total", "n", "middle", "records"]


def records(count, *, seed, late=0.3):
    """Records a second apart of which some come up to 20 places too late, with null roads."""
    rng = random.Random(seed)
    rows = [
        (rng.choice(["a", "b", None]), BEGIN + dt.timedelta(seconds=second), rng.randrange(10))
        for second in range(count)
    ]
    order = sorted(range(count), key=lambda i: i + (rng.random() < late) * rng.uniform(0, 20))
    return [rows[i] for i in order]


def summary(window=None):
    return rm.summary(
        by="road", time="at", window=window or rm.sliding("6 seconds", every="2 seconds"),
        total=rm.sum("cars"), n=rm.count(), middle=rm.median("cars"),
    )  # fmt: skip


def values(frame):
    """The results without revision and coverage."""
    return sorted(map(tuple, frame.select(*VALUES).collect()), key=str)


@pytest.fixture(scope="module")
def events(spark):
    return spark.createDataFrame(records(200, seed=1), SCHEMA).coalesce(1)


@pytest.fixture(scope="module")
def truth(events):
    return values(rm.aggregate(events, summary()))


def early(spark, events, tmp_path, **more):
    """The stream's early results and its late records, written to files."""
    stream = rm.testing.replay(events, cuts=50)
    out = rm.aggregate(stream, summary(), slack=rm.fixed("2 seconds"), late="rows", **more)
    query = (
        out.writeStream.format("parquet").option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "check")).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    return spark.read.schema(out.schema).parquet(str(tmp_path / "out"))


@pytest.mark.quick
def test_correct_makes_early_results_exact_and_then_changes_nothing(spark, events, truth, tmp_path):
    out = early(spark, events, tmp_path).cache()
    results = out.where("kind = 'row'").drop("kind", "record", "reason")
    assert rm.rejected(out).count() > 5
    assert values(results) != truth
    for late in (rm.rejected(out), None):
        fixed = rm.correct(results, events, summary(), late=late).cache()
        assert set(map(tuple, fixed.select("coverage", "revision").collect())) == {(1.0, 1)}
        both = results.unionByName(fixed)
        again = rm.correct(both, events, summary(), late=late)
        assert again.count() == 0
        newest = {row[:3]: row for row in values(results)} | {r[:3]: r for r in values(fixed)}
        if late is None:  # windows that the stream had not closed are there, too
            assert sorted(newest.values(), key=str) == truth
        else:
            assert set(newest.values()) <= set(truth)


def test_correct_deletes_a_result_without_records(spark, events, truth):
    results = rm.aggregate(events, summary()).cache()
    fewer = events.where("at >= '2026-11-16 00:01:00'")
    fixed = rm.correct(results, fewer, summary())
    gone = fixed.where("records = 0")
    assert gone.count() > 0
    assert gone.where("total IS NOT NULL OR window_start >= '2026-11-16 00:01:00'").count() == 0


def test_correct_wants_batch_frames_and_the_columns(spark, events):
    results = rm.aggregate(events, summary())
    with pytest.raises(rm.RivermouthError, match="history is a streaming frame"):
        rm.correct(results, rm.testing.replay(events), summary())
    with pytest.raises(rm.RivermouthError, match="no column 'revision'"):
        rm.correct(results.drop("revision"), events, summary())
    with pytest.raises(rm.RivermouthError, match="'cars'"):
        rm.correct(results, events.drop("cars"), summary())


def job(stream, store, **more):
    settings = {"slack": rm.fixed("2 seconds"), "span": "3 seconds", **more}
    return rm.exact(stream, summary(), store=store, **settings)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"buckets": 0}, "buckets is 0"),
        ({"max_future": "soon"}, "aggregate.max_future="),
        ({"idle_timeout": "-1 second"}, "aggregate.idle_timeout="),
        ({"retention": "0 days"}, "exact.retention=.*not longer than nothing"),
        ({"retention": "1 day", "history": list}, "retention= is about the store's records"),
        ({"retention": "59 minutes"}, "retention='59 minutes' is shorter than max_future='1 hour'"),
    ],
)
def test_what_aggregate_is_given_is_checked_at_definition(setting, message, events, tmp_path):
    stream = rm.testing.replay(events, cuts=2)
    with pytest.raises(rm.errors.DefinitionError, match=message):
        job(stream, tmp_path, **setting)


def test_sessions_have_no_retention(events, tmp_path):
    sessions = rm.summary(time="at", window=rm.session("5 seconds"), n=rm.count())
    with pytest.raises(rm.errors.DefinitionError, match="retention= is not for sessions"):
        rm.exact(rm.testing.replay(events), sessions, store=tmp_path, retention="1 day")


def test_a_retention_forgets_windows_and_shows_what_came_for_them(spark, tmp_path, monkeypatch):
    """A record a minute for four hours, one of them three hours late; compacted at each step."""
    monkeypatch.setattr(corrector, "COMPACT_AFTER", 0)
    begin = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    minutes = [*range(240), 30]
    rows = [(begin + dt.timedelta(minutes=minute), "n", 1) for minute in minutes]
    folder = tmp_path / "events"

    def run(some):
        frame = spark.createDataFrame(some, "at timestamp, road string, cars int").coalesce(1)
        frame.write.mode("append").parquet(str(folder))
        stream = spark.readStream.schema(frame.schema).parquet(str(folder))
        sums = rm.summary(by="road", time="at", window=rm.tumbling("1 minute"), n=rm.count())
        job = rm.exact(stream, sums, slack=rm.fixed("1 minute"), store=tmp_path / "store",
                       retention="30 minutes", max_future="30 minutes")  # fmt: skip
        running = job.start(availableNow=True)
        running.awaitTermination()
        return running

    run(rows[:120])
    run(rows[120:240])
    running = run(rows[240:])
    minute = f"(unix_seconds({{}}) - {int(begin.timestamp())}) div 60"
    kept = running.results().selectExpr(
        f"min({minute.format('window_start')})", "count(*)", "sum(n)"
    )
    oldest, windows, total = kept.first()
    assert 120 < oldest < 210
    assert windows == total == 240 - oldest
    expired = running.rejected().selectExpr("kind", minute.format("at")).collect()
    assert [tuple(row) for row in expired] == [("expired", 30)]


def test_exact_ends_exact_and_can_be_resumed(spark, events, truth, tmp_path):
    folder = tmp_path / "events"
    stream = rm.testing.replay(events, cuts=50, path=folder)
    running = job(stream, tmp_path / "store", buckets=3).start(availableNow=True)
    assert running.awaitTermination()
    assert values(running.results()) == truth
    ends = running.results().select("status", "coverage").distinct().collect()
    assert list(map(tuple, ends)) == [("exact", 1.0)]
    assert 0 < running.promise()["coverage"] < 1
    made = running.corrections()
    assert made[-1].final
    assert sum(one.rows for one in made) > 0
    assert all(0 < one.seconds < 600 for one in made)
    assert rm.metrics(running)["corrections"] == {
        "count": len(made), "results": sum(one.rows for one in made), "at": made[-1].at,
    }  # fmt: skip
    running.stop()
    assert not running.isActive
    assert running.corrections() == made, "what is finished is finished"
    more = spark.createDataFrame(records(30, seed=2), SCHEMA).coalesce(1)
    more.write.mode("append").parquet(str(folder))
    again = job(stream, tmp_path / "store", buckets=3).start(availableNow=True)
    again.awaitTermination()
    assert values(again.results()) == values(rm.aggregate(events.unionByName(more), summary()))


def test_the_promise_is_judged_by_all_records(events, truth, tmp_path):
    eps = 0.1
    stream = rm.testing.replay(events, cuts=50)
    slack = rm.quality(eps=eps, delta=0.9)
    running = job(stream, tmp_path / "store", slack=slack).start(availableNow=True)
    running.awaitTermination()
    exact = {row[:3]: dict(zip(VALUES[3:], row[3:], strict=True)) for row in truth}
    rows = [tuple(row) for row in events.collect()]
    above = dict.fromkeys(("total", "n", "middle"), 0)
    early = running.changelog().where("revision = 0").collect()
    for row in early:
        window = (row.road, row.window_start, row.window_end)
        now = exact[window]
        cars = [c for road, at, c in rows if road == row.road and window[1] <= at < window[2]]
        below = sum(c < row.middle for c in cars) / len(cars)
        upto = sum(c <= row.middle for c in cars) / len(cars)
        above["middle"] += row.middle != now["middle"] and max(below - 0.5, 0.5 - upto) >= eps
        for name in ("total", "n"):
            off = abs(row[name] - now[name])
            above[name] += off > 0 and off >= eps * abs(now[name])
    promise = running.promise()
    assert promise["windows"] == len(early)
    assert promise["above_eps"] == pytest.approx({n: k / len(early) for n, k in above.items()})
    assert (
        max(promise["above_eps"].values())
        <= promise["missed"]
        <= sum(promise["above_eps"].values())
    )
    low, high = promise["missed_bounds"]
    assert low <= promise["missed"] <= high
    assert (promise["delta"], promise["verdict"]) == (0.9, "kept")
    assert above["middle"] > 0


@pytest.mark.server
def test_postgres_holds_the_table_and_so_do_the_changes(
    spark, events, truth, tmp_path, postgres_url
):
    sink = rm.tables.postgres(postgres_url, "results_of_roads")
    stream = rm.testing.replay(events, cuts=50)
    running = job(stream, tmp_path / "store", sink=sink).start(availableNow=True)
    running.awaitTermination()
    assert values(spark.createDataFrame(sink.read(sink.schema().names))) == truth
    table = {}
    for change in running.changelog().collect():
        key = change.road, change.window_start
        assert (change.change == "insert") == (key not in table)
        table[key] = tuple(change[name] for name in VALUES)
    assert sorted(table.values(), key=str) == truth


def test_a_users_own_history_is_read_anew_at_each_correction(spark, events, truth, tmp_path):
    calls = []

    def history():
        calls.append(1)
        return events

    stream = rm.testing.replay(events, cuts=100)
    running = job(stream, tmp_path / "store", history=history).start(availableNow=True)
    running.awaitTermination()
    assert values(running.results()) == truth
    assert calls
    kinds = {piece.kind for piece in running.job.store.snapshot().pieces}
    assert "row" in kinds
    assert not kinds & {"record", "partials"}


@pytest.mark.parametrize(
    ("late", "when"),
    [
        pytest.param([3], {"span": "1 hour", "wait": "1 second"}, id="one, after its wait"),
        pytest.param([20, 3], {"span": "3 seconds", "wait": "1 hour"}, id="two, for their span"),
    ],
)
def test_late_records_are_corrected_while_the_query_runs(late, when, spark, tmp_path):
    rows = [("a", BEGIN + dt.timedelta(seconds=s), 1) for s in (0, 1, 2, 30, 31, 60, *late)]
    stream = rm.testing.replay(spark.createDataFrame(rows, SCHEMA).coalesce(1), cuts=6)
    running = job(stream, tmp_path / "store", **when).start()
    first = f"window_start = timestamp '{BEGIN:%F %T}+00:00'"
    try:
        found, deadline = [], time.monotonic() + 240
        while time.monotonic() < deadline and running.query.isActive:
            if running.corrections():  # reads small files, which does not slow the query
                found = running.results().where(first).collect()
                if found and found[0].status == "exact":
                    break
            time.sleep(0.5)
        assert running.query.isActive, running.query.exception()
        assert found[0].records == 4
        assert found[0].revision == 1
    finally:
        running.stop()


def test_a_sink_that_fails_ends_the_query_which_can_be_resumed(spark, events, truth, tmp_path):
    folder = tmp_path / "events"
    stream = rm.testing.replay(events, cuts=100, path=folder)

    def fail(changes):
        raise OSError("No space left on device")

    running = job(stream, tmp_path / "store", sink=fail).start(availableNow=True)
    with pytest.raises(OSError, match="No space left"):
        running.awaitTermination()
    again = job(stream, tmp_path / "store").start(availableNow=True)
    again.awaitTermination()
    assert values(again.results()) == truth


@pytest.fixture
def small_disk(tmp_path):
    """A file system of a few hundred kilobytes, and what makes it larger."""
    disk = tmp_path / "disk"
    disk.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", disk], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip(f"no file system can be mounted here: {made.stderr.decode().strip()}")
    yield disk, lambda: subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
    subprocess.run(["umount", "--lazy", disk], check=True)


def test_a_full_disk_ends_the_query_which_can_be_resumed_when_there_is_room(
    spark, events, truth, tmp_path, small_disk
):
    disk, enlarge = small_disk
    stream = rm.testing.replay(events, cuts=50, path=tmp_path / "events")
    with pytest.raises(StreamingQueryException, match="No space left on device"):
        job(stream, disk / "store").start(availableNow=True).awaitTermination()
    enlarge()
    again = job(stream, disk / "store").start(availableNow=True)
    again.awaitTermination()
    assert values(again.results()) == truth


def test_a_store_of_another_summary_is_an_error(spark, events, tmp_path):
    stream = rm.testing.replay(events)
    other = rm.summary(by="road", time="at", window=rm.tumbling("1 second"), many=rm.count())
    rm.exact(stream, other, store=tmp_path).store.claim(other, stream.schema)
    mine = job(stream, tmp_path)
    asked = (mine.results, mine.changelog, mine.promise, mine.records, mine.rejected)
    for ask in (lambda: mine.start(availableNow=True), *asked):
        with pytest.raises(StateError, match=r"another aggregation; its .* is .*, here "):
            ask()


def test_a_store_that_is_a_file_is_an_error(spark, events, tmp_path):
    (tmp_path / "store").touch()
    with pytest.raises(DefinitionError, match=r"store='.*/store' is a file"):
        job(rm.testing.replay(events), tmp_path / "store")


def test_the_sinks_offset_of_the_first_version_is_read(spark, events, tmp_path):
    store = job(rm.testing.replay(events), tmp_path).store
    assert store.sink_offset() is None
    (tmp_path / "told.json").write_text('{"upto": 7, "corrections": 2}')
    assert store.sink_offset() == (7, 2)
    store.commit_sink(9, 3)
    assert store.sink_offset() == (9, 3)
