"""When a database is not as it should be: nothing is lost, and the message says what to do."""

import os
import pickle
import signal
import socket
import sqlite3
import threading
import time
import traceback
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pytest
from tests.support import servers
from tests.support.servers import PASSWORD
from tests.support.stores import DATABASES, Store, mysql_connection, store_of

import rivermouth as rm
from rivermouth.errors import RivermouthError, TableInvalid, TableMissing, TableUnavailable
from rivermouth.tables.sources.mysql import driver
from rivermouth.tables.sources.sql.driver import LIMIT

pytestmark = pytest.mark.server

SERVERS = {"postgres": servers.postgres_server, "mysql": servers.mariadb_server}
WORDS = pa.table({"id": [1, 2], "word": ["one", "two"]})
LEFT = {"id": pa.array([2, 3])}


def leaks(error):
    said = "".join(traceback.format_exception(error))
    return [s for s in (PASSWORD, quote(PASSWORD, safe=""), "p@ss") if s in said]


def asks(table):
    return [
        table.schema,
        lambda: table.read(["word"]),
        lambda: table.lookup(rm.keys("id"), ["word"], LEFT),
    ]


@pytest.fixture(scope="module", params=DATABASES)
def store(request, tmp_path_factory):
    return store_of(request.param, request, tmp_path_factory.mktemp("store"))


# -- a server that goes and comes back


@pytest.mark.parametrize("kind", SERVERS)
def test_a_server_that_stops_is_unavailable_and_is_found_again(kind):
    with SERVERS[kind]() as server:
        table = Store(kind, server.url).put("words", WORDS)
        before = table.read(["word"])
        _, answer = table.lookup(rm.keys("id"), ["word"], LEFT)
        server.stop()
        for ask in asks(table):
            with pytest.raises(TableUnavailable) as caught:
                ask()
            said = str(caught.value)
            assert said.startswith(f"tables.{kind}: the server of table 'words', rivermouth@127.")
            assert said.endswith(
                "Check that it runs, that this host reaches it, and user and password."
            )
            assert not leaks(caught.value)
        server.start()
        assert table.lookup(rm.keys("id"), ["word"], LEFT)[1] == answer
        assert table.read(["word"]) == before


@pytest.mark.parametrize("kind", SERVERS)
def test_a_restart_between_two_calls_is_not_noticed(kind):
    """The connection that was kept is lost, and another is opened in its place."""
    with SERVERS[kind]() as server:
        table = Store(kind, server.url).put("words", WORDS)
        for ask in asks(table):
            expected = ask()
            server.stop()
            server.start()
            again = ask()
            assert pickle.dumps(again) == pickle.dumps(expected)


def test_a_connection_that_mariadb_closes_is_opened_anew(mariadb_url):
    table = Store("mysql", mariadb_url).put("closing", WORDS)
    table.read(["word"])
    with mysql_connection(mariadb_url) as connection, connection.cursor() as cursor:
        cursor.execute("SHOW PROCESSLIST")
        mine = connection.thread_id()
        others = [row[0] for row in cursor.fetchall() if row[0] != mine]
        assert others
        for other in others:
            cursor.execute(f"KILL {other}")
        assert table.read(["word"]).num_rows == 2


def test_a_server_that_says_nothing_is_given_up():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"mysql://ann:pw@127.0.0.1:{silent.getsockname()[1]}/city"
        started = time.monotonic()
        with pytest.raises(TableUnavailable, match="does not answer"):
            rm.tables.mysql(url, "zones", connect_timeout="1 second").schema()
    assert time.monotonic() - started < 10


def test_a_server_that_freezes_is_given_up(monkeypatch):
    monkeypatch.setattr(driver, "_GRACE", 0.5)
    with servers.mariadb_server() as server:
        Store("mysql", server.url).put("words", WORDS)
        table = rm.tables.mysql(server.url, "words", statement_timeout="1 second")
        table.schema()
        os.kill(server.pid, signal.SIGSTOP)
        while "(stopped)" not in Path(f"/proc/{server.pid}/status").read_text():
            time.sleep(0.01)
        try:
            with pytest.raises(TableUnavailable, match="did not answer within 1 s"):
                table.lookup(rm.keys("id"), ["word"], LEFT)
        finally:
            os.kill(server.pid, signal.SIGCONT)
        assert table.read(["id"]).num_rows == 2


# -- an answer that takes too long

SLOW = {
    "postgres": "CREATE VIEW slow AS SELECT id, word, pg_sleep(5)::text AS nap FROM dozing",
    "mysql": "CREATE VIEW slow AS SELECT id, word, CAST(SLEEP(5) AS CHAR) AS nap FROM dozing",
    "sqlite": "CREATE VIEW slow AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n"
    " WHERE i < 1000000000)"
    " SELECT id, word, word AS nap FROM dozing WHERE (SELECT count(*) FROM n)",
}


def test_an_answer_that_takes_too_long_is_given_up(store):
    store.put("dozing", WORDS)
    store.execute("DROP VIEW IF EXISTS slow", SLOW[store.kind])
    table = store.table("slow", statement_timeout="300 milliseconds")
    names = table.schema().names
    for ask in (
        lambda: table.read(["nap"]),
        lambda: table.lookup(rm.keys("id"), ["nap"], LEFT),
    ):
        started = time.monotonic()
        with pytest.raises(TableUnavailable) as caught:
            ask()
        assert time.monotonic() - started < 4
        said = str(caught.value)
        assert said.startswith(f"tables.{store.kind}: table 'slow' did not answer within 0.3 s")
        assert said.endswith("Give its columns an index, or raise statement_timeout=.")
    assert table.schema().names == names  # the next call is served


# -- a table that changes


def test_a_table_that_vanishes_is_said(store):
    table = store.put("fading", WORDS)
    assert [ask() for ask in asks(table)]
    store.execute("DROP TABLE fading")
    for ask in asks(table):
        with pytest.raises(TableMissing) as caught:
            ask()
        assert str(caught.value).startswith(f"tables.{store.kind}: ")
        assert "fading" in str(caught.value)
        assert not leaks(caught.value)


def test_a_table_that_loses_a_column_is_said(store):
    table = store.put("shrinking", WORDS)
    assert [ask() for ask in asks(table)]
    store.execute("ALTER TABLE shrinking DROP COLUMN word")
    for ask in asks(table)[1:]:
        with pytest.raises(TableInvalid) as caught:
            ask()
        assert str(caught.value) == (
            f"tables.{store.kind}: table 'shrinking' has no column 'word'; its columns are ['id']. "
            "If the table has changed, define the join again."
        )


def test_a_column_that_changes_its_type_is_never_misread(store):
    """An answer is given in the new type, which whoever asked can see; no value is guessed."""
    rows = pa.table({"id": [1, 2], "word": pa.array([7, 8], pa.int64())})
    table = store.put("turning", rows)
    assert table.lookup(rm.keys("id"), ["word"], LEFT)[1]["word"].to_pylist() == [8]
    floats = pa.table({"id": [1, 2], "word": [0.5, 1.5]})
    store.put("turning", floats)
    _, found = table.lookup(rm.keys("id"), ["word"], LEFT)
    assert found["word"].to_pylist() == [1.5]
    assert table.read(["word"])["word"].to_pylist() == [0.5, 1.5]
    assert found.schema == table.schema().remove(0)


# -- connections are few


def test_connections_to_mariadb_are_few(mariadb_url):
    Store("mysql", mariadb_url).put("dozing", WORDS)
    with mysql_connection(mariadb_url) as connection, connection.cursor() as cursor:
        cursor.execute(
            "CREATE OR REPLACE VIEW nap AS SELECT id, CAST(SLEEP(0.5) AS CHAR) AS z FROM dozing"
        )
        table = rm.tables.mysql(mariadb_url, "nap")
        table.schema()
        done, seen = [], []
        threads = [
            threading.Thread(target=lambda: done.append(table.read(["z"]))) for _ in range(9)
        ]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            cursor.execute(
                "SELECT count(*) FROM information_schema.processlist WHERE info LIKE '%`nap`%'"
            )
            seen.append(cursor.fetchone()[0] - 1)
            time.sleep(0.05)
    assert len(done) == 9
    assert 1 < max(seen) <= LIMIT


# -- SQLite's own


def test_a_locked_file_is_unavailable(tmp_path):
    store = Store("sqlite", tmp_path / "a.db")
    table = store.put("words", WORDS)
    with closing(sqlite3.connect(store.at)) as writer:
        writer.execute("BEGIN EXCLUSIVE")
        with pytest.raises(TableUnavailable) as caught:
            table.read(["word"])
    assert str(caught.value).startswith(f"tables.sqlite: '{store.at}' cannot be read now; database")
    assert table.read(["word"]).num_rows == 2


def test_a_file_that_is_gone_or_no_database_is_said(tmp_path):
    with pytest.raises(TableMissing, match="there is no "):
        rm.tables.sqlite(tmp_path / "a.db", "words").schema()
    assert not (tmp_path / "a.db").exists()  # looking does not make one
    (tmp_path / "b.db").write_text("not a database, but long enough to look at" * 99)
    with pytest.raises(TableInvalid, match="file is not a database"):
        rm.tables.sqlite(tmp_path / "b.db", "words").schema()


# -- secrets


@pytest.mark.parametrize(
    "broken",
    [
        lambda url: url.replace("/test", "/nowhere"),
        lambda url: url.replace("rivermouth:", "nobody:"),
        lambda url: url.replace("127.0.0.1", "127.0.0.2"),
        lambda url: url + "?ssl_ca=/nowhere/" + quote(PASSWORD, safe=""),
    ],
)
def test_no_password_in_errors_of_mariadb(mariadb_url, broken):
    with pytest.raises(RivermouthError) as caught:
        rm.tables.mysql(broken(mariadb_url), "words", connect_timeout="2 seconds").schema()
    assert not leaks(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        f"mysql://ann:{PASSWORD}@db/city",
        "mysql://ann:p@ss@db/city",
        "mysql://ann:p@ss?@db/city",
        "mysql://ann:s3/p@db/city",
        "mysql://ann:s#p@ss@db/city",
        "mysql://ann:p@ss:port@db/city",
        "mysql://ann@db:p@ss/city",
        "nonsense p@ss",
        "mysql://ann:pw@db",
    ],
)
def test_no_password_in_errors_about_the_url(url):
    with pytest.raises(RivermouthError) as caught:
        rm.tables.mysql(url, "zones")
    assert not leaks(caught.value)
    assert str(caught.value).startswith("tables.mysql: the url cannot be parsed; ")


def test_an_option_that_is_not_known_is_named_without_its_value():
    with pytest.raises(RivermouthError) as caught:
        rm.tables.mysql("mysql://ann@db/city?ssl_cert_ca=p%40ss", "zones")
    assert not leaks(caught.value)
    assert "the url has an option 'ssl_cert_ca', which is not known" in str(caught.value)
