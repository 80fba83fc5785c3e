"""join_table on Spark: one test body, two engines, the slow oracle beside it."""

import functools
import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from tests.support.shapes import pool

import rivermouth as rm
from rivermouth.errors import RivermouthError
from rivermouth.testing import assert_same_rows, oracle, replay, rows

pytestmark = pytest.mark.spark

HOWS = ["inner", "left", "semi", "anti"]
TOPOLOGY = [
    rm.within, rm.contains, rm.intersects, rm.covers, rm.covered_by, rm.touches, rm.crosses,
    rm.overlaps, rm.equals, rm.disjoint,
]  # fmt: skip
PLACES = {
    **{predicate.__name__: predicate("a", "b") for predicate in TOPOLOGY},
    "relate": rm.relate("a", "b", "T*F**F***"),
    "dwithin": rm.dwithin("a", "b", distance=1),
    "nearest": rm.nearest("a", "b", k=2),
    "nearest, one": rm.nearest(rm.point("x", "y"), rm.point("u", "v"), distance=2),
    "within & equal": rm.within("a", "b") & rm.keys({"key": "k"}),
    "nearest & equal": rm.nearest("a", "b", distance=3) & rm.keys({"key": "k"}),
    "equal": rm.keys({"key": "k"}),
    "within, points": rm.within(rm.point("x", "y"), "b"),
    "covered_by, points": rm.covered_by(rm.point("x", "y"), "b"),
    "dwithin, points": rm.dwithin(rm.point("x", "y"), rm.point("u", "v"), distance=2),
    "dwithin, metres": rm.dwithin(rm.point("x", "y"), rm.point("u", "v"), meters=250_000),
    "dwithin, metres to shapes": rm.dwithin(rm.point("x", "y"), "b", meters=100_000.5),
    "nearest, metres": rm.nearest(rm.point("x", "y"), rm.point("u", "v"), k=2, meters=400_000.5),
}
BAD = [None, b"nonsense", shapely.Polygon().wkb, shapely.Point(math.nan, 1.0).wkb]
ODD = [0.0, None, math.nan, math.inf, -math.inf, 1e300]


@pytest.fixture(scope="module")
def table_rows():
    shapes = [*pool(7, 12), *pool(8, 8, "polygons"), *pool(9, 4, "points")]
    return [
        {
            "name": f"row {number}",
            "k": None if number % 7 == 0 else number % 4,
            "u": float(number % 9) + number / 100,
            "v": float(number % 5) - number / 100,
            "b": None if shape is None else shape.wkb,
        }
        for number, shape in enumerate(shapes)
    ]


@pytest.fixture(scope="module")
def table(table_rows, tmp_path_factory):
    kinds = [("name", pa.string()), ("k", pa.int64()), ("u", pa.float64()), ("v", pa.float64())]
    path = tmp_path_factory.mktemp("table") / "places.parquet"
    schema = pa.schema([*kinds, ("b", pa.binary())])
    pq.write_table(pa.Table.from_pylist(table_rows, schema), path)
    return rm.tables.parquet(path, geometry="b")


@pytest.fixture(scope="module")
def event_rows():
    wkb = [None if shape is None else shape.wkb for shape in pool(1, 34)]
    events = [
        {"id": n, "key": None if n % 5 == 0 else n % 4, "x": n % 9 / 1.0, "y": n % 7 / 2.0, "a": w}
        for n, w in enumerate([*wkb, *BAD])
    ]
    events += [
        {"id": 100 + n, "key": 1, "x": odd, "y": 1.0, "a": None} for n, odd in enumerate(ODD)
    ]
    return [*events, events[1], events[1]]  # duplicates are rows of their own


@pytest.fixture(scope="module")
def events(spark, event_rows):
    frame = spark.createDataFrame(
        [tuple(row.values()) for row in event_rows],
        "id long, key long, x double, y double, a binary",
    )
    return {"batch": frame, "stream": replay(frame, cuts=[1, 30, 2, len(event_rows) - 33])}


# the matches are the same in both of Python's plans: one condition for each form of what comes back
UDF = [
    *((place, "batch") for place in ("within & equal", "nearest", "nearest, one", "dwithin")),
    *((place, "stream") for place in ("within, points", "nearest, one")),
]


@pytest.mark.parametrize(
    ("place", "engine", "plan"),
    [
        *((place, engine, "workers") for place in PLACES for engine in ("batch", "stream")),
        *(pytest.param(*case, "udf", marks=pytest.mark.since("4.1")) for case in UDF),
    ],
)
def test_every_condition_and_every_how_equal_the_oracle(
    place, engine, plan, events, event_rows, table, table_rows
):
    on = PLACES[place]
    joined = functools.reduce(
        DataFrame.unionByName, (one_how(events[engine], table, on, how, plan) for how in HOWS)
    )
    truth = [
        {"name": None, "distance": None, **row, "how": how}
        for how in HOWS
        for row in oracle.join_table(event_rows, table_rows, on=on, how=how, columns=["name"])
    ]
    assert_same_rows(rounded(rows(joined)), rounded(truth))


def one_how(events, table, on, how, plan):
    """The join, with the same columns whatever `how` is, so that all four run as one query."""
    columns = ["name"] if how in ("inner", "left") else None
    joined = rm.join_table(events, table, on=on, how=how, columns=columns, plan=plan).withColumn(
        "how", F.lit(how)
    )
    for name, kind in (("name", "string"), ("distance", "double")):
        if name not in joined.columns:
            joined = joined.withColumn(name, F.lit(None).cast(kind))
    return joined


def rounded(found):
    """Distances to the micrometre: the last bit of a great circle is nobody's."""
    return [{**row, "distance": row["distance"] and round(row["distance"], 6)} for row in found]


@pytest.mark.quick
def test_columns_are_chosen_renamed_or_all_but_those_of_the_condition(events, table):
    on = rm.within(rm.point("x", "y"), "b") & rm.keys({"key": "k"})
    given = events["batch"].columns
    join = functools.partial(rm.join_table, events["batch"], table, on=on)
    assert join().columns == [*given, "name", "u", "v"]
    assert join(columns=[]).columns == given
    assert join(columns={"zone": "name", "shape": "b"}).columns == [*given, "zone", "shape"]
    assert join(how="semi").columns == join(how="anti").columns == given


@pytest.mark.parametrize(
    ("plan", "engine"),
    [
        *((plan, engine) for plan in ("workers", "native") for engine in ("batch", "stream")),
        pytest.param("udf", "batch", marks=pytest.mark.since("4.1")),
    ],
)
@pytest.mark.parametrize("suffixes", [("", "_t"), ("_e", ""), ("_e", "_t")])
def test_suffixes_tell_columns_of_one_name_apart(
    suffixes, plan, engine, events, event_rows, table, table_rows
):
    on = PLACES["dwithin, points"]
    brought = {"id": "name", "KEY": "k", "v": "v"}
    joined = rm.join_table(
        events[engine], table, on=on, how="left", columns=brought, suffixes=suffixes, plan=plan
    )
    ours, theirs = suffixes
    names = [f"id{ours}", f"key{ours}", "x", "y", "a", f"id{theirs}", f"KEY{theirs}", "v"]
    assert joined.columns == names
    unique = {f"_{new}": old for new, old in brought.items()}
    truth = oracle.join_table(event_rows, table_rows, on=on, how="left", columns=unique)
    assert_same_rows(rows(joined), [dict(zip(names, row.values(), strict=True)) for row in truth])


@pytest.mark.quick
def test_the_distances_have_the_name_that_nearest_gives_them(events, event_rows, table, table_rows):
    on = rm.nearest(rm.point("x", "y"), rm.point("u", "v"), k=2, name="far")
    joined = rm.join_table(events["batch"], table, on=on, columns={"distance": "name"})
    truth = oracle.join_table(event_rows, table_rows, on=on, columns={"distance": "name"})
    found = [{**row, "far": round(row["far"], 6)} for row in rows(joined)]
    assert_same_rows(found, [{**row, "far": round(row["far"], 6)} for row in truth])
    moved = rm.join_table(
        joined, table, on=rm.nearest(rm.point("x", "y"), rm.point("u", "v"), name="FAR"),
        columns=[], suffixes=("", "_again"),
    )  # fmt: skip
    assert moved.columns == [*joined.columns, "FAR_again"]
    assert {row["FAR_again"] for row in rows(moved)} != {None}


@pytest.mark.since("4.2")  # GEOMETRY
@pytest.mark.parametrize("plan", ["workers", "udf"])
def test_sparks_own_geometry_goes_in_and_out(plan, spark, table, table_rows):
    wkb = shapely.Point(3, 3).wkb
    frame = spark.createDataFrame([(1, wkb), (2, None)], "id int, w binary")
    frame = frame.selectExpr("id", "ST_GeomFromWKB(w, 4326) as g")
    joined = rm.join_table(
        frame, table, on=rm.intersects("g", "b"), how="left", columns=["name"], plan=plan
    )
    assert joined.schema["g"].dataType == frame.schema["g"].dataType
    found = joined.selectExpr("id", "ST_AsBinary(g) as w", "name").collect()
    truth = oracle.join_table(
        [{"id": 1, "w": wkb}, {"id": 2, "w": None}], table_rows,
        on=rm.intersects("w", "b"), how="left", columns=["name"],
    )  # fmt: skip
    assert_same_rows([{**row.asDict(), "w": row.w and bytes(row.w)} for row in found], truth)


@pytest.mark.parametrize(
    ("ask", "sentence"),
    [
        (
            {"on": rm.within(rm.point("lng", "y"), "b")},
            "join_table: on names column 'lng', which is not among the events' "
            "['a', 'id', 'key', 'x', 'y']. Name one of these.",
        ),
        (
            {"on": rm.within("a", "bb")},
            "join_table: on names column 'bb', which is not among places.parquet's "
            "['b', 'k', 'name', 'u', 'v']. Did you mean 'b'?",
        ),
        (
            {"on": rm.within("id", "b")},
            "join_table: column 'id' of the events is bigint, not a geometry; the geometry columns "
            "there are ['a']. Name a column of WKB (binary) or GEOMETRY, or two numbers with "
            "rm.point.",
        ),
        (
            {"on": rm.within("a", "name")},
            "join_table: column 'name' of places.parquet is string, not a geometry; the geometry "
            "columns there are ['b']. Name a column of WKB (binary) or GEOMETRY, or two numbers "
            "with rm.point.",
        ),
        (
            {"on": rm.within(rm.point("a", "y"), "b")},
            "join_table: rm.point needs numbers, but column 'a' of the events is binary. "
            "Cast it to double.",
        ),
        (
            {"on": rm.keys({"id": "name"})},
            "join_table: keys compares 'id' (bigint) with 'name' of places.parquet (string). "
            "Cast one of them, as in F.col('id').cast('string').",
        ),
        (
            {"on": rm.within("a", "b"), "how": "outer"},
            "join_table: how is 'outer'. Use one of ['inner', 'left', 'semi', 'anti'].",
        ),
        (
            {"on": rm.within("a", "b"), "columns": {"id": "name"}},
            "join_table: the result would have two columns 'id'; the events have "
            "['a', 'id', 'key', 'x', 'y'], the table brings ['id']. Choose or rename with "
            'columns=["..."] or columns={"new": "old"}, or give suffixes=("", "_table").',
        ),
        (
            {"on": rm.within("a", "b"), "columns": "name"},
            "join_table: columns is the text 'name'. Write a list: columns=['name'].",
        ),
        (
            {"on": rm.within("a", "b"), "how": "anti", "columns": ["name"]},
            "join_table: columns= has no meaning with how='anti'. Leave it out: none are brought.",
        ),
        (
            {"on": rm.within("a", "b"), "plan": "fast"},
            "join_table: plan is 'fast'. "
            "Use 'workers', 'udf', 'native', rm.cheapest(rows) or None.",
        ),
        (
            {"on": rm.keys({"key": "k"}), "plan": "udf", "routing": rm.by_hash()},
            "join_table: routing needs equality fields and plan='workers'; the "
            'condition is rm.keys({"key": "k"}), the plan \'udf\'. Leave routing out.',
        ),
        (
            {"on": rm.within("a", "b"), "cache": rm.external()},
            "tables.parquet: Parquet files evaluate rm.keys only, not "
            'rm.within("a", "b"). Use cache=rm.full().',
        ),
        (
            {"on": rm.within("a", "b"), "columns": {"a": 1}},
            "join_table: columns is {'a': 1}. Give names, or {name in the result: name there}.",
        ),
        (
            {"on": rm.within("a", "b"), "columns": ["nama"]},
            "join_table: columns names column 'nama', which is not among places.parquet's "
            "['b', 'k', 'name', 'u', 'v']. Did you mean 'name'?",
        ),
        (
            {"on": rm.within("a", "b"), "columns": {"ID": "name"}},
            "join_table: the result would have two columns 'ID'; the events have "
            "['a', 'id', 'key', 'x', 'y'], the table brings ['ID']. Choose or rename with "
            'columns=["..."] or columns={"new": "old"}, or give suffixes=("", "_table").',
        ),
        (
            {"on": rm.nearest("a", "b", name="x"), "columns": []},
            "join_table: the result would have two columns 'x'; the events have "
            "['a', 'id', 'key', 'x', 'y'], the table brings ['x']. Choose or rename with "
            'columns=["..."] or columns={"new": "old"}, name the distances with '
            'rm.nearest(name=...), or give suffixes=("", "_table").',
        ),
        (
            {"on": rm.within("a", "b"), "suffixes": ("_x", "_x")},
            "join_table: suffixes is ('_x', '_x'). "
            'Give two different texts, as in suffixes=("", "_right").',
        ),
        (
            {
                "on": rm.within("a", "b"),
                "columns": {"id": "name", "id_t": "k"},
                "suffixes": ("", "_t"),
            },
            "join_table: the result would have two columns 'id_t'; the events have "
            "['a', 'id', 'key', 'x', 'y'], the table brings ['id', 'id_t']. Choose or rename with "
            'columns=["..."] or columns={"new": "old"}, or give suffixes=("", "_table").',
        ),
        (
            {"table": "places.parquet", "on": rm.within("a", "b")},
            "join_table: the events must be a DataFrame and the table one of rm.tables; they are "
            "of types DataFrame and str. Write join_table(events, "
            'rm.tables.geojson("shapes.geojson"), ...) or the like.',
        ),
    ],
)
def test_what_cannot_be_done_is_said_at_definition(ask, sentence, events, table):
    with pytest.raises(RivermouthError) as caught:
        rm.join_table(events["batch"], **{"table": table, **ask})
    assert str(caught.value) == sentence


def test_a_table_is_a_batch_and_comes_second(events, table):
    with pytest.raises(RivermouthError, match=r"a streaming frame is not a table"):
        rm.tables.frame(events["stream"])
    for left, right in ((table, events["batch"]), (events["batch"], events["batch"])):
        with pytest.raises(RivermouthError, match=r"join_table\(events, rm.tables.frame\(df\)"):
            rm.join_table(left, right, on=rm.within("a", "b"))


@pytest.mark.since("4.2")  # GEOMETRY
def test_srids_that_differ_are_refused_at_definition(spark, tmp_path):
    path = tmp_path / "t.geojson"
    path.write_text('{"type": "Point", "coordinates": [1, 1]}')
    frame = spark.sql(
        "select ST_GeomFromWKB(X'0101000000000000000000F03F0000000000000040', 3857) g"
    )
    with pytest.raises(RivermouthError) as caught:
        rm.join_table(frame, rm.tables.geojson(path), on=rm.intersects("g", "geometry"))
    assert str(caught.value) == (
        "join_table: 'g' is in SRID 3857 and 'geometry' of t.geojson in SRID 4326. "
        "Bring both into one reference system first; rivermouth does not project."
    )


@pytest.mark.quick
def test_nothing_runs_and_nothing_changes_at_definition(events, table, spark, tmp_path):
    before = {key: spark.conf.get(key) for key in ("spark.sql.shuffle.partitions",)}
    place = tmp_path / "snapshots"
    rm.join_table(
        events["batch"], table, on=rm.within("a", "b"), cache=rm.full(path=str(place))
    )  # fmt: skip
    assert not place.exists()
    assert {key: spark.conf.get(key) for key in before} == before


@pytest.mark.parametrize("plan", ["workers", pytest.param("udf", marks=pytest.mark.since("4.1"))])
def test_an_invalid_table_fails_with_its_own_words(plan, events, tmp_path):
    path = tmp_path / "bow.parquet"
    bow = shapely.from_wkt("POLYGON ((0 0, 1 1, 1 0, 0 1, 0 0))").wkb
    pq.write_table(pa.table({"b": [bow], "name": ["bow"]}), path)
    joined = rm.join_table(
        events["batch"], rm.tables.parquet(path, geometry="b"), on=rm.within("a", "b"), plan=plan
    )
    with pytest.raises(Exception, match=r"bow.parquet: 1 geometries of column 'b' are not valid"):
        rows(joined)
