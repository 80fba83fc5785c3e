"""Which partition an event goes to before it meets a table."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal, get_args

from rivermouth.errors import DefinitionError
from rivermouth.spec.locations import Location

Weight = Literal["records", "cost"]


@dataclass(frozen=True)
class ByHash:
    """Equal keys to one partition, by their hash."""

    partitions: int | None = None


@dataclass(frozen=True)
class ByHotspot:
    """Ranges of keys to partitions, cut anew when the load is uneven."""

    threshold: float
    cycle: int
    sample: int
    weight: Weight
    split: bool
    partitions: int | None
    path: Location | None


Routing = ByHash | ByHotspot


def by_hash(partitions: int | None = None) -> ByHash:
    """Send events of one key to one partition, by the key's hash.

    Parameters
    ----------
    partitions
        How many; None: as many as ``spark.sql.shuffle.partitions`` says.

    Examples
    --------
    >>> by_hash(6)
    ByHash(partitions=6)
    """
    _check_partitions("by_hash", partitions)
    return ByHash(partitions)


def by_hotspot(
    *,
    threshold: float = 0.1,
    cycle: int = 100_000,
    sample: int = 10_000,
    weight: Weight = "records",
    split: bool = True,
    partitions: int | None = None,
    path: str | os.PathLike[str] | None = None,
) -> ByHotspot:
    """Send ranges of keys to partitions, and repartition when the hotspots have moved.

    The load of each partition is watched while the stream flows. The first cycle's sample gives the
    first ranges; when a later cycle ends with a load more uneven than `threshold`, a sample of that
    cycle's keys gives the ranges for the next.

    Parameters
    ----------
    threshold
        How uneven a load may be: its standard deviation over its mean (the paper's DS).
    cycle
        How many records a cycle has, at least; it ends with a micro-batch.
    sample
        How many records of a cycle are looked at, together, to cut anew.
    weight
        What is balanced: the number of "records", or what they "cost", a record whose key must be
        fetched counting as much more as it is measured to take.
    split
        Whether a key heavier than its share may go to several partitions; events that are alike
        in every column stay together. False: the paper's Algorithm 2 as it stands.
    partitions
        How many; None: as many as ``spark.sql.shuffle.partitions`` says.
    path
        Where rules and counts are kept, a folder that all hosts reach; a query that starts again
        starts with the last rule there. None: the cache's path, or a temporary folder under a local
        master.

    Examples
    --------
    >>> by_hotspot(cycle=1_000_000, weight="cost").threshold
    0.1
    """
    where = "by_hotspot"
    _check_partitions(where, partitions)
    if weight not in get_args(Weight):
        raise DefinitionError(
            where, f"weight is {weight!r}", todo=f"Use one of {list(get_args(Weight))}."
        )
    if not threshold > 0 or cycle < 1 or sample < 1:
        raise DefinitionError(
            where,
            f"threshold is {threshold}, cycle {cycle} and sample {sample}",
            todo="Give positive numbers.",
        )
    folder = None if path is None else Location(os.fspath(path))
    return ByHotspot(float(threshold), cycle, sample, weight, split, partitions, folder)


def _check_partitions(where: str, partitions: int | None) -> None:
    if partitions is not None and partitions < 1:
        raise DefinitionError(where, f"partitions is {partitions}", todo="Give at least one.")
