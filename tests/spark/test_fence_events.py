"""fence_events on Spark: one test body, two engines, the slow oracle beside it."""

import datetime as dt
import json
import math
import time

import numpy as np
import pyarrow as pa
import pytest
import shapely

import rivermouth as rm
from rivermouth.errors import RivermouthError
from rivermouth.kernels.spatial.sphere import great_circle
from rivermouth.testing import assert_same_rows, batches, frame, replay, rows, stream
from rivermouth.testing.fences import fence_events as slow

pytestmark = pytest.mark.spark

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
COUNT = 150
SHAPES = {
    "a": shapely.box(0, 0, 4, 4),
    "b": shapely.box(3, 3, 7, 7),
    "thin": shapely.box(5, 0, 5.5, 9),
    "round": shapely.Point(7, 2).buffer(1.5),
}
STANDS = {"west": shapely.Point(1, 1), "east": shapely.Point(6, 6)}
POSITIONS = pa.schema(
    [("cab", pa.int32()), ("fleet", pa.string()), ("t", pa.timestamp("us", "UTC")),
     ("x", pa.float64()), ("y", pa.float64()), ("spot", pa.binary())]
)  # fmt: skip
HERE = rm.point("x", "y")
EVENTS = ["enter", "exit", "dwell", "cross", "lost"]
RULES = {
    "dwell": "30 seconds",
    "min_inside": 2, "min_outside": "10 seconds", "gap": "80 seconds",
}  # fmt: skip


def geojson(path, shapes):
    features = [
        {"type": "Feature", "properties": {"zone": name, "rank": rank},
         "geometry": json.loads(shapely.to_geojson(shape))}
        for rank, (name, shape) in enumerate(shapes.items())
    ]  # fmt: skip
    path.write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    return rm.tables.geojson(path)


@pytest.fixture(scope="module")
def found():
    """Wandering cabs, up to 20 seconds out of order; the last row moves the watermark past all."""
    random = np.random.default_rng(5)
    made, at = [], random.uniform(0, 8, (6, 2))
    times = np.sort(random.choice(900, COUNT, replace=False))
    for t in times.tolist():
        cab = int(random.integers(6))
        at[cab] = np.clip(at[cab] + random.normal(0, 1.2, 2), -1, 9)
        x, y = np.round(at[cab] * 4) / 4  # now and then exactly on a border
        made.append((cab, "red" if cab % 2 else None, t, float(x), float(y)))
    order = np.argsort(times + random.integers(0, 20, COUNT), kind="stable")
    arrived = [made[n] for n in order]
    arrived[7] = (*arrived[7][:3], math.nan, 1.0)
    arrived[9] = (None, *arrived[9][1:])
    return [*arrived, (99, "blue", 90_000, 500.0, 80.0)]


def frames(spark, engine, found):
    table = [
        {"cab": cab, "fleet": fleet, "t": NOON + dt.timedelta(seconds=t), "x": x, "y": y,
         "spot": None if math.isnan(x) else shapely.Point(x, y).wkb}
        for cab, fleet, t, x, y in found
    ]  # fmt: skip
    made = spark.createDataFrame(pa.Table.from_pylist(table, POSITIONS))
    return made if engine == "batch" else replay(made, cuts=[40, 1, 60, COUNT - 101, 1])


def truth(found, shapes, inside, meets, events):
    """What the oracle says of the usable rows, as the frame shows it."""
    usable = [
        (cab, float(t), (x, y))
        for cab, _, t, x, y in found
        if cab is not None and not math.isnan(x)
    ]
    given = slow(
        usable, shapes, inside, meets=meets, dwell=30, min_inside=(2, 0), min_outside=(1, 10),
        gap=80,
    )  # fmt: skip
    at = lambda seconds: None if seconds is None else NOON + dt.timedelta(seconds=seconds)  # noqa: E731
    return [
        {"cab": one.who, "t": at(one.time), "zone": one.fence, "event": one.event,
         "entered": at(one.entered), "seconds_inside": one.inside, "reason": one.reason}
        for one in given
        if one.event in events
    ]  # fmt: skip


SHOWN = ["cab", "t", "zone", "event", "entered", "seconds_inside", "reason"]


def way(a, b):
    return shapely.LineString([a, b])


CASES = {
    "within": (
        rm.within(HERE, "geometry"), SHAPES, lambda p, s: s.contains(shapely.Point(p)),
        lambda a, b, s: a != b and shapely.relate_pattern(way(a, b), s, "T********"),
    ),
    "WKB, covered_by": (
        rm.covered_by("spot", "geometry"), SHAPES, lambda p, s: s.covers(shapely.Point(p)),
        lambda a, b, s: a != b and s.intersects(way(a, b)),
    ),
    "near": (
        rm.dwithin(HERE, "geometry", distance=0.6), SHAPES,
        lambda p, s: shapely.dwithin(s, shapely.Point(p), 0.6),
        lambda a, b, s: a != b and shapely.dwithin(way(a, b), s, 0.6),
    ),
    "metres": (
        rm.dwithin(HERE, "geometry", meters=300_000), STANDS,
        lambda p, s: great_circle(*p, s.x, s.y) <= 300_000, None,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("engine", ["batch", "stream"])
def test_events_equal_the_oracle(spark, engine, case, found, tmp_path):
    on, shapes, inside, meets = CASES[case]
    events = [event for event in EVENTS if meets is not None or event != "cross"]
    result = rm.fence_events(
        frames(spark, engine, found), geojson(tmp_path / "zones.geojson", shapes), on=on, by="cab",
        time="t", columns=["zone"], lateness="20 seconds", buckets=3, events=events, **RULES,
    )  # fmt: skip
    expected = truth(found, shapes, inside, meets, events)
    assert {row["event"] for row in expected} == set(events)
    shown = rows(result.select(*SHOWN))
    assert_same_rows(shown, expected)


@pytest.mark.parametrize("engine", ["batch", "stream"])
@pytest.mark.since("4.2")  # GEOMETRY
def test_positions_in_geometry_columns_and_several_columns_of_the_object(
    spark, engine, found, tmp_path
):
    table = geojson(tmp_path / "zones.geojson", SHAPES)
    known = [row for row in found if row[1] is not None]
    made = frames(spark, "batch", known).selectExpr("*", "st_geomfromwkb(spot) as here")
    usable = made.where("cab is not null and spot is not null")
    given = usable if engine == "batch" else replay(usable, cuts=3)
    asked = {"by": ["fleet", "cab"], "time": "t", "lateness": "1 hour", "buckets": 2}
    result = rm.fence_events(
        given, table, on=rm.within("here", "geometry"), columns={"z": "zone", "rank": "rank"},
        **asked,
    )  # fmt: skip
    assert result.columns == [
        "fleet", "cab", "t", "here", "z", "rank", "event", "entered", "seconds_inside", "reason",
    ]  # fmt: skip
    plain = rm.fence_events(usable, table, on=rm.within("spot", "geometry"), **asked)
    same = plain.selectExpr("fleet", "cab", "t", "spot", "zone as z", "event")
    placed = result.selectExpr("fleet", "cab", "t", "st_asbinary(here) as spot", "z", "event")
    assert_same_rows(rows(placed), rows(same))
    assert len(rows(same)) > 5


CABS = """
    cab | at timestamp        | x double | y double
    1   | 2026-01-01 12:00:00 | -5       | 5
    1   | 2026-01-01 12:02:00 | 15       | 5
    1   | 2026-01-01 12:01:00 | 2        | 2
    2   | 2026-01-01 12:30:00 | 50       | 50
    1   | 2026-01-01 12:10:00 | 2        | 2
    1   | 2026-01-01 12:31:00 | null     | 2
    1   | 2026-01-01 13:00:00 | 3        | 2
"""
ASKED = {"on": rm.within(HERE, "geometry"), "by": "cab", "time": "at", "columns": ["zone"]}


def test_late_and_rejected_positions_are_counted_and_given_on_request(spark, tmp_path):
    table = geojson(tmp_path / "zones.geojson", SHAPES)
    cabs = stream(spark, CABS, cuts=[4, 3]).withWatermark("at", "5 minutes")
    result = rm.fence_events(cabs, table, late="rows", **ASKED)
    query = (
        result.writeStream.format("memory").queryName("fences").trigger(availableNow=True).start()
    )
    query.awaitTermination()
    found = spark.table("fences")
    events = found.where("kind = 'row'").select("event", "at").orderBy("at").collect()
    assert [(row.event, row.at.minute) for row in events] == [("enter", 1), ("exit", 2)]
    aside = sorted(rm.rejected(found).collect(), key=lambda row: row.at)
    assert [(row.kind, row.at.minute, row.x, row.reason) for row in aside] == [
        ("late", 10, 2.0, None), ("rejected", 31, None, "invalid_geometry"),
    ]  # fmt: skip
    numbers = rm.metrics(query)["operators"]["fence_events"]
    assert (numbers["rows_in"], numbers["rows_out"], numbers["late"]) == (7, 2, 1)
    assert numbers["rejected"] == {"invalid_geometry": 1}
    assert numbers["counts"]["enter"] == 1
    assert numbers["state"] == {"positions": 1, "objects": 2}
    assert numbers["table"]["rows"] == len(SHAPES)
    assert numbers["table"]["refresh_seconds"] is None
    assert 0 <= numbers["table"]["age_seconds"] < 600


def test_a_refreshed_table_is_followed(spark, tmp_path):
    path = tmp_path / "zones.geojson"
    table = geojson(path, SHAPES)
    cabs = stream(
        spark,
        """
        cab | at timestamp        | x double | y double
        1   | 2026-01-01 12:00:00 | 1        | 1
        9   | 2026-01-01 12:30:00 | 50       | 50
        1   | 2026-01-01 12:40:00 | 1        | 1
        9   | 2026-01-01 13:00:00 | 50       | 50
        9   | 2026-01-01 14:00:00 | 50       | 50
        """,
        cuts=[2, 1, 1, 1],
    )
    result = rm.fence_events(
        cabs, table, lateness="1 minute", **ASKED,
        cache=rm.full(refresh="0.1 seconds", max_age="0.5 seconds"),
    )  # fmt: skip
    told = []

    def keep(batch, number):
        told.extend((row.event, row.reason) for row in batch.collect())
        if number == 0:
            geojson(path, {"b": SHAPES["b"]})
        time.sleep(1)

    query = result.writeStream.foreachBatch(keep).trigger(availableNow=True).start()
    query.awaitTermination()
    assert told[0] == ("enter", "first_seen")
    assert told[1:] == [("exit", "fence_removed")]


def test_each_event_comes_with_the_micro_batch_that_settles_it(spark, tmp_path):
    table = geojson(tmp_path / "zones.geojson", SHAPES)
    result = rm.fence_events(
        stream(spark, CABS, cuts=[3, 1, 3]), table, lateness="5 minutes", **ASKED
    )
    assert [[row["event"] for row in batch] for batch in batches(result)] == [
        [], ["enter", "exit"], [],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"by": "taxi"}, "fence_events: by names column 'taxi', which is not among the positions'"),
        ({"by": []}, "fence_events: by names no column. Name what tells objects apart"),
        (
            {"by": "cab", "time": "cab"},
            "time names column 'cab', which is string. Cast it to",
        ),
        ({"time": "x"}, "time names column 'x', which is double. Cast it to timestamp."),
        ({"by": ["cab", "x"]}, "column 'x' is named twice"),
        ({"on": rm.keys({"cab": "zone"})}, "on says nothing of where a position is"),
        (
            {"on": rm.within(rm.point("lng", "y"), "geometry")},
            "on names column 'lng', which is",
        ),
        ({"on": rm.within(HERE, "shape")}, "on names column 'shape', which is not among"),
        ({"events": ["leave"]}, "events is ['leave']. Give one or more of ['enter', 'exit',"),
        ({"events": []}, "events is []. Give one or more of"),
        (
            {"events": ["dwell"]},
            "events has 'dwell', but dwell is not given. Give a length",
        ),
        ({"events": ["lost"]}, "events has 'lost', but gap is not given."),
        (
            {"dwell": "1 minute"},
            "dwell is given, but events has no 'dwell'; events is ['ente",
        ),
        ({"min_inside": 0}, "min_inside is 0. Give one position or more, or a length of time."),
        (
            {"min_outside": "-1 minute"},
            "fence_events(min_outside=): '-1 minute' is not longer",
        ),
        ({"gap": "soon"}, "fence_events(gap=): 'soon' is not a length of time."),
        ({"on": rm.nearest(HERE, "geometry"), "events": ["cross"]}, "'cross' has no meaning for"),
        ({"columns": []}, "no column tells one fence from another"),
        ({"columns": ["name"]}, "columns names column 'name', which is not among"),
        ({"columns": {"x": "zone"}}, "the result would have two columns 'x'"),
        ({"columns": {"event": "zone"}}, "the result would have two columns 'event'"),
        (
            {"cache": rm.external()},
            "fences are kept whole, so that one that is removed can",
        ),
        ({"cache": rm.full(buckets=2)}, "rm.full(buckets=) is not for fences. Leave buckets out."),
        ({"lateness": "-1 second"}, "fence_events(lateness=): '-1 second' is negative."),
        ({"late": "drop"}, "late is 'drop'. Use one of ['count', 'rows']."),
        ({"buckets": 0}, "buckets is 0. Make it a whole number, one or more."),
    ],
)
def test_an_error_says_what_is_wrong_before_anything_runs(spark, asked, sentence, tmp_path):
    table = geojson(tmp_path / "zones.geojson", SHAPES)
    with pytest.raises(RivermouthError) as error:
        rm.fence_events(frame(spark, CABS), table, **{**ASKED, **asked})
    assert sentence in str(error.value)


def test_other_errors_at_definition(spark, tmp_path):
    table, cabs = geojson(tmp_path / "zones.geojson", SHAPES), frame(spark, CABS)
    with pytest.raises(RivermouthError, match="the positions must be a DataFrame and the fences"):
        rm.fence_events(cabs, cabs, **ASKED)
    shapes = spark.createDataFrame([("a", b"")], "zone string, geometry binary")
    with pytest.raises(RivermouthError, match=r"Write it once: table = rm.snapshot\(df, path\)"):
        rm.fence_events(cabs, rm.tables.frame(shapes), **ASKED)
    with pytest.raises(RivermouthError, match="how late rows may be is not defined"):
        rm.fence_events(stream(spark, CABS), table, **ASKED)


def test_state_goes_on_under_other_rules_and_not_with_other_fences(spark, tmp_path):
    table, folder = geojson(tmp_path / "zones.geojson", SHAPES), tmp_path / "files"
    cabs = replay(frame(spark, CABS), cuts=9, path=folder)
    place = {"checkpointLocation": str(tmp_path / "checkpoint")}
    asked = {**ASKED, "lateness": "5 minutes", "buckets": 2}
    first = rows(rm.fence_events(cabs, table, **asked), **place)
    assert [row["event"] for row in first] == ["enter", "exit", "enter"]
    later = "cab | at timestamp | x double | y double\n1 | 2026-01-01 13:10:00 | 3 | 2"
    frame(spark, later).coalesce(1).write.mode("append").parquet(str(folder))
    asked |= {"events": ["exit", "dwell"], "dwell": "30 minutes"}
    second = rows(rm.fence_events(cabs, table, **asked), **place)
    assert [(row["event"], row["at"].minute) for row in second] == [("dwell", 0)]
    frame(spark, later).coalesce(1).write.mode("append").parquet(str(folder))
    asked["columns"] = ["zone", "rank"]
    with pytest.raises(Exception, match="the checkpoint's state is not this query's"):
        rows(rm.fence_events(cabs, table, **asked), **place)
