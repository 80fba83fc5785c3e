"""Tables that live elsewhere, in Spark: any store, any cache, batch and stream, the same rows."""

import functools

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from tests.support.stores import store_of

import rivermouth as rm
from rivermouth.errors import PlanError
from rivermouth.testing import assert_same_rows, oracle, replay, rows

pytestmark = [pytest.mark.spark, pytest.mark.server]

HOWS = ["inner", "left", "semi", "anti"]
CACHES = {
    "one row": rm.incremental(rows=1, policy="lru"),
    "few rows": rm.incremental(rows=7, policy="s3fifo"),
    "all": rm.incremental(),
    "full": rm.full(),
    "external": rm.external(),
}
CONDITIONS = {
    "equal": rm.keys({"user": "uid"}),
    "two columns": rm.keys({"user": "uid", "city": "town"}),
    "between": rm.between("speed", "limit_", lower=-2, upper=3, by={"user": "uid"}),
    "asof": rm.asof("speed", "limit_", by={"user": "uid"}),
    "asof, no key": rm.asof("speed", "limit_"),
}

#: several rows for most keys, keys that are null, text that a lenient collation would mix up
TABLE = [
    {
        "id": n,
        "uid": None if n % 11 == 10 else n % 9,
        "town": ["Bern", "bern", "Bern ", None][n % 4],
        "limit_": None if n % 13 == 12 else (n * 7) % 20,
        "name": f"row {n}",
    }
    for n in range(40)
]
EVENTS = [
    {
        "event": n,
        "user": None if n % 17 == 16 else (n * 5) % 14,  # 9 to 13 are not in the table
        "city": ["bern", "Bern", None][n % 3],
        "speed": None if n % 19 == 18 else n % 25,
    }
    for n in range(120)
]
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("uid", pa.int64()),
        ("town", pa.string()),
        ("limit_", pa.int64()),
        ("name", pa.string()),
    ]
)


@pytest.fixture(scope="module")
def table(request, tmp_path_factory):
    store = store_of(request.param, request, tmp_path_factory.mktemp("store"))
    return store.put("limits", pa.Table.from_pylist(TABLE, SCHEMA))


@pytest.fixture(scope="module")
def events(spark):
    made = [tuple(row.values()) for row in EVENTS]
    frame = spark.createDataFrame(made, "event long, user long, city string, speed long")
    return {"batch": frame, "stream": replay(frame, cuts=[3, 50, 67])}


def one_how(events, table, on, how, cache, plan="workers"):
    brought = {"columns": ["name"]} if how in ("inner", "left") else {}
    joined = rm.join_table(events, table, on=on, how=how, cache=cache, plan=plan, **brought)
    name = F.col("name") if brought else F.lit(None).cast("string")
    return joined.select("event", name.alias("name"), F.lit(how).alias("how"))


def truth(on, hows=HOWS):
    return [
        {"event": row["event"], "name": row.get("name"), "how": how}
        for how in hows
        for row in oracle.join_table(EVENTS, TABLE, on=on, how=how, columns=["name"])
    ]


# every cache and condition on one store; on the others, whose answers have tests of their own,
# one small cache and the store itself
ALL = [("postgres", cache, condition) for cache in CACHES for condition in CONDITIONS]
SOME = [
    (store, "few rows", condition)
    for store in ("sqlite", "mysql", "parquet")
    for condition in ("two columns", "between", "asof, no key")
]
ASKED = [
    ("sqlite", "external", "asof"),
    ("mysql", "external", "between"),
    ("parquet", "external", "equal"),
]


@pytest.mark.parametrize(
    ("table", "cache", "condition"), [*ALL, *SOME, *ASKED], indirect=["table"], scope="module"
)
def test_every_store_and_cache_gives_the_oracles_rows(cache, condition, events, table):
    on = CONDITIONS[condition]
    parts = (one_how(events["batch"], table, on, how, CACHES[cache]) for how in HOWS)
    assert_same_rows(rows(functools.reduce(DataFrame.unionByName, parts)), truth(on))


@pytest.mark.since("4.1")  # arrow_udf
@pytest.mark.parametrize("table", ["sqlite"], indirect=True, scope="module")
@pytest.mark.parametrize("cache", ["few rows", "external"])
def test_a_function_uses_the_same_caches(cache, events, table):
    on = CONDITIONS["asof"]
    parts = (one_how(events["batch"], table, on, how, CACHES[cache], "udf") for how in HOWS)
    assert_same_rows(rows(functools.reduce(DataFrame.unionByName, parts)), truth(on))


@pytest.mark.parametrize("table", ["postgres"], indirect=True, scope="module")
@pytest.mark.parametrize("cache", ["few rows", "full"])
@pytest.mark.parametrize("condition", ["equal", "asof"])
def test_a_stream_gives_the_rows_of_the_batch(cache, condition, events, table):
    on = CONDITIONS[condition]
    joined = one_how(events["stream"], table, on, "left", CACHES[cache])
    assert_same_rows(rows(joined), truth(on, ["left"]))


@pytest.mark.parametrize("table", ["sqlite", "postgres"], indirect=True, scope="module")
def test_a_stream_says_what_its_cache_did(spark, events, table, tmp_path):
    cache = rm.incremental(rows=1000, ttl="1 hour", missing_ttl="1 hour")
    joined = rm.join_table(
        events["stream"], table, on=CONDITIONS["equal"], how="left", columns=["name"], cache=cache
    )
    query = joined.writeStream.format("noop").trigger(availableNow=True).start()
    query.awaitTermination()
    (operator,) = rm.metrics(query)["operators"].values()
    seen = operator["cache"]
    users = [row["user"] for row in EVENTS if row["user"] is not None]
    assert seen["hits"] + seen["negative_hits"] + seen["misses"] == len(users)
    assert seen["misses"] >= len(set(users)), "each worker asks once for each key, no more"
    assert seen["misses"] <= seen["workers"] * len(set(users))
    assert seen["negative_hits"] > 0
    assert 0 < seen["loads"] <= seen["misses"]
    assert seen["entries"] <= seen["workers"] * len(set(users))
    assert seen["rows"] > 0 < seen["bytes"]
    assert operator["rejected"] == {"null_key": len(EVENTS) - len(users)}


@pytest.mark.parametrize("table", ["sqlite"], indirect=True, scope="module")
def test_what_an_incremental_cache_cannot_do_is_said_at_definition(events, table, tmp_path):
    near = rm.dwithin(rm.point("speed", "user"), rm.point("limit_", "uid"), distance=1)
    with pytest.raises(PlanError, match="keeps rows by key, and a place is not one"):
        rm.join_table(events["batch"], table, on=near, columns=["name"], cache=rm.incremental())
    with pytest.raises(PlanError, match="lives in Python workers"):
        rm.join_table(
            events["batch"], table, on=CONDITIONS["equal"], columns=["name"],
            cache=rm.incremental(), plan="native",
        )  # fmt: skip
    frame = rm.tables.frame(events["batch"].withColumnRenamed("user", "uid").select("uid", "speed"))
    with pytest.raises(PlanError, match="cannot be asked for single keys"):
        rm.join_table(
            events["batch"].drop("speed"), frame, on=CONDITIONS["equal"], cache=rm.incremental()
        )
