"""How a MySQL or MariaDB server is reached, and how much of that may be shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from rivermouth.errors import DefinitionError, did_you_mean
from rivermouth.tables.sources.secrets import hushed, is_whole, not_understood

WHERE = "tables.mysql"

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
class Access:
    """Where the server is, who asks, and how long an answer may take.

    Parameters
    ----------
    url
        ``mysql://user:password@host:port/database``, options such as ``?ssl_ca=PATH`` behind it.
    connect_timeout, statement_timeout
        Seconds; None waits for ever.
    """

    url: str
    connect_timeout: float | None
    statement_timeout: float | None

    def __post_init__(self) -> None:
        if not self.url.startswith(("mysql://", "mariadb://")) or not is_whole(self.url):
            raise not_understood(WHERE, "mysql")
        try:
            has_names = self._parts.port is None or self._parts.port > 0
        except ValueError:
            has_names = False
        if not has_names or not self.database or self._parts.fragment:
            raise not_understood(WHERE, "mysql")
        for name, _ in parse_qsl(self._parts.query, keep_blank_values=True):
            if name not in _OPTIONS:
                raise DefinitionError(
                    WHERE,
                    f"the url has an option {name!r}, which is not known",
                    there=f"known are {list(_OPTIONS)}",
                    todo=did_you_mean(name, _OPTIONS) or "Leave it out.",
                )

    def __repr__(self) -> str:
        return f"Access({self.shown!r})"

    @cached_property
    def _parts(self) -> SplitResult:
        return urlsplit(self.url)

    @property
    def database(self) -> str:
        """The database that the url names."""
        return unquote(self._parts.path[1:])

    @cached_property
    def settings(self) -> dict[str, Any]:
        """What the driver is told, secrets included."""
        options = {name: _OPTIONS[name](value) for name, value in parse_qsl(self._parts.query)}
        return {
            "host": self._parts.hostname or "localhost",
            "port": self._parts.port or 3306,
            "user": unquote(self._parts.username or "") or None,
            "password": unquote(self._parts.password or ""),
            "database": self.database,
            **options,
        }

    @property
    def shown(self) -> str:
        """The address without secrets, as in ``ann@db.example:3306/city``."""
        told = self.settings
        return f"{told['user'] or ''}@{told['host']}:{told['port']}/{told['database']}"

    def hushed(self, text: str) -> str:
        """`text` on one line, with every secret masked, however it is written."""
        return hushed(text, (self.settings["password"], self.settings.get("ssl_key_password", "")))
