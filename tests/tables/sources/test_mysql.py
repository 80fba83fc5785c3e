"""A MariaDB table as a source of rows: types, collations, order, one statement, its index."""

import datetime as dt
import pickle
import sys
from decimal import Decimal

import pyarrow as pa
import pymysql
import pytest
import shapely
from tests.support.stores import mysql_connection

import rivermouth as rm
from rivermouth.errors import SessionError, TableInvalid, TableMissing, TableUnavailable
from rivermouth.tables.source import Queryable, srid_of
from rivermouth.tables.sources.mysql.table import MySQLTable

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def database(mariadb_url):
    with mysql_connection(mariadb_url) as connection, connection.cursor() as cursor:
        yield cursor


@pytest.fixture(autouse=True)
def _fresh_connections():
    yield
    MySQLTable.driver.close()


def made(database, url, declared, *values):
    database.execute("DROP TABLE IF EXISTS t")
    database.execute(f"CREATE TABLE t (id INT PRIMARY KEY, c {declared})")
    for number, value in enumerate(values):
        database.execute(f"INSERT INTO t VALUES ({number}, {value})")
    return rm.tables.mysql(url, "t")


TYPES = [
    ("TINYINT", "-128", pa.int8(), -128),
    ("BOOL", "1", pa.int8(), 1),
    ("TINYINT UNSIGNED", "255", pa.int16(), 255),
    ("SMALLINT", "-32768", pa.int16(), -(2**15)),
    ("MEDIUMINT UNSIGNED", "16777215", pa.int32(), 2**24 - 1),
    ("INT", "-2147483648", pa.int32(), -(2**31)),
    ("INT UNSIGNED", "4294967295", pa.int64(), 2**32 - 1),
    ("BIGINT", "-9223372036854775808", pa.int64(), -(2**63)),
    ("BIGINT UNSIGNED", "18446744073709551615", pa.decimal128(20, 0), Decimal(2**64 - 1)),
    ("YEAR", "2024", pa.int16(), 2024),
    ("BIT(1)", "b'1'", pa.bool_(), True),
    ("BIT(40)", "b'1000000000000000000000000000000000000001'", pa.int64(), 2**39 + 1),
    ("FLOAT", "16777217.3", pa.float32(), 16777218.0),
    ("FLOAT", "0.1", pa.float32(), 0.10000000149011612),
    ("DOUBLE", "0.1", pa.float64(), 0.1),
    ("DOUBLE", "1.7976931348623157e308", pa.float64(), 1.7976931348623157e308),
    ("DOUBLE", "5e-324", pa.float64(), 5e-324),
    ("DECIMAL(12, 3)", "-123456789.125", pa.decimal128(12, 3), Decimal("-123456789.125")),
    ("DECIMAL(50, 3)", "0.5", pa.float64(), 0.5),
    ("CHAR(5)", "'ab  '", pa.string(), "ab"),
    ("VARCHAR(20)", "'q\"uote, \\n 北京 😀'", pa.string(), 'q"uote, \n 北京 😀'),
    ("VARCHAR(20) CHARACTER SET latin1", "'Zürich'", pa.string(), "Zürich"),
    ("LONGTEXT", "''", pa.string(), ""),
    ("ENUM('red', 'blue')", "'blue'", pa.string(), "blue"),
    ("SET('a', 'b')", "'a,b'", pa.string(), "a,b"),
    ("JSON", "'{\"b\": [1]}'", pa.string(), '{"b": [1]}'),
    ("UUID", "'6b29fc40-ca47-1067-b31d-00dd010662da'", pa.string(),
     "6b29fc40-ca47-1067-b31d-00dd010662da"),
    ("BINARY(3)", "'a'", pa.binary(), b"a\x00\x00"),
    ("VARBINARY(9)", "x'00ff'", pa.binary(), b"\x00\xff"),
    ("BLOB", "''", pa.binary(), b""),
    ("DATE", "'1000-01-01'", pa.date32(), dt.date(1000, 1, 1)),
    ("DATETIME", "'9999-12-31 23:59:59'", pa.timestamp("us"),
     dt.datetime(9999, 12, 31, 23, 59, 59)),
    ("DATETIME(6)", "'1969-07-20 20:17:40.123456'", pa.timestamp("us"),
     dt.datetime(1969, 7, 20, 20, 17, 40, 123456)),
    ("TIMESTAMP(3) NULL", "'2024-07-01 12:00:00.125'", pa.timestamp("us", "UTC"),
     dt.datetime(2024, 7, 1, 12, 0, 0, 125000, tzinfo=dt.UTC)),
]  # fmt: skip


@pytest.mark.parametrize(("declared", "written", "arrow", "value"), TYPES)
def test_each_type_is_read_and_found_as_its_arrow_type(
    mariadb_url, database, declared, written, arrow, value
):
    database.execute("SET time_zone = '+00:00'")
    table = made(database, mariadb_url, declared, written, "NULL")
    assert table.schema().field("c") == pa.field("c", arrow)
    assert table.read(["c"])["c"].to_pylist() == [value, None]
    left = {"k": pa.array([None, value], arrow)}
    numbers, rows = table.lookup(rm.keys({"k": "c"}), ["c"], left)
    assert (numbers.tolist(), rows["c"].to_pylist()) == ([1], [value])


@pytest.mark.parametrize("index", ["", "CREATE INDEX by_c ON t (c)"])
@pytest.mark.parametrize(
    ("declared", "held", "asked"),
    [
        ("DECIMAL(10, 2)", "1.23", pa.array([Decimal("1.2345"), Decimal("1.2300")])),
        ("DATETIME", "'2024-01-01 00:00:00'",
         pa.array([dt.datetime(2024, 1, 1, 0, 0, 0, 1), dt.datetime(2024, 1, 1)])),
        ("FLOAT", "0.1", pa.array([0.1, 0.10000000149011612])),
        ("TINYINT", "7", pa.array([2**40 + 7, 7])),
        ("CHAR(5)", "'a'", pa.array(["a ", "a"])),
        ("VARCHAR(5) COLLATE utf8mb4_general_ci", "'é'", pa.array(["e", "é"])),
        ("VARCHAR(5) CHARACTER SET latin1 COLLATE latin1_swedish_ci", "'?'", pa.array(["北", "?"])),
        ("VARBINARY(5)", "'a'", pa.array([b"a ", b"a"])),
    ],
)  # fmt: skip
def test_a_key_that_is_only_nearly_equal_finds_nothing(
    mariadb_url, database, declared, held, asked, index
):
    table = made(database, mariadb_url, declared, held)
    if index:
        database.execute(index)
    numbers, _ = table.lookup(rm.keys({"k": "c"}), ["id"], {"k": asked})
    assert numbers.tolist() == [1]


def test_a_type_that_is_not_known_is_named(mariadb_url, database):
    with pytest.raises(TableInvalid) as caught:
        made(database, mariadb_url, "TIME").schema()
    assert str(caught.value) == (
        "tables.mysql: column 'c' of t is of type time, which is not supported. "
        "Make a view that leaves it out or casts it, as in CAST(c AS CHAR)."
    )


def test_a_date_that_is_none_is_said(mariadb_url, database):
    database.execute("SET sql_mode = ''")
    table = made(database, mariadb_url, "DATE", "'0000-00-00'")
    with pytest.raises(TableInvalid) as caught:
        table.read(["c"])
    said = str(caught.value)
    assert said.startswith(
        "tables.mysql: column 'c' of t holds a value that cannot be read as date"
    )
    assert said.endswith("make a view without such values, as in NULLIF(day, '0000-00-00').")


def test_geometries_are_wkb_in_the_srid_that_all_rows_share(mariadb_url, database):
    shapes = [shapely.Point(8.5, 47.4), shapely.box(0, 0, 1, 1), None]
    texts = ["NULL" if s is None else f"ST_GeomFromText('{s.wkt}', 4326)" for s in shapes]
    table = made(database, mariadb_url, "GEOMETRY", *texts)
    assert srid_of(table.schema().field("c")) == 4326
    read = table.read(["c"])
    assert srid_of(read.schema.field("c")) == 4326
    assert shapely.from_wkb(read["c"].to_pylist()).tolist() == shapes
    database.execute("INSERT INTO t VALUES (9, ST_GeomFromText('POINT (1 1)', 3857))")
    with pytest.raises(
        TableInvalid, match="column 'c' of t holds several SRIDs, from 3857 to 4326"
    ):
        table.schema()


def test_rows_come_by_primary_key(mariadb_url, database):
    database.execute("DROP TABLE IF EXISTS ranked")
    database.execute("CREATE TABLE ranked (a INT, b CHAR(1), PRIMARY KEY (b, a))")
    database.execute("INSERT INTO ranked VALUES (2, 'y'), (1, 'z'), (3, 'x'), (1, 'y')")
    read = rm.tables.mysql(mariadb_url, "test.ranked").read(["a", "b"])
    assert read.to_pydict() == {"a": [3, 1, 2, 1], "b": ["x", "y", "y", "z"]}


def test_names_are_taken_as_they_are_written(mariadb_url, database):
    database.execute("DROP TABLE IF EXISTS `a.b``; --`")
    database.execute("CREATE TABLE `a.b``; --` (`100%s {0}` INT, `Select` TEXT)")
    database.execute("INSERT INTO `a.b``; --` VALUES (7, '%%s')")
    table = rm.tables.mysql(mariadb_url, '"a.b`; --"', where=("100%s {0}", "=", 7))
    names = ["100%s {0}", "Select"]
    assert table.schema().names == names
    assert table.read(names).to_pylist() == [{names[0]: 7, "Select": "%%s"}]
    numbers, rows = table.lookup(rm.keys({"k": names[0]}), ["Select"], {"k": pa.array([7])})
    assert (numbers.tolist(), rows.to_pylist()) == ([0], [{"Select": "%%s"}])


def test_a_missing_table_is_said_with_the_nearest_name(mariadb_url, database):
    database.execute("CREATE TABLE IF NOT EXISTS districts (n INT)")
    with pytest.raises(TableMissing) as caught:
        rm.tables.mysql(mariadb_url, "distrikts").schema()
    assert str(caught.value).startswith(
        "tables.mysql: there is no table 'distrikts'; database 'test' has ["
    )
    assert str(caught.value).endswith("Did you mean 'districts'?")


def test_nothing_is_ever_written(mariadb_url, database):
    made(database, mariadb_url, "INT", "1")

    def write(connection):
        with connection.cursor() as cursor:
            cursor.execute("DELETE FROM t")

    with pytest.raises(TableUnavailable, match="READ ONLY transaction"):
        rm.tables.mysql(mariadb_url, "t")._run(write)


def test_it_is_a_value_that_can_be_pickled_and_asked(mariadb_url):
    table = rm.tables.mysql(mariadb_url, "t")
    again = pickle.loads(pickle.dumps(table))
    assert again == table
    assert hash(again) == hash(table)
    assert isinstance(again, Queryable)


def test_the_driver_is_asked_for_by_name(monkeypatch):
    for name in [
        name for name in sys.modules if name.startswith("rivermouth.tables.sources.mysql")
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pymysql", None)
    with pytest.raises(SessionError, match=r"Install it: pip install 'rivermouth\[mysql\]'\.$"):
        rm.tables.mysql("mysql://ann@db/city", "zones")


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
def test_an_answer_takes_one_statement_which_an_index_serves(
    mariadb_url, database, monkeypatch, condition
):
    database.execute("DROP TABLE IF EXISTS served")
    database.execute(
        "CREATE TABLE served (id INT PRIMARY KEY, word VARCHAR(20), n INT, INDEX by_word (word, n))"
    )
    database.execute(
        "INSERT INTO served SELECT seq, CONCAT('word ', seq DIV 9), seq FROM seq_1_to_9000"
    )
    database.execute("ANALYZE TABLE served")
    table = rm.tables.mysql(mariadb_url, "served")
    table.schema()
    left = {"word": pa.array(["word 7", "WORD 8"]), "n": pa.array([66, 75])}
    asked = []
    execute = pymysql.cursors.Cursor.execute
    monkeypatch.setattr(
        pymysql.cursors.Cursor, "execute", lambda *args: asked.append(args) or execute(*args)
    )
    numbers, _ = table.lookup(condition, ["id"], left)
    assert set(numbers.tolist()) == {0}
    ((_, text, values),) = asked
    monkeypatch.undo()
    with MySQLTable.driver.open(table.address) as connection, connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {text}", values)  # as the library's own sessions have it
        keys = [row[5] for row in cursor.fetchall() if row[2] == "t"]
    assert keys
    assert set(keys) == {"by_word"}


@pytest.mark.parametrize(("index", "most"), [("PRIMARY KEY", 1_000), ("", 21_000)])
def test_rows_are_read_by_an_index_and_where_there_is_none_only_once(
    mariadb_url, database, index, most
):
    database.execute("DROP TABLE IF EXISTS many")
    database.execute(f"CREATE TABLE many (id INT {index}, n INT)")
    database.execute("INSERT INTO many SELECT seq, seq FROM seq_1_to_20000")
    table = rm.tables.mysql(mariadb_url, "many")
    table.schema()
    before = table.driver.run(table.address, "many", _rows_read)
    numbers, _ = table.lookup(rm.keys("id"), ["n"], {"id": pa.array(range(1, 20_000, 100))})
    assert len(numbers) == 200
    assert table.driver.run(table.address, "many", _rows_read) - before < most


def _rows_read(connection):
    with connection.cursor() as cursor:
        cursor.execute("SHOW SESSION STATUS LIKE 'Handler_read%'")
        return sum(int(value) for _, value in cursor.fetchall())
