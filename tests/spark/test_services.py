"""Services in Spark: an HTTP server on loopback behind join_table, batch and stream alike."""

import threading
import time

import pytest
from pyspark.errors import StreamingQueryException
from tests.support.http_service import name_service, on_loop, plain

import rivermouth as rm
from rivermouth.errors import PlanError
from rivermouth.testing import assert_same_rows, replay, rows

pytestmark = [pytest.mark.spark]

#: null keys, even ones below 1000 that the service knows, and others
EVENTS = [(n, None if n % 10 == 9 else 2000 + n if n % 10 == 8 else n % 40) for n in range(200)]
FUNCTIONS = {"plain": plain, "async": on_loop}


@pytest.fixture
def names():
    with name_service() as service:
        yield service


@pytest.fixture(scope="module")
def events(spark):
    frame = spark.createDataFrame(EVENTS, "event long, user int")
    return {"batch": frame, "stream": replay(frame, cuts=[3, 77, 120])}


def users(names, function=plain, **more):
    return rm.tables.service(
        function(names.port),
        keys="uid",
        schema={"uid": "int64", "name": "string"},
        name="users",
        **{"batch": 7, "concurrency": 3, **more},
    )


def expected(how):
    known = [(n, u, u is not None and u % 2 == 0 and u < 1000) for n, u in EVENTS]
    if how in ("inner", "left"):
        return [
            {"event": n, "user": u, "name": f"user {u}" if is_known else None}
            for n, u, is_known in known
            if is_known or how == "left"
        ]
    return [{"event": n, "user": u} for n, u, is_known in known if is_known == (how == "semi")]


@pytest.mark.parametrize("engine", ["batch", "stream"])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_service_gives_the_same_rows_to_batch_and_stream(engine, function, events, names):
    table = users(names, FUNCTIONS[function])
    for how in ("left", "semi") if engine == "batch" else ("left",):
        joined = rm.join_table(
            events[engine], table, on=rm.keys({"user": "uid"}), how=how, cache=rm.incremental()
        )
        assert_same_rows(rows(joined), expected(how))
    asked = [number for numbers in names.asked for number in numbers]
    assert max(map(len, names.asked)) <= 7
    assert None not in asked


def test_without_a_cache_it_is_asked_for_each_batch(events, names):
    joined = rm.join_table(
        events["batch"].coalesce(1), users(names), on=rm.keys({"user": "uid"}), how="anti",
        cache=rm.external(),
    )  # fmt: skip
    assert_same_rows(rows(joined), expected("anti"))
    asked = [number for numbers in names.asked for number in numbers]
    assert sorted(asked) == sorted({u for _, u in EVENTS if u is not None})


@pytest.mark.parametrize("cache", [None, rm.full(), rm.full(buckets=2)])
def test_a_full_cache_is_a_clear_error(cache, events, names):
    with pytest.raises(
        PlanError,
        match=r"join_table: users is a service: it answers keys and cannot be read whole\. "
        r"Use cache=rm\.incremental\(\), or rm\.external\(\)\.",
    ):
        rm.join_table(events["batch"], users(names), on=rm.keys({"user": "uid"}), cache=cache)


def test_another_condition_is_refused_at_definition(events, names):
    with pytest.raises(PlanError, match=r"users is asked by \['uid'\], all of them and by equalit"):
        rm.join_table(
            events["batch"], users(names), on=rm.asof("event", "uid"), cache=rm.incremental()
        )
    assert names.asked == []


def test_fences_cannot_be_a_service(spark, names):
    shapes = rm.tables.service(
        plain(names.port), keys="uid", schema={"uid": "int64", "shape": "geometry"}, name="shapes"
    )
    positions = spark.createDataFrame([], "id long, at timestamp, x double, y double")
    with pytest.raises(PlanError, match=r"fence_events: shapes is a service: it answers keys"):
        rm.fence_events(
            positions, shapes, on=rm.within(rm.point("x", "y"), "shape"), by="id", time="at",
        )  # fmt: skip


def test_ranges_among_a_keys_rows(spark):
    def prices(keys):
        return {
            name: [{"since": 0, "price": 1.0}, {"since": 10, "price": 2.0}]
            for name in keys["product"].to_pylist()
            if name != "none"
        }

    table = rm.tables.service(
        prices, keys="product", unique=False,
        schema={"product": "string", "since": "int64", "price": "double"},
    )  # fmt: skip
    sold = spark.createDataFrame([("a", 3), ("a", 10), ("none", 3)], "product string, at long")
    joined = rm.join_table(
        sold, table, on=rm.asof("at", "since", by="product"), how="left", columns=["price"],
        cache=rm.incremental(),
    )  # fmt: skip
    assert_same_rows(
        rows(joined),
        [
            {"product": "a", "at": 3, "price": 1.0},
            {"product": "a", "at": 10, "price": 2.0},
            {"product": "none", "at": 3, "price": None},
        ],
    )


# -- a stream whose service goes away


def started(events, names, folder, **settings):
    joined = rm.join_table(
        events, users(names, timeout="2 seconds"), on=rm.keys({"user": "uid"}), how="left",
        cache=rm.incremental(rows=1, attempts=1, **settings),
    )  # fmt: skip
    return (
        joined.writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )


def test_a_stream_whose_service_is_down_fails_and_goes_on_when_it_is_back(
    spark, events, names, tmp_path
):
    names.stop()
    with pytest.raises(StreamingQueryException) as failure:
        started(events["stream"], names, tmp_path).awaitTermination()
    assert "users: fetching" in str(failure.value)
    assert "Restore the store and start the query again" in str(failure.value)
    names.start()
    started(events["stream"], names, tmp_path).awaitTermination()
    assert_same_rows(rows(spark.read.parquet(str(tmp_path / "out"))), expected("left"))


def test_a_stream_that_may_miss_goes_on_and_its_breaker_spares_the_service(events, names):
    names.status, names.fails = 503, 10**9
    joined = rm.join_table(
        events["stream"], users(names), on=rm.keys({"user": "uid"}), how="left",
        cache=rm.incremental(attempts=1, on_unavailable="miss", reset_timeout="1 hour"),
    )  # fmt: skip
    query = joined.writeStream.format("noop").trigger(availableNow=True).start()
    query.awaitTermination()
    (operator,) = rm.metrics(query)["operators"].values()
    cache = operator["cache"]
    assert (operator["rows_in"], operator["rows_out"], operator["matched"]) == (200, 200, 0)
    assert cache["failed_lookups"] == sum(u is not None for _, u in EVENTS)
    assert cache["circuit_opens"] == cache["workers"]
    assert len(names.asked) <= 3 * cache["workers"]  # those that were under way at once


def test_a_service_that_restarts_during_a_stream_loses_nothing(spark, events, names, tmp_path):
    names.delay = 0.02
    joined = rm.join_table(
        events["stream"], users(names), on=rm.keys({"user": "uid"}), how="left",
        cache=rm.incremental(rows=1, attempts=8),
    )  # fmt: skip
    stop = threading.Event()

    def restart():
        while not stop.is_set():
            time.sleep(0.3)
            names.stop()
            time.sleep(0.1)
            names.start()

    restarting = threading.Thread(target=restart)
    restarting.start()
    try:
        found = rows(joined)
    finally:
        stop.set()
        restarting.join()
    assert_same_rows(found, expected("left"))
