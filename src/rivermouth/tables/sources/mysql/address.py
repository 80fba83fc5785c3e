"""The address of a MySQL or MariaDB server."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from rivermouth.errors import DefinitionError, did_you_mean
from rivermouth.tables.sources.sql.address import Address, invalid_url, is_whole

CALL = "tables.mysql"

_OPTIONS: dict[str, Callable[[str], Any]] = {  # of a url, as PyMySQL has them
    "unix_socket": str,
    "ssl_ca": str,
    "ssl_cert": str,
    "ssl_key": str,
    "ssl_key_password": str,
    "ssl_verify_cert": lambda text: text.lower() in ("1", "true"),
    "ssl_verify_identity": lambda text: text.lower() in ("1", "true"),
}


@dataclass(frozen=True, repr=False)
class MySQLAddress(Address):
    """``mysql://user:password@host:port/database``, options such as ``?ssl_ca=PATH`` behind it."""

    secrets = ("password", "ssl_key_password")

    def __post_init__(self) -> None:
        if not self.url.startswith(("mysql://", "mariadb://")) or not is_whole(self.url):
            raise invalid_url(CALL, "mysql")
        try:
            has_port = self._parts.port is None or self._parts.port > 0
        except ValueError:
            has_port = False
        if not has_port or self._parts.path in ("", "/") or self._parts.fragment:
            raise invalid_url(CALL, "mysql")
        for name, _ in parse_qsl(self._parts.query, keep_blank_values=True):
            if name not in _OPTIONS:
                raise DefinitionError(
                    CALL,
                    f"the url has an option {name!r}, which is not known",
                    there=f"known are {list(_OPTIONS)}",
                    todo=did_you_mean(name, _OPTIONS) or "Leave it out.",
                )

    @cached_property
    def _parts(self) -> SplitResult:
        return urlsplit(self.url)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """What PyMySQL is given."""
        options = {name: _OPTIONS[name](value) for name, value in parse_qsl(self._parts.query)}
        return {
            "host": self._parts.hostname or "localhost",
            "port": self._parts.port or 3306,
            "user": unquote(self._parts.username or "") or None,
            "password": unquote(self._parts.password or ""),
            "database": unquote(self._parts.path[1:]),
            **options,
        }

    @property
    def shown(self) -> str:
        """User, host, port and database."""
        given = self.settings
        return f"{given['user'] or ''}@{given['host']}:{given['port']}/{given['database']}"
