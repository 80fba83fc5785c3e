"""Connections of this process: few, kept open, used again, and opened anew once when lost."""

from __future__ import annotations

import atexit
import math
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg
from psycopg import errors
from psycopg.pq import TransactionStatus

from rivermouth.errors import TableError, TableInvalid, TableMissing, TableUnavailable
from rivermouth.tables.postgresql.access import WHERE, Access
from rivermouth.tables.postgresql.arrays import register

T = TypeVar("T")
Connection = psycopg.Connection[Any]

LIMIT = 4  # connections of one process to one address

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


class _Pool:
    """The connections of this process to one address."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._idle: list[Connection] = []
        self._places = threading.BoundedSemaphore(LIMIT)

    @contextmanager
    def place(self) -> Iterator[None]:
        """One of the `LIMIT` places; waits for it as long as for a connection."""
        if not self._places.acquire(timeout=self._access.connect_timeout):
            raise TableUnavailable(
                WHERE,
                f"all {LIMIT} connections of this process to {self._access.shown} are busy",
                todo="Use fewer threads, or a longer connect_timeout=.",
            )
        try:
            yield
        finally:
            self._places.release()

    def take(self) -> Connection | None:
        """A connection that was used before and looks sound, or None."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed:
                return connection
        return None

    def open(self) -> Connection:
        """A new connection, its session set up."""
        access = self._access
        said: dict[str, Any] = {**_LIBPQ, **access.settings}
        if access.connect_timeout is not None:
            said.setdefault("connect_timeout", str(math.ceil(access.connect_timeout)))
        connection = psycopg.connect(autocommit=True, prepare_threshold=None, **said)
        register(connection)
        connection.execute(_SESSION, [str(round(1000 * (access.statement_timeout or 0)))])
        return connection

    def give_back(self, connection: Connection) -> None:
        """Keep `connection` for the next one who asks, unless something is under way on it."""
        if connection.info.transaction_status == TransactionStatus.IDLE:
            self._idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        """Close all that is idle."""
        while self._idle:
            self._idle.pop().close()


# By process: a connection that came over a fork belongs to the parent.
_pools: dict[tuple[int, Access], _Pool] = {}
_lock = threading.Lock()


def run(access: Access, what: str, work: Callable[[Connection], T]) -> T:
    """Do `work` with a connection; `what` names the table in errors.

    `work` only reads, so it is done once more where the server turns out to have closed a
    connection since it was last used.
    """
    with _as_table_error(access, what):
        pool = _pool(access)
        with pool.place():
            kept = pool.take()
            connection = kept or pool.open()
            try:
                return work(connection)
            except psycopg.OperationalError:
                if connection is not kept or not connection.broken:
                    raise
                connection.close()
                connection = pool.open()
                return work(connection)
            finally:
                pool.give_back(connection)


def _pool(access: Access) -> _Pool:
    with _lock:
        return _pools.setdefault((os.getpid(), access), _Pool(access))


def close_all() -> None:
    """Close the idle connections of this process; they are opened anew when needed."""
    with _lock:
        for (process, _), pool in _pools.items():
            if process == os.getpid():
                pool.close()


atexit.register(close_all)


@contextmanager
def _as_table_error(access: Access, what: str) -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        # not "from error": its own words may carry the password, and a traceback would print them
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
