"""Connections of this process to MySQL and MariaDB, and what their errors mean."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import pymysql
from pymysql import err
from pymysql.converters import encoders

from rivermouth.errors import TableError, TableInvalid, TableMissing, TableUnavailable
from rivermouth.tables.sources.mysql.access import WHERE, Access
from rivermouth.tables.sources.pooling import Pools

T = TypeVar("T")
Connection = Any  # PyMySQL has no types

# What a session is told: times come in UTC; quotes, backslashes and CHAR's blanks mean what they
# do by default; nothing is ever written.
_SESSION = ("SET SESSION time_zone = '+00:00', sql_mode = ''", "SET SESSION TRANSACTION READ ONLY")
# MariaDB else compares all records with all rows where no index serves.
_MARIADB = "SET SESSION join_cache_level = 4"

_LOST = {2006, 2013, 2055, 4031, 1927, 1053, 0}  # the connection is gone, or was closed here
_TOO_SLOW = {1969, 3024, 1205}
_NOT_ALLOWED = {1142, 1143, 1370}
_NO_TABLE = {1146, 1049, 1051}
_NOT_REACHED = 2003
_A_YEAR = 31_536_000  # seconds; the driver cannot wait longer
_GRACE = 10.0  # seconds more than the server has, until a silent one is given up


def _open(access: Access) -> Connection:
    limit = access.statement_timeout
    try:
        connection = pymysql.connect(
            **access.settings,
            charset="utf8mb4",
            autocommit=True,
            conv=encoders,  # values come as text, which Arrow reads faster than Python does
            connect_timeout=math.ceil(access.connect_timeout or _A_YEAR),
            read_timeout=access.connect_timeout,
            program_name="rivermouth",
        )
    except (OSError, err.OperationalError) as error:
        number = _number(error)
        raise err.OperationalError(_NOT_REACHED if number == 2013 else number, str(error)) from None
    # the driver has one bound for the greeting and for answers, and no public way to change it
    connection._read_timeout = None if limit is None else limit + _GRACE
    is_mariadb = "MariaDB" in connection.get_server_info()
    with connection.cursor() as cursor:
        for statement in (*_SESSION, *([_MARIADB] if is_mariadb else [])):
            cursor.execute(statement)
        if limit is not None:
            told = ("max_statement_time", limit) if is_mariadb else (
                "max_execution_time", math.ceil(1000 * limit))  # fmt: skip
            cursor.execute(f"SET SESSION {told[0]} = {told[1]}")
    return connection


def _is_lost(_: Connection, error: Exception) -> bool:
    lost = isinstance(error, err.InterfaceError) or _number(error) in _LOST
    return lost and not _is_too_slow(error)


def _is_too_slow(error: Exception) -> bool:
    number = _number(error)
    return number in _TOO_SLOW or (number == 2013 and "timed out" in str(error))


_pools: Pools[Access, Connection] = Pools(WHERE, _open, lambda one: bool(one.open), _is_lost)
close_all = _pools.close


def run(access: Access, what: str, work: Callable[[Connection], T]) -> T:
    """Do `work`, which only reads, with a connection; `what` names the table in errors."""
    try:
        return _pools.run(access, work)
    except err.Error as error:
        # not "from error": its own words may carry the password, and a traceback would print them
        raise _table_error(error, access, what) from None


def _number(error: Exception) -> int:
    number = error.args[0] if error.args else -1
    return number if isinstance(number, int) else -1


def _table_error(error: Exception, access: Access, what: str) -> TableError:
    number = _number(error)
    said = access.hushed(str(error.args[-1] if error.args else error)).rstrip(".")
    if _is_too_slow(error):
        return TableUnavailable(
            WHERE,
            f"{what} did not answer within {access.statement_timeout:g} s",
            there=said,
            todo="Give its columns an index, or raise statement_timeout=.",
        )
    if number in _NOT_ALLOWED:
        return TableUnavailable(
            WHERE, f"{what} may not be read", there=said, todo="GRANT SELECT on it to this user."
        )
    if number in _NO_TABLE:
        return TableMissing(
            WHERE, f"{what} is not there", there=said, todo="Check its name and the database's."
        )
    if isinstance(error, err.OperationalError | err.InterfaceError) and number != 1054:
        return TableUnavailable(
            WHERE,
            f"the server of {what}, {access.shown}, does not answer",
            there=said,
            todo="Check that it runs, that this host reaches it, and user and password.",
        )
    return TableInvalid(
        WHERE,
        f"{what} cannot be read",
        there=said,
        todo="If the table has changed, define the join anew; else correct these rows.",
    )
