"""What must be installed besides: a clear error where it is not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rivermouth.errors import SessionError


@contextmanager
def needs(package: str, *, call: str, extra: str) -> Iterator[None]:
    """Name the extra to install where a driver cannot be imported."""
    try:
        yield
    except ImportError as error:
        raise SessionError(
            call,
            f"{package} cannot be imported",
            there=str(error),
            todo=f"Install it: pip install 'rivermouth[{extra}]'.",
        ) from error
