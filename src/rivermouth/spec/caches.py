"""How much of a table is kept near the stream, and for how long."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Literal, get_args

from rivermouth.errors import DefinitionError
from rivermouth.spec.arguments import whole, whole_or_none
from rivermouth.spec.changes import Changes
from rivermouth.spec.durations import Duration, positive_seconds
from rivermouth.spec.locations import Location

IndexName = Literal[
    "cells", "kdtree", "edgetree", "rtree", "strtree", "sorted", "skiplist", "ideal_skiplist"
]
Policy = Literal["lru", "s3fifo"]
OnUnavailable = Literal["fail", "miss"]


@dataclass(frozen=True)
class Full:
    """The whole table, loaded and indexed before the first record; seconds inside."""

    refresh: float | None = None
    max_age: float | None = None
    path: Location | None = None
    index: IndexName | None = None
    buckets: int | None = None
    changes: Changes | None = None


@dataclass(frozen=True)
class External:
    """Nothing: the store answers each batch of records with one statement."""


@dataclass(frozen=True)
class Incremental:
    """The keys that were asked for lately, those that the table does not have included."""

    rows: int | None
    bytes: int | None
    ttl: float | None
    idle_ttl: float | None
    missing_ttl: float | None
    policy: Policy
    attempts: int
    on_unavailable: OnUnavailable
    reset_timeout: float | None


Cache = Full | Incremental | External

_MOST_BUCKETS = 512  # files that the one who cuts a table has open at a time


def full(
    *,
    refresh: Duration | None = None,
    max_age: Duration | None = None,
    path: str | os.PathLike[str] | None = None,
    index: IndexName | None = None,
    buckets: int | None = None,
    changes: Changes | None = None,
) -> Full:
    """Keep the whole table: read once before the first record, as an immutable snapshot.

    Parameters
    ----------
    refresh
        Read the table anew once the snapshot is older than this. All tasks of a micro-batch join
        one version, and with `path` so does the batch that runs again. None: never.
    max_age
        While refreshing fails, serve the last good version up to this age, then fail with
        `TableStale`. None: serve it for ever (its age is a metric).
    path
        Where snapshots are kept: a folder, or a URI that pyarrow.fs knows (``s3a`` is ``s3``),
        which all hosts reach. None: a temporary folder, under a local master only.
    index
        For geometries "cells", "kdtree", "edgetree", "strtree" or "rtree" (paper C's two-level
        R-tree); for ranges "sorted", "skiplist" or "ideal_skiplist" (paper A's). None: chosen by
        what is in the table. The rows do not depend on it.
    buckets
        For a table larger than a host's memory: cut it into so many parts, by its keys where the
        condition has some and else by place, and send each event to the task that has its part.
        By place every condition but `nearest`, `disjoint` and patterns that disjoint shapes
        satisfy. A shuffle, so None, the whole table in every worker, is faster where it fits.
    changes
        A feed of the table's changes, ``rm.changes.files(...)`` and the like: each micro-batch
        joins the table with the changes up to its start. The table is read whole only at first,
        where changes are lost, and every `refresh`.

    Examples
    --------
    >>> full(refresh="10 minutes", max_age="1 hour").refresh
    600.0
    """
    if index is not None and index not in get_args(IndexName):
        raise DefinitionError(
            "full", f"{index!r} is not an index", todo=f"Use one of {list(get_args(IndexName))}."
        )
    if changes is not None and not isinstance(changes, Changes):
        raise DefinitionError(
            "full",
            f"changes is {changes!r}",
            todo="Use rm.changes.files(...), rm.changes.feed(...) or another of rm.changes.",
        )
    if changes is not None and buckets is not None:
        raise DefinitionError(
            "full",
            "a table in buckets cannot follow changes",
            todo="Leave buckets out, or use refresh= instead of changes=.",
        )
    return Full(
        positive_seconds(refresh, where="full(refresh=)"),
        positive_seconds(max_age, where="full(max_age=)"),
        Location.given(path, where="full"),
        index,
        whole_or_none(buckets, where="full", name="buckets", most=_MOST_BUCKETS),
        changes,
    )


def incremental(
    *,
    rows: int | None = None,
    bytes: int | str | None = None,  # noqa: A002  (what it bounds)
    ttl: Duration | None = None,
    idle_ttl: Duration | None = None,
    missing_ttl: Duration | None = "1 minute",
    policy: Policy = "s3fifo",
    attempts: int = 5,
    on_unavailable: OnUnavailable = "fail",
    reset_timeout: Duration | None = "5 seconds",
) -> Incremental:
    """Keep what was asked for lately; ask the table's store for the rest, once per batch.

    Each Python worker has a cache of its own, which all its tasks share. The unit is a key with
    all its rows; a key that the table does not have is kept too, as having none.

    Parameters
    ----------
    rows, bytes
        How much a worker keeps at most; bytes as a number or as text such as ``"64 MB"``. A key
        without rows counts as one. None: no such bound; with neither, 64 MB.
    ttl
        Ask again for a key so long after its rows were read. None: never.
    idle_ttl
        Forget a key that nobody has asked for so long. None: never.
    missing_ttl
        Ask again for a key that the table did not have after so long. None: never.
    policy
        Who leaves when it is full: "lru", whoever was asked for longest ago (the paper's), or
        "s3fifo", which lets keys asked for only once leave first.
    attempts
        How often the store is asked before it counts as down, with growing pauses between.
    on_unavailable
        "fail": the query fails, to be started again. "miss": the records whose keys are not
        kept count as having found nothing, and the metrics count them.
    reset_timeout
        The circuit breaker of "miss": when all attempts have failed, leave the store alone for so
        long, then try it by one call. None: one call for each batch. With "fail" the query ends
        instead, and when it is started again the store is asked at once.

    Examples
    --------
    >>> incremental(rows=100_000, ttl="10 minutes").missing_ttl
    60.0
    """
    where = "incremental"
    if policy not in get_args(Policy):
        raise DefinitionError(
            where, f"{policy!r} is not a policy", todo=f"Use one of {list(get_args(Policy))}."
        )
    if on_unavailable not in get_args(OnUnavailable):
        raise DefinitionError(
            where,
            f"on_unavailable is {on_unavailable!r}",
            todo=f"Use one of {list(get_args(OnUnavailable))}.",
        )
    rows = whole_or_none(rows, where=where, name="rows")
    held = None if bytes is None else _size(bytes)
    return Incremental(
        rows,
        _DEFAULT_BYTES if rows is None and held is None else held,
        positive_seconds(ttl, where="incremental(ttl=)"),
        positive_seconds(idle_ttl, where="incremental(idle_ttl=)"),
        positive_seconds(missing_ttl, where="incremental(missing_ttl=)"),
        policy,
        whole(attempts, where=where, name="attempts"),
        on_unavailable,
        positive_seconds(reset_timeout, where="incremental(reset_timeout=)")
        if on_unavailable == "miss"
        else None,
    )


_DEFAULT_BYTES = 64 << 20
_UNITS = {"": 1, "B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}


def _size(value: int | str) -> int:
    found = re.fullmatch(r"\s*(\d+)\s*([KMG]?B?)\s*", str(value), re.IGNORECASE)
    unit = _UNITS.get(found[2].upper()) if found else None
    if found is None or unit is None or int(found[1]) < 1:
        raise DefinitionError(
            "incremental(bytes=)", f"{value!r} is not a size", todo="Write one such as '64 MB'."
        )
    return int(found[1]) * unit


def external() -> External:
    """Keep nothing: the table's own database is queried, one statement per batch of records."""
    return External()
