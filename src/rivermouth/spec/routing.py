"""Which partition an event goes to before it meets a table."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal, get_args

from rivermouth.errors import DefinitionError
from rivermouth.spec.arguments import whole, whole_or_none
from rivermouth.spec.locations import Location

Weight = Literal["records", "cost"]

_MOST_PARTITIONS = 10_000  # each is a number in the plan


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
    return ByHash(
        whole_or_none(partitions, where="by_hash", name="partitions", most=_MOST_PARTITIONS)
    )


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
    if weight not in get_args(Weight):
        raise DefinitionError(
            where, f"weight is {weight!r}", todo=f"Use one of {list(get_args(Weight))}."
        )
    is_number = isinstance(threshold, (int, float)) and not isinstance(threshold, bool)
    if not is_number or not threshold > 0:
        raise DefinitionError(
            where, f"threshold is {threshold!r}", todo="Give a number above 0, as 0.1."
        )
    if not isinstance(split, bool):
        raise DefinitionError(where, f"split is {split!r}", todo="Give True or False.")
    return ByHotspot(
        float(threshold),
        whole(cycle, where=where, name="cycle"),
        whole(sample, where=where, name="sample"),
        weight,
        split,
        whole_or_none(partitions, where=where, name="partitions", most=_MOST_PARTITIONS),
        Location.given(path, where=where),
    )
