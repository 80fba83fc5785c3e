"""How a PostgreSQL server is reached, and how much of that may be shown."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from urllib.parse import quote, quote_plus

import psycopg
from psycopg.conninfo import conninfo_to_dict

from rivermouth.errors import DefinitionError

WHERE = "tables.postgres"

_SECRETS = (
    "password",
    "sslpassword",
    "oauth_client_secret",
    "scram_client_key",
    "scram_server_key",
)
_MASK = "***"


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
            raise DefinitionError(
                WHERE,
                "the url cannot be understood",
                there="it is not shown here, for it may hold a password",
                todo="Write postgresql://user:password@host:port/database, with special "
                "characters percent-encoded (@ is %40, / is %2F, ? is %3F).",
            )

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
        line = " ".join(text.split())
        for secret in (self.settings[name] for name in _SECRETS if self.settings.get(name)):
            for written in {secret, quote(secret), quote(secret, safe=""), quote_plus(secret)}:
                line = line.replace(" ".join(written.split()), _MASK)
        return line


def _is_understood(url: str) -> bool:
    """Whether libpq reads the url as it was meant.

    A password with a bare @, / or ? would be cut there, and its rest taken for the name of a host
    or database, which are shown.
    """
    if "://" in url:
        user, *others = url.split("://", 1)[1].split("@")
        if len(others) > 1 or (others and set("/?") & set(user)):
            return False
    try:
        conninfo_to_dict(url)
    except psycopg.Error:
        return False
    return True
