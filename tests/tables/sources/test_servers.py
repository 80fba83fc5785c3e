"""The servers the other tests lean on: they start, they answer, they leave nothing behind."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

import psycopg
import pymysql
import pytest
from tests.support import servers

pytestmark = pytest.mark.server


def test_postgres_comes_with_postgis_and_asks_for_its_password():
    with servers.postgres() as url:
        with psycopg.connect(url) as connection:
            (folder,) = connection.execute("SHOW data_directory").fetchone()
            (spot,) = connection.execute("SELECT ST_AsText(ST_MakePoint(1, 2))").fetchone()
        wrong = url.replace(urlsplit(url).password, "wrong")
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(wrong)
        assert spot == "POINT(1 2)"
    assert not Path(folder).parent.exists()


def test_mariadb_answers_and_knows_shapes(mariadb_url):
    parts = urlsplit(mariadb_url)
    with (
        pymysql.connect(
            host=parts.hostname,
            port=parts.port,
            user=parts.username,
            password=unquote(parts.password),
            database=parts.path[1:],
        ) as connection,
        connection.cursor() as cursor,
    ):
        cursor.execute("SELECT ST_AsText(POINT(1, 2))")
        assert cursor.fetchone() == ("POINT(1 2)",)


@pytest.mark.parametrize("required", [True, False])
def test_a_missing_program_is_skipped_or_fails_by_the_environment(monkeypatch, required):
    monkeypatch.setenv("RIVERMOUTH_REQUIRE_SERVERS", "1" if required else "0")
    outcome = pytest.fail.Exception if required else pytest.skip.Exception
    with pytest.raises(outcome, match="initfb is not installed: `make servers` installs it"):
        servers._program("postgres", "initfb")
