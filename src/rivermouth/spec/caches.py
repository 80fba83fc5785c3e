"""How much of a table is kept near the stream, and for how long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from rivermouth.errors import DefinitionError
from rivermouth.spec.durations import Duration, positive_seconds

IndexName = Literal["cells", "kd", "rtree", "tree"]


@dataclass(frozen=True)
class Full:
    """The whole table, loaded and indexed before the first record; seconds inside."""

    refresh: float | None = None
    max_age: float | None = None
    path: str | None = None
    index: IndexName | None = None


@dataclass(frozen=True)
class External:
    """Nothing: the store answers each batch of records with one statement."""


Cache = Full | External


def full(
    refresh: Duration | None = None,
    max_age: Duration | None = None,
    path: str | None = None,
    index: IndexName | None = None,
) -> Full:
    """Keep the whole table: read once before the first record, as an immutable snapshot.

    Parameters
    ----------
    refresh
        Read the table anew once the snapshot is older than this. A task sees one version only;
        the tasks of one micro-batch may see two while versions change. None: never.
    max_age
        While refreshing fails, serve the last good version up to this age, then fail with
        `TableStale`. None: serve it for ever (its age is a metric).
    path
        Where snapshots are kept: a folder, or a URI that pyarrow.fs knows, which all hosts
        reach. None: a temporary folder, under a local master only.
    index
        "cells", "tree", "kd" or "rtree" (paper C's two-level R-tree). None: chosen by what is
        in the table. The rows do not depend on it.

    Examples
    --------
    >>> full(refresh="10 minutes", max_age="1 hour")
    Full(refresh=600.0, max_age=3600.0, path=None, index=None)
    """
    if index is not None and index not in get_args(IndexName):
        raise DefinitionError(
            "full", f"{index!r} is not an index", todo=f"Use one of {list(get_args(IndexName))}."
        )
    return Full(
        positive_seconds(refresh, where="full(refresh=)"),
        positive_seconds(max_age, where="full(max_age=)"),
        path,
        index,
    )


def external() -> External:
    """Keep nothing: the table's own store (PostGIS) answers, one statement per batch of records."""
    return External()
