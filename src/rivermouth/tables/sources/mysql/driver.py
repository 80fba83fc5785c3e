"""PyMySQL: how sessions are set up, and what its errors mean."""

from __future__ import annotations

import math
from typing import Any

import pymysql
from pymysql import err
from pymysql.converters import encoders

from rivermouth.tables.sources.mysql.address import CALL, MySQLAddress
from rivermouth.tables.sources.sql.driver import PooledDriver

Connection = Any  # PyMySQL has no types

# Times come in UTC; quotes, backslashes and CHAR's blanks mean what they do by default; nothing is
# ever written.
_SESSION = ("SET SESSION time_zone = '+00:00', sql_mode = ''", "SET SESSION TRANSACTION READ ONLY")
# MariaDB else compares all records with all rows where no index serves. Below 5 it would read the
# whole table even where one does; and it takes any JSON_TABLE for 40 records, so that a buffer of
# the size that it expects would have it read a table once for each 40.
_MARIADB = (
    "SET SESSION join_cache_level = 8, optimizer_switch = 'optimize_join_buffer_size=off', "
    "join_buffer_size = 4194304"
)

_LOST = {2006, 2013, 2055, 4031, 1927, 1053, 0}  # the connection is gone, or was closed here
_FAULTS = {
    **dict.fromkeys((1969, 3024, 1205), "timeout"),
    **dict.fromkeys((1142, 1143, 1370), "denied"),
    **dict.fromkeys((1146, 1049, 1051), "missing"),
    1054: "invalid",  # a column that does not exist
}
_NOT_REACHED = 2003
_A_YEAR = 31_536_000  # seconds; the driver cannot wait longer
_GRACE = 10.0  # seconds more than the server has, until a silent one is given up


class MySQLDriver(PooledDriver[MySQLAddress, Connection]):
    """Connections by PyMySQL."""

    call = CALL
    errors = err.Error

    def open(self, address: MySQLAddress) -> Connection:
        """A read-only session in UTC, in which values come as text."""
        limit = address.statement_timeout
        try:
            connection = pymysql.connect(
                **address.settings,
                charset="utf8mb4",
                autocommit=True,
                conv=encoders,  # Arrow parses text faster than Python does
                connect_timeout=math.ceil(address.connect_timeout or _A_YEAR),
                read_timeout=address.connect_timeout,
                program_name="rivermouth",
            )
        except (OSError, err.OperationalError) as error:
            number = _number(error)
            number = _NOT_REACHED if number == 2013 else number
            raise err.OperationalError(number, str(error)) from None
        # the driver has one limit for the greeting and for answers, and no public way to change it
        connection._read_timeout = None if limit is None else limit + _GRACE
        is_mariadb = "MariaDB" in connection.get_server_info()
        with connection.cursor() as cursor:
            for statement in (*_SESSION, *([_MARIADB] if is_mariadb else [])):
                cursor.execute(statement)
            if limit is not None:
                name, value = (
                    ("max_statement_time", limit)
                    if is_mariadb
                    else ("max_execution_time", math.ceil(1000 * limit))
                )
                cursor.execute(f"SET SESSION {name} = {value}")
        return connection

    def is_idle(self, connection: Connection) -> bool:
        """Whether it is open; one with rows under way is closed at once."""
        return bool(connection.open)

    def is_lost(self, connection: Connection, error: Exception) -> bool:
        """By the error's number."""
        lost = isinstance(error, err.InterfaceError) or _number(error) in _LOST
        return lost and self.fault(error) != "timeout"

    def fault(self, error: Exception) -> str:
        """By the error's number, then by its class."""
        number = _number(error)
        if number == 2013 and "timed out" in str(error):
            return "timeout"
        is_operational = isinstance(error, err.OperationalError | err.InterfaceError)
        return _FAULTS.get(number, "unreachable" if is_operational else "invalid")


def _number(error: Exception) -> int:
    number = error.args[0] if error.args else -1
    return number if isinstance(number, int) else -1
