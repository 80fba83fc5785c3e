"""How a PostgreSQL server is reached, and how much of that may be shown."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import psycopg
from psycopg.conninfo import conninfo_to_dict

from rivermouth.tables.sources.secrets import hushed, is_whole, not_understood

WHERE = "tables.postgres"

_SECRETS = (
    "password",
    "sslpassword",
    "oauth_client_secret",
    "scram_client_key",
    "scram_server_key",
)


@dataclass(frozen=True, repr=False)
class Access:
    """Where the server is, who asks, and how long an answer may take.

    Parameters
    ----------
    url
        ``postgresql://user:password@host:port/database``, or libpq's ``key=value`` text.
    connect_timeout, statement_timeout
        Seconds; None waits for ever.
    """

    url: str
    connect_timeout: float | None
    statement_timeout: float | None

    def __post_init__(self) -> None:
        if not _is_understood(self.url):
            raise not_understood(WHERE, "postgresql")

    def __repr__(self) -> str:
        return f"Access({self.shown!r})"

    @cached_property
    def settings(self) -> dict[str, str]:
        """What the url says, by libpq's names, secrets included."""
        said = conninfo_to_dict(self.url)
        return {name: str(value) for name, value in said.items() if value is not None}

    @property
    def host(self) -> str:
        """Host and port, as in ``db.example:5432``; the local socket has no name."""
        host, port = self.settings.get("host"), self.settings.get("port", "5432")
        return f"{host or 'localhost'}:{port}"

    @property
    def shown(self) -> str:
        """The address without secrets, as in ``ann@db.example:5432/city``."""
        user, database = self.settings.get("user", ""), self.settings.get("dbname", "")
        return f"{user}@{self.host}/{database}"

    def hushed(self, text: str) -> str:
        """`text` on one line, with every secret masked, however it is written."""
        return hushed(text, (self.settings.get(name, "") for name in _SECRETS))


def _is_understood(url: str) -> bool:
    """Whether libpq reads the url as it was meant."""
    if "://" in url and not is_whole(url):
        return False
    try:
        conninfo_to_dict(url)
    except psycopg.Error:
        return False
    return True
