"""A PostgreSQL table as a source of rows: types, order, errors, connections, and no secrets."""

import datetime as dt
import multiprocessing
import pickle
import socket
import sys
import threading
import time
import traceback
from decimal import Decimal
from urllib.parse import quote, urlsplit

import psycopg
import pyarrow as pa
import pytest
import shapely
from tests.support.servers import PASSWORD

import rivermouth as rm
from rivermouth.errors import (
    DefinitionError,
    SessionError,
    TableError,
    TableInvalid,
    TableMissing,
    TableUnavailable,
)
from rivermouth.tables.source import Queryable, srid_of
from rivermouth.tables.sources.postgres.table import PostgresTable
from rivermouth.tables.sources.sql.driver import LIMIT

pytestmark = pytest.mark.server


@pytest.fixture(scope="module")
def database(postgres_url):
    with psycopg.connect(postgres_url, autocommit=True, prepare_threshold=None) as connection:
        yield connection


@pytest.fixture(autouse=True)
def _fresh_connections():
    yield
    PostgresTable.driver.close()


# -- columns and rows

COLUMNS = [
    ("b", "bool", pa.bool_(), True),
    ("i2", "int2", pa.int16(), -(2**15)),
    ("i4", "int4", pa.int32(), 2**31 - 1),
    ("i8", "bigint", pa.int64(), -(2**63)),
    ("f4", "real", pa.float32(), 0.5),
    ("f8", "double precision", pa.float64(), 0.1),
    ("exact", "numeric(12, 3)", pa.decimal128(12, 3), Decimal("-123456789.125")),
    ("loose", "numeric", pa.float64(), 0.25),
    ("wide", "numeric(60, 2)", pa.float64(), 7.0),
    ("rounded", "numeric(3, -2)", pa.float64(), 1200.0),
    ("t", "text", pa.string(), 'q"uote, comma\nline 北京'),
    ("v", "varchar(9)", pa.string(), ""),
    ("c", "char(4)", pa.string(), "ab"),
    ("u", "uuid", pa.string(), "6b29fc40-ca47-1067-b31d-00dd010662da"),
    ("j", "json", pa.string(), '{"b": 1,  "a": [2]}'),
    ("jb", "jsonb", pa.string(), '{"a": [2], "b": 1}'),
    ("e", "colour", pa.string(), "red"),
    ("d", "date", pa.date32(), dt.date(1969, 2, 28)),
    ("ts", "timestamp", pa.timestamp("us"), dt.datetime(1969, 7, 20, 20, 17, 40, 123456)),
    (
        "tz",
        "timestamptz",
        pa.timestamp("us", "UTC"),
        dt.datetime(2024, 7, 1, 12, tzinfo=dt.timezone(dt.timedelta(hours=2))),
    ),
    ("by", "bytea", pa.binary(), b"\x00\xff"),
    ("dom", "percent", pa.int32(), 50),
]


@pytest.fixture(scope="module")
def typed(postgres_url, database):
    """One row of each type, one row of nulls."""
    database.execute("CREATE TYPE colour AS ENUM ('red', 'blue')")
    database.execute("CREATE DOMAIN share AS int; CREATE DOMAIN percent AS share")
    declared = ", ".join(f"{name} {kind}" for name, kind, _, _ in COLUMNS)
    database.execute(f"CREATE TABLE typed ({declared})")
    places = ", ".join(["%s"] * len(COLUMNS))
    database.execute(f"INSERT INTO typed VALUES ({places})", [value for *_, value in COLUMNS])
    database.execute("INSERT INTO typed DEFAULT VALUES")
    return rm.tables.postgres(postgres_url, "typed")


def test_each_type_is_read_as_its_arrow_type(typed):
    assert typed.schema() == pa.schema([(name, arrow) for name, _, arrow, _ in COLUMNS])


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, *_, value in COLUMNS])
def test_each_value_comes_as_it_was_written(typed, name, value):
    table = typed.read([name])
    assert table.schema == pa.schema([typed.schema().field(name)])
    assert table[name].to_pylist() == [value, None]


def test_values_that_an_answer_brings_are_those_that_are_read(typed):
    names = [name for name, *_ in COLUMNS]
    rows, found = typed.lookup(rm.keys({"k": "i4"}), names, {"k": pa.array([5, 2**31 - 1])})
    assert rows.tolist() == [1]
    assert found == typed.read(names).slice(0, 1)


def test_only_the_columns_asked_for_come_in_that_order(typed):
    assert typed.read(["t", "b"]).schema.names == ["t", "b"]


def test_nan_is_kept_in_floats_and_null_in_decimals(postgres_url, database):
    database.execute("CREATE TABLE nans (f float8, n numeric(5, 2), m numeric)")
    database.execute("INSERT INTO nans VALUES ('NaN', 'NaN', 'NaN')")
    (row,) = rm.tables.postgres(postgres_url, "nans").read(["f", "n", "m"]).to_pylist()
    assert str(row) == "{'f': nan, 'n': None, 'm': nan}"


@pytest.mark.parametrize("value", ["infinity", "-infinity"])
def test_an_infinite_time_is_an_error_that_says_what_to_do(postgres_url, database, value):
    database.execute("DROP TABLE IF EXISTS endless")
    database.execute("CREATE TABLE endless (until timestamp)")
    database.execute("INSERT INTO endless VALUES (%s)", [value])
    with pytest.raises(TableInvalid) as caught:
        rm.tables.postgres(postgres_url, "endless").read(["until"])
    assert str(caught.value).startswith("tables.postgres: table 'endless' holds a value that ")
    assert str(caught.value).endswith("Make a view without it, as in nullif(until, 'infinity').")


def test_a_type_that_is_not_known_is_named(postgres_url, database):
    database.execute("CREATE TABLE odd (id int, route int4range)")
    with pytest.raises(TableInvalid) as caught:
        rm.tables.postgres(postgres_url, "odd").schema()
    assert str(caught.value) == (
        "tables.postgres: column 'route' of odd is of type int4range, which is not supported. "
        "Make a view that leaves it out or casts it, as in route::text."
    )
    database.execute("CREATE VIEW even AS SELECT id, route::text FROM odd")
    assert rm.tables.postgres(postgres_url, "even").schema().names == ["id", "route"]


@pytest.mark.parametrize(
    ("declared", "srid"),
    [
        ("geometry(Polygon, 4326)", 4326),
        ("geometry(GeometryZ, 3857)", 3857),
        ("geography", 4326),
        ("geography(Point)", 4326),
        ("geometry", 0),
    ],
)
def test_geometries_are_wkb_in_the_srid_of_their_type(postgres_url, database, declared, srid):
    database.execute("DROP TABLE IF EXISTS places")
    database.execute(f"CREATE TABLE places (g {declared})")
    field = rm.tables.postgres(postgres_url, "places").schema().field("g")
    assert field.type == pa.binary()
    assert srid_of(field) == srid


def test_shapes_come_as_iso_wkb_without_an_srid(postgres_url, database):
    shapes = [shapely.Point(1, 2, 3), shapely.box(0, 0, 1, 1), shapely.Polygon(), None]
    database.execute("CREATE TABLE drawn (n serial PRIMARY KEY, g geometry)")
    for shape in shapes:
        wkb = None if shape is None else shapely.to_wkb(shape)
        database.execute(
            "INSERT INTO drawn (g) VALUES (ST_SetSRID(ST_GeomFromWKB(%s), 25832))", [wkb]
        )
    table = rm.tables.postgres(postgres_url, "drawn")
    assert srid_of(table.schema().field("g")) == 25832  # what all rows share
    read = table.read(["g"])
    assert srid_of(read.schema.field("g")) == 25832
    expected = [None if s is None else shapely.to_wkb(s, flavor="iso") for s in shapes]
    assert read["g"].to_pylist() == expected


def test_more_than_one_srid_in_a_column_is_an_error(postgres_url, database):
    database.execute("CREATE TABLE mixed (g geometry)")
    database.execute("INSERT INTO mixed VALUES ('SRID=4326;POINT(0 0)'), ('SRID=3857;POINT(0 0)')")
    with pytest.raises(TableInvalid) as caught:
        rm.tables.postgres(postgres_url, "mixed").schema()
    assert str(caught.value) == (
        "tables.postgres: column 'g' of mixed holds several SRIDs, from 3857 to 4326. "
        "Transform them into one."
    )


def test_rows_come_by_primary_key_or_as_they_lie(postgres_url, database):
    database.execute("CREATE TABLE ranked (a int, b text, PRIMARY KEY (b, a))")
    database.execute("INSERT INTO ranked VALUES (2, 'y'), (1, 'z'), (3, 'x'), (1, 'y')")
    ranked = rm.tables.postgres(postgres_url, "ranked").read(["a", "b"])
    assert ranked.to_pydict() == {"a": [3, 1, 2, 1], "b": ["x", "y", "y", "z"]}

    database.execute("CREATE TABLE heaped AS SELECT n FROM generate_series(200000, 1, -1) n")
    heaped = rm.tables.postgres(postgres_url, "heaped").read(["n"])
    assert heaped["n"].to_pylist() == list(range(200_000, 0, -1))


def test_partitioned_tables_and_views_are_tables_too(postgres_url, database):
    database.execute("CREATE TABLE parted (n int) PARTITION BY LIST (n)")
    database.execute("CREATE TABLE part2 PARTITION OF parted FOR VALUES IN (2)")
    database.execute("CREATE TABLE part1 PARTITION OF parted FOR VALUES IN (1)")
    database.execute("INSERT INTO parted VALUES (1), (2), (1)")
    database.execute("CREATE MATERIALIZED VIEW kept AS SELECT n + 1 AS n FROM parted")
    database.execute("CREATE VIEW shown AS SELECT n FROM kept ORDER BY n DESC")
    for name, expected in (("parted", [2, 1, 1]), ("shown", [3, 2, 2])):
        table = rm.tables.postgres(postgres_url, name)
        assert table.read(["n"])["n"].to_pylist() == expected
        rows, _ = table.lookup(rm.keys("n"), [], {"n": pa.array([2])})
        assert len(rows) == expected.count(2)


def test_names_are_taken_as_they_are_written(postgres_url, database):
    database.execute('CREATE SCHEMA "My Schema"')
    database.execute('CREATE TABLE "My Schema"."a.b" ("Select ""x""; --" int, "100%" text)')
    database.execute("""INSERT INTO "My Schema"."a.b" VALUES (7, '%s {}')""")
    table = rm.tables.postgres(postgres_url, 'My Schema."a.b"')
    names = ['Select "x"; --', "100%"]
    assert table.schema().names == names
    assert table.read(names).to_pylist() == [{names[0]: 7, names[1]: "%s {}"}]
    rows, found = table.lookup(rm.keys({"k": names[0]}), names[1:], {"k": pa.array([7])})
    assert (rows.tolist(), found.to_pylist()) == ([0], [{"100%": "%s {}"}])


@pytest.mark.parametrize("name", ["", "a.b.c", ".a", "a.", '"a'])
def test_what_names_no_table_is_refused(postgres_url, name):
    with pytest.raises(DefinitionError) as caught:
        rm.tables.postgres(postgres_url, name)
    assert str(caught.value) == (
        f"tables.postgres: {name!r} does not name a table. Write 'table' or 'schema.table', in "
        "double quotes a name that holds a dot."
    )


def test_a_missing_table_is_said_with_the_nearest_name(postgres_url, database):
    database.execute("CREATE TABLE IF NOT EXISTS districts (n int)")
    with pytest.raises(TableMissing) as caught:
        rm.tables.postgres(postgres_url, "distrikts").schema()
    assert str(caught.value).startswith(
        "tables.postgres: there is no table 'distrikts'; what rivermouth sees has ["
    )
    assert str(caught.value).endswith("Did you mean 'districts'?")
    with pytest.raises(TableMissing, match=r"there is no table 'nowhere\.districts'"):
        rm.tables.postgres(postgres_url, "nowhere.districts").schema()


def test_postgis_may_live_in_a_schema_of_its_own(postgres_url, database):
    database.execute("CREATE DATABASE apart")
    url = postgres_url.removesuffix("/test") + "/apart"
    with psycopg.connect(url) as connection:
        connection.execute("CREATE SCHEMA tools; CREATE EXTENSION postgis SCHEMA tools")
        connection.execute("CREATE TABLE zones (id int, area tools.geometry)")
        connection.execute("INSERT INTO zones VALUES (1, tools.ST_MakeEnvelope(0, 0, 2, 2))")
    table = rm.tables.postgres(url, "zones")
    left = {"x": pa.array([1.0]), "y": pa.array([1.0])}
    rows, _ = table.lookup(rm.within(rm.point("x", "y"), "area"), ["id"], left)
    assert rows.tolist() == [0]
    PostgresTable.driver.close()
    database.execute("DROP DATABASE apart")


def test_a_table_without_postgis_is_a_table(postgres_url, database):
    database.execute("CREATE DATABASE plain")
    url = postgres_url.removesuffix("/test") + "/plain"
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE words AS SELECT 1 AS id, 'one' AS word")
    assert rm.tables.postgres(url, "words").read(["word"]).to_pydict() == {"word": ["one"]}
    PostgresTable.driver.close()
    database.execute("DROP DATABASE plain")


def test_a_table_that_changes_is_an_error_that_says_so(postgres_url, database):
    database.execute("CREATE TABLE moving (id int, word text)")
    table = rm.tables.postgres(postgres_url, "moving")
    left = {"id": pa.array([1])}
    assert table.schema().names == ["id", "word"]
    database.execute("ALTER TABLE moving DROP COLUMN word")
    with pytest.raises(TableInvalid, match="If the table has changed, define the join again"):
        table.lookup(rm.keys("id"), ["word"], left)
    assert table.schema().names == ["id"]
    database.execute("DROP TABLE moving")
    with pytest.raises(TableMissing, match="table 'moving' does not exist"):
        table.lookup(rm.keys("id"), ["id"], left)


# -- values that travel


def test_it_is_a_value_that_can_be_pickled_and_asked(typed, postgres_url):
    again = pickle.loads(pickle.dumps(typed))
    assert again == typed
    assert hash(again) == hash(typed)
    assert isinstance(again, Queryable)
    assert again.read(["i4"]) == typed.read(["i4"])
    assert (typed.name, rm.tables.postgres(postgres_url, "public.typed").name) == (
        "typed",
        "public.typed",
    )
    host = urlsplit(postgres_url).netloc.split("@")[1]
    assert typed.identity == f"postgres:rivermouth@{host}/test/typed"


def test_nothing_is_asked_when_it_is_defined():
    table = rm.tables.postgres("postgresql://ann@nowhere.invalid/city", "zones")
    assert repr(table) == "PostgresTable('zones' of ann@nowhere.invalid:5432/city)"


def test_the_driver_is_asked_for_by_name(monkeypatch):
    for name in [
        name for name in sys.modules if name.startswith("rivermouth.tables.sources.postgres")
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(SessionError, match=r"Install it: pip install 'rivermouth\[postgres\]'\.$"):
        rm.tables.postgres("postgresql://ann@db/city", "zones")


# -- secrets


def leaks(text):
    return [s for s in (PASSWORD, quote(PASSWORD, safe=""), quote(PASSWORD), "p@ss") if s in text]


def test_no_password_in_what_is_shown(postgres_url):
    conninfo = psycopg.conninfo.make_conninfo(postgres_url)
    for url in (postgres_url, conninfo, postgres_url + "?application_name=x"):
        table = rm.tables.postgres(url, "typed")
        for text in (repr(table), str(table), table.name, table.identity, repr(table.address)):
            assert not leaks(text)
        assert leaks(pickle.dumps(table).decode("latin-1"))  # it travels


@pytest.mark.parametrize(
    "broken",
    [
        lambda url: url.replace("/test", "/nowhere"),
        lambda url: url.replace("rivermouth:", "nobody:"),
        lambda url: url.replace("127.0.0.1", "127.0.0.1,127.0.0.2"),
        lambda url: url + "?sslmode=require",
        # whose message repeats the value
        lambda url: url + "?options=" + quote(f"-c datestyle={PASSWORD}".replace("s w", "s\\ w")),
    ],
)
def test_no_password_in_errors_of_the_server(postgres_url, broken):
    with pytest.raises(TableUnavailable) as caught:
        rm.tables.postgres(broken(postgres_url), "typed").schema()
    assert not leaks("".join(traceback.format_exception(caught.value)))
    assert str(caught.value).endswith(
        "Check that it runs, that this host reaches it, and user and password."
    )


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://ann:{PASSWORD}@db/city",  # the @ and the / are not encoded
        "postgresql://ann:p@ss@db/city",
        "postgresql://ann:p@ss?@db/city",
        "postgresql://ann:s3/p@db/city",
        f"host=db password={PASSWORD} user=ann",  # the space is not quoted
        "postgresql://ann:p%ss@db/city",
        "nonsense p@ss",
    ],
)
def test_no_password_in_errors_about_the_url(url):
    with pytest.raises(DefinitionError) as caught:
        rm.tables.postgres(url, "zones")
    assert not leaks("".join(traceback.format_exception(caught.value)))
    assert str(caught.value).startswith("tables.postgres: the url cannot be parsed; ")


def test_a_secret_is_masked_however_a_message_spells_it(postgres_url):
    address = rm.tables.postgres(postgres_url, "typed").address
    said = f"failed: {postgres_url} with {PASSWORD!r}\nand again {PASSWORD}"
    assert not leaks(address.redacted(said))
    assert "***" in address.redacted(said)


# -- when the server is not as it should be


def test_a_server_that_is_down_is_unavailable():
    with pytest.raises(TableUnavailable) as caught:
        rm.tables.postgres("postgresql://ann:pw@127.0.0.1:1/city", "zones").schema()
    said = str(caught.value)
    assert said.startswith(
        "tables.postgres: the server of table 'zones', ann@127.0.0.1:1/city, does not answer; "
    )
    assert "refused" in said


def test_a_server_that_says_nothing_is_given_up():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://ann@127.0.0.1:{silent.getsockname()[1]}/city"
        started = time.monotonic()
        with pytest.raises(TableUnavailable, match="timeout"):
            rm.tables.postgres(url, "zones", connect_timeout="2 seconds").schema()
    assert time.monotonic() - started < 10


def test_a_statement_that_takes_too_long_is_given_up(postgres_url, database):
    database.execute("CREATE VIEW sleepy AS SELECT 1 AS id, pg_sleep(30)::text AS nap")
    table = rm.tables.postgres(postgres_url, "sleepy", statement_timeout="200 milliseconds")
    for ask in (
        lambda: table.read(["nap"]),
        lambda: table.lookup(rm.keys("nap"), ["id"], {"nap": pa.array([""])}),
    ):
        with pytest.raises(TableUnavailable) as caught:
            ask()
        assert str(caught.value) == (
            "tables.postgres: table 'sleepy' did not answer within 0.2 s; canceling statement due "
            "to statement timeout. Give its columns an index, or raise statement_timeout=."
        )
    assert table.schema().names == ["id", "nap"]  # the connection is still good


def test_a_table_that_may_not_be_read_is_said_so(postgres_url, database):
    database.execute("CREATE TABLE private (n int)")
    database.execute("CREATE ROLE guest LOGIN PASSWORD 'guest'")
    url = postgres_url.replace(urlsplit(postgres_url).netloc.split("@")[0], "guest:guest")
    with pytest.raises(TableUnavailable) as caught:
        rm.tables.postgres(url, "private").read(["n"])
    assert str(caught.value) == (
        "tables.postgres: table 'private' may not be read; permission denied for table private. "
        "GRANT SELECT on it to this user."
    )


def test_nothing_is_ever_written(postgres_url, database):
    database.execute("CREATE SEQUENCE counted")
    database.execute("CREATE VIEW counting AS SELECT nextval('counted') AS n")
    with pytest.raises(TableInvalid, match="read-only transaction"):
        rm.tables.postgres(postgres_url, "counting").read(["n"])


# -- connections


def backends(database):
    found = database.execute(
        "SELECT pid FROM pg_stat_activity WHERE application_name = 'rivermouth'"
    ).fetchall()
    return [pid for (pid,) in found]


def test_a_connection_is_used_again_and_opened_anew_once_it_is_lost(typed, database):
    typed.read(["i4"])
    (first,) = backends(database)
    typed.read(["i4"])
    assert backends(database) == [first]
    database.execute("SELECT pg_terminate_backend(%s, 5000)", [first])
    assert typed.read(["i4"]).num_rows == 2
    (second,) = backends(database)
    assert second != first


def test_connections_are_few(postgres_url, database):
    database.execute("CREATE VIEW napping AS SELECT 1 AS id, pg_sleep(0.5)::text AS nap")
    table = rm.tables.postgres(postgres_url, "napping")
    table.schema()
    done, seen = [], []
    threads = [
        threading.Thread(target=lambda: done.append(table.read(["id", "nap"]))) for _ in range(9)
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        seen.append(len(backends(database)))
        time.sleep(0.05)
    assert len(done) == 9
    assert max(seen) == LIMIT


def test_who_waits_too_long_for_a_connection_is_told(postgres_url, database):
    database.execute("CREATE VIEW slower AS SELECT 1 AS id, pg_sleep(4)::text AS nap")
    table = rm.tables.postgres(postgres_url, "slower", connect_timeout="1 second")
    table.schema()
    errors = []

    def read():
        try:
            table.read(["nap"])
        except TableError as error:
            errors.append(str(error))

    threads = [threading.Thread(target=read) for _ in range(LIMIT + 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (error,) = errors
    assert error.startswith("tables.postgres: all 4 connections of this process to rivermouth@")
    assert error.endswith("are busy. Use fewer threads, or a longer connect_timeout=.")


def _read_in_child(table, answers):
    answers.put(table.read(["i4"]).num_rows)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_opens_connections_of_its_own(typed, database):
    typed.read(["i4"])
    (ours,) = backends(database)
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=_read_in_child, args=(typed, answers))
    child.start()
    assert answers.get(timeout=60) == 2
    child.join()
    assert typed.read(["i4"]).num_rows == 2
    assert ours in backends(database)
