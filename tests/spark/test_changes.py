"""Tables that follow changes in Spark: batch and stream join what a full load would."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
import threading
import time
from collections import defaultdict

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import shapely

import rivermouth as rm
from rivermouth.errors import ColumnError, DefinitionError
from rivermouth.testing import replay, rows


def box(x):
    return shapely.box(x, 0, x + 1, 1).wkb


TABLE = {
    "id": [1, 2, 3, 4],
    "name": ["a", "b", "c", "d"],
    "level": [0, 10, 20, 30],
    "shape": [box(0), box(1), box(2), box(3)],
}
#: what is done to the table: the third row moves, the first is renamed, one is new, one is gone
CHANGES = [
    ("update", 3, "C", 25, box(8)),
    ("update", 1, "A", 5, box(0)),
    ("insert", 5, "e", 40, box(2)),
    ("delete", 2, None, None, None),
]
CHANGED = {
    "id": [4, 3, 1, 5],
    "name": ["d", "C", "A", "e"],
    "level": [30, 25, 5, 40],
    "shape": [box(3), box(8), box(0), box(2)],
}
CONDITIONS = {
    "keys": rm.keys("id"),
    "between": rm.between("v", "level", lower=-6, upper=6),
    "asof": rm.asof("v", "level"),
    "within": rm.within(rm.point("x", "y"), "shape"),
    "nearest": rm.nearest(rm.point("x", "y"), "shape", k=2),
    "both": rm.keys("id") & rm.dwithin(rm.point("x", "y"), "shape", distance=3),
}


def write_table(path, columns):
    pq.write_table(pa.table(columns), path)


def write_changes(folder, changes, first=1):
    """One file of changes, which appears whole."""
    folder.mkdir(exist_ok=True)
    op, *values = zip(*changes, strict=True)
    columns = dict(zip(("id", "name", "level", "shape"), values, strict=True))
    numbers = range(first, first + len(changes))
    made = [dt.datetime.now(dt.UTC)] * len(changes)
    whole = pa.table({"op": op, "sequence": numbers, "made": made, **columns})
    pq.write_table(whole, folder / ".new")
    os.replace(folder / ".new", folder / f"{first:08d}.parquet")


@pytest.fixture(scope="module")
def events(spark):
    some = [
        (n, n % 7, float(5 * n), 0.5 + n % 10 if n != 9 else None, 0.5) for n in range(24)
    ]  # fmt: skip
    return spark.createDataFrame(some, "event long, id long, v double, x double, y double")


def ran(joined, sink):
    """The rows of a batch or a streaming frame."""
    if not joined.isStreaming:
        return rows(joined)
    query = joined.writeStream.format("memory").queryName(sink).trigger(availableNow=True).start()
    query.awaitTermination()
    return rows(joined.sparkSession.table(sink)), query


def ordered(found):
    return sorted(found, key=lambda row: json.dumps(row, default=str))


def cast(events, condition):
    """The events with `v` of the type that the table's column has."""
    return events.withColumn("v", events["v"].cast("long"))


@pytest.mark.parametrize(
    ("condition", "how"),
    [
        ("keys", "inner"), ("between", "left"), ("asof", "left"), ("within", "anti"),
        ("within", "left"), ("nearest", "left"), ("both", "semi"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["batch", "stream"])
def test_a_table_that_followed_changes_joins_like_one_that_is_loaded(
    spark, tmp_path, events, kind, condition, how
):
    on, left = CONDITIONS[condition], cast(events, condition)
    write_table(tmp_path / "table.parquet", TABLE)
    table = rm.tables.parquet(tmp_path / "table.parquet", geometry="shape")
    cache = rm.full(
        changes=rm.changes.files(tmp_path / "changes", key="id"), path=tmp_path / "snapshots"
    )
    bring = {"columns": {"named": "name"}} if how in ("inner", "left") else {}
    (tmp_path / "changes").mkdir()
    before = rm.join_table(left, table, on=on, how=how, cache=cache, **bring)
    assert before.count() >= 0  # the table is loaded
    write_changes(tmp_path / "changes", CHANGES)
    write_table(tmp_path / "changed.parquet", CHANGED)
    loaded = rm.tables.parquet(tmp_path / "changed.parquet", geometry="shape")
    truth = rows(rm.join_table(left, loaded, on=on, how=how, **bring))
    frame = left if kind == "batch" else replay(left, cuts=10)
    found = ran(
        rm.join_table(frame, table, on=on, how=how, cache=cache, **bring),
        f"changes_{condition}_{how}",
    )
    if kind == "stream":
        found, query = found
        numbers = rm.metrics(query)["operators"]["join_table.table.parquet"]["table"]
        assert (numbers["rows"], numbers["changes"]["applied"]) == (4, 4)
        assert (numbers["changes"]["overlay_rows"], numbers["changes"]["gone_rows"]) == (3, 3)

    assert ordered(found) == ordered(truth)
    (folder,) = [path for path in (tmp_path / "snapshots").glob("*") if path.name[0] != "."]
    assert len(list(folder.glob("v*"))) == 1  # never loaded again


@pytest.mark.parametrize("kind", ["native", "by_hash", "by_hotspot"])
def test_plans_and_routings_join_the_same_rows(spark, tmp_path, events, kind):
    write_table(tmp_path / "table.parquet", TABLE)
    write_table(tmp_path / "changed.parquet", CHANGED)
    (tmp_path / "changes").mkdir()
    cache = rm.full(
        changes=rm.changes.files(tmp_path / "changes", key="id"), path=tmp_path / "snapshots"
    )
    given = {"plan": "native"} if kind == "native" else {"routing": getattr(rm, kind)()}
    if kind == "by_hotspot":
        given = {"routing": rm.by_hotspot(path=tmp_path / "routing")}
    table, loaded = (
        rm.tables.parquet(tmp_path / f"{name}.parquet", geometry="shape")
        for name in ("table", "changed")
    )
    left, on = events.select("event", "id"), rm.keys("id")
    assert rm.join_table(left, table, on=on, cache=cache, columns=["name"], **given).count()
    write_changes(tmp_path / "changes", CHANGES)
    joined = rm.join_table(left, table, on=on, cache=cache, columns=["name"], **given)
    truth = rm.join_table(left, loaded, on=on, columns=["name"])
    assert ordered(rows(joined)) == ordered(rows(truth))


def test_fences_follow_changes(spark, tmp_path):
    write_table(tmp_path / "table.parquet", {"zone": ["port"], "shape": [box(0)]})
    folder = tmp_path / "changes"
    folder.mkdir()
    cache = rm.full(changes=rm.changes.files(folder, key="zone"), path=tmp_path / "snapshots")
    positions = rm.testing.frame(
        spark,
        """
        ship | at timestamp        | x double | y double
        ada  | 2026-01-01 12:00:00 | 0.5      | 0.5
        bob  | 2026-01-01 12:30:00 | 50       | 50
        ada  | 2026-01-01 12:40:00 | 0.5      | 0.5
        bob  | 2026-01-01 13:00:00 | 50       | 50
        bob  | 2026-01-01 14:00:00 | 50       | 50
        """,
    )
    found = []

    def move(batch, number):
        found.extend((row["event"], row["zone"], row["reason"]) for row in rows(batch))
        if number == 0:
            changed = {"op": ["insert", "delete"], "sequence": [1, 2], "zone": ["new", "port"]}
            pq.write_table(pa.table({**changed, "shape": [box(0), None]}), folder / "1.parquet")

    events = rm.fence_events(
        replay(positions, cuts=[2, 1, 1, 1]),
        rm.tables.parquet(tmp_path / "table.parquet", geometry="shape"),
        on=rm.within(rm.point("x", "y"), "shape"), by="ship", time="at", lateness="1 minute",
        cache=cache, buckets=2,
    )  # fmt: skip
    events.writeStream.foreachBatch(move).trigger(availableNow=True).start().awaitTermination()
    assert found[0] == ("enter", "port", "first_seen")
    assert sorted(found[1:]) == [("enter", "new", "entered"), ("exit", "port", "fence_removed")]


def slowly(batches):
    """The rows, with a pause before them, so that tasks start at different times."""
    time.sleep(0.2)
    yield from batches


def test_all_tasks_of_a_batch_see_one_version_while_the_table_changes(spark, tmp_path):
    """Each change sets all rows to one value, in one file: no batch sees two values."""
    keys = list(range(30))
    write_table(tmp_path / "table.parquet", {"uid": keys, "value": [0] * 30})
    folder, over = tmp_path / "changes", threading.Event()
    folder.mkdir()

    def change():
        value = 0
        while not over.wait(0.05):
            value += 1
            first = 1 + (value - 1) * 30
            columns = {"op": ["update"] * 30, "sequence": range(first, first + 30), "uid": keys}
            pq.write_table(pa.table({**columns, "value": [value] * 30}), folder / ".new")
            os.replace(folder / ".new", folder / f"{first:08d}.parquet")

    events = spark.range(30 * 5).selectExpr("id div 30 batch", "id % 30 uid")
    stream = replay(events.coalesce(1), cuts=[30] * 5, path=tmp_path / "events")
    slow = stream.repartition(4).mapInArrow(slowly, stream.schema)
    cache = rm.full(
        changes=rm.changes.files(folder, key="uid", compact_at=20), path=tmp_path / "snapshots"
    )
    thread = threading.Thread(target=change)
    thread.start()
    try:
        table = rm.tables.parquet(tmp_path / "table.parquet")
        joined = rm.join_table(slow, table, on=rm.keys("uid"), cache=cache)
        found, _ = ran(joined, "one_version")
    finally:
        over.set()
        thread.join()
    values = defaultdict(set)
    for row in found:
        values[row["batch"]].add(row["value"])
    assert len(found) == 150
    assert [len(values[batch]) for batch in range(5)] == [1] * 5, values
    seen = [values[batch].pop() for batch in range(5)]
    assert seen == sorted(seen)
    assert len(set(seen)) > 1, "no change was followed"


QUERY = """
import json, os, signal, sys
import pyarrow as pa
import pyarrow.parquet as pq
import rivermouth as rm
from rivermouth.testing import rows, session

folder, attempt = sys.argv[1:]
spark = session("again", memory="1g")
events = (
    spark.readStream.schema("batch bigint, uid bigint").option("maxFilesPerTrigger", 1)
    .parquet(f"{folder}/events")
)
joined = rm.join_table(
    events.repartition(2), rm.tables.parquet(f"{folder}/table.parquet"), on=rm.keys("uid"),
    cache=rm.full(
        path=f"{folder}/snapshots", changes=rm.changes.files(f"{folder}/changes", key="uid")
    ),
)


def change(number, value):
    columns = {"op": ["update"] * 3, "sequence": range(3 * number + 1, 3 * number + 4)}
    changed = pa.table({**columns, "uid": [1, 2, 3], "value": [value] * 3})
    pq.write_table(changed, f"{folder}/changes/{number}.parquet")


def write(batch, number):
    found = sorted([row["uid"], row["value"]] for row in rows(batch))
    with open(f"{folder}/out-{attempt}-{number}.json", "w") as file:
        json.dump(found, file)
    if number == 0 and attempt == "first":
        change(0, "mid")
    if number == 1 and attempt == "first":  # before Spark has committed it
        change(1, "new")
        os.killpg(0, signal.SIGKILL)


query = joined.writeStream.foreachBatch(write).option("checkpointLocation", f"{folder}/checkpoint")
query.trigger(availableNow=True).start().awaitTermination()
"""


def test_a_batch_that_was_killed_writes_the_same_rows_and_the_next_follows_on(tmp_path):
    (tmp_path / "events").mkdir()
    (tmp_path / "changes").mkdir()
    for batch in range(3):
        part = tmp_path / "events" / f"{batch}.parquet"
        pq.write_table(pa.table({"batch": [batch] * 3, "uid": [1, 2, 3]}), part)
        os.utime(part, (batch, batch))
    write_table(tmp_path / "table.parquet", {"uid": [1, 2, 3], "value": ["old"] * 3})
    codes = []
    for attempt in ("first", "again"):
        command = [sys.executable, "-c", QUERY, str(tmp_path), attempt]
        codes.append(subprocess.run(command, start_new_session=True, check=False).returncode)
    assert codes == [-9, 0]
    written = {path.stem: json.loads(path.read_text()) for path in tmp_path.glob("out-*.json")}
    old, mid, new = ([[uid, value] for uid in (1, 2, 3)] for value in ("old", "mid", "new"))
    assert written == {
        "out-first-0": old,
        "out-first-1": mid,
        "out-again-1": mid,  # as it was written before, although the table has changed
        "out-again-2": new,
    }
    assert len(list(tmp_path.glob("snapshots/*/v*"))) == 1  # followed on, not loaded again


def test_an_asof_join_keeps_the_history_that_the_feed_tells(spark, tmp_path):
    noon = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)

    def at(minutes):
        return noon + dt.timedelta(minutes=minutes)

    when = pa.timestamp("us", "UTC")
    table = {"product": ["x", "y"], "price": [1, 9], "since": pa.array([at(0), at(0)], when)}
    write_table(tmp_path / "prices.parquet", table)
    folder = tmp_path / "changes"
    folder.mkdir()
    cache = rm.full(
        changes=rm.changes.files(folder, key="product", history="since", made="made"),
        path=tmp_path / "snapshots",
    )
    some = [(n, "x" if n < 8 else "y", at(n if n < 8 else n - 8)) for n in range(16)]
    sales = spark.createDataFrame(some, "sale long, product string, at timestamp")

    def priced():
        joined = rm.join_table(
            sales, rm.tables.parquet(tmp_path / "prices.parquet"),
            on=rm.asof("at", "since", by="product"), how="left", columns=["price"], cache=cache,
        )  # fmt: skip
        return [row["price"] for row in sorted(rows(joined), key=lambda row: row["sale"])]

    assert priced() == [1] * 8 + [9] * 8
    columns = {
        "op": ["update", "update", "delete", "insert"],
        "sequence": [1, 2, 3, 4],
        "product": ["x", "y", "x", "x"],
        "price": [2, 8, None, 3],
        "since": pa.array([at(2), at(3), None, at(6)], when),
        "made": pa.array([at(2), at(3), at(4), at(6)], when),
    }
    pq.write_table(pa.table(columns), folder / "1.parquet")
    assert priced() == [1, 1, 2, 2, None, None, 3, 3, 9, 9, 9, 8, 8, 8, 8, 8]


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        (
            {"changes": {"key": "zone"}}, ColumnError,
            r"join_table: key names column 'zone', which is not among table.parquet's \['id', .*",
        ),
        (
            {"changes": {"key": "id", "history": "level"}}, DefinitionError,
            r"join_table: history='level' keeps former rows for rm.asof on that column; .*",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_followed_is_an_error_at_definition(spark, tmp_path, given, error, said):
    write_table(tmp_path / "table.parquet", TABLE)
    changes = rm.changes.files(tmp_path / "changes", **given["changes"])
    with pytest.raises(error, match=said):
        rm.join_table(
            spark.createDataFrame([(1,)], "id long"),
            rm.tables.parquet(tmp_path / "table.parquet"), on=rm.keys("id"),
            cache=rm.full(changes=changes),
        )  # fmt: skip


def test_what_rm_full_cannot_do_is_an_error(tmp_path):
    feed = rm.changes.files(tmp_path, key="id")
    with pytest.raises(DefinitionError, match=r"full: a table in buckets cannot follow changes"):
        rm.full(changes=feed, buckets=2)
    with pytest.raises(DefinitionError, match=r"full: changes is 'x'. Use rm.changes.files"):
        rm.full(changes="x")
    with pytest.raises(DefinitionError, match=r"changes.files: key is \(\). Name the column"):
        rm.changes.files(tmp_path, key=())
    with pytest.raises(DefinitionError, match=r"changes.files: compact_at is 0. Give at least"):
        rm.changes.files(tmp_path, key="id", compact_at=0)
