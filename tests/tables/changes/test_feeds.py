"""Feeds of changes: what each gives from a position, where it goes on, and what it calls a gap."""

from __future__ import annotations

import datetime as dt
import shutil
import sqlite3
import time
from contextlib import closing

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import rivermouth as rm
from rivermouth.errors import ColumnError, DefinitionError, TableGap, TableInvalid
from rivermouth.tables.cache.batch_versions import MicroBatch
from rivermouth.tables.cache.snapshot import SnapshotSpec
from rivermouth.tables.changes.definition import following_spec
from rivermouth.tables.changes.feed import ChangeFeed, feed_of
from rivermouth.tables.changes.following import Following


def follower(table, changes, folder, columns=None):
    """A function that gives the rows of the table's newest version, and its counts."""
    schema, since = table.schema(), time.time()
    names = columns or schema.names
    held = pa.schema([schema.field(name) for name in names])
    plain = SnapshotSpec(table, held, keys=rm.keys(names[0]), since=since)
    spec = following_spec(plain, schema, changes, where="test")
    number = iter(range(1000))

    def follow():
        batch = MicroBatch("query", next(number))
        version = Following(spec, rm.full(), str(folder), batch=batch).opened()
        rows = version.live().select(names).to_pylist()
        return sorted((tuple(row.values()) for row in rows), key=str), version.step

    return follow


# -- files


def put(folder, name, numbers, ops, keys, values):
    folder.mkdir(exist_ok=True)
    table = pa.table({"sequence": numbers, "op": ops, "id": keys, "value": values})
    pq.write_table(table, folder / name)


@pytest.fixture
def shelf(tmp_path):
    pq.write_table(pa.table({"id": [1, 2], "value": ["a", "b"]}), tmp_path / "table.parquet")
    return rm.tables.parquet(tmp_path / "table.parquet")


def test_files_are_read_by_name_each_once(shelf, tmp_path):
    folder = tmp_path / "changes"
    follow = follower(shelf, rm.changes.files(folder, key="id"), tmp_path / "snapshots")
    assert follow()[0] == [(1, "a"), (2, "b")]
    put(folder, "1.parquet", [1, 2], ["update", "insert"], [1, 3], ["A", "c"])
    put(folder, "2.parquet", [3], ["delete"], [2], [None])
    put(folder, "_ignored.parquet", [9], ["delete"], [1], [None])
    rows, step = follow()
    assert (rows, step.position) == ([(1, "A"), (3, "c")], {"file": "2.parquet", "sequence": 3})
    assert follow()[1] == step
    put(folder, "3.parquet", [4], ["upsert"], [2], ["again"])
    rows, step = follow()
    assert rows == [(1, "A"), (2, "again"), (3, "c")]
    assert (step.counts["full_loads"], step.counts["applied"]) == (1, 4)


def test_a_change_that_is_missing_ends_in_a_full_load(shelf, tmp_path):
    folder = tmp_path / "changes"
    follow = follower(shelf, rm.changes.files(folder, key="id"), tmp_path / "snapshots")
    put(folder, "1.parquet", [1], ["update"], [1], ["A"])
    follow()
    pq.write_table(pa.table({"id": [7], "value": ["new"]}), tmp_path / "table.parquet")
    put(folder, "3.parquet", [3], ["insert"], [7], ["new"])
    rows, step = follow()
    assert rows == [(7, "new")]
    assert (step.counts["gaps"], step.counts["full_loads"]) == (1, 2)
    assert step.position == {"file": "3.parquet", "sequence": 3}
    feed = feed_of(rm.changes.files(folder, key="id"), shelf, shelf.schema())
    assert isinstance(feed, ChangeFeed)
    said = r"changes.files: change 2 is missing in '.*changes'; in 3.parquet change 3 comes instead"
    with pytest.raises(TableGap, match=said):
        feed.read({"file": "1.parquet", "sequence": 1}, ["id"], 9)
    loose = feed_of(rm.changes.files(folder, key="id", contiguous=False), shelf, shelf.schema())
    assert loose.read({"file": "1.parquet", "sequence": 1}, ["id"], 9).position["sequence"] == 3


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"sequence": [1], "id": [1]}, r"1.parquet has no column 'op'; its columns are \['id', "),
        ({"sequence": [None], "op": ["insert"], "id": [1]}, r"column 'sequence' of 1.parquet has"),
    ],
)
def test_files_that_are_no_changes_are_an_error(shelf, tmp_path, columns, said):
    folder = tmp_path / "changes"
    follow = follower(shelf, rm.changes.files(folder, key="id"), tmp_path / "snapshots")
    follow()
    folder.mkdir()
    pq.write_table(pa.table(columns), folder / "1.parquet")
    with pytest.raises(rm.errors.TableError, match=said):
        follow()


# -- Delta


@pytest.mark.parametrize("fed", [True, False], ids=["change data", "files alone"])
def test_each_version_of_a_delta_table_is_followed(tmp_path, fed):
    path = tmp_path / "zones"
    rows = pa.table({"id": [1, 2, 3], "city": ["a", "b", "a"], "value": [1.0, 2.0, 3.0]})
    on = {"delta.enableChangeDataFeed": "true"} if fed else None
    write_deltalake(path, rows, partition_by=["city"], configuration=on)
    table = rm.tables.delta(path)
    follow = follower(table, rm.changes.delta(key="id"), tmp_path / "snapshots")

    def loaded():
        rows = table.read(table.schema().names).to_pylist()
        return sorted((tuple(row.values()) for row in rows), key=str)

    assert follow()[0] == loaded()
    steps = [
        lambda: DeltaTable(path).delete("id = 2"),
        lambda: DeltaTable(path).update({"value": "value + 10"}, predicate="id = 1"),
        lambda: write_deltalake(
            path, pa.table({"id": [9], "city": ["q"], "value": [9.0]}), mode="append"
        ),
        lambda: DeltaTable(path).optimize.compact(),
        lambda: DeltaTable(path).restore(0),
        lambda: write_deltalake(path, rows.slice(1), mode="overwrite"),
    ]
    for number, change in enumerate(steps):
        change()
        found, step = follow()
        assert found == loaded(), number
        assert step.position == DeltaTable(path).version()
    if fed:  # without change data deltalake cannot tell every version from its files
        assert step.counts["full_loads"] == 1
    assert step.freshness is not None
    assert 0 <= step.freshness[0] < 600
    for change in steps[:3]:
        change()
    assert follow()[0] == loaded()  # several versions at once


def test_a_delta_table_whose_change_data_is_gone_is_loaded_anew(tmp_path):
    path = tmp_path / "zones"
    rows = pa.table({"id": [1, 2, 3], "value": [1.0, 2.0, 3.0]})
    on = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(path, rows, configuration=on)
    table = rm.tables.delta(path)
    follow = follower(table, rm.changes.delta(key="id"), tmp_path / "snapshots")
    follow()
    DeltaTable(path).update({"value": "value + 10"}, predicate="id = 1")
    shutil.rmtree(path / "_change_data")
    found, step = follow()
    assert found == [(1, 11.0), (2, 2.0), (3, 3.0)]
    assert (step.counts["gaps"], step.counts["full_loads"]) == (1, 2)
    shutil.rmtree(path)
    write_deltalake(path, rows.slice(0, 1), configuration=on)  # another table in its place
    found, step = follow()
    assert (found, step.counts["gaps"]) == ([(1, 1.0)], 2)
    said = r"changes.delta: .* is not a Delta table, or one version of it"
    with pytest.raises(DefinitionError, match=said):
        feed_of(rm.changes.delta(key="id"), rm.tables.delta(path, version=0), table.schema())


# -- polling


@pytest.fixture
def shop(tmp_path):
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database, database:
        database.execute(
            "CREATE TABLE users (id INTEGER PRIMARY KEY, name TEXT, removed BOOLEAN, version INT)"
        )
        database.executemany(
            "INSERT INTO users VALUES (?, ?, ?, ?)",
            [(1, "Ann", False, 1), (2, "Ben", None, 2), (3, "Cy", True, 3)],
        )
    return tmp_path / "shop.db"


def execute(path, text, *values):
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(text, values)


def test_rows_are_polled_by_a_number_with_an_overlap(shop, tmp_path):
    table = rm.tables.sqlite(shop, "users")
    changes = rm.changes.polling("version", key="id", deleted="removed", overlap=5)
    follow = follower(table, changes, tmp_path / "snapshots", ["id", "name"])
    rows, first = follow()
    assert (rows, first.position) == ([(1, "Ann"), (2, "Ben")], 3)
    assert follow()[1] == first  # what is read again and is as it was is no change
    execute(shop, "UPDATE users SET name = 'Bea', version = 10 WHERE id = 2")
    execute(shop, "INSERT INTO users VALUES (4, 'Dee', NULL, 9)")
    rows, step = follow()
    assert rows == [(1, "Ann"), (2, "Bea"), (4, "Dee")]
    assert (step.position, step.counts["applied"]) == (10, 2)
    execute(shop, "INSERT INTO users VALUES (5, 'Eve', NULL, 6)")  # committed late, in the overlap
    execute(shop, "INSERT INTO users VALUES (6, 'Fay', NULL, 4)")  # too late
    execute(shop, "UPDATE users SET removed = TRUE, version = 11 WHERE id = 1")
    rows, step = follow()
    assert rows == [(2, "Bea"), (4, "Dee"), (5, "Eve")]
    assert (step.counts["absent_deletes"], step.counts["applied"]) == (0, 4)
    assert follow()[1].counts == step.counts


def test_a_row_that_where_leaves_out_is_gone(shop, tmp_path):
    table = rm.tables.sqlite(shop, "users", where=("name", "!=", "Ann"))
    changes = rm.changes.polling("version", key="id", overlap=0)
    follow = follower(table, changes, tmp_path / "snapshots", ["id", "name"])
    assert follow()[0] == [(2, "Ben"), (3, "Cy")]
    execute(shop, "UPDATE users SET name = 'Ann', version = 7 WHERE id = 2")
    execute(shop, "UPDATE users SET name = 'Zoe', version = 8 WHERE id = 1")
    assert follow()[0] == [(1, "Zoe"), (3, "Cy")]


def test_what_cannot_be_polled_is_an_error_at_definition(shop, shelf, tmp_path):
    table = rm.tables.sqlite(shop, "users")
    for column, overlap, said in (
        ("changed", 5, r"names column 'changed', which is not among the table's"),
        ("name", 5, r"changes.polling: column 'name' is string. Name a column of timestamps or"),
        ("version", "5 seconds", r"overlap is 5.0 and column 'version' is int64. Give a length"),
    ):
        with pytest.raises(ColumnError, match=said):
            follower(table, rm.changes.polling(column, key="id", overlap=overlap), tmp_path)
    with pytest.raises(DefinitionError, match=r"overlap=\): it is -1. Give a number of at least"):
        rm.changes.polling("version", key="id", overlap=-1)


def test_postgres_is_polled_by_a_timestamp(postgres_url, tmp_path):
    import psycopg

    def run(text):
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute(text)

    run("DROP TABLE IF EXISTS followed")
    run(
        "CREATE TABLE followed (id int PRIMARY KEY, name text, gone_at timestamptz,"
        " updated_at timestamptz NOT NULL DEFAULT now())"
    )
    run("INSERT INTO followed SELECT n, 'old' FROM generate_series(1, 1000) n")
    run("CREATE INDEX ON followed (updated_at)")
    table = rm.tables.postgres(postgres_url, "followed")
    changes = rm.changes.polling("updated_at", key="id", deleted="gone_at", overlap="1 minute")
    follow = follower(table, changes, tmp_path / "snapshots", ["id", "name"])
    assert len(follow()[0]) == 1000
    with psycopg.connect(postgres_url) as late:  # takes its time before another, commits after it
        late.execute("UPDATE followed SET name = 'late', updated_at = now() WHERE id = 7")
        run("UPDATE followed SET name = 'new', updated_at = now() WHERE id <= 3")
        rows, step = follow()
        assert (dict(rows)[3], dict(rows)[7], step.counts["applied"]) == ("new", "old", 3)
        late.commit()
    rows, step = follow()
    assert (dict(rows)[7], step.counts["applied"]) == ("late", 4)
    run("UPDATE followed SET gone_at = now(), updated_at = now() WHERE id = 1")
    rows, step = follow()
    assert (len(rows), step.counts["full_loads"]) == (999, 1)
    assert step.freshness is not None
    assert step.freshness[1] < 60
    run("DROP TABLE followed")
    with pytest.raises(rm.errors.TableError, match="followed"):
        follow()


def test_a_feed_that_is_none_is_an_error(shelf):
    said = r"full\(changes=\): Own\(feed=7\) is not a feed of changes. Use one of rm.changes"
    with pytest.raises(DefinitionError, match=said):
        feed_of(rm.changes.feed(7, key="id"), shelf, shelf.schema())


def test_history_needs_to_know_when_rows_were_deleted(tmp_path):
    when = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    prices = pa.table(
        {"id": [1], "price": [2], "since": pa.array([when], pa.timestamp("us", "UTC"))}
    )
    pq.write_table(prices, tmp_path / "prices.parquet")
    table, folder = rm.tables.parquet(tmp_path / "prices.parquet"), tmp_path / "changes"
    changes = rm.changes.files(folder, key="id", history="since")
    plain = SnapshotSpec(table, table.schema(), keys=rm.keys("id"), range=rm.asof("at", "since"))
    spec = following_spec(plain, table.schema(), changes, where="test")
    Following(spec, rm.full(), str(tmp_path / "s"), batch=MicroBatch("q", 0))
    folder.mkdir()
    pq.write_table(pa.table({"sequence": [1], "op": ["delete"], "id": [1]}), folder / "1.parquet")
    with pytest.raises(TableInvalid, match=r"its changes do not say when rows were deleted"):
        Following(spec, rm.full(), str(tmp_path / "s"), batch=MicroBatch("q", 1))
