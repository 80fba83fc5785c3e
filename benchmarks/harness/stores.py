"""A PostgreSQL or a MariaDB by its URL: statements asked one by one, and tables copied into it.

The workers import this module too.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow.csv as csv
import pyarrow.parquet as pq

Ask = Callable[[str, Sequence[Any]], Sequence[Sequence[Any]]]

_TYPES = {
    "postgresql": {
        "int64": "int8", "int32": "int4", "double": "float8", "string": "text",
        "timestamp[us, tz=UTC]": "timestamptz",
    },
    "mysql": {"int64": "bigint", "int32": "int", "double": "double", "string": "text"},
}  # fmt: skip
_CHUNK = 1_000_000  # rows


@cache
def asking(url: str) -> Ask:
    """What asks a statement with its parameters, by a connection that this process keeps."""
    if _is_mysql(url):
        return _asking_mysql(url)
    import psycopg

    cursor = psycopg.connect(url, autocommit=True).cursor(binary=True)
    return lambda statement, given: cursor.execute(statement, given, prepare=True).fetchall()


def copied(url: str, name: str, path: Path, *, indexed: Sequence[str]) -> None:
    """A Parquet file as a table of a store, with an index on these columns."""
    file = pq.ParquetFile(path)
    types = _TYPES["mysql" if _is_mysql(url) else "postgresql"]
    columns = ", ".join(f"{field.name} {types[str(field.type)]}" for field in file.schema_arrow)
    copy = _copied_to_mysql if _is_mysql(url) else _copied_to_postgres
    copy(url, name, file, columns, ", ".join(indexed))


def _copied_to_postgres(
    url: str, name: str, file: pq.ParquetFile, columns: str, indexed: str
) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET maintenance_work_mem = '1GB'")  # an index is sorted in memory
        connection.execute(f"CREATE UNLOGGED TABLE {name} ({columns})")
        with connection.cursor().copy(f"COPY {name} FROM STDIN (FORMAT CSV)") as copy:
            for batch in file.iter_batches(_CHUNK):
                lines = io.BytesIO()
                csv.write_csv(batch, lines, csv.WriteOptions(include_header=False))
                copy.write(lines.getbuffer())
        connection.execute(f"CREATE INDEX ON {name} ({indexed})")
        connection.execute(f"VACUUM ANALYZE {name}")


def _copied_to_mysql(url: str, name: str, file: pq.ParquetFile, columns: str, indexed: str) -> None:
    """Keys are the table's order, as they are in InnoDB: files that are sorted load soonest."""
    with _mysql(url) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {name} ({columns}, PRIMARY KEY ({indexed}))")
        cursor.execute("SET unique_checks = 0")
        for batch in file.iter_batches(_CHUNK):
            with tempfile.NamedTemporaryFile(suffix=".csv") as lines:
                csv.write_csv(batch, lines.name, csv.WriteOptions(include_header=False))
                cursor.execute(
                    f"LOAD DATA LOCAL INFILE %s INTO TABLE {name}"
                    " FIELDS TERMINATED BY ',' OPTIONALLY ENCLOSED BY '\"'",
                    [lines.name],
                )


def _asking_mysql(url: str) -> Ask:
    cursor = _mysql(url).cursor()

    def ask(statement: str, given: Sequence[Any]) -> Sequence[Sequence[Any]]:
        cursor.execute(statement, given)
        return cursor.fetchall()

    return ask


def _is_mysql(url: str) -> bool:
    return url.startswith("mysql://")


def _mysql(url: str) -> Any:
    import pymysql

    parts = urlsplit(url)
    return pymysql.connect(
        host=parts.hostname, port=parts.port or 3306, user=parts.username,
        password=unquote(parts.password or ""), database=parts.path.lstrip("/"),
        autocommit=True, local_infile=True,
    )  # fmt: skip
