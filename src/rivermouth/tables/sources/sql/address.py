"""Addresses of database servers: parsed as they were meant, shown without their secrets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar
from urllib.parse import quote, quote_plus

from rivermouth.errors import DefinitionError

_MASK = "***"


@dataclass(frozen=True, repr=False)
class Address(ABC):
    """Where a server is, as which user to log in, and how long to wait.

    Parameters
    ----------
    url
        As the user wrote it, password included.
    connect_timeout, statement_timeout
        Seconds; None: no limit.
    """

    url: str
    connect_timeout: float | None
    statement_timeout: float | None

    #: the settings that hold secrets
    secrets: ClassVar[tuple[str, ...]] = ("password",)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.shown!r})"

    @cached_property
    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """The driver's connection parameters, secrets included."""

    @property
    @abstractmethod
    def shown(self) -> str:
        """The address without secrets, as in ``ann@db.example:5432/city``."""

    def redacted(self, text: str) -> str:
        """`text` without this address's secrets."""
        return redacted(text, (self.settings.get(name, "") for name in self.secrets))


def is_whole(url: str) -> bool:
    """Whether a URL's password is where it should be.

    A password with a bare @, / or ? would be cut there, and its rest taken for the name of a host
    or database, which are shown.

    Examples
    --------
    >>> is_whole("mysql://ann:p%40ss@db/city"), is_whole("mysql://ann:p@ss@db/city")
    (True, False)
    """
    user, *others = url.split("://", 1)[1].split("@")
    return len(others) <= 1 and not (others and set("/?") & set(user))


def invalid_url(call: str, scheme: str) -> DefinitionError:
    """The error for a URL that cannot be parsed; it does not repeat it."""
    return DefinitionError(
        call,
        "the url cannot be parsed",
        there="it is not shown here, because it may hold a password",
        todo=f"Write {scheme}://user:password@host:port/database, with special "
        "characters percent-encoded (@ is %40, / is %2F, ? is %3F).",
    )


def redacted(text: str, secrets: Iterable[str]) -> str:
    """`text` on one line, with every secret masked, however it is written."""
    line = " ".join(text.split())
    for secret in filter(None, secrets):
        for written in {secret, quote(secret), quote(secret, safe=""), quote_plus(secret)}:
            line = line.replace(" ".join(written.split()), _MASK)
    return line
