"""The same rows in each kind of store, so that one test body asks them all."""

from __future__ import annotations

import datetime as dt
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pymysql
import pytest

import rivermouth as rm

STORES = ("sqlite", "mysql", "postgres", "parquet")
DATABASES = STORES[:3]

_WITHOUT = {"sqlite": {pa.decimal128(12, 3), pa.timestamp("us", "UTC")}}
_TYPES = {
    pa.int64(): ("INTEGER", "BIGINT", "int8"),
    pa.int32(): ("INTEGER", "INT", "int4"),
    pa.float64(): ("REAL", "DOUBLE", "float8"),
    # a collation that takes E for e, and blanks at the end for nothing
    pa.string(): (
        "TEXT COLLATE NOCASE",
        "VARCHAR(60) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
        "text",
    ),
    pa.bool_(): ("BOOLEAN", "BIT(1)", "bool"),
    pa.binary(): ("BLOB", "VARBINARY(60)", "bytea"),
    pa.date32(): ("DATE", "DATE", "date"),
    pa.timestamp("us"): ("DATETIME", "DATETIME(6)", "timestamp"),
    pa.timestamp("us", "UTC"): ("", "TIMESTAMP(6) NULL", "timestamptz"),
    pa.decimal128(12, 3): ("", "DECIMAL(12, 3)", "numeric(12, 3)"),
}


@contextmanager
def mysql_connection(url: str) -> Iterator[Any]:
    """A connection of the test's own, which may write."""
    parts = urlsplit(url)
    connection = pymysql.connect(
        host=parts.hostname,
        port=parts.port,
        user=parts.username,
        password=unquote(parts.password),
        database=parts.path[1:],
        autocommit=True,
        charset="utf8mb4",
    )
    with connection:
        yield connection


class Store:
    """A place to put tables in: `put` writes rows there and gives back the table."""

    def __init__(self, kind: str, at: str | Path) -> None:
        self.kind, self.at = kind, at

    def columns(self, rows: pa.Table) -> pa.Table:
        """The columns of `rows` that this store has types for."""
        without = _WITHOUT.get(self.kind, set())
        return rows.select([field.name for field in rows.schema if field.type not in without])

    def put(self, name: str, rows: pa.Table, *, index: str = "", **how: Any) -> Any:
        """The table `name` with these rows, in the order of their column ``id``."""
        if self.kind == "parquet":
            pq.write_table(rows, self.at / f"{name}.parquet", row_group_size=500)
            return rm.tables.parquet(self.at / f"{name}.parquet", **how)
        place = DATABASES.index(self.kind)
        declared = ", ".join(
            f"{field.name} {_TYPES[field.type][place]}" + " PRIMARY KEY" * (field.name == "id")
            for field in rows.schema
        )
        statements = [f"DROP TABLE IF EXISTS {name}", f"CREATE TABLE {name} ({declared})"]
        mark = "?" if self.kind == "sqlite" else "%s"
        insert = f"INSERT INTO {name} VALUES ({', '.join([mark] * rows.num_columns)})"
        values = [tuple(map(self._written, row.values())) for row in rows.to_pylist()]
        with self._connection() as connection, closing(connection.cursor()) as cursor:
            for statement in statements:
                cursor.execute(statement)
            cursor.executemany(insert, values)
            if index:
                cursor.execute(f"CREATE INDEX {name}_index ON {name} ({index})")
            connection.commit()
        return self.table(name, **how)

    def table(self, name: str, **how: Any) -> Any:
        """The table `name`."""
        made = {
            "sqlite": rm.tables.sqlite,
            "mysql": rm.tables.mysql,
            "postgres": rm.tables.postgres,
        }
        return made[self.kind](self.at, name, **how)

    def execute(self, *statements: str) -> None:
        """Run statements of the test's own."""
        with self._connection() as connection, closing(connection.cursor()) as cursor:
            for statement in statements:
                cursor.execute(statement)
            connection.commit()

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        match self.kind:
            case "sqlite":
                with closing(sqlite3.connect(self.at)) as connection:
                    yield connection
            case "mysql":
                with mysql_connection(str(self.at)) as connection:
                    yield connection
            case "postgres":
                with psycopg.connect(str(self.at)) as connection:
                    yield connection

    def _written(self, value: Any) -> Any:
        if self.kind == "sqlite" and isinstance(value, dt.date):
            return str(value)
        if self.kind == "mysql" and isinstance(value, dt.datetime):
            return value.replace(tzinfo=None)
        return value


def store_of(kind: str, request: pytest.FixtureRequest, folder: Path) -> Store:
    """A store of this kind, its server started if it needs one."""
    match kind:
        case "mysql":
            return Store(kind, request.getfixturevalue("mariadb_url"))
        case "postgres":
            return Store(kind, request.getfixturevalue("postgres_url"))
        case "sqlite":
            return Store(kind, folder / "a # b?.db")
    return Store(kind, folder)
