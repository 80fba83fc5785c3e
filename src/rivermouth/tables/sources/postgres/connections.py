"""Connections of this process to PostgreSQL, and what their errors mean."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import psycopg
from psycopg import errors
from psycopg.pq import TransactionStatus

from rivermouth.errors import TableError, TableInvalid, TableMissing, TableUnavailable
from rivermouth.tables.sources.pooling import LIMIT, Pools
from rivermouth.tables.sources.postgres.access import WHERE, Access
from rivermouth.tables.sources.postgres.arrays import register

T = TypeVar("T")
Connection = psycopg.Connection[Any]

__all__ = ["LIMIT", "Connection", "close_all", "run", "write"]

# What a session is told: times come in UTC; compiling statements and guessing that only the first
# rows of a cursor are wanted cost more than they bring; PostGIS may live in a schema of its own.
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


def _open(access: Access) -> Connection:
    said: dict[str, Any] = {**_LIBPQ, **access.settings}
    if access.connect_timeout is not None:
        said.setdefault("connect_timeout", str(math.ceil(access.connect_timeout)))
    connection = psycopg.connect(autocommit=True, prepare_threshold=None, **said)
    register(connection)
    connection.execute(_SESSION, [str(round(1000 * (access.statement_timeout or 0)))])
    return connection


def _is_sound(connection: Connection) -> bool:
    return connection.info.transaction_status == TransactionStatus.IDLE


def _is_lost(connection: Connection, error: Exception) -> bool:
    return isinstance(error, psycopg.OperationalError) and connection.broken


_pools: Pools[Access, Connection] = Pools(WHERE, _open, _is_sound, _is_lost)
close_all = _pools.close


def run(access: Access, what: str, work: Callable[[Connection], T]) -> T:
    """Do `work`, which only reads, with a connection; `what` names the table in errors."""
    try:
        return _pools.run(access, work)
    except psycopg.Error as error:
        # not "from error": its own words may carry the password, and a traceback would print them
        raise _table_error(error, access, what) from None


def write(access: Access, what: str, work: Callable[[Connection], T]) -> T:
    """Do `work`, which may write, in one transaction of a connection of its own."""
    try:
        with _open(access) as connection:
            connection.execute("SET default_transaction_read_only = off")
            with connection.transaction():
                return work(connection)
    except psycopg.Error as error:
        raise _table_error(error, access, what) from None


def _table_error(error: psycopg.Error, access: Access, what: str) -> TableError:
    said = access.hushed(str(error)).rstrip(".")
    match error:
        case errors.QueryCanceled():
            return TableUnavailable(
                WHERE,
                f"{what} did not answer within {access.statement_timeout:g} s",
                there=said,
                todo="Give its columns an index, or raise statement_timeout=.",
            )
        case errors.InsufficientPrivilege():
            return TableUnavailable(
                WHERE,
                f"{what} may not be read",
                there=said,
                todo="GRANT SELECT on it to this user.",
            )
        case psycopg.OperationalError():
            return TableUnavailable(
                WHERE,
                f"the server of {what}, {access.shown}, does not answer",
                there=said,
                todo="Check that it runs, that this host reaches it, and user and password.",
            )
        case errors.UndefinedTable():
            return TableMissing(
                WHERE, f"{what} is no longer there", there=said, todo="Define the join anew."
            )
        case psycopg.DataError():
            return TableInvalid(
                WHERE,
                f"{what} holds a value that cannot be brought over",
                there=said,
                todo="Make a view without it, as in nullif(until, 'infinity').",
            )
        case psycopg.InternalError():
            return TableInvalid(
                WHERE,
                f"{what} holds shapes that PostGIS cannot judge",
                there=said,
                todo="Repair them with ST_MakeValid; unite the parts of collections that overlap "
                "with ST_UnaryUnion.",
            )
    return TableInvalid(
        WHERE,
        f"{what} cannot be read",
        there=said,
        todo="If the table has changed, define the join anew; else correct these rows.",
    )
