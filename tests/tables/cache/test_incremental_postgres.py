"""The incremental cache on a real PostgreSQL: stopped and started, slow, dropping connections."""

import time

import psycopg
import pyarrow as pa
import pytest
from tests.support.servers import postgres_server

import rivermouth as rm
from rivermouth.errors import TableInvalid, TableMissing, TableUnavailable
from rivermouth.spec.conditions import split
from rivermouth.tables.cache.fetching import LookupSpec
from rivermouth.tables.cache.incremental import IncrementalCache
from rivermouth.tables.cache.retry import RetryPolicy

pytestmark = pytest.mark.server

LEFT = pa.schema([("k", pa.int64())])


@pytest.fixture(scope="module")
def server():
    with postgres_server() as server:
        with connected(server) as connection:
            connection.execute("CREATE TABLE items (k int8, name text)")
            connection.execute(
                "INSERT INTO items SELECT n / 2, 'item ' || n FROM generate_series(0, 19999) AS n"
            )
            connection.execute("CREATE INDEX ON items (k)")
        yield server


def connected(server):
    return psycopg.connect(server.url, autocommit=True)


def cache_on(server, table="items", on=None, columns=("name",), left=LEFT, **more):
    timeout = more.pop("statement_timeout", "30 seconds")
    source = rm.tables.postgres(server.url, table, statement_timeout=timeout)
    equal, _, span = split(rm.keys("k") if on is None else on)
    settings = rm.incremental(**{"rows": 5000, **more})
    retry = RetryPolicy(source.name, settings.attempts, sleep=lambda _: time.sleep(0.1))
    spec = LookupSpec(source, equal, span, columns, left, source.schema())
    return IncrementalCache(spec, settings, retry=retry)


def ask(cache, *keys, now=0.0):
    rows = cache.lookup({"k": pa.array(keys, pa.int64())}, now)
    names = rows.table["name"].take(pa.array(rows.pairs.right)).to_pylist()
    met = [[] for _ in keys]
    for record, name in zip(rows.pairs.left.tolist(), names, strict=True):
        met[record].append(name)
    return met


def expected(*keys):
    return [[f"item {2 * key}", f"item {2 * key + 1}"] if 0 <= key < 10_000 else [] for key in keys]


def test_batches_of_keys_present_and_absent(server):
    cache = cache_on(server)
    for first in range(0, 12_000, 1500):
        keys = [*range(first, first + 1500), 3, 9_999, -1]
        assert ask(cache, *keys) == expected(*keys)
    assert cache.counts["loads"] == 8
    assert cache.counts["rows"] <= 5000


def test_a_server_that_stops_and_comes_back_costs_no_record(server):
    cache = cache_on(server, attempts=600)
    assert ask(cache, 1, 2) == expected(1, 2)
    server.stop()
    try:
        assert ask(cache, 1, 2) == expected(1, 2)  # what is held needs no server
        lookup = cache.begin({"k": pa.array([2, 3, 20_000])}, 0.0)
        time.sleep(0.5)
    finally:
        server.start()
    assert cache.finish(lookup).pairs.left.tolist() == [0, 0, 1, 1]
    assert cache.counts["retries"] > 0


def test_a_server_that_stays_away_is_named_and_its_password_is_not(server):
    failing, missing = (
        cache_on(server, attempts=2),
        cache_on(server, attempts=2, on_unavailable="miss"),
    )
    assert ask(missing, 1) == expected(1)
    server.stop()
    try:
        with pytest.raises(
            TableUnavailable,
            match=r"(?s)items: fetching one key failed 2 times within .* the last error is: ",
        ) as caught:
            ask(failing, 1)
        assert "s3cr3t" not in str(caught.value)
        assert ask(missing, 1, 2) == [*expected(1), []]
        assert missing.counts["failed_lookups"] == 1
    finally:
        server.start()
    assert ask(missing, 1, 2) == expected(1, 2)
    assert ask(failing, 1, 2) == expected(1, 2)


def test_connections_that_are_dropped_are_opened_anew(server):
    cache = cache_on(server)
    ask(cache, 1)
    with connected(server) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'rivermouth'"
        )
    assert ask(cache, 1, 5) == expected(1, 5)


def test_an_answer_that_takes_too_long_is_given_up_and_asked_for_again(server):
    cache = cache_on(server, attempts=50, statement_timeout="200 milliseconds")
    with connected(server) as connection, connection.transaction():
        connection.execute("LOCK TABLE items IN ACCESS EXCLUSIVE MODE")
        lookup = cache.begin({"k": pa.array([7])}, 0.0)
        time.sleep(0.7)
    assert len(cache.finish(lookup).pairs.left) == 2
    assert cache.counts["retries"] >= 1


def test_a_table_that_vanishes_is_an_error_at_once(server):
    with connected(server) as connection:
        connection.execute("CREATE TABLE passing AS SELECT * FROM items LIMIT 10")
        cache = cache_on(server, "passing", attempts=50)
        assert ask(cache, 1) == expected(1)
        connection.execute("DROP TABLE passing")
    with pytest.raises(TableMissing, match="passing"):
        ask(cache, 2)
    assert cache.counts["retries"] == 0


def test_a_table_that_loses_a_column_is_an_error_at_once(server):
    with connected(server) as connection:
        connection.execute("CREATE TABLE losing AS SELECT * FROM items LIMIT 10")
        cache = cache_on(server, "losing", attempts=50, on_unavailable="miss")
        connection.execute("ALTER TABLE losing DROP COLUMN name")
    with pytest.raises(TableInvalid, match="losing"):
        ask(cache, 2)


def test_runs_of_a_table_in_a_server(server):
    with connected(server) as connection:
        connection.execute("CREATE TABLE slots (road text, slot int4, name text)")
        connection.execute(
            "INSERT INTO slots SELECT 'r' || n % 3, n, 's' || n FROM generate_series(0, 299) AS n"
        )
    left = pa.schema([("road", pa.string()), ("x", pa.int32())])
    records = {
        "road": pa.array(["r0", "r1", "r9", None]),
        "x": pa.array([10, 300, 5, 5], pa.int32()),
    }
    met = {}
    for on in (
        rm.between("x", "slot", lower=-4, upper=2, by="road"),
        rm.asof("x", "slot", by="road"),
    ):
        cache = cache_on(server, "slots", on, left=left)
        for _ in range(2):
            rows = cache.lookup(records, 0.0)
        names = rows.table["name"].take(pa.array(rows.pairs.right)).to_pylist()
        met[type(split(on).range).__name__] = [*zip(rows.pairs.left.tolist(), names, strict=True)]
        assert cache.counts["loads"] == 1
    assert met == {
        "Between": [(0, "s6"), (0, "s9"), (0, "s12"), (1, "s298")],
        "AsOf": [(0, "s9"), (1, "s298")],
    }
