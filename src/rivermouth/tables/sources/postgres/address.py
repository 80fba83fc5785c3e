"""The address of a PostgreSQL server."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import psycopg
from psycopg.conninfo import conninfo_to_dict

from rivermouth.tables.sources.sql.address import Address, invalid_url, is_whole

CALL = "tables.postgres"


@dataclass(frozen=True, repr=False)
class PostgresAddress(Address):
    """``postgresql://user:password@host:port/database``, or libpq's ``key=value`` text."""

    secrets = (
        "password",
        "sslpassword",
        "oauth_client_secret",
        "scram_client_key",
        "scram_server_key",
    )

    def __post_init__(self) -> None:
        if "://" in self.url and not is_whole(self.url):
            raise invalid_url(CALL, "postgresql")
        try:
            conninfo_to_dict(self.url)
        except psycopg.Error:
            raise invalid_url(CALL, "postgresql") from None

    @cached_property
    def settings(self) -> dict[str, str]:
        """What the url says, by libpq's names."""
        said = conninfo_to_dict(self.url)
        return {name: str(value) for name, value in said.items() if value is not None}

    @property
    def shown(self) -> str:
        """User, host, port and database; a local socket is ``localhost``."""
        given = {"user": "", "host": "localhost", "port": "5432", "dbname": "", **self.settings}
        return "{user}@{host}:{port}/{dbname}".format(**given)
