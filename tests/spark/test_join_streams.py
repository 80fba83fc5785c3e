"""join_interval and join_window on Spark: one test body, two engines, the slow oracle beside it."""

import datetime as dt
import functools
import shutil
import time

import numpy as np
import pyarrow as pa
import pytest
import shapely
from pyspark.sql import functions as F
from tests.support.shapes import pool

import rivermouth as rm
from rivermouth.testing import assert_same_rows, frame, replay, rows, stream
from rivermouth.testing import stream_joins as oracle

pytestmark = pytest.mark.spark

COUNT = 40
NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
LEFT = pa.schema(
    [("l", pa.int64()), ("t", pa.timestamp("us", "UTC")), ("x", pa.float64()), ("y", pa.float64()),
     ("a", pa.binary()), ("key", pa.int32())]
)  # fmt: skip
RIGHT = pa.schema(
    [("r", pa.int64()), ("u", pa.timestamp("us", "UTC")), ("v", pa.float64()), ("w", pa.float64()),
     ("b", pa.binary()), ("k", pa.int64())]
)  # fmt: skip
CASES = {
    "metres": rm.dwithin(rm.point("x", "y"), rm.point("v", "w"), meters=150_000.5),
    "plane & equal": rm.dwithin(rm.point("x", "y"), rm.point("v", "w"), distance=2)
    & rm.keys({"key": "k"}),
    "shapes": rm.intersects("a", "b"),
    "shapes in metres": rm.dwithin("a", "b", meters=120_000),
    "nearest shape in metres": rm.nearest(rm.point("x", "y"), "b", meters=200_000),
    "nearest": rm.nearest(rm.point("x", "y"), rm.point("v", "w"), k=2),
    "nearest shape": rm.nearest("a", "b", distance=2),
}
BETWEEN = ("-40 seconds", "20 seconds")
WINDOW = rm.sliding("60 seconds", every="30 seconds", start="10 seconds")
COLUMNS = {"r": "r", "seen": "u"}


def made(names, seed):
    """Rows up to 30 seconds out of order; the last, a day later, moves the watermark past all."""
    rng = np.random.default_rng(seed)
    shapes = pool(seed, COUNT)
    times = rng.integers(0, 300, COUNT)
    order = np.argsort(times + rng.integers(0, 30, COUNT), kind="stable")
    found = [
        {
            names[0]: int(n),
            names[1]: None if n == 7 else NOON + dt.timedelta(seconds=int(times[n])),
            names[2]: None if n == 5 else float(rng.integers(0, 9)) + n / 1000,
            names[3]: float(rng.integers(0, 9)),
            names[4]: None if shapes[n] is None else shapes[n].wkb,
            names[5]: int(rng.integers(0, 3)),
        }
        for n in order
    ]
    last = [900 + seed, NOON + dt.timedelta(days=1), 80.0 * seed - 120, 80.0, None, 9]
    return [*found, dict(zip(names, last, strict=True))]


@pytest.fixture(scope="module")
def sides():
    return made(LEFT.names, 1), made(RIGHT.names, 2)


def frames(spark, engine, sides):
    found = []
    for part, schema in zip(sides, (LEFT, RIGHT), strict=True):
        batch = spark.createDataFrame(pa.Table.from_pylist(part, schema))
        found.append(batch if engine == "batch" else replay(batch, cuts=[15, 10, COUNT - 25, 1]))
    return found


def without_last(found):
    """The row that moves the watermark waits for its own partners in a stream, and ends a batch."""
    return [
        {**row, **({"distance": round(row["distance"], 6)} if row.get("distance") else {})}
        for row in found
        if row["l"] != 901
    ]


def check(spark, engine, sides, join, truth, on, how):
    asked = {"on": on, "time": ("t", "u"), "how": how, "columns": COLUMNS}
    result = join(
        *frames(spark, engine, sides),
        **asked, lateness="30 seconds", buckets=3, grid=rm.grid(bin="25 seconds", cell=None),
    )  # fmt: skip
    assert_same_rows(without_last(rows(result)), without_last(truth(*sides, **asked)))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("engine", ["batch", "stream"])
def test_intervals_equal_the_oracle(spark, engine, case, sides):
    how = "inner" if case == "shapes" else "left"
    join = functools.partial(rm.join_interval, between=BETWEEN)
    truth = functools.partial(oracle.join_interval, between=BETWEEN)
    check(spark, engine, sides, join, truth, CASES[case], how)


@pytest.mark.parametrize("case", ["metres", "nearest shape"])
@pytest.mark.parametrize("engine", ["batch", "stream"])
def test_windows_equal_the_oracle(spark, engine, case, sides):
    join = functools.partial(rm.join_window, window=WINDOW, early=case == "metres")
    truth = functools.partial(oracle.join_window, window=WINDOW)
    check(spark, engine, sides, join, truth, CASES[case], "left")


@pytest.mark.parametrize("how", ["semi", "anti"])
@pytest.mark.parametrize("case", ["metres", "nearest shape"])
@pytest.mark.parametrize("engine", ["batch", "stream"])
def test_left_rows_alone_equal_the_oracle(spark, engine, case, how, sides):
    join, truth = rm.join_interval, oracle.join_interval
    when = {"between": BETWEEN}
    if case == "nearest shape":
        join, truth, when = rm.join_window, oracle.join_window, {"window": WINDOW}
    asked = {"on": CASES[case], "time": ("t", "u"), "how": how, **when}
    result = join(*frames(spark, engine, sides), **asked, lateness="30 seconds", buckets=3)
    assert result.columns[: len(sides[0][0])] == list(sides[0][0])
    assert_same_rows(without_last(rows(result)), without_last(truth(*sides, **asked)))


@pytest.mark.parametrize("how", ["right", "full"])
@pytest.mark.parametrize("engine", ["batch", "stream"])
def test_rows_of_the_right_side_stay_as_the_oracle_says(spark, engine, how, sides):
    """The row that moves the watermark is each side's last; it is left out of both."""
    join, truth, when = rm.join_interval, oracle.join_interval, {"between": BETWEEN}
    if how == "right":
        join, truth, when = rm.join_window, oracle.join_window, {"window": WINDOW}
    asked = {
        "on": CASES["metres"], "time": ("t", "u"), "how": how, "columns": {"r": "r", "rx": "v"},
        **when,
    }  # fmt: skip
    result = join(*frames(spark, engine, sides), **asked, lateness="30 seconds", buckets=3)
    assert result.columns[:8] == [*sides[0][0], "r", "rx"]
    found, expected = (
        [row for row in part if row["l"] != 901 and row["r"] != 902]
        for part in (rows(result), truth(*sides, **asked))
    )
    assert any(row["l"] is None for row in expected)
    assert_same_rows(found, expected)


CABS = """
    cab | at timestamp        | x double | y double | zone
    1   | 2026-01-01 12:00:00 | 0        | 0        | west
    2   | 2026-01-01 12:00:30 | 0        | 1        | west
    3   | 2026-01-01 12:03:00 | 0        | 1        | east
"""
NEAR = rm.dwithin(rm.point("x", "y"), rm.point("x", "y"), distance=1)


@pytest.mark.parametrize(
    "make", [frame, functools.partial(stream, cuts=1)], ids=["batch", "stream"]
)
def test_a_frame_is_joined_with_itself_and_the_result_with_others(spark, make, tmp_path):
    """A self-join, its result joined with a stream, and that with a table."""
    cabs = make(spark, CABS).withWatermark("at", "10 minutes")
    pairs = rm.join_interval(
        cabs, cabs, on=NEAR, time="at", between=("-1 minute", "1 minute"),
        columns={"other": "cab"},
    )  # fmt: skip
    thrice = rm.join_interval(
        pairs, make(spark, CABS), on=rm.keys({"other": "cab"}), time="at", lateness="10 minutes",
        between=("-1 minute", "1 minute"), columns={"again": "at", "other_zone": "zone"},
    )  # fmt: skip
    table = tmp_path / "zones.parquet"
    spark.createDataFrame([("west", 1)], "name string, rank long").toPandas().to_parquet(table)
    ranked = rm.join_table(
        thrice, rm.tables.parquet(table), on=rm.keys({"other_zone": "name"}), how="left"
    )
    found = sorted((row["cab"], row["other"], row["rank"]) for row in rows(ranked))
    assert found == [("1", "1", 1), ("1", "2", 1), ("2", "1", 1), ("2", "2", 1), ("3", "3", None)]


@pytest.mark.parametrize(
    ("suffixes", "names"),
    [
        (("", "_other"), ["cab", "at", "x", "y", "zone", "cab_other", "at_other", "distance"]),
        (("_one", ""), ["cab_one", "at_one", "x", "y", "zone", "cab", "at", "distance"]),
    ],
)
def test_suffixes_tell_clashing_columns_apart(spark, suffixes, names):
    cabs = frame(spark, CABS)
    on = rm.nearest(rm.point("x", "y"), rm.point("x", "y"), k=2)
    found = rm.join_window(
        cabs, cabs, on=on, time="at", window=rm.tumbling("1 hour"), columns=["cab", "at"],
        suffixes=suffixes,
    )  # fmt: skip
    assert found.columns == [*names, "window_start", "window_end"]
    pairs = sorted((row[names[0]], row[names[5]], row["distance"]) for row in rows(found))
    assert pairs == [
        ("1", "1", 0), ("1", "2", 1), ("2", "2", 0), ("2", "3", 0), ("3", "2", 0), ("3", "3", 0),
    ]  # fmt: skip


@pytest.mark.quick
def test_the_column_of_distances_has_the_name_of_the_condition(spark):
    cabs = frame(spark, CABS)
    on = rm.nearest(rm.point("x", "y"), rm.point("x", "y"), name="apart")
    found = rm.join_interval(
        cabs, cabs, on=on, time="at", between=("1 second", "1 hour"), columns={"next": "cab"}
    )
    assert sorted((row["cab"], row["next"], row["apart"]) for row in rows(found)) == [
        ("1", "2", 1.0),
        ("2", "3", 0.0),
    ]


@pytest.mark.quick
@pytest.mark.since("4.2")  # GEOMETRY
def test_times_without_a_zone_and_geometry_columns(spark):
    shapes = [shapely.box(0, 0, 2, 2), shapely.Point(1, 1), shapely.Point(9, 9)]
    listed = [(n, dt.datetime(2026, 1, 1, 12, n), bytearray(s.wkb)) for n, s in enumerate(shapes)]
    both = spark.createDataFrame(listed, "id int, at timestamp_ntz, wkb binary").select(
        "id", "at", F.expr("ST_GeomFromWKB(wkb, 4326)").alias("shape")
    )
    found = rm.join_window(
        both, both, on=rm.intersects("shape", "shape"), time="at", window=rm.tumbling("1 hour"),
        columns={"other": "id", "its": "shape"},
    )  # fmt: skip
    assert sorted((row["id"], row["other"]) for row in rows(found)) == [
        (0, 0), (0, 1), (1, 0), (1, 1), (2, 2),
    ]  # fmt: skip
    assert rows(found)[0]["window_start"] == dt.datetime(2026, 1, 1, 12)


@pytest.mark.quick
def test_late_and_future_rows_come_if_asked_for_and_metrics_count_them(spark):
    future = dt.datetime.now(dt.UTC) + dt.timedelta(days=400)
    cabs = f"""
    cab | at timestamp        | x double | y double
    1   | 2026-01-01 12:00:00 | 0        | 0
    2   | {future:%Y-%m-%d %H:%M:%S} | 0  | 0
    3   | 2026-01-01 12:10:00 | 0        | 0
    4   | 2026-01-01 12:08:00 | null     | 0
    5   | 2026-01-01 12:08:59 | 0        | 0
    6   | 2026-01-01 12:09:00 | 0        | 0
    """
    pairs = rm.join_interval(
        stream(spark, cabs, cuts=3), stream(spark, cabs, cuts=3), on=NEAR, time="at", late="rows",
        between=("-1 minute", "1 minute"), lateness="1 minute", columns={"other": "cab"},
    )  # fmt: skip
    query = pairs.writeStream.format("memory").queryName("late").trigger(availableNow=True).start()
    query.awaitTermination()
    found = spark.table("late").collect()
    kinds = sorted((row["kind"], row["side"] or "", row["cab"] or row["other"]) for row in found)
    assert kinds == [
        ("future", "left", "2"), ("future", "right", "2"), ("late", "left", "5"),
        ("late", "right", "5"), ("rejected", "left", "4"), ("rejected", "right", "4"),
        ("row", "", "1"), ("row", "", "3"), ("row", "", "3"), ("row", "", "6"), ("row", "", "6"),
    ]  # fmt: skip
    numbers = rm.metrics(query)["operators"]["join_interval"]
    assert (numbers["rows_in"], numbers["late"], numbers["future"]) == (12, 2, 2)
    assert numbers["rejected"] == {"invalid_geometry": 2}
    assert numbers["counts"]["pairs"] == 5
    assert numbers["counts"]["candidates"] >= 5
    assert numbers["state"]["left_rows"] == 2
    assert numbers["state"]["right_rows"] == 2 + 2 * (numbers["counts"]["replicated_rows"] > 0)
    assert min(numbers["state"][f"left_{what}"] for what in ("bytes", "bins")) > 0
    assert numbers["watermark"] == 1_767_269_340_000_000  # 12:09, a minute before the newest
    assert numbers["gauges"]["oldest_bin"]["min"] <= numbers["watermark"]


def test_a_restart_goes_on_with_other_partitions_and_refuses_other_buckets(spark, tmp_path):
    from rivermouth.testing.results import StreamFailed

    folder, kept = tmp_path / "stream", {"checkpointLocation": str(tmp_path / "checkpoint")}
    head, *lines = CABS.strip().splitlines()
    source = replay(frame(spark, "\n".join([head, *lines[:1]])), path=folder)

    def pairs(buckets):
        return rm.join_interval(
            source, source, on=NEAR, time="at", between=("-1 minute", "1 minute"),
            columns={"other": "cab"}, lateness="1 hour", buckets=buckets,
        )  # fmt: skip

    assert len(rows(pairs(4), **kept)) == 1
    more = replay(frame(spark, "\n".join([head, *lines[1:2]])), path=tmp_path / "more")
    assert more.isStreaming
    (tmp_path / "more" / "batch-000000.parquet").rename(folder / "later.parquet")
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    try:
        found = rows(pairs(4), **kept)
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)
    assert sorted((row["cab"], row["other"]) for row in found) == [
        ("1", "2"),
        ("2", "1"),
        ("2", "2"),
    ]
    third = frame(spark, "\n".join([head, *lines[2:]]))
    replay(third, path=tmp_path / "third")
    (tmp_path / "third" / "batch-000000.parquet").rename(folder / "latest.parquet")
    with pytest.raises(StreamFailed, match=r"its buckets is 4.*Give buckets=4"):
        rows(pairs(2), **kept)


def test_shapes_on_a_lattice_refuse_the_state_of_one_side_sent_everywhere(spark, tmp_path):
    """The earlier default is salt=buckets: with it a checkpoint of that time goes on."""
    from rivermouth.testing.results import StreamFailed

    folder, kept = tmp_path / "stream", {"checkpointLocation": str(tmp_path / "checkpoint")}
    shapes = [
        (n, NOON + dt.timedelta(seconds=n), bytearray(shapely.box(n, 0, n + 1, 1).wkb))
        for n in range(3)
    ]
    parts = [spark.createDataFrame([row], "id int, at timestamp, shape binary") for row in shapes]
    source = replay(parts[0], path=folder)

    def pairs(**salt):
        return rm.join_interval(
            source, source, on=rm.intersects("shape", "shape"), time="at", columns={"other": "id"},
            between=("-1 minute", "1 minute"), lateness="1 hour", buckets=4, grid=rm.grid(**salt),
        )  # fmt: skip

    assert len(rows(pairs(salt=4), **kept)) == 1
    for n, part in enumerate(parts[1:]):
        replay(part, path=tmp_path / f"later-{n}")
        (tmp_path / f"later-{n}" / "batch-000000.parquet").rename(folder / f"later-{n}.parquet")
    message = r"the checkpoint's state is not this query's.*routing.*lattice"
    with pytest.raises(StreamFailed, match=message):
        rows(pairs(), **kept)
    found = sorted((row["id"], row["other"]) for row in rows(pairs(salt=4), **kept))
    assert found == [(0, 1), (1, 0), (1, 1), (1, 2), (2, 1), (2, 2)]


def skewed(names, seed, first, rows=1200):
    """Rows of a minute in a wide plain, half of them in one cell."""
    rng = np.random.default_rng(seed)
    xy = np.where(rng.random((rows, 1)) < 0.5, rng.random((rows, 2)), rng.random((rows, 2)) * 900)
    times = NOON + dt.timedelta(minutes=first)
    at = [times + dt.timedelta(seconds=60 * n / rows) for n in range(rows)]
    ids = np.arange(rows) + first * rows
    return pa.table(dict(zip(names, [ids, at, xy[:, 0], xy[:, 1]], strict=True)))


def test_a_skewed_cell_is_salted_while_the_stream_runs(spark, tmp_path):
    """The pairs of a batch frame, a load that evens out, and a folder that can be lost."""
    from rivermouth.testing.results import StreamFailed

    names = (["l", "at", "x", "y"], ["r", "at", "x", "y"])
    tables = [pa.concat_tables(skewed(names[n], n, k) for k in range(5)) for n in (0, 1)]

    def pairs(left, right, skew_path=tmp_path / "skew"):
        return rm.join_interval(
            left, right, on=NEAR, time="at", between=("-1 second", "1 second"), columns=["r"],
            lateness="1 second", buckets=8, grid=rm.grid(skew_path=skew_path),
        )  # fmt: skip

    whole = [spark.createDataFrame(table) for table in tables]
    truth = {(row["l"], row["r"]) for row in rows(pairs(*whole))}
    assert not (tmp_path / "skew").exists()  # a batch frame tracks no skew
    folders = [tmp_path / "left", tmp_path / "right"]
    parts = [
        replay(one, cuts=1200, path=folder) for one, folder in zip(whole, folders, strict=True)
    ]
    later = []
    for folder in folders:  # the last minute comes after a restart
        *_, last = sorted(folder.glob("*.parquet"))
        later.append((last.rename(tmp_path / f"{folder.name}-later"), last))
    kept = {"checkpointLocation": str(tmp_path / "checkpoint")}
    query = (
        pairs(*parts).writeStream.format("memory").queryName("skewed").options(**kept)
        .trigger(availableNow=True).start()
    )  # fmt: skip
    query.awaitTermination()
    found = {(row["l"], row["r"]) for row in spark.table("skewed").collect()}
    numbers = rm.metrics(query)["operators"]["join_interval"]
    assert numbers["state"]["salted_cells"] == 1
    # all right rows of the place are at home in one bucket, of the left ones a share
    assert max(numbers["rows_per_task"]) < 0.4 * sum(numbers["rows_per_task"])
    shutil.rmtree(tmp_path / "skew")
    for from_, to in later:
        from_.rename(to)
    with pytest.raises(StreamFailed, match=r"restored from the state.*Restart the query"):
        rows(pairs(*parts), **kept)
    with pytest.raises(StreamFailed, match="salts skewed cells"):
        rows(pairs(*parts, skew_path=None), **kept)
    found |= {(row["l"], row["r"]) for row in rows(pairs(*parts), **kept)}
    assert len(truth) > 1000
    assert found == truth


def test_an_idle_side_stops_holding_back_the_watermark(spark, tmp_path):
    left = stream(spark, "x double | y double | at timestamp\n1 | 1 | 2026-01-01 12:00:00")
    right = stream(spark, "x double | y double | at timestamp\n9 | 9 | 2026-01-01 11:00:00")
    idle = rm.join_interval(
        left, right, on=NEAR, time="at", between=("-1 minute", "1 minute"), how="left",
        columns={"seen": "at"}, lateness="0 seconds", idle_timeout="1 second",
        buckets=2,
    )  # fmt: skip
    query = (
        idle.writeStream.format("memory").queryName("silent")
        .option("checkpointLocation", str(tmp_path))
        .trigger(processingTime="200 milliseconds").start()
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 60
        while not spark.table("silent").count() and time.monotonic() < deadline:
            query.awaitTermination(0.2)
    finally:
        query.stop()
    assert [(row.x, row.seen) for row in spark.table("silent").collect()] == [(1.0, None)]
