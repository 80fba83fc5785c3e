"""psycopg: how sessions are set up, and what its errors mean."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import psycopg
from psycopg import errors
from psycopg.pq import TransactionStatus

from rivermouth.errors import TableInvalid
from rivermouth.tables.sources.postgres.address import CALL, PostgresAddress
from rivermouth.tables.sources.postgres.arrays import register
from rivermouth.tables.sources.sql.driver import FAULTS, PooledDriver

T = TypeVar("T")
Connection = psycopg.Connection[Any]

# Times come in UTC; compiling statements and guessing that only the first rows of a cursor are
# wanted cost more than they bring; PostGIS may live in a schema of its own.
_SESSION = """
SELECT set_config('TimeZone', 'UTC', false),
       set_config('jit', 'off', false),
       set_config('cursor_tuple_fraction', '1', false),
       set_config('client_min_messages', 'warning', false),
       set_config('default_transaction_read_only', 'on', false),
       set_config('statement_timeout', %s, false),
       set_config('search_path', concat_ws(', ', nullif(current_setting('search_path'), ''), (
           SELECT quote_ident(nspname) FROM pg_extension
           JOIN pg_namespace ON pg_namespace.oid = extnamespace WHERE extname = 'postgis'
       )), false)
"""
_LIBPQ = {  # a server that is gone without a word is noticed within a minute
    "fallback_application_name": "rivermouth",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
}
_FAULTS = {  # the first that fits
    errors.QueryCanceled: "timeout",
    errors.InsufficientPrivilege: "denied",
    psycopg.OperationalError: "unreachable",
    errors.UndefinedTable: "missing",
    psycopg.DataError: "value",
    psycopg.InternalError: "shape",
    psycopg.Error: "invalid",
}


class PostgresDriver(PooledDriver[PostgresAddress, Connection]):
    """Connections by psycopg."""

    call = CALL
    errors = psycopg.Error
    faults = FAULTS | {
        "value": (
            TableInvalid,
            "{table} holds a value that has no Arrow value",
            "Make a view without it, as in nullif(until, 'infinity').",
        ),
        "shape": (
            TableInvalid,
            "{table} holds shapes that PostGIS cannot evaluate",
            "Repair them with ST_MakeValid; unite the parts of collections that overlap with "
            "ST_UnaryUnion.",
        ),
    }

    def open(self, address: PostgresAddress) -> Connection:
        """A read-only session in UTC."""
        given: dict[str, Any] = {**_LIBPQ, **address.settings}
        if address.connect_timeout is not None:
            given.setdefault("connect_timeout", str(math.ceil(address.connect_timeout)))
        connection = psycopg.connect(autocommit=True, prepare_threshold=None, **given)
        register(connection)
        connection.execute(_SESSION, [str(round(1000 * (address.statement_timeout or 0)))])
        return connection

    def is_idle(self, connection: Connection) -> bool:
        """By the state of its transaction."""
        return connection.info.transaction_status == TransactionStatus.IDLE

    def is_lost(self, connection: Connection, error: Exception) -> bool:
        """By what libpq knows of the connection."""
        return isinstance(error, psycopg.OperationalError) and connection.broken

    def fault(self, error: psycopg.Error) -> str:
        """By the error's class."""
        return next(fault for kind, fault in _FAULTS.items() if isinstance(error, kind))

    def write(self, address: PostgresAddress, table: str, work: Callable[[Connection], T]) -> T:
        """Do `work`, which may write, in one transaction of a connection of its own."""
        with self.translated(address, table), self.open(address) as connection:
            connection.execute("SET default_transaction_read_only = off")
            with connection.transaction():
                return work(connection)
