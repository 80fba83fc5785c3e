"""rm.register: a table as a function of SQL gives the rows of join_table."""

import datetime as dt

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely
from pyspark.sql import functions as F

import rivermouth as rm
from rivermouth.errors import RivermouthError
from rivermouth.testing import assert_same_rows, replay, rows

pytestmark = [pytest.mark.spark, pytest.mark.since("4.1")]

HERE = rm.point("lon", "lat")


@pytest.fixture(scope="module")
def zones(tmp_path_factory):
    path = tmp_path_factory.mktemp("register") / "zones.parquet"
    boxes = [shapely.box(0, 0, 2, 2), shapely.box(1, 1, 3, 3)]
    table = {
        "zone": ["a", "b"],
        "k": pa.array([1, 2], pa.int64()),
        "since": [dt.datetime(2026, 1, day, tzinfo=dt.UTC) for day in (1, 5)],
        "b": [box.wkb for box in boxes],
    }
    pq.write_table(pa.table(table), path)
    return rm.tables.parquet(path, geometry="b")


@pytest.fixture(scope="module")
def points(spark):
    made = [(1, 0.5, 0.5), (2, 1.5, 1.5), (3, 9.0, 9.0), (4, None, 1.0), (5, 2.5, 2.5)]
    return spark.createDataFrame(made, "id int, lon double, lat double")


@pytest.fixture(scope="module")
def zone_of(spark, zones):
    return rm.register(
        spark, "zone_of", zones, on=rm.within(HERE, "b"), columns={"zone": "zone", "lon": "k"}
    )


@pytest.mark.parametrize("engine", ["batch", "stream"])
def test_sql_gives_the_rows_of_the_join(engine, spark, points, zones, zone_of):
    events = points if engine == "batch" else replay(points, cuts=[2, 3])
    events.createOrReplaceTempView("points")
    joins = {"left": "inline_outer", "inner": "inline"}
    parts = [
        spark.sql(f"SELECT '{how}' how, id, {unfold}(zone_of(lon, lat)) FROM points")
        for how, unfold in joins.items()
    ]
    found = rows(parts[0].unionByName(parts[1]).toDF("how", "id", "zone", "k"))
    truth = [
        {"how": how, **row}
        for how in joins
        for row in rows(
            rm.join_table(
                points, zones, on=rm.within(HERE, "b"), how=how, columns=["zone", "k"]
            ).drop("lon", "lat")
        )
    ]
    assert_same_rows(found, truth)


def test_it_works_in_views_in_filters_beside_others_and_on_columns(spark, points, zones, zone_of):
    rm.register(spark, "near", zones, on=rm.nearest(HERE, "b"), columns=["zone"])
    points.createOrReplaceTempView("points")
    spark.sql("CREATE OR REPLACE TEMP VIEW inside AS "
              "SELECT id, zone_of(lon, lat) z, near(lon, lat)[0] n FROM points "
              "WHERE size(zone_of(lon, lat)) > 0")  # fmt: skip
    found = spark.sql("SELECT id, size(z) zones, n.zone, n.distance FROM inside")
    assert sorted(tuple(row.values()) for row in rows(found)) == [
        (1, 1, "a", 0.0), (2, 2, "a", 0.0), (5, 1, "b", 0.0),
    ]  # fmt: skip
    unfolded = points.select("id", F.inline(zone_of("lon", "lat"))).toDF("id", "zone", "k")
    assert sorted(row["id"] for row in rows(unfolded)) == [1, 2, 2, 5]


def test_arguments_are_compared_in_the_tables_types(spark, zones):
    rm.register(spark, "by_key", zones, on=rm.keys({"key": "k"}), columns=["zone"])
    rm.register(spark, "in_force", zones, on=rm.asof("at", "since"), columns=["zone"])
    asked = (
        "SELECT by_key(1S)[0].zone one, by_key(null) nothing, by_key(7L) none, "
        "in_force(timestamp'2026-01-03 00:00:00Z')[0].zone at"
    )
    assert rows(spark.sql(asked)) == [{"one": "a", "nothing": [], "none": [], "at": "a"}]
    for call, sentence in (
        ("by_key('1')", "by_key: argument 'key' is string, and bigint is compared. Cast it, as in "
         "by_key(..., cast(key AS bigint), ...)."),
        ("by_key(1, 2)", "by_key: called with 2 arguments; it has 1. Write by_key(key)."),
    ):  # fmt: skip
        with pytest.raises(Exception) as caught:  # noqa: PT011  (Spark's, with our words in it)
            spark.sql(f"SELECT {call} FROM range(1)").collect()
        assert sentence in str(caught.value)


@pytest.mark.parametrize(
    ("call", "found"),
    [
        ("by_float(0.1D)", "argument 'key' is double, and float is compared"),  # not 0.1F
        ("by_float(0.1F)", 1),
        ("by_float(0.1)", 1),  # a decimal: the nearest float
        ("by_float(16777216)", 1),
        ("by_float(16777217)", 0),  # 2^24 + 1 is no float
        ("by_int(3L)", 1),
        ("by_int(3000000000L)", 0),
        ("by_int(-4294967293L)", 0),  # 3 in its last 32 bits
        ("before(4)", 1),
        ("before(3000000000L)", "try_cast(at AS int) is NULL. Pass the value that is meant, or "),
        ("within('POINT (1 1)')", "argument 'g' is string, and binary is compared. Pass WKB or "),
    ],
)
def test_an_argument_is_compared_as_it_is_or_not_at_all(spark, tmp_path, call, found):
    columns = {
        "f": pa.array([0.1, 2**24], pa.float32()),
        "i": pa.array([3, -1], pa.int32()),
        "shape": shapely.to_wkb([shapely.box(0, 0, 1, 1)] * 2).tolist(),
    }
    pq.write_table(pa.table(columns), tmp_path / "t.parquet")
    table = rm.tables.parquet(tmp_path / "t.parquet", geometry="shape")
    for name, on in {
        "by_float": rm.keys({"key": "f"}),
        "by_int": rm.keys({"key": "i"}),
        "before": rm.asof("at", "i"),
        "within": rm.within("g", "shape"),
    }.items():
        rm.register(spark, name, table, on=on, columns=["i"])
    asked = spark.sql(f"SELECT size({call}) found")
    if isinstance(found, int):
        assert rows(asked) == [{"found": found}]
        return
    with pytest.raises(Exception) as caught:  # noqa: PT011  (Spark's, with our words in it)
        asked.collect()
    assert found in str(caught.value)


@pytest.mark.parametrize(
    ("ask", "sentence"),
    [
        (
            {"name": "Position"},
            "register: the function's name is 'Position'; SQL calls Spark's own position by it. "
            "Take another name.",
        ),
        (
            {"name": "zone of"},
            "register: the function's name is 'zone of'. Use letters, digits and _, as in "
            "'district_of'.",
        ),
        (
            {"on": rm.within(HERE, "bb")},
            "register: on names column 'bb', which is not among zones.parquet's "
            "['b', 'k', 'since', 'zone']. Did you mean 'b'?",
        ),
        (
            {"on": "zone = 1"},
            "on: 'zone = 1' is not a condition. Write one with rm.keys, rm.between, rm.within, "
            "rm.nearest and the like.",
        ),
        (
            {"columns": ["zon"]},
            "register: columns names column 'zon', which is not among zones.parquet's "
            "['b', 'k', 'since', 'zone']. Did you mean 'zone'?",
        ),
        (
            {"on": rm.keys({"key": "k"}), "cache": rm.full(buckets=4)},
            "register: cache is Full(",
        ),
        (
            {"table": "zones.parquet"},
            "register: the table must be one of rm.tables, and no frame: Python workers cannot "
            "read it; it is of type str. Write a frame once: table = rm.snapshot(df, path).",
        ),
    ],
)
def test_what_cannot_be_done_is_said_at_definition(ask, sentence, spark, zones):
    given = {"name": "f", "table": zones, "on": rm.within(HERE, "b"), **ask}
    with pytest.raises(RivermouthError) as caught:
        rm.register(spark, given.pop("name"), given.pop("table"), **given)
    assert str(caught.value).startswith(sentence)


def test_a_cluster_needs_a_folder(spark, zones, monkeypatch):
    monkeypatch.setattr("rivermouth.spark.runtime.folders._master", lambda _: "spark://host:7077")
    with pytest.raises(RivermouthError) as caught:
        rm.register(spark, "f", zones, on=rm.within(HERE, "b"))
    assert str(caught.value) == (
        "register: no folder is given, and the workers of 'spark://host:7077' may be on several "
        "hosts. Give one that all of them reach, as in cache=rm.full(path='/shared/snapshots')."
    )
