"""A table in buckets by place: any number of them, and the rows of the join without buckets."""

import functools
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from tests.kernels.table_join.test_matching import wkb
from tests.spark.test_buckets import one_how
from tests.spark.test_join_table import BAD, HOWS, ODD, TOPOLOGY
from tests.support.shapes import pool

import rivermouth as rm
from rivermouth.errors import PlanError
from rivermouth.testing import assert_same_rows, oracle, replay, rows

pytestmark = pytest.mark.spark

PLACES = {
    **{one.__name__: one("a", "b") for one in TOPOLOGY if one is not rm.disjoint},
    "relate": rm.relate("a", "b", "T*F**F***"),
    "dwithin": rm.dwithin("a", "b", distance=1),
    "within, points": rm.within(rm.point("x", "y"), "b"),
    "intersects, points": rm.intersects(rm.point("x", "y"), "b"),
    "dwithin, points": rm.dwithin(rm.point("x", "y"), rm.point("u", "v"), distance=2),
    "dwithin, metres": rm.dwithin(rm.point("x", "y"), rm.point("u", "v"), meters=250_000),
    "dwithin, metres to shapes": rm.dwithin("a", "b", meters=100_000.5),
}
STREAMED = ["within, points", "covered_by", "dwithin", "dwithin, metres"]


@pytest.fixture(scope="module")
def table_rows():
    everywhere = shapely.box(-1, -1, 20, 20)
    shapes = [*pool(7, 14), *pool(8, 8, "polygons"), *pool(9, 4, "points"), everywhere]
    return [
        {"name": f"row {n}", "u": n % 9 + n / 100, "v": n % 5 - n / 100, "b": shape}
        for n, shape in enumerate(wkb(shapes))
    ]


@pytest.fixture(scope="module")
def table(table_rows, tmp_path_factory):
    kinds = [("name", pa.string()), ("u", pa.float64()), ("v", pa.float64()), ("b", pa.binary())]
    path = tmp_path_factory.mktemp("table") / "places.parquet"
    pq.write_table(pa.Table.from_pylist(table_rows, pa.schema(kinds)), path, row_group_size=5)
    return rm.tables.parquet(path, geometry="b")


@pytest.fixture(scope="module")
def event_rows():
    bow = shapely.from_wkt("POLYGON ((0 0, 6 6, 6 0, 0 6, 0 0))")  # not valid, and across cuts
    shapes = [*wkb(pool(1, 30)), *BAD, bow.wkb]
    events = [
        {"id": n, "x": n % 9 / 1.0, "y": n % 7 / 2.0, "a": shape} for n, shape in enumerate(shapes)
    ]
    events += [{"id": 100 + n, "x": odd, "y": 1.0, "a": None} for n, odd in enumerate(ODD)]
    return [*events, events[0], events[0]]  # duplicates are rows of their own


@pytest.fixture(scope="module")
def events(spark, event_rows):
    made = [tuple(row.values()) for row in event_rows]
    frame = spark.createDataFrame(made, "id long, x double, y double, a binary").repartition(2)
    return {"batch": frame, "stream": replay(frame, cuts=[1, 22, len(event_rows) - 23])}


def all_hows(events, table, on, cache):
    made = (one_how(events, table, on, how, cache) for how in HOWS)
    return functools.reduce(DataFrame.unionByName, made)


@pytest.mark.parametrize(
    ("place", "engine", "count"),
    [
        *((name, "batch", 2 + n % 4) for n, name in enumerate(PLACES)),
        ("intersects", "batch", 13),
        *((name, "stream", 3) for name in STREAMED),
    ],
)
def test_any_number_of_buckets_gives_the_oracles_rows(
    place, engine, count, events, event_rows, table, table_rows
):
    on = PLACES[place]
    truth = [
        {"id": row["id"], "name": row.get("name"), "how": how}
        for how in HOWS
        for row in oracle.join_table(event_rows, table_rows, on=on, how=how, columns=["name"])
    ]
    assert_same_rows(rows(all_hows(events[engine], table, on, rm.full(buckets=count))), truth)


def test_the_metrics_count_as_those_of_the_whole_table(events, table, tmp_path):
    """An event that lies across a cut is one event, and rejected once."""
    on, store = PLACES["intersects"], tmp_path / "store"
    seen = []
    for cache in (rm.full(), rm.full(path=str(store), buckets=4)):
        joined = rm.join_table(events["stream"], table, on=on, columns=["name"], cache=cache)
        query = joined.writeStream.format("noop").trigger(availableNow=True).start()
        query.awaitTermination()
        seen.append(rm.metrics(query)["operators"]["join_table.places.parquet"])
    whole, bucketed = seen
    for name in ("rows_in", "rows_out", "matched", "unmatched", "rejected"):
        assert bucketed[name] == whole[name], name
    assert whole["rejected"]["invalid"] == 2  # the bow, and a point at NaN
    assert whole["counts"] == {}
    assert bucketed["counts"]["replicated_rows"] > 0
    used = bucketed["table"]["buckets"]
    assert used == sorted(set(used))
    (version,) = store.glob("*/v*")
    assert len(json.loads((version / "cut.json").read_text())["axis"]) == 3
    assert not (version / "spill.arrow").exists()


def test_events_go_where_their_bucket_is(spark, tmp_path):
    """Far points ask for one bucket each, and the others stay files that nobody has looked at."""
    spots = pa.table({"u": [float(n) for n in range(1000)], "v": [0.0] * 1000})
    pq.write_table(spots, tmp_path / "spots.parquet")
    store = tmp_path / "store"
    events = spark.createDataFrame([(2.0, 0.0), (3.0, 0.1), (1e9, -1e9)], "x double, y double")
    joined = rm.join_table(
        replay(events),
        rm.tables.parquet(tmp_path / "spots.parquet"),
        on=rm.dwithin(rm.point("x", "y"), rm.point("u", "v"), distance=1),
        columns=["u"],
        cache=rm.full(path=str(store), buckets=8),
    )
    query = joined.writeStream.format("noop").trigger(availableNow=True).start()
    query.awaitTermination()
    seen = rm.metrics(query)["operators"]["join_table.spots.parquet"]
    assert (seen["rows_in"], seen["rows_out"], seen["matched"]) == (3, 4, 2)
    assert seen["table"]["buckets"] == [0, 7]
    assert 248 <= seen["table"]["rows"] <= 256  # of 1000, those near a cut in both buckets
    assert seen["counts"] == {"replicated_rows": 0}
    (version,) = store.glob("*/v*")
    assert sorted(int(path.stem) for path in (version / "parts").iterdir()) == [1, 2, 3, 4, 5, 6]


@pytest.mark.since("4.2")  # GEOMETRY
def test_sparks_own_geometry_is_routed(events, event_rows, table, table_rows):
    shapes = events["batch"].filter("id < 30").selectExpr("id", "ST_GeomFromWKB(a) as g")
    on = rm.covers("g", "b")
    joined = rm.join_table(shapes, table, on=on, columns=["name"], cache=rm.full(buckets=3))
    known = [{"id": row["id"], "g": row["a"]} for row in event_rows if row["id"] < 30]
    truth = oracle.join_table(known, table_rows, on=on, columns=["name"])
    assert_same_rows(
        rows(joined.select("id", "name")), [{"id": r["id"], "name": r["name"]} for r in truth]
    )


def test_places_with_keys_stay_in_the_buckets_of_their_keys(events, table, tmp_path):
    on = rm.within(rm.point("x", "y"), "b") & rm.keys({"id": "u"})
    cast = events["batch"].withColumn("id", F.col("id").cast("double"))
    cache = rm.full(path=str(tmp_path), buckets=2)
    rm.join_table(cast, table, on=on, columns=["name"], cache=cache).count()
    assert list(tmp_path.glob("*/v*"))
    assert not list(tmp_path.glob("*/v*/cut.json"))


@pytest.mark.parametrize(
    ("on", "more", "what", "todo"),
    [
        (rm.nearest("a", "b"), {}, "cuts space, and what this condition looks for", "rm.dwithin"),
        (rm.disjoint("a", "b"), {}, "may be in any part of it", "leave buckets out"),
        (rm.relate("a", "b", "FF*FF****"), {}, "may be in any part of it", "leave buckets out"),
        (rm.asof("x", "u"), {}, "its equality fields or its places, and", "as in by='city'"),
        (
            rm.within("a", "b"),
            {"index": "strtree"},
            "chooses an index for each bucket by what is in it",
            "Leave index out",
        ),
    ],
    ids=["nearest", "disjoint", "relate", "asof", "index"],
)
def test_what_cannot_be_cut_is_said_at_definition(on, more, what, todo, events, table):
    cache = rm.full(buckets=4, **more)
    with pytest.raises(PlanError) as caught:
        rm.join_table(events["batch"], table, on=on, columns=["name"], cache=cache)
    said = str(caught.value)
    assert said.startswith("join_table: rm.full(buckets=) ")
    assert what in said
    assert todo in said
    assert ("the condition is " in said) or ("index is 'strtree'" in said)
