"""The best records of windows on Spark: batch, stream, corrected, in a store and in PostgreSQL."""

from __future__ import annotations

import datetime as dt
import random

import pytest

import rivermouth as rm
from rivermouth.testing.recompute import by_window, differences, recompute

pytestmark = pytest.mark.spark

BEGIN = dt.datetime(2026, 11, 16, tzinfo=dt.UTC)
SCHEMA = "road string, at timestamp, cars bigint, speed double, plate string"
SUMMARY = rm.summary(
    by="road", time="at", window=rm.sliding("6 seconds", every="2 seconds"), n=rm.count(),
    best=rm.top(2, by={"cars": "max"}, columns=["plate", "cars", "at"]),
    sky=rm.skyline({"cars": "min", "speed": "max"}, columns=["cars", "speed", "plate"]),
)  # fmt: skip


def records(count, *, seed, late=0.3):
    """Records half a second apart of which some come up to 20 places too late; many are equal."""
    rng = random.Random(seed)
    rows = [
        (
            rng.choice(["a", "b", None]), BEGIN + dt.timedelta(seconds=k / 2),
            rng.choice([None, *range(4)]), rng.choice([None, float("nan"), 1.0, 2.0, 3.0]),
            rng.choice(["x", "y", None]),
        )
        for k in range(count)
    ]  # fmt: skip
    order = sorted(range(count), key=lambda i: i + (rng.random() < late) * rng.uniform(0, 20))
    return [rows[i] for i in order]


@pytest.fixture(scope="module")
def events(spark):
    return spark.createDataFrame(records(200, seed=3), SCHEMA).coalesce(1)


@pytest.fixture(scope="module")
def truth(events):
    return recompute(events.toArrow(), SUMMARY)


def streamed(spark, events, folder):
    out = rm.aggregate(
        rm.testing.replay(events, cuts=25), SUMMARY, slack=rm.fixed("2 seconds"), late="rows"
    )
    query = (
        out.writeStream.format("parquet").option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "check")).trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    return spark.read.schema(out.schema).parquet(str(folder / "out"))


@pytest.mark.quick
@pytest.mark.parametrize("is_stream", [False, True])
def test_the_best_records_are_those_of_all_records_so_far(
    spark, events, truth, tmp_path, is_stream
):
    found = streamed(spark, events, tmp_path) if is_stream else rm.aggregate(events, SUMMARY)
    results = found.where("kind = 'row'") if is_stream else found
    wrong = differences(by_window(results.toArrow(), SUMMARY), truth)
    if not is_stream:
        assert wrong == []
        assert (
            dict(results.dtypes)["best"] == "array<struct<plate:string,cars:bigint,at:timestamp>>"
        )
        return
    late = rm.rejected(found).where("kind = 'late'")
    assert late.count() > 5
    assert wrong
    columns = results.drop("kind", "record", "reason")
    for rejected in (late, None):
        fixed = rm.correct(columns, events, SUMMARY, late=rejected)
        both = by_window(columns.toArrow(), SUMMARY) | by_window(fixed.toArrow(), SUMMARY)
        left = {key: value for key, value in truth.items() if key in both or rejected is None}
        assert differences(both, left) == []


@pytest.mark.server
def test_a_store_ends_exact_and_says_what_early_results_had_missed(
    spark, events, truth, tmp_path, postgres_url
):
    sink = rm.tables.postgres(postgres_url, "best_of_roads")
    job = rm.exact(
        rm.testing.replay(events, cuts=25), SUMMARY, store=tmp_path / "store",
        slack=rm.quality(eps=0.3, delta=0.9), sink=sink,
    )  # fmt: skip
    running = job.start(availableNow=True)
    running.awaitTermination()
    assert differences(by_window(running.results().toArrow(), SUMMARY), truth) == []
    early = by_window(running.changelog().where("revision = 0").toArrow(), SUMMARY)
    promise = running.promise()
    assert promise["windows"] == len(early)
    for name in ("best", "sky"):
        missed = [_missing(early[key][name], truth[key][name]) >= 0.3 for key in early]
        assert promise["above_eps"][name] == pytest.approx(sum(missed) / len(early))
        assert any(missed)
    rows = sink.read(["road", "window_start", "best"]).to_pylist()
    assert len(rows) == len(truth)
    held = {(row["road"], row["window_start"].timestamp()): row["best"] for row in rows}
    for (road, start), value in truth.items():
        text = held[road, start / 1e6]
        assert (text or "").count('"plate"') == len(value["best"] or [])


def _missing(early, exact):
    left, exact = list(map(str, early or [])), list(map(str, exact or []))
    size = len(exact)
    for each in left:
        if each in exact:
            exact.remove(each)
    return len(exact) / size if size else 0.0
