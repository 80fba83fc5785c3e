"""Addresses that hold a password: read as they were meant, and never repeated."""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import quote, quote_plus

from rivermouth.errors import DefinitionError

_MASK = "***"


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


def not_understood(where: str, scheme: str) -> DefinitionError:
    """The error for a URL that cannot be read; it does not repeat it."""
    return DefinitionError(
        where,
        "the url cannot be understood",
        there="it is not shown here, for it may hold a password",
        todo=f"Write {scheme}://user:password@host:port/database, with special "
        "characters percent-encoded (@ is %40, / is %2F, ? is %3F).",
    )


def hushed(text: str, secrets: Iterable[str]) -> str:
    """`text` on one line, with every secret masked, however it is written."""
    line = " ".join(text.split())
    for secret in filter(None, secrets):
        for written in {secret, quote(secret), quote(secret, safe=""), quote_plus(secret)}:
            line = line.replace(" ".join(written.split()), _MASK)
    return line
