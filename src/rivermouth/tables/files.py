"""Files by path or URI: where they are, how they are read, what is said when they are missing."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow.fs

from rivermouth.errors import TableError, TableMissing, TableUnavailable, did_you_mean

_URI = re.compile(r"^[a-z][a-z0-9+.-]+://", re.IGNORECASE)


def located(path: str | os.PathLike[str]) -> str:
    """`path` as it is found from any working folder: absolute, or a URI as it was written."""
    text = os.fspath(path)
    return text if _URI.match(text) else os.path.abspath(os.path.expanduser(text))


def short_name(path: str) -> str:
    """The last part of a path or URI.

    Examples
    --------
    >>> short_name("s3://bucket/zones/"), short_name("/data/districts.geojson")
    ('zones', 'districts.geojson')
    """
    return os.path.basename(path.rstrip("/"))


def read_bytes(path: str, *, where: str) -> bytes:
    """All bytes of the file at `path`, local or on any file system that pyarrow.fs knows."""
    with reading(path, where=where):
        system, inner = pyarrow.fs.FileSystem.from_uri(path)
        with system.open_input_stream(inner) as stream:
            return bytes(stream.read())


@contextmanager
def reading(path: str, *, where: str) -> Iterator[None]:
    """Turn what a file system says while `path` is read into an error of ours."""
    try:
        yield
    except FileNotFoundError:
        raise missing(path, where=where) from None
    except OSError as error:
        raise TableUnavailable(
            where,
            f"{path!r} cannot be read",
            there=str(error).rstrip("."),
            todo="Check that this host and user may read it.",
        ) from error


def missing(path: str, *, where: str) -> TableError:
    """The error for a file that is not there, with the nearest name that is."""
    folder = os.path.dirname(path)
    if _URI.match(path) or not os.path.isdir(folder):
        return TableMissing(where, f"there is no {path!r}", todo="Check the path.")
    names = sorted(os.listdir(folder))
    return TableMissing(
        where,
        f"there is no {path!r}",
        there=f"its folder holds {names[:8]}" + (" and more" if len(names) > 8 else ""),
        todo=did_you_mean(short_name(path), names) or "Check the path.",
    )
