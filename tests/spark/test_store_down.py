"""A stream whose database goes away: it fails with a clear word, and goes on when it is back."""

import psycopg
import pytest
from pyspark.errors import StreamingQueryException
from tests.support.servers import PASSWORD, postgres_server

import rivermouth as rm

pytestmark = [pytest.mark.spark, pytest.mark.server]

FILES, ROWS = 10, 50


@pytest.fixture(scope="module")
def server():
    with postgres_server() as server:
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("CREATE TABLE users (uid int8 PRIMARY KEY, name text)")
            connection.execute(
                "INSERT INTO users SELECT n, 'user ' || n FROM generate_series(0, 199) AS n"
            )
        yield server


@pytest.fixture
def clicks(spark, tmp_path):
    """A stream of one file a batch, every fifth key not in the table."""
    for number in range(FILES):
        first = number * ROWS
        frame = spark.range(first, first + ROWS, 1, 1).selectExpr(
            "id AS click", "if(id % 5 = 0, 1000 + id, id % 200) AS uid"
        )
        frame.write.parquet(str(tmp_path / "in" / f"part-{number}"))
    read = spark.readStream.schema("click long, uid long").option("maxFilesPerTrigger", 1)
    return read.parquet(str(tmp_path / "in" / "*"))


def started(clicks, server, folder, **settings):
    users = rm.tables.postgres(server.url, "users", connect_timeout="2 seconds")
    named = rm.join_table(
        clicks, users, on=rm.keys("uid"), how="left",
        cache=rm.incremental(rows=1, attempts=1, **settings),
    )  # fmt: skip
    return (
        named.writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )


def written(spark, folder):
    return sorted(spark.read.parquet(str(folder / "out")).collect())


def truth():
    keys = ((n, 1000 + n if n % 5 == 0 else n % 200) for n in range(FILES * ROWS))
    return [(n, key, f"user {key}" if key < 200 else None) for n, key in keys]


def test_a_stream_whose_database_stops_goes_on_when_it_is_back(spark, clicks, server, tmp_path):
    query = started(clicks, server, tmp_path)
    while query.isActive and not query.recentProgress:
        query.awaitTermination(0.1)
    server.stop()
    try:
        with pytest.raises(StreamingQueryException) as failure:
            query.awaitTermination()
    finally:
        server.start()
    assert "users: fetching" in str(failure.value)
    assert "Restore the store and start the query again" in str(failure.value)
    assert PASSWORD not in str(failure.value)
    started(clicks, server, tmp_path).awaitTermination()
    assert written(spark, tmp_path) == truth()


def test_a_stream_that_may_miss_goes_on_and_counts(spark, clicks, server, tmp_path):
    server.stop()
    try:
        with pytest.raises(rm.RivermouthError, match=r"users"):
            started(clicks, server, tmp_path)  # its columns cannot be read, at definition
    finally:
        server.start()
    users = rm.tables.postgres(server.url, "users", connect_timeout="2 seconds")
    named = rm.join_table(
        clicks, users, on=rm.keys("uid"), how="left",
        cache=rm.incremental(attempts=1, on_unavailable="miss"),
    )  # fmt: skip
    server.stop()
    try:
        query = named.writeStream.format("noop").trigger(availableNow=True).start()
        query.awaitTermination()
    finally:
        server.start()
    (operator,) = rm.metrics(query)["operators"].values()
    assert operator["rows_in"] == operator["rows_out"] == FILES * ROWS
    assert operator["matched"] == 0
    assert operator["cache"]["failed_lookups"] == FILES * ROWS
