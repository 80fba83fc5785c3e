"""What an earlier version left on disk can be read: checkpoints, snapshots, stores, histories.

``tests/fixtures/persisted/v1`` was written by commit 4957486, before the renames. A fixture is a
tar file of a folder in which a query was stopped half-way, and a JSON file with the input that
followed and the rows which that commit produced for it. Each case below is one function: it runs a
query over what is in the folder and returns the rows. ``make.py`` called it to write the fixture,
the test calls it to continue.

Where a version cannot read a fixture it must raise an error that says what to do; the case then
expects that error.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tarfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import rivermouth as rm
from rivermouth.testing import assert_same_rows, rows

Rows = list[dict[str, Any]]
Result = dict[str, Rows]
Case = Callable[[SparkSession, Path], Result]

FIXTURES = Path(__file__).parents[1] / "fixtures" / "persisted" / "v1"
#: Where fixtures are unpacked. The path is part of them: Spark's checkpoints and file sinks hold
#: absolute paths, and a snapshot's folder is named by a digest of its table's path.
ROOT = Path("/tmp/rivermouth-persisted")
FOREVER = "36500 days"
BEGIN = 1_700_000_000  # the time stamp of the first file of a stream


# -- folders


@contextmanager
def alone() -> Iterator[None]:
    """Lock `ROOT` against other processes; it is removed before and after."""
    with open(f"{ROOT}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(ROOT, ignore_errors=True)
        try:
            yield
        finally:
            shutil.rmtree(ROOT, ignore_errors=True)


def put(folder: Path, files: Mapping[str, Any]) -> None:
    """Write inputs under `folder`: numbered files of a stream, GeoJSON, or a table as Parquet."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        match path.suffix:
            case ".json":
                path.write_text("".join(f"{json.dumps(row)}\n" for row in content))
                when = BEGIN + int(path.stem)  # Spark reads files by age, not by name
                os.utime(path, (when, when))
            case ".geojson":
                path.write_text(json.dumps(content))
            case ".parquet":
                pq.write_table(_table(content), path)


def _table(content: Rows) -> pa.Table:
    """Rows as Arrow; a column ``since`` holds times."""
    table = pa.Table.from_pylist(content)
    if "since" not in table.column_names:
        return table
    at = table.column_names.index("since")
    return table.set_column(
        at, "since", table["since"].cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))
    )


def plain(value: Any) -> Any:
    """A result as JSON values; doubles to 12 digits, as the last may depend on the machine."""
    match value:
        case dict():
            return {key: plain(part) for key, part in value.items()}
        case list() | tuple():
            return [plain(part) for part in value]
        case float():
            return float(f"{value:.12g}")
        case bytes():
            return value.hex()
        case None | bool() | int() | str():
            return value
    return str(value)


# -- what is run


def stream(spark: SparkSession, folder: Path, schema: str) -> DataFrame:
    """The numbered files of a folder, one per micro-batch."""
    folder.mkdir(exist_ok=True)
    source = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    return source.json(str(folder))


def drained(frame: DataFrame, folder: Path) -> Result:
    """The rows that a stream emits for the files it has not read yet."""
    return {"rows": rows(frame, checkpointLocation=str(folder / "checkpoint"))}


@dataclass(frozen=True)
class Spread:
    """A user-defined aggregate: the largest value minus the smallest."""

    column: str
    result: str = "double"

    def lift(self, values: np.ndarray) -> tuple[np.ndarray, ...]:
        return values, values

    def combine(self, one: tuple, other: tuple) -> tuple[np.ndarray, ...]:
        return np.minimum(one[0], other[0]), np.maximum(one[1], other[1])

    def lower(self, state: tuple) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            return state[1] - state[0]


CARS = "at timestamp, city string, lane int, cars bigint, fee decimal(8,2), speed double"


def aggregate_fixed(spark: SparkSession, folder: Path) -> Result:
    """Two group columns, every aggregate, late records as rows."""
    summary = rm.summary(
        by=["city", "lane"], time="at", window=rm.tumbling("10 seconds"),
        n=rm.count(), known=rm.count("speed"), cars=rm.sum("cars"), fees=rm.sum("fee"),
        miles=rm.sum("speed"), mean=rm.mean("speed"), low=rm.min("speed"), last=rm.max("at"),
        var=rm.var("speed"), std=rm.std("cars"), p90=rm.quantile("speed", 0.9),
        kinds=rm.count_distinct("cars"), spread=Spread("speed"),
    )  # fmt: skip
    events = stream(spark, folder / "events", CARS)
    out = rm.aggregate(events, summary, slack=rm.fixed("5 seconds"), late="rows", buckets=2)
    return drained(out, folder)


def aggregate_max_delay(spark: SparkSession, folder: Path) -> Result:
    """No groups, sliding windows, times without a zone; late records are counted only."""
    summary = rm.summary(
        time="at", window=rm.sliding("10 seconds", every="5 seconds"),
        n=rm.count(), cars=rm.sum("cars"), median=rm.median("speed"),
    )  # fmt: skip
    events = stream(spark, folder / "events", CARS.replace("timestamp", "timestamp_ntz"))
    return drained(rm.aggregate(events, summary, slack=rm.max_delay(), late="count"), folder)


def _quality(spark: SparkSession, folder: Path, by: str | tuple[()], controller: Any) -> Result:
    summary = rm.summary(
        by=by, time="at", window=rm.sliding("4 seconds", every="2 seconds"),
        cars=rm.sum("cars"), mean=rm.mean("speed"), std=rm.std("speed"),
        p90=rm.quantile("speed", 0.9),
    )  # fmt: skip
    slack = rm.quality(
        eps=0.2, delta=0.2, absolute=False, controller=controller, memory="10 minutes"
    )  # fmt: skip
    events = stream(spark, folder / "events", CARS)
    return drained(rm.aggregate(events, summary, slack=slack, late="rows", buckets=2), folder)


def aggregate_quality(spark: SparkSession, folder: Path) -> Result:
    """The controller of K and the learned shape of the windows."""
    return _quality(spark, folder, "city", "pd")


def aggregate_calibrated(spark: SparkSession, folder: Path) -> Result:
    """The waits that windows needed, and the arrivals from which they are computed."""
    return _quality(spark, folder, (), "learned")


def idle_query(spark: SparkSession, folder: Path, idle: str) -> tuple[Any, Callable[[], Rows]]:
    """A running query that closes its windows after so long without input, and its rows so far."""
    summary = rm.summary(time="at", window=rm.tumbling("10 seconds"), n=rm.count())
    events = stream(spark, folder / "events", CARS)
    frame = rm.aggregate(
        events, summary, slack=rm.fixed("5 seconds"), late="count", idle_timeout=idle
    )
    query = (
        frame.writeStream.format("parquet").option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(processingTime="500 milliseconds").start()
    )  # fmt: skip
    return query, lambda: rows(spark.read.schema(frame.schema).parquet(str(folder / "out")))


def aggregate_idle(spark: SparkSession, folder: Path) -> Result:
    """Timers in the state: one record closes two windows, and a timer the record's own."""
    query, written = idle_query(spark, folder, "1 second")
    try:
        for _ in range(300):
            if len(found := written()) == 3:
                break
            query.awaitTermination(0.1)
    finally:
        query.stop()
    return {"rows": found}


POINTS = "at timestamp, {id} bigint, line string, x double, y double"
NEAR = rm.dwithin(rm.point("x", "y"), rm.point("x", "y"), distance=2)


def _points(spark: SparkSession, folder: Path) -> tuple[DataFrame, DataFrame]:
    left, right = (
        stream(spark, folder / side, POINTS.format(id=side)) for side in ("left", "right")
    )
    return left, right


def join_interval_points(spark: SparkSession, folder: Path) -> Result:
    """Pairs are emitted as soon as both rows are there; late rows are emitted, too."""
    joined = rm.join_interval(
        *_points(spark, folder), on=NEAR, time="at", between=("-8 seconds", "4 seconds"),
        columns=["right"], lateness=("3 seconds", "2 seconds"), late="rows",
        buckets=2,
    )  # fmt: skip
    return drained(joined, folder)


def join_interval_keys(spark: SparkSession, folder: Path) -> Result:
    """Unmatched left rows: which left rows have matched is part of the state."""
    joined = rm.join_interval(
        *_points(spark, folder), on=rm.keys("line"), time="at",
        between=("-3 seconds", "3 seconds"), how="left", columns=["right"],
        lateness="3 seconds", late="count", buckets=2,
    )  # fmt: skip
    return drained(joined, folder)


def join_interval_shapes(spark: SparkSession, folder: Path) -> Result:
    """Shapes on both sides, WKB and GEOMETRY; rows are replicated to several buckets."""
    schema = "at timestamp, {id} bigint, {id}_shape binary"
    left, right = (
        stream(spark, folder / side, schema.format(id=side)) for side in ("left", "right")
    )
    right = right.withColumn("right_shape", F.expr("st_geomfromwkb(right_shape, 4326)"))
    joined = rm.join_interval(
        left, right, on=rm.intersects("left_shape", "right_shape"), time="at",
        between=("-6 seconds", "6 seconds"), columns=["right"], lateness="3 seconds",
        late="count", buckets=2, grid=rm.grid(cell=2.0, bin="2 seconds"),
    )  # fmt: skip
    return drained(joined.drop("left_shape"), folder)


def join_interval_nearest(spark: SparkSession, folder: Path) -> Result:
    """Left rows wait until the watermark has passed every candidate."""
    on = rm.nearest(rm.point("x", "y"), rm.point("x", "y"), k=2, distance=6) & rm.keys("line")
    joined = rm.join_interval(
        *_points(spark, folder), on=on, time="at", between=("-4 seconds", "2 seconds"),
        columns=["right"], lateness="3 seconds", late="count", buckets=2,
    )  # fmt: skip
    return drained(joined, folder)


def join_interval_skew(spark: SparkSession, folder: Path) -> Result:
    """A salted cell: the decision is in the state and in a folder, and both must agree."""
    joined = rm.join_interval(
        *_points(spark, folder), on=NEAR, time="at", between=("-2 seconds", "2 seconds"),
        how="left", columns=["right"], lateness="1 second", late="count",
        buckets=2, grid=rm.grid(skew_path=folder / "skew"),
    )  # fmt: skip
    return drained(joined.select("left", "right"), folder)


def join_window_tumbling(spark: SparkSession, folder: Path) -> Result:
    """Great-circle distances; pairs are emitted when their window closes."""
    on = rm.dwithin(rm.point("x", "y"), rm.point("x", "y"), meters=250_000)
    joined = rm.join_window(
        *_points(spark, folder), on=on, time="at", window=rm.tumbling("10 seconds"),
        columns=["right"], lateness="3 seconds", late="rows", buckets=2,
    )  # fmt: skip
    return drained(joined, folder)


def join_window_sliding(spark: SparkSession, folder: Path) -> Result:
    """Pairs at once, unmatched left rows when a window closes; by distance and keys."""
    joined = rm.join_window(
        *_points(spark, folder), on=NEAR & rm.keys("line"), time="at",
        window=rm.sliding("8 seconds", every="4 seconds"), how="left", columns=["right"],
        early=True, lateness="3 seconds", late="count", buckets=2,
    )  # fmt: skip
    return drained(joined, folder)


def exact_job(spark: SparkSession, folder: Path, sink: Callable[[DataFrame], None] | None) -> Any:
    """An exact aggregation that makes corrections at its end only."""
    summary = rm.summary(
        by="city", time="at", window=rm.tumbling("10 seconds"),
        n=rm.count(), cars=rm.sum("cars"), median=rm.median("speed"),
    )  # fmt: skip
    return rm.exact(
        stream(spark, folder / "events", CARS), summary, store=folder / "store",
        slack=rm.fixed("2 seconds"), span=FOREVER, wait=FOREVER, sink=sink,
    )  # fmt: skip


def exact_store(spark: SparkSession, folder: Path) -> Result:
    """Early results, backup, one correction, a sink's position; then the process was killed."""
    told: dict[str, dict[str, Any]] = {}

    def receive(changes: DataFrame) -> None:
        told.update({str(plain(row)): row for row in rows(changes.drop("emitted"))})

    running = exact_job(spark, folder, receive).start(availableNow=True)
    running.awaitTermination()
    results = running.results().drop("emitted")
    return {
        "results": rows(results.withColumnRenamed("status", "answer")),  # its first name
        "changes": rows(running.changelog().drop("emitted")),
        "told": list(told.values()),
        "corrections": [
            {"number": one.number, "rows": one.rows, "final": one.final}
            for one in running.corrections()
        ],
    }


def _events(spark: SparkSession, folder: Path, schema: str) -> DataFrame:
    return spark.read.schema(schema).json(str(folder / "events"))


#: indexes that had another name in the first version
NOW = {"tree": "strtree", "kd": "kdtree"}


def full_places(spark: SparkSession, folder: Path) -> Result:
    """Snapshots with every spatial index."""
    events = _events(spark, folder, "id bigint, x double, y double")
    zones, stops = (rm.tables.geojson(folder / f"{name}.geojson") for name in ("zones", "stops"))
    at = rm.point("x", "y")
    on = {
        "cells": (zones, rm.within(at, "geometry")),
        "tree": (zones, rm.intersects(at, "geometry")),
        "rtree": (zones, rm.covered_by(at, "geometry")),
        "kd": (stops, rm.nearest(at, "geometry", k=2)),
    }
    return {
        index: _with_full(events, table, condition, folder, index=NOW.get(index, index))
        for index, (table, condition) in on.items()
    }


def full_keys(spark: SparkSession, folder: Path) -> Result:
    """Snapshots by one key column and by two."""
    events = _events(spark, folder, "id bigint, line string, lane int")
    table = rm.tables.parquet(folder / "lines.parquet")
    both = rm.keys({"line": "line", "lane": "track"})
    return {
        "one": _with_full(events, table, rm.keys("line"), folder),
        "two": _with_full(events, table, both, folder),
    }


def full_ranges(spark: SparkSession, folder: Path) -> Result:
    """Snapshots with every range index, over times and numbers."""
    events = _events(spark, folder, "id bigint, line string, at timestamp, mile bigint")
    table = rm.tables.parquet(folder / "lines.parquet")
    numbers = rm.between("mile", "track", lower=-1, upper=0)
    times = rm.between("at", "since", lower="-6 seconds", upper="0 seconds", by="line")
    return {
        "sorted": _with_full(events, table, times, folder, index="sorted"),
        "skiplist": _with_full(events, table, numbers, folder, index="skiplist"),
        "ideal_skiplist": _with_full(events, table, numbers, folder, index="ideal_skiplist"),
        "asof": _with_full(events, table, rm.asof("at", "since", by="line"), folder),
    }


def full_buckets(spark: SparkSession, folder: Path) -> Result:
    """A snapshot in two buckets, of which one is indexed."""
    events = _events(spark, folder, "id bigint, line string")
    table = rm.tables.parquet(folder / "lines.parquet")
    return {"rows": _with_full(events, table, rm.keys("line"), folder, buckets=2)}


def _with_full(
    events: DataFrame, table: Any, on: Any, folder: Path, *, index: Any = None, buckets: Any = None
) -> Rows:
    cache = rm.full(path=str(folder / "cache"), refresh=FOREVER, index=index, buckets=buckets)
    return rows(rm.join_table(events, table, on=on, columns=["name"], cache=cache))


def published(spark: SparkSession, folder: Path) -> Result:
    """A frame written by `rm.snapshot`, read directly and through a snapshot of it."""
    from rivermouth.spec.locations import Location
    from rivermouth.tables.sources.snapshot import SnapshotTable

    place = folder / "published"
    if not place.exists():
        zones = spark.read.json(str(folder / "zones"))
        rm.snapshot(zones.selectExpr("name", "st_geomfromwkb(unhex(shape), 4326) shape"), place)
    table = SnapshotTable(Location.of(place))
    events = _events(spark, folder, "id bigint, x double, y double")
    on = rm.within(rm.point("x", "y"), "shape")
    return {
        "table": table.read(["name", "shape"]).to_pylist(),
        "rows": _with_full(events, table, on, folder),
    }


def hotspots(spark: SparkSession, folder: Path) -> Result:
    """A routing rule and the counts since: the next cycle continues from both."""
    joined = rm.join_table(
        stream(spark, folder / "events", "id bigint, line string"),
        rm.tables.parquet(folder / "lines.parquet"), on=rm.keys("line"), columns=["name"],
        cache=rm.full(path=str(folder / "cache")),
        routing=rm.by_hotspot(
            threshold=0.1, cycle=20, sample=1000, weight="records", split=True, partitions=2,
            path=str(folder / "routing"),
        ),
    )  # fmt: skip
    query = (
        joined.writeStream.format("noop").trigger(availableNow=True)
        .option("checkpointLocation", str(folder / "checkpoint")).start()
    )  # fmt: skip
    query.awaitTermination()
    routing = rm.metrics(query)["operators"]["join_table.lines.parquet"]["routing"]
    return {"routing": [{name: routing[name] for name in ("rule", "cycle", "records")}]}


def history(spark: SparkSession, folder: Path) -> Result:
    """The history of a run, written by `rm.watch`, as its page shows it."""
    from rivermouth.observe.history import Reader
    from rivermouth.observe.run_api import RunApi

    if not (folder / "history").exists():
        zones = rm.tables.geojson(folder / "zones.geojson")
        joined = rm.join_table(
            stream(spark, folder / "events", "id bigint, x double, y double"), zones,
            on=rm.within(rm.point("x", "y"), "geometry"), columns=["name"],
        )  # fmt: skip
        query = (
            joined.writeStream.format("noop").queryName("history").trigger(availableNow=True)
            .option("checkpointLocation", str(folder / "checkpoint")).start()
        )  # fmt: skip
        with rm.watch(query, history=folder / "history", page=False):
            query.awaitTermination()
    (path,) = (folder / "history").glob("*.jsonl")
    Reader(path)  # `RunApi` leaves out what it cannot read
    (run,) = RunApi(path).everything()
    page = run["page"]
    operator = page["metrics"]["operators"]["join_table.zones.geojson"]
    counted = ("rows_in", "rows_out", "matched", "unmatched", "per_row")
    return {
        "run": [{name: page["run"][name] for name in ("name", "status", "batches", "rows")}],
        "operator": [{name: operator[name] for name in counted}],
        "shapes": [run["shapes"]["join_table.zones.geojson"]],
    }


CASES: tuple[Case, ...] = (
    aggregate_fixed,
    aggregate_max_delay,
    aggregate_quality,
    aggregate_calibrated,
    aggregate_idle,
    join_interval_points,
    join_interval_keys,
    join_interval_shapes,
    join_interval_nearest,
    join_interval_skew,
    join_window_tumbling,
    join_window_sliding,
    exact_store,
    full_places,
    full_keys,
    full_ranges,
    full_buckets,
    published,
    hotspots,
    history,
)


#: Snapshots and routing rules were named by ``repr()``. They are caches: what an earlier version
#: left is not found, and they are made anew.
ANEW = (full_places, full_keys, full_ranges, full_buckets, hotspots)
#: cases with a GEOMETRY column
SPATIAL = (join_interval_shapes, published)
#: K is learned in another way: with the first version's state it is learned anew
RELEARNED = {aggregate_calibrated: ("coverage", "slack")}
#: what cannot be read, and the error that says what to do
REFUSED = {
    history: r"a history in format 2; this version reads format 4\. Read it with the version"
}


@pytest.mark.spark
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=case.__name__, marks=[pytest.mark.since("4.2")] * (case in SPATIAL))
        for case in CASES
    ],
)
def test_what_an_earlier_version_wrote_is_read(case: Case, spark: SparkSession) -> None:
    with alone():
        unpack(case.__name__, ROOT)
        if case in REFUSED:
            with pytest.raises(rm.RivermouthError, match=REFUSED[case]):
                case(spark, ROOT / case.__name__)
            return
        found = plain(case(spark, ROOT / case.__name__))
    check(case, found)


def unpack(name: str, root: Path) -> None:
    """What an earlier version left, below `root`, and the input that followed."""
    with tarfile.open(FIXTURES / f"{name}.tar.gz") as tar:
        tar.extractall(root, filter="data")
    put(root / name, json.loads((FIXTURES / f"{name}.json").read_text())["after"])


def check(case: Case, found: Result) -> None:
    """Whether these are the rows that the earlier version gave."""
    known = json.loads((FIXTURES / f"{case.__name__}.json").read_text())
    expected = known["anew" if case in ANEW else "expected"]
    assert found.keys() == expected.keys()
    for part in expected:
        assert_same_rows(
            *(
                [{k: v for k, v in row.items() if k not in RELEARNED.get(case, ())} for row in rows]
                for rows in (found[part], expected[part])
            )
        )
