"""SQLite files written here: declared types, values that do not fit, names, order."""

import datetime as dt
import pickle
import sqlite3
from contextlib import closing

import pyarrow as pa
import pytest

import rivermouth as rm
from rivermouth.errors import TableInvalid, TableMissing
from rivermouth.tables.source import Queryable
from rivermouth.tables.sources.sql import statements


def write(path, *statements):
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    return path


@pytest.mark.parametrize(
    ("declared", "value", "arrow", "read"),
    [
        ("INTEGER", "-5", pa.int64(), -5),
        ("unsigned big int", "5", pa.int64(), 5),
        ("BIGINT", "9223372036854775807", pa.int64(), 2**63 - 1),
        ("VARCHAR(20)", "'é'", pa.string(), "é"),
        ("NATIVE CHARACTER(70)", "'a'", pa.string(), "a"),
        ("CLOB", "12", pa.string(), "12"),  # SQLite makes it text
        ("BLOB", "x'00ff'", pa.binary(), b"\x00\xff"),
        ("DOUBLE PRECISION", "0.1", pa.float64(), 0.1),
        ("FLOAT", "3", pa.float64(), 3.0),
        ("DECIMAL(10, 2)", "1.25", pa.float64(), 1.25),
        ("NUMERIC", "7", pa.float64(), 7.0),
        ("BOOLEAN", "1", pa.bool_(), True),
        ("DATE", "'2024-02-29'", pa.date32(), dt.date(2024, 2, 29)),
        ("DATETIME", "'1969-12-31 23:59:59.5'", pa.timestamp("us"),
         dt.datetime(1969, 12, 31, 23, 59, 59, 500_000)),
        ("TIMESTAMP", "'2024-02-29T12:30:00.000001Z'", pa.timestamp("us"),
         dt.datetime(2024, 2, 29, 12, 30, 0, 1)),
        ("TIMESTAMP", "'2024-02-29'", pa.timestamp("us"), dt.datetime(2024, 2, 29)),
        ("JSON", "'{\"a\": 1}'", pa.string(), '{"a": 1}'),
        ("UUID", "'6b29fc40'", pa.string(), "6b29fc40"),
    ],
)  # fmt: skip
def test_a_column_is_read_as_it_is_declared(tmp_path, declared, value, arrow, read):
    path = write(
        tmp_path / "a.db",
        f"CREATE TABLE t (c {declared})",
        f"INSERT INTO t VALUES ({value}), (NULL)",
    )
    table = rm.tables.sqlite(path, "t")
    assert table.schema() == pa.schema([("c", arrow)])
    assert table.read(["c"])["c"].to_pylist() == [read, None]
    left = {"k": pa.array([read, None], arrow)}
    numbers, rows = table.lookup(rm.keys({"k": "c"}), ["c"], left)
    assert (numbers.tolist(), rows["c"].to_pylist()) == ([0], [read])


@pytest.mark.parametrize(
    ("declared", "value", "shown"),
    [
        ("INTEGER", "'seven'", "'seven'"),
        ("INTEGER", "1.5", "1.5"),
        ("INTEGER", "x'01'", "b'\\x01'"),
        ("TEXT", "x'61'", "b'a'"),
        ("BLOB", "'text'", "'text'"),
        ("REAL", "'much'", "'much'"),
        ("NUMERIC", "9007199254740993", "9007199254740993"),
        ("BOOLEAN", "2", "2"),
        ("DATE", "'29.2.2024'", "'29.2.2024'"),
        ("DATE", "1709164800", "1709164800"),
        ("DATETIME", "'noon'", "'noon'"),
        ("DATETIME", "'2024-02-29 12:00:00+02:00'", "'2024-02-29 12:00:00+02:00'"),
    ],
)
def test_a_value_that_does_not_fit_is_named_by_row_and_column(tmp_path, declared, value, shown):
    path = write(
        tmp_path / "a.db",
        f"CREATE TABLE t (id INTEGER PRIMARY KEY, c {declared})",
        "INSERT INTO t VALUES (10, NULL), (20, NULL)",
        f"INSERT INTO t VALUES (30, {value})",
    )
    table = rm.tables.sqlite(path, "t")
    with pytest.raises(TableInvalid) as caught:
        table.read(["c"])
    said, kind = str(caught.value), table.schema().field("c").type
    assert said.startswith(f"tables.sqlite: column 'c' of t is read as {kind}")
    assert said.endswith(
        f", but row 3 holds {shown}. SQLite lets any value into any column: correct it, or cast "
        "the column in a view."
    )
    assert table.read(["id"]).num_rows == 3


@pytest.mark.parametrize("declared", ["POINT", "GEOMETRY", "TIME", "STRING", "INTERVAL DAY"])
def test_a_declaration_that_is_not_known_is_named(tmp_path, declared):
    path = write(tmp_path / "a.db", f"CREATE TABLE t (id INTEGER, place {declared})")
    if declared == "INTERVAL DAY":  # SQLite itself reads INT in it
        assert rm.tables.sqlite(path, "t").schema().field("place").type == pa.int64()
        return
    with pytest.raises(TableInvalid) as caught:
        rm.tables.sqlite(path, "t").schema()
    assert str(caught.value) == (
        f"tables.sqlite: column 'place' of t is of type {declared!r}, which is not supported. "
        "Make a view that leaves it out or casts it, as in CAST(place AS TEXT)."
    )


def test_what_a_view_computes_is_what_its_values_are(tmp_path):
    path = write(
        tmp_path / "a.db",
        "CREATE TABLE t (id INTEGER, word TEXT)",
        "INSERT INTO t VALUES (2, 'b'), (1, 'a'), (3, NULL)",
        "CREATE VIEW v AS SELECT id, id * 2 AS twice, id / 2.0 AS half, word || '!' AS said,"
        " CASE id WHEN 1 THEN 1 ELSE 0.5 END AS mixed, NULL AS empty FROM t ORDER BY id DESC",
        "CREATE VIEW odd AS SELECT CASE id WHEN 1 THEN 'one' ELSE id END AS either FROM t",
    )
    table = rm.tables.sqlite(path, "v")
    assert table.schema() == pa.schema(
        [("id", pa.int64()), ("twice", pa.int64()), ("half", pa.float64()), ("said", pa.string()),
         ("mixed", pa.float64()), ("empty", pa.string())]
    )  # fmt: skip
    assert table.read(["id", "said"]).to_pydict() == {"id": [3, 2, 1], "said": [None, "b!", "a!"]}
    with pytest.raises(TableInvalid, match="column 'either' of odd is of type ''"):
        rm.tables.sqlite(path, "odd").schema()


def test_rows_come_by_primary_key_or_by_rowid(tmp_path):
    path = write(
        tmp_path / "a.db",
        "CREATE TABLE keyed (a INTEGER, b TEXT, PRIMARY KEY (b, a))",
        "INSERT INTO keyed VALUES (2, 'y'), (1, 'z'), (3, 'x'), (1, 'y')",
        "CREATE TABLE bare (a INTEGER, b TEXT, PRIMARY KEY (b, a)) WITHOUT ROWID",
        "INSERT INTO bare SELECT * FROM keyed",
        "CREATE TABLE heap (rowid TEXT, n INTEGER)",
        "INSERT INTO heap (_rowid_, rowid, n) VALUES (9, 'a', 1), (3, 'b', 2)",
    )
    for name in ("keyed", "bare"):
        read = rm.tables.sqlite(path, name).read(["a", "b"])
        assert read.to_pydict() == {"a": [3, 1, 2, 1], "b": ["x", "y", "y", "z"]}
    assert rm.tables.sqlite(path, "heap").read(["n"])["n"].to_pylist() == [2, 1]


def test_names_and_paths_are_taken_as_they_are_written(tmp_path):
    folder = tmp_path / "50% of #1? a&b=c"
    folder.mkdir()
    path = write(
        folder / "my db.sqlite",
        'CREATE TABLE "Select ""x""; --" ("a:b {0}" INTEGER, "%s" TEXT)',
        'INSERT INTO "Select ""x""; --" VALUES (7, \'?\')',
    )
    table = rm.tables.sqlite(path, 'Select "x"; --')
    names = ["a:b {0}", "%s"]
    assert table.schema().names == names
    assert table.read(names).to_pylist() == [{names[0]: 7, names[1]: "?"}]
    numbers, rows = table.lookup(rm.keys({"k": names[0]}), names[1:], {"k": pa.array([7])})
    assert (numbers.tolist(), rows.to_pylist()) == ([0], [{"%s": "?"}])


def test_it_is_a_value_found_from_anywhere(tmp_path, monkeypatch):
    write(tmp_path / "a.db", "CREATE TABLE t (c INTEGER)")
    monkeypatch.chdir(tmp_path)
    table = rm.tables.sqlite("a.db", "t")
    assert isinstance(table, Queryable)
    assert pickle.loads(pickle.dumps(table)) == table
    assert (table.name, table.identity) == ("a.db/t", f"sqlite:{tmp_path}/a.db#t")
    monkeypatch.chdir("/")
    assert table.read(["c"]).num_rows == 0


def test_a_missing_table_is_said_with_the_nearest_name(tmp_path):
    path = write(tmp_path / "a.db", "CREATE TABLE districts (c INTEGER)")
    with pytest.raises(TableMissing) as caught:
        rm.tables.sqlite(path, "distrikts").schema()
    assert str(caught.value) == (
        f"tables.sqlite: there is no table 'distrikts'; '{path}' has ['districts']. "
        "Did you mean 'districts'?"
    )


@pytest.mark.parametrize(
    "condition",
    [
        rm.keys("word"),
        rm.keys(["word", "n"]),
        rm.between("n", "n", lower=-1, upper=1, by="word"),
        rm.asof("n", "n", by="word"),
    ],
    ids=str,
)
def test_an_index_serves_whatever_its_collation(tmp_path, monkeypatch, condition):
    path = write(
        tmp_path / "a.db",
        "CREATE TABLE t (id INTEGER PRIMARY KEY, word TEXT COLLATE NOCASE, n INTEGER)",
        "CREATE INDEX by_word ON t (word, n)",
    )
    plans = []

    def explained(relation, *how):
        text = made(relation, *how)
        with closing(sqlite3.connect(path)) as file:
            file.execute(
                "CREATE TEMP TABLE records (n INTEGER PRIMARY KEY, key0, key1, low, high, until)"
            )
            plans.extend(str(row[-1]) for row in file.execute(f"EXPLAIN QUERY PLAN {text}"))
        return text

    made = statements.lookup
    monkeypatch.setattr(statements, "lookup", explained)
    left = {"word": pa.array(["a"]), "n": pa.array([1])}
    rm.tables.sqlite(path, "t").lookup(condition, ["id"], left)
    assert [plan for plan in plans if "SEARCH t USING" in plan and "by_word" in plan], plans
    assert not [plan for plan in plans if plan.startswith("SCAN t")], plans
