"""plan="native": the same rows as the oracle, with no Python and no shuffle beside the events."""

import contextlib
import functools
import io
import itertools
import json
import math
import pathlib
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from tests.support.shapes import array, pool

import rivermouth as rm
from rivermouth.errors import PlanError, TableInvalid
from rivermouth.kernels.spatial import cells
from rivermouth.spark.engines.native import index_rows
from rivermouth.spark.engines.native import rows as native_rows
from rivermouth.spark.engines.native.index_rows import SpatialRows
from rivermouth.spark.engines.native.ranges import RangeRows
from rivermouth.spark.engines.native.rows import broadcast_limit
from rivermouth.spec.conditions import split
from rivermouth.testing import assert_same_rows, oracle, replay, rows

pytestmark = pytest.mark.spark

DATA = pathlib.Path(__file__).parents[4] / "shared" / "data"
HOWS = ["inner", "left", "semi", "anti"]
SPOT, OTHER = rm.point("x", "y"), rm.point("u", "v")
CONDITIONS = {
    "within": rm.within(SPOT, "b"),
    "covered_by": rm.covered_by(SPOT, "b"),
    "intersects": rm.intersects(SPOT, "b"),
    "touches": rm.touches(SPOT, "b"),
    "contains": rm.contains(SPOT, "b"),
    "covers": rm.covers(SPOT, "b"),
    "within & equal": rm.within(SPOT, "b") & rm.keys({"key": "k"}),
    "dwithin": rm.dwithin(SPOT, OTHER, distance=2),
    "dwithin, nothing": rm.dwithin(SPOT, OTHER, distance=0),
    "dwithin, metres": rm.dwithin(SPOT, OTHER, meters=250_000.5),
    "dwithin, half the world": rm.dwithin(SPOT, OTHER, meters=12_000_000.5),
    "dwithin & equal": rm.dwithin(SPOT, OTHER, distance=3) & rm.keys({"key": "k"}),
    "equal": rm.keys({"key": "k"}),
    "equal, two columns": rm.keys({"key": "k", "x": "u"}),
}
ODD = [0.0, None, math.nan, math.inf, -math.inf, 1e300, -180.0, 179.9]


@pytest.fixture(scope="module")
def table_rows():
    shapes = [*pool(7, 16, "polygons"), None, shapely.Polygon()]
    lon = itertools.cycle([0.0, 3.0, 179.95, -179.95, 8.0, 4.5])
    lat = itertools.cycle([0.0, 1.0, 89.9, -89.9, 3.0, 2.5, 1.5])
    return [
        {
            "name": f"row {number}",
            "k": None if number % 7 == 0 else number % 4,
            "u": next(lon),
            "v": next(lat),
            "b": None if shape is None else shape.wkb,
        }
        for number, shape in enumerate(shapes)
    ]


@pytest.fixture(scope="module")
def table(table_rows, tmp_path_factory):
    kinds = [("name", pa.string()), ("k", pa.int64()), ("u", pa.float64()), ("v", pa.float64())]
    path = tmp_path_factory.mktemp("native") / "places.parquet"
    schema = pa.schema([*kinds, ("b", pa.binary())])
    pq.write_table(pa.Table.from_pylist(table_rows, schema), path)
    return rm.tables.parquet(path, geometry="b")


@pytest.fixture(scope="module")
def event_rows():
    """Half steps over the shapes and beyond: every vertex, many points of edges."""
    steps = [(x / 2, y / 2) for x in range(-1, 18, 2) for y in range(-1, 18, 3)]
    steps += [(x / 2, y / 2) for x in range(0, 18, 2) for y in range(0, 18, 2)]
    spots = [
        *steps,
        *((odd, 1.0) for odd in ODD),
        *((179.96, lat) for lat in (89.95, -89.95, 91.0)),
    ]
    events = [
        {"id": n, "key": None if n % 5 == 0 else n % 4, "x": x, "y": y}
        for n, (x, y) in enumerate(spots)
    ]
    return [*events, events[1], events[1]]


@pytest.fixture(scope="module")
def events(spark, event_rows):
    made = [tuple(row.values()) for row in event_rows]
    frame = spark.createDataFrame(made, "id long, key long, x double, y double")
    return {"batch": frame, "stream": replay(frame, cuts=[1, 100, len(event_rows) - 101])}


# one of each form as a stream: the plan is the same, and compiling it is most of a test's time
STREAMED = ["within", "dwithin", "within & equal", "equal"]


@pytest.mark.parametrize(
    ("condition", "engine"),
    [*((name, "batch") for name in CONDITIONS), *((name, "stream") for name in STREAMED)],
)
def test_native_gives_the_oracles_rows(condition, engine, events, event_rows, table, table_rows):
    on = CONDITIONS[condition]
    joined = functools.reduce(
        DataFrame.unionByName, (one_how(events[engine], table, on, how) for how in HOWS)
    )
    truth = [
        {"name": None, **row, "how": how}
        for how in HOWS
        for row in oracle.join_table(event_rows, table_rows, on=on, how=how, columns=["name"])
    ]
    assert_same_rows(rows(joined), truth)


@pytest.mark.parametrize("condition", ["within", "within & equal", "dwithin", "dwithin, metres"])
def test_an_index_in_several_rows_gives_the_same(
    condition, events, event_rows, table, table_rows, monkeypatch
):
    monkeypatch.setattr(index_rows, "PART_BYTES", 1_000)
    test_native_gives_the_oracles_rows(condition, "batch", events, event_rows, table, table_rows)


LARGE = """
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import shapely

import rivermouth as rm
from rivermouth.spark.runtime.session import local_session

folder, count, vertices = sys.argv[1], 1_800, 1_400
rng, side = np.random.default_rng(0), 43
angle = np.linspace(0, 2 * np.pi, vertices, endpoint=False)
shapes = []
for n in range(count):
    radius = 0.45 * (1 + 0.1 * np.sin(7 * angle + n)) * rng.uniform(0.95, 1, vertices)
    ring = [n % side + radius * np.cos(angle), n // side + radius * np.sin(angle)]
    shapes.append(shapely.Polygon(np.column_stack(ring)))
x, y = rng.uniform(-1, side, (2, 20_000))
pq.write_table(pa.table({"n": range(count), "b": shapely.to_wkb(shapes)}), f"{folder}/t.parquet")
pq.write_table(pa.table({"id": range(len(x)), "x": x, "y": y}), f"{folder}/e.parquet")

spark = local_session("large", cores=1)  # the default heap, one worker
for plan in ("workers", "native", "native"):
    joined = rm.join_table(
        spark.read.parquet(f"{folder}/e.parquet"),
        rm.tables.parquet(f"{folder}/t.parquet", geometry="b"),
        on=rm.within(rm.point("x", "y"), "b"),
        how="left",
        columns=["n"],
        cache=rm.full(path=f"{folder}/snapshots", refresh="1 hour"),
        plan=plan,
    )
    print(*sorted((row.id, -1 if row.n is None else row.n) for row in joined.collect()))
"""


@pytest.mark.slow
def test_an_index_of_more_than_256_megabytes_in_the_default_heap(tmp_path):
    """Spark's hash table takes no such row, and the last query's broadcast is still in the heap."""
    run = subprocess.run(
        [sys.executable, "-c", LARGE, str(tmp_path)], capture_output=True, text=True, timeout=580
    )
    assert run.returncode == 0, run.stderr[-2000:]
    workers, *native = run.stdout.splitlines()
    assert workers.count("(") == 20_000
    assert native == [workers] * 2


def test_a_larger_index_is_refused_when_the_table_is_read(spark, events, tmp_path, monkeypatch):
    path = tmp_path / "t.parquet"
    shape = shapely.Point(0, 0).buffer(1, quad_segs=1000)
    pq.write_table(pa.table({"b": [shape.wkb] * 3, "n": [1, 2, 3]}), path)
    monkeypatch.setattr(native_rows, "_MOST_BYTES", 1 << 16)
    joined = rm.join_table(
        events["batch"],
        rm.tables.parquet(path, geometry="b"),
        on=rm.within(SPOT, "b"),
        plan="native",
    )
    with pytest.raises(
        Exception,
        match=r"TableInvalid: t.parquet: its index would take about \d+ MiB in the JVM; "
        r"plan='native' broadcasts at most 0 MiB with this spark.driver.memory. "
        r"Use plan='workers', whose index is stored on disk and shared.",
    ):
        rows(joined)


def test_an_index_is_split_by_size_and_its_rows_are_bounded():
    shape = shapely.Point(0, 0).buffer(1, quad_segs=1000)
    table = {"b": pa.array([shape.wkb] * 3), "k": pa.array([1, 1, 2])}
    within = split(CONDITIONS["within"]).spatial
    one = SpatialRows("t", None, (pa.bool_(),), (), 1 << 30, within, True, 1 << 15)
    assert one.make(table)["key0"].to_pylist() == [True] * len(one.make(table))
    assert len(one.make(table)) > 10
    by_key = replace(one, keys=split(rm.keys("k")).keys, key_types=(pa.int64(),)).make(table)
    assert set(by_key["key0"].to_pylist()) == {1, 2}
    assert len(by_key) > 10
    ids = RangeRows("t", None, (pa.bool_(),), (), 1 << 30, "k", pa.int64(), 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native_rows, "_MOST_ROW_BYTES", 64)
        with pytest.raises(TableInvalid, match="a row of its index would take about 0 MiB"):
            ids.make(table)


@pytest.mark.parametrize(
    ("memory", "most"),
    [(None, 204), ("2g", 409), ("2048", 409), ("3072mb", 614), ("1t", 1024), ("524288k", 102)],
)
def test_the_limit_is_a_fifth_of_the_heap_up_to_a_gibibyte(memory, most):
    class Session:
        conf = {} if memory is None else {"spark.driver.memory": memory}

    assert broadcast_limit(Session, doubling=False) >> 20 == most
    assert broadcast_limit(Session, doubling=True) >> 20 == most // 2


def test_one_point_of_the_sphere_is_one_however_it_is_written(spark, tmp_path):
    there = [(180.0, 10.0), (-180.0, 10.0), (540.0, 10.0), (77.0, 90.0), (1e9, -90.0)]
    made = pa.table({"u": [x for x, _ in there], "v": [y for _, y in there], "row": range(5)})
    pq.write_table(made, tmp_path / "t.parquet")
    here = [(0, -900.0, 10.0), (1, 12.0, 90.0), (2, 179.0, -90.0), (3, 179.5, 10.0)]
    events = spark.createDataFrame(here, "id int, x double, y double")
    table, on = rm.tables.parquet(tmp_path / "t.parquet"), rm.dwithin(SPOT, OTHER, meters=0)
    truth = [(0, 0), (0, 1), (0, 2), (1, 3), (2, 4)]
    for plan in ("native", "workers"):
        joined = rm.join_table(events, table, on=on, plan=plan).select("id", "row")
        assert sorted(map(tuple, joined.collect())) == truth
    now = F.timestamp_seconds(F.lit(0)).alias("at")
    met = rm.join_interval(
        events.select("*", now), spark.read.parquet(str(tmp_path / "t.parquet")).select("*", now),
        on=on, time="at", between=("0 seconds", "0 seconds"), columns=["row"],
    )  # fmt: skip
    assert sorted(map(tuple, met.select("id", "row").collect())) == truth


def one_how(events, table, on, how):
    """The join with the same columns whatever `how` is, so that all four run as one query."""
    if how in ("inner", "left"):
        joined = rm.join_table(events, table, on=on, how=how, columns=["name"], plan="native")
    else:
        joined = rm.join_table(events, table, on=on, how=how, plan="native")
        joined = joined.withColumn("name", F.lit(None).cast("string"))
    return joined.withColumn("how", F.lit(how))


@pytest.mark.quick
def test_a_frame_is_a_table_without_being_read_by_workers(spark, events, event_rows, table_rows):
    made = [(row["name"], row["k"], row["b"]) for row in table_rows]
    frame = spark.createDataFrame(made, "name string, k long, b binary")
    for on in (rm.within(SPOT, "b"), rm.keys({"key": "k"})):
        joined = rm.join_table(
            events["batch"], rm.tables.frame(frame), on=on, how="left", columns=["name"]
        )
        truth = oracle.join_table(event_rows, table_rows, on=on, how="left", columns=["name"])
        assert_same_rows(rows(joined), truth)


@pytest.mark.parametrize("name", ["beijing_districts_wgs84", "nyc_taxi_zones"])
def test_boundary_points_of_real_shapes_agree_with_shapely_to_the_last_one(name, spark, tmp_path):
    path = DATA / f"{name}.geojson"
    if not path.exists():
        pytest.skip(f"{path} is not here")
    features = json.loads(path.read_text())["features"]
    shapes = array([shapely.from_geojson(json.dumps(f["geometry"])) for f in features])
    ends, _ = cells.edges_of(shapes)
    middle = (ends[:, :2] + ends[:, 2:]) / 2
    x, y = np.concatenate([ends[:, :2], middle, ends[:, :2] * 0.7 + ends[:, 2:] * 0.3]).T
    assert len(x) > 100_000
    points = pa.table({"id": np.arange(len(x)), "x": x, "y": y})
    pq.write_table(points, tmp_path / "points.parquet")
    pq.write_table(
        pa.table({"row": np.arange(len(shapes)), "b": shapely.to_wkb(shapes)}),
        tmp_path / "shapes.parquet",
    )
    table = rm.tables.parquet(tmp_path / "shapes.parquet", geometry="b")
    events = spark.read.parquet(str(tmp_path / "points.parquet"))
    shapely.prepare(shapes)
    for make, test in ((rm.within, shapely.contains_xy), (rm.intersects, shapely.intersects_xy)):
        joined = rm.join_table(events, table, on=make(SPOT, "b"), columns=["row"], plan="native")
        found = {(row["id"], row["row"]) for row in joined.select("id", "row").collect()}
        truth = set()
        for row, shape in enumerate(shapes):
            truth |= {(int(i), row) for i in np.flatnonzero(test(shape, x, y))}
        assert found == truth


@pytest.mark.parametrize("how", ["left", "semi"])
def test_no_python_and_no_shuffle_beside_the_events(how, events, table):
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        rm.join_table(
            events["batch"], table, on=rm.within(SPOT, "b"), how=how, plan="native"
        ).explain()
    plan = said.getvalue()
    beside_the_events = plan.split("BroadcastExchange")[0]
    assert "BroadcastHashJoin" in beside_the_events
    for operator in ("Python", "Arrow", "Pandas", "SortMergeJoin", "NestedLoop"):
        assert operator not in beside_the_events
    assert plan.count("Exchange") == plan.count("BroadcastExchange")


@pytest.mark.parametrize(
    "on",
    [
        rm.nearest(SPOT, OTHER),
        rm.disjoint(SPOT, "b"),
        rm.relate(SPOT, "b", "T*F**F***"),
        rm.within(SPOT, OTHER),
    ],
    ids=str,
)
def test_what_native_cannot_do_names_the_plan_that_can(on, events, table):
    with pytest.raises(
        PlanError, match=r"plan='native' cannot do this join: .* Use plan='workers'"
    ):
        rm.join_table(events["batch"], table, on=on, plan="native")


def test_shapes_that_are_no_polygons_are_told_when_the_table_is_read(spark, events, tmp_path):
    path = tmp_path / "lines.parquet"
    pq.write_table(pa.table({"b": [shapely.LineString([(0, 0), (1, 1)]).wkb], "n": [1]}), path)
    joined = rm.join_table(
        events["batch"],
        rm.tables.parquet(path, geometry="b"),
        on=rm.within(SPOT, "b"),
        plan="native",
    )
    with pytest.raises(Exception, match="workers"):
        rows(joined)


@pytest.mark.parametrize("condition", ["within & equal", "dwithin, metres"])
def test_what_cannot_match_is_counted_as_the_workers_count_it(condition, events, table):
    said = []
    for plan in ("native", "workers"):
        joined = rm.join_table(
            events["stream"], table, on=CONDITIONS[condition], columns=["name"], plan=plan
        )
        query = joined.writeStream.format("noop").trigger(availableNow=True).start()
        query.awaitTermination()
        (operator,) = rm.metrics(query)["operators"].values()
        said.append({name: operator[name] for name in ("rows_in", "rejected")})
    assert said[0] == said[1]
    assert said[0]["rejected"]
