"""Routing in Spark: the same rows whichever way events go, and rules that follow a stream."""

import functools
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import rivermouth as rm
from rivermouth.errors import DefinitionError, PlanError
from rivermouth.tables.files import write_json
from rivermouth.tables.skew.routing_store import RoutingState
from rivermouth.testing import assert_same_rows, oracle, replay, rows

pytestmark = pytest.mark.spark

HOWS = ["inner", "left", "semi", "anti"]
TABLE = [
    {"k": None if n % 9 == 8 else n % 12, "t": "ab"[n % 2], "w": n, "name": f"row {n}"}
    for n in range(40)
]
#: every other event asks for one key
EVENTS = [
    {
        "id": n,
        "k": 3 if n % 2 else (None if n % 14 == 0 else n % 17),
        "t": "abc"[n % 3],
        "v": n % 50,
    }
    for n in range(300)
]
ROUTINGS = {
    "hash": rm.by_hash(3),
    "hotspot": rm.by_hotspot(cycle=60, sample=30, partitions=4),
    "algorithm 2": rm.by_hotspot(cycle=60, sample=30, partitions=3, split=False),
    "cost": rm.by_hotspot(cycle=60, weight="cost", partitions=4),
    "one partition": rm.by_hotspot(cycle=60, partitions=1),
}
CACHES = {"full": rm.full(), "incremental": rm.incremental(rows=5), "external": rm.external()}
ON = {
    "two columns": rm.keys(["k", "t"]),
    "asof": rm.asof("v", "w", by="k"),
}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("routing") / "table.parquet"
    pq.write_table(pa.Table.from_pylist(TABLE), path)
    return rm.tables.parquet(path)


@pytest.fixture(scope="module")
def events(spark):
    made = [tuple(row.values()) for row in EVENTS]
    frame = spark.createDataFrame(made, "id long, k long, t string, v long")
    return {"batch": frame, "stream": replay(frame, cuts=50)}


def one_how(events, table, on, how, cache, routing):
    brought = {"columns": ["name"]} if how in ("inner", "left") else {}
    joined = rm.join_table(events, table, on=on, how=how, cache=cache, routing=routing, **brought)
    name = F.col("name") if brought else F.lit(None).cast("string")
    return joined.select("id", name.alias("name"), F.lit(how).alias("how"))


@pytest.mark.parametrize(
    ("routing", "cache", "on", "engine", "hows"),
    [
        ("hash", "full", "two columns", "batch", HOWS),
        ("hotspot", "full", "asof", "stream", HOWS),
        ("hotspot", "incremental", "two columns", "stream", ["left"]),
        ("cost", "incremental", "two columns", "stream", ["inner"]),
        ("algorithm 2", "external", "two columns", "stream", ["left"]),
        ("one partition", "full", "two columns", "batch", ["anti"]),
    ],
)
def test_rows_do_not_depend_on_the_routing(routing, cache, on, engine, hows, events, table):
    on = ON[on]
    joined = functools.reduce(
        DataFrame.unionByName,
        (one_how(events[engine], table, on, how, CACHES[cache], ROUTINGS[routing]) for how in hows),
    )
    truth = [
        {"id": row["id"], "name": row.get("name"), "how": how}
        for how in hows
        for row in oracle.join_table(EVENTS, TABLE, on=on, how=how, columns=["name"])
    ]
    assert_same_rows(rows(joined), truth)


def skewed(spark, count):
    """Half of all records have one key, the others one each."""
    keys = np.where(np.arange(count) % 2, 7, np.arange(count))
    return spark.createDataFrame(list(enumerate(keys.tolist())), "id long, k long")


def test_a_running_stream_is_balanced_from_the_second_cycle_on(spark, table, tmp_path):
    routing = rm.by_hotspot(cycle=8000, sample=8000, partitions=4, path=str(tmp_path / "rules"))
    stream = replay(skewed(spark, 40_000), cuts=8000)

    def joined():
        cache = rm.incremental(rows=100)
        return rm.join_table(
            stream, table, on=rm.keys("k"), how="left", columns=["name"], cache=cache,
            routing=routing,
        )  # fmt: skip

    query = joined().writeStream.format("noop").trigger(availableNow=True).start()
    query.awaitTermination()
    (operator,) = rm.metrics(query)["operators"].values()
    seen = operator["routing"]
    assert seen["rule"] == 1
    assert seen["cycle"] == 4
    assert not seen["moved"]
    assert sum(seen["records"]) == sum(seen["rows_per_partition"]) == 8000
    assert seen["cycle_load_cv"] < 0.15
    assert seen["load_cv"] < 0.15
    assert min(seen["cost"]) > 0
    again = joined().writeStream.format("noop").trigger(availableNow=True).start()
    again.awaitTermination()
    first = rm.metrics(again)["operators"]["join_table.table.parquet"]["routing"]
    assert first["rule"] == 1, "it began with the last rule"
    assert first["cycle"] > 4


def test_a_rule_of_many_cuts_is_followed_and_maps_do_no_harm(spark, table, tmp_path):
    partitions = 21
    cuts = np.sort(np.random.default_rng(4).integers(-(2**63), 2**63 - 1, partitions - 1))
    rule = RoutingState(partitions, 1, tuple(cuts.tolist()), (1.0,) * len(cuts), cycle=1)
    events = skewed(spark, 2000).withColumn("tags", F.create_map(F.lit("a"), F.col("id")))
    joined = rm.join_table(
        replay(events, cuts=2000), table, on=rm.keys("k"), how="left", columns=["name"],
        routing=rm.by_hotspot(partitions=partitions, path=str(tmp_path / "rules")),
    )  # fmt: skip

    def routed():
        query = joined.writeStream.format("noop").trigger(availableNow=True).start()
        query.awaitTermination()
        return rm.metrics(query)["operators"]["join_table.table.parquet"]["routing"]

    assert routed()["rule"] == 0
    (folder,) = (tmp_path / "rules").iterdir()
    write_json(str(folder / "rule.json"), vars(rule))
    seen = routed()
    assert seen["rule"] == 1
    keys = np.array([row[0] for row in events.select(F.xxhash64("k")).collect()])
    expected = np.bincount(np.searchsorted(cuts, keys), minlength=partitions)
    assert seen["rows_per_partition"] == expected.tolist()
    # a batch frame follows it in the JVM
    batch = rm.join_table(
        events, table, on=rm.keys("k"), how="left", columns=["name"],
        routing=rm.by_hotspot(partitions=partitions, path=str(tmp_path / "rules")),
    )  # fmt: skip
    sizes = batch.dropDuplicates(["id"]).count(), batch.groupBy(F.spark_partition_id()).count()
    assert sizes[0] == 2000
    assert len(sizes[1].collect()) == np.count_nonzero(expected)


def test_a_stream_is_routed_by_one_job_of_two_stages(spark, table, tmp_path, capsys):
    """A rule that a job of its own delivers costs a tenth of a small micro-batch."""
    joined = rm.join_table(
        replay(skewed(spark, 2000), cuts=2000), table, on=rm.keys("k"), columns=["name"],
        routing=rm.by_hotspot(partitions=3, path=str(tmp_path / "rules")),
    )  # fmt: skip
    query = joined.writeStream.format("noop").trigger(availableNow=True).start()
    query.awaitTermination()
    query.explain()
    plan = capsys.readouterr().out.partition("Initial Plan")[0]
    assert plan.count("Exchange hashpartitioning") == 1
    assert "Broadcast" not in plan
    assert "Subquery" not in plan


def test_what_cannot_be_routed_is_said_at_definition(events, table):
    with pytest.raises(PlanError, match="routing needs equality fields and plan='workers'"):
        one_how(events["batch"], table, rm.asof("v", "w"), "inner", None, rm.by_hash())
    with pytest.raises(PlanError, match=r"rm.full\(buckets=\) routes the events itself"):
        one_how(events["batch"], table, ON["asof"], "inner", rm.full(buckets=2), rm.by_hotspot())
    with pytest.raises(DefinitionError, match="routing is 'hash'"):
        one_how(events["batch"], table, ON["asof"], "inner", None, "hash")


@pytest.mark.parametrize(
    ("name", "wrong", "todo"),
    [
        ("threshold", [0, -1, float("nan"), "0.1", True, None], "a number above 0"),
        ("cycle", [0, 1.5, "9", None], "a whole number above 0"),
        ("sample", [0, 1e4], "a whole number above 0"),
        ("partitions", [0, 2.5, True, "4", 10_001], "a whole number from 1 to 10000"),
        ("weight", ["time", 1], "one of"),
        ("split", ["no", 0, None], "True or False"),
        ("path", [3], "a folder or a URI"),
    ],
)
def test_a_routing_that_cannot_be_is_refused(name, wrong, todo):
    for value in wrong:
        with pytest.raises(DefinitionError, match=rf"^by_hotspot: {name} is .*\. \w+ {todo}"):
            rm.by_hotspot(**{name: value})
        if name == "partitions":
            with pytest.raises(DefinitionError, match=rf"^by_hash: partitions is .*{todo}"):
                rm.by_hash(value)


def test_by_hash_events_without_a_key_go_to_all_partitions(spark, table):
    keys = [None if n % 10 else n for n in range(20_000)]
    events = spark.createDataFrame(list(enumerate(keys)), "id long, k long")
    unhashed = events.withColumn("m", F.create_map("id", "id"))  # Spark hashes no map
    stream = replay(unhashed, cuts=10_000)
    joined = rm.join_table(
        stream, table, on=rm.keys("k"), how="left", columns=["name"], routing=rm.by_hash(4)
    )
    query = joined.writeStream.format("noop").trigger(availableNow=True).start()
    query.awaitTermination()
    (operator,) = rm.metrics(query)["operators"].values()
    assert len(operator["rows_per_task"]) == 4
    assert operator["load_cv"] < 0.1
    assert operator["rejected"] == {"null_key": 18_000}


def test_a_cluster_needs_a_folder_for_the_rules(events, table, monkeypatch):
    cluster = SimpleNamespace(conf={"spark.master": "spark://host:7077"})
    monkeypatch.setattr(type(events["batch"]), "sparkSession", cluster)
    for cache in (rm.incremental(), rm.external(), rm.full()):
        with pytest.raises(DefinitionError) as error:
            one_how(events["batch"], table, ON["asof"], "inner", cache, rm.by_hotspot(partitions=2))
        assert str(error.value) == (
            "join_table: no folder is given, and the workers of 'spark://host:7077' may be on "
            "several hosts. Give one that all of them reach, as in "
            "routing=rm.by_hotspot(path='/shared/routing')."
        )
