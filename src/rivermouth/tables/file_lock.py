"""A lock between the processes of one host: a file under ``flock``, of Linux and macOS."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

from rivermouth.errors import SessionError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


@contextlib.contextmanager
def locked(path: Path, *, wait: bool) -> Iterator[bool]:
    """Hold the lock; gives False where it is held by another process and `wait` is not set.

    Closing the file releases it, and so does the death of the process.

    Raises
    ------
    SessionError
        When this system, or the disk on which the file is, has no such locks.
    """
    if fcntl is None:
        raise SessionError(
            "file lock",
            "the processes of this host cannot take turns",
            there=f"Python on {sys.platform!r} has no flock",
            todo="Run it on Linux or macOS; on Windows, in WSL.",
        )
    with open(path, "w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
            return
        except OSError as error:
            raise SessionError(
                "file lock",
                f"{path} cannot be locked",
                there=str(error.strerror),
                todo="Set TMPDIR, or path=, to a folder on a disk that has flock.",
            ) from error
        yield True
