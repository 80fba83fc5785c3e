"""trips on Spark: one test body, two engines, the slow oracle beside it."""

import datetime as dt
import functools
import shutil
import time

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import shapely
from pyspark.sql import functions as F

import rivermouth as rm
from rivermouth.errors import RivermouthError
from rivermouth.testing import assert_same_rows, frame, replay, rows, stream
from rivermouth.testing import trips as oracle
from rivermouth.testing.tracks import Fleet, arrivals, tracks

pytestmark = pytest.mark.spark

HOW = {"gap": "5 minutes", "stop": (30.5, "2 minutes")}
XY = rm.point("x", "y")
UTC = pa.timestamp("us", "UTC")


@pytest.fixture(scope="module")
def made():
    """Tracks out of order by up to a minute; the last position, days later, ends all."""
    mixed = arrivals(tracks(Fleet(silent=0.5), objects=8, seconds=6000, seed=6), lateness=60)
    last = pa.table(
        {"object": [99], "at": [dt.datetime(2026, 1, 4)], "x": [0.0], "y": [0.0]},
    ).cast(mixed.schema)
    return pa.concat_tables([mixed, last])


def plain(found):
    """Rows that can be compared; the last position's own is still open in a stream."""
    for row in found:
        path = row["path"]
        is_shape = isinstance(path, shapely.Geometry)
        path = shapely.to_wkt(path if is_shape else shapely.from_wkb(bytes(path)), -1)
        if row["object"] != 99:
            yield {**row, "path": path, "length": round(row["length"], 5)}


def frames(spark, engine, table, cuts=700):
    batch = spark.createDataFrame(table)
    if table.schema.field("at").type.tz is None:
        batch = batch.withColumn("at", F.col("at").cast("timestamp_ntz"))
    return batch if engine == "batch" else replay(batch, cuts=cuts)


@pytest.mark.quick
@pytest.mark.parametrize("engine", ["batch", "stream"])
def test_rows_equal_the_oracles(spark, engine, made):
    found = rm.trips(
        frames(spark, engine, made), by="object", time="at", point=XY, lateness="1 minute",
        buckets=3, **HOW,
    )  # fmt: skip
    truth = oracle.trips(made.to_pylist(), by="object", time="at", point=XY, **HOW)
    assert found.columns == [
        "object", "kind", "begin", "end", "path", "length", "duration", "positions"
    ]  # fmt: skip
    assert len(truth) > 50
    assert_same_rows(plain(rows(found)), plain(truth))


@pytest.mark.parametrize("engine", ["batch", "stream"])
def test_early_rows_amount_to_the_oracles_and_are_corrected(spark, engine, made):
    some = made.filter(pc.less(made["object"], 4))
    asked = {"by": "object", "time": "at", "point": XY, "buckets": 2, **HOW}
    batch, told = frames(spark, "batch", some), frames(spark, engine, some, cuts=400)
    # in a stream some positions are late
    result = rm.trips(told, lateness="20 seconds", early=True, late="rows", **asked)
    assert result.columns == [
        "change", "object", "kind", "begin", "end", "path", "length", "duration", "positions",
        "revision", "record", "reason",
    ]  # fmt: skip
    log = result
    if engine == "stream":
        query = (
            result.writeStream.format("memory").queryName("trip_log").trigger(availableNow=True)
        ).start()
        query.awaitTermination()
        log = spark.table("trip_log")
    late = rm.rejected(log)
    fixed = rm.correct_trips(log, batch, late=late, **asked)
    assert (len(rows(fixed)) > 0) == (engine == "stream")
    columns = fixed.columns
    whole = log.where("change is not null").select(*columns).unionByName(fixed)
    truth = oracle.trips(some.to_pylist(), by="object", time="at", point=XY, **HOW)
    assert_same_rows(plain(rows(rm.compact(whole).drop("revision"))), plain(truth))
    assert rows(rm.correct_trips(whole, batch, **asked)) == []


@pytest.mark.parametrize("engine", ["batch", "stream"])
def test_metres_wkb_several_keys_and_times_without_a_zone(spark, engine, made):
    local = made["at"].cast(pa.timestamp("us"))
    lon, lat = (made[name].to_numpy() * 1e-5 for name in ("x", "y"))
    table = pa.table(
        {
            "object": made["object"],
            "fleet": pa.array(["north", "south"] * len(lon))[: len(lon)],
            "at": local,
            "spot": pa.array(shapely.to_wkb(shapely.points(lon - 0.01, lat)).tolist()),
            "more": made["x"],
        }
    )
    asked = {"by": ["object", "fleet"], "time": "at", "point": "spot", "metric": "sphere", **HOW}
    found = rm.trips(frames(spark, engine, table), lateness="1 minute", min_length=100.0, **asked)
    truth = oracle.trips(table.to_pylist(), min_length=100.0, **asked)
    assert len(truth) > 50
    assert_same_rows(plain(rows(found)), plain(truth))


WALK = """
    arrival | who  | at timestamp        | x double | y double
    1       | ann  | 2026-01-01 12:00:00 | 0        | 0
    2       | ann  | 2026-01-01 12:02:00 | 95       | 0
    3       | ann  | 2026-01-01 12:01:00 | 90       | 0
    4       | bob  | 2026-01-01 12:02:00 | 7        | 7
    5       | ann  | 2026-01-01 12:09:00 | 92       | 0
    6       | null | 2026-01-01 12:09:00 | 92       | 0
    7       | ann  | 2026-01-01 12:10:00 | 200      | 0
    8       | ann  | 2026-01-01 12:04:00 | 999      | 0
    9       | ann  | 2026-01-01 12:10:30 | NaN      | 0
    10      | ann  | null                | 1        | 0
    11      | ann  | 2099-01-01 12:00:00 | 1        | 0
    12      | ann  | 2026-01-01 13:00:00 | 1        | 0
"""
ASKED = {
    "by": "who", "time": "at", "point": XY, "gap": "15 minutes", "stop": (10, "5 minutes"),
    "lateness": "5 minutes",
}  # fmt: skip


def test_late_and_unusable_positions_are_counted_and_are_rows_on_request(spark):
    found = rm.trips(stream(spark, WALK, cuts=1), late="rows", buckets=2, **ASKED)
    kept = rows(found.where(~F.col("kind").isin("late", "future", "rejected")))
    assert sorted((row["who"], row["kind"], row["positions"]) for row in kept) == [
        ("ann", "move", 2), ("ann", "move", 2), ("ann", "stay", 3), ("bob", "point", 1),
    ]  # fmt: skip
    out = rows(rm.rejected(found))
    places = sorted((row["kind"], str(row["who"]), str(row["x"])) for row in out)
    assert places == [
        ("future", "ann", "1.0"), ("late", "ann", "999.0"), ("rejected", "None", "92.0"),
        ("rejected", "ann", "1.0"), ("rejected", "ann", "nan"),
    ]  # fmt: skip
    query = (
        rm.trips(stream(spark, WALK, cuts=1), buckets=2, **ASKED)
        .writeStream.format("noop").trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    numbers = rm.metrics(query)["operators"]["trips"]
    assert (numbers["rows_in"], numbers["rows_out"]) == (12, 4)
    assert (numbers["late"], numbers["future"]) == (1, 1)
    assert numbers["rejected"] == {"null_key": 1, "invalid_geometry": 1, "null_time": 1}
    assert numbers["state"] == {"positions": 1, "objects": 0, "open_positions": 0}
    counts = numbers["counts"]
    assert (counts["moves"], counts["stays"], counts["points"]) == (2, 1, 1)


@pytest.mark.parametrize(
    "make", [frame, functools.partial(stream, cuts=3)], ids=["batch", "stream"]
)
def test_trips_chain_with_other_operators(spark, make, tmp_path):
    """Placed by a table, cut into trips, counted by hour."""
    zones = tmp_path / "zones.parquet"
    shape = shapely.box(-1, -1, 50, 50).wkb
    spark.createDataFrame(
        [("west", bytearray(shape))], "zone string, shape binary"
    ).toPandas().to_parquet(zones)
    usable = make(spark, WALK).where("at < '2030-01-01' and x < 900")
    found = rm.trips(usable, **ASKED)
    begun = rm.join_table(
        found.where("kind = 'move'"), rm.tables.parquet(zones), columns=["zone"], how="left",
        on=rm.intersects("path", "shape"),
    )  # fmt: skip
    moves = rows(begun)
    assert sorted((row["length"], row["zone"]) for row in moves) == [(90.0, "west"), (108.0, None)]
    hours = rm.aggregate(
        found.withColumnRenamed("kind", "what"),
        rm.summary(by="what", time="end", window=rm.tumbling("1 hour"), n=rm.count()),
        slack=rm.fixed("0 seconds"),
    )
    if make is frame:
        counted = {(row["what"], row["window_start"].hour): row["n"] for row in rows(hours)}
        assert counted == {("move", 12): 2, ("stay", 12): 1, ("point", 12): 1, ("point", 13): 1}


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"by": "taxi"}, "by names column 'taxi', which is not among the positions'"),
        ({"by": []}, "by names no column"),
        ({"time": "x"}, "time names column 'x', which is double"),
        ({"point": "kind"}, "column 'kind' of the positions is string, not a geometry"),
        ({"point": rm.point("x", "kind")}, "rm.point needs numbers, but column 'kind'"),
        ({"point": rm.point("x", "lat")}, "point names column 'lat', which is not among"),
        ({"point": 7}, "point is 7. Name a column of points"),
        ({"gap": "0 seconds"}, "trips(gap=): '0 seconds' is not longer than nothing"),
        ({"gap": "soon"}, "'soon' is not a length of time"),
        ({"stop": 50}, "stop is 50. Give (radius, duration)"),
        ({"stop": "5 minutes"}, "stop is '5 minutes'. Give (radius, duration)"),
        ({"stop": ("50 m", "5 minutes")}, "stop's radius is '50 m'. Give a number"),
        ({"stop": (-1, "5 minutes")}, "stop's radius is -1. Give a number"),
        ({"stop": (50, "0 seconds")}, "trips(stop=): '0 seconds' is not longer"),
        ({"min_length": float("nan")}, "min_length is nan. Give a number"),
        ({"metric": "meters"}, "metric is 'meters'. Use one of ['planar', 'sphere']"),
        ({"late": "drop"}, "late is 'drop'"),
        ({"by": "kind"}, "by names column 'kind', which the result has itself"),
        ({"by": ["who", "at"]}, "column 'at' is named twice"),
        ({"late": "rows"}, "the positions have a column '_x', a name that the state uses"),
        ({"lateness": "-1 second"}, "'-1 second' is negative"),
        ({"buckets": 0}, "buckets is 0"),
    ],
)
def test_what_cannot_be_done_is_said_at_definition(spark, asked, sentence):
    positions = frame(spark, WALK).withColumn("kind", F.lit("cab")).withColumn("_x", F.lit(1))
    with pytest.raises(RivermouthError) as caught:
        rm.trips(positions, **ASKED | asked)
    assert sentence in str(caught.value)


def test_a_stream_needs_a_lateness_or_a_watermark(spark):
    asked = {name: value for name, value in ASKED.items() if name != "lateness"}
    with pytest.raises(RivermouthError, match="how late rows may be is not defined"):
        rm.trips(stream(spark, WALK), **asked)
    assert rm.trips(stream(spark, WALK).withWatermark("at", "1 minute"), **asked).isStreaming


def test_a_checkpoint_goes_on_and_another_definition_is_refused(spark, made, tmp_path):
    """Half of the files, then the other half by a new query with another `min_length`."""
    files = tmp_path / "in"
    replay(spark.createDataFrame(made), cuts=300, path=files)
    waiting = tmp_path / "waiting"
    waiting.mkdir()
    names = sorted(files.glob("*.parquet"))
    for name in names[len(names) // 2 :]:
        shutil.move(name, waiting / name.name)
    source = spark.readStream.schema("object int, at timestamp, x double, y double")

    def run(**asked):
        found = rm.trips(
            source.option("maxFilesPerTrigger", 1).parquet(str(files)), by="object", time="at",
            point=XY, lateness="1 minute", buckets=2, **HOW | asked,
        )  # fmt: skip
        query = (
            found.writeStream.format("parquet").option("path", str(tmp_path / "out"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()

    run()
    for name in sorted(waiting.glob("*.parquet")):
        shutil.copy(name, files / name.name)
        time.sleep(0.01)  # Spark reads files by age
    run(min_length=0.5)
    truth = oracle.trips(made.to_pylist(), by="object", time="at", point=XY, **HOW)
    found = rows(spark.read.parquet(str(tmp_path / "out")))
    # points have no length: those that ended after the second start are too short
    kinds = [[row for row in each if row["kind"] != "point"] for each in (found, truth)]
    assert_same_rows(plain(kinds[0]), plain(kinds[1]))
    assert len(found) - len(kinds[0]) <= len(truth) - len(kinds[1])
    shutil.copy(next(waiting.glob("*.parquet")), files / "more.parquet")
    with pytest.raises(Exception, match="the checkpoint's state is not this query's"):
        run(gap="6 minutes")
