"""Range partitioning by load: how uneven it is, a sample of the keys, bounds among them.

A rule divides the ordered keys into ranges, one a partition. Paper A's Algorithm 2 puts a bound
behind a whole key; since a lookup join need not be keyed, ours may lie *within* a key, a share of
whose records goes to one side and the rest to the other. A key heavier than a partition then has
several bounds, and is spread over all partitions between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rivermouth.kernels.arrays import Bools, Codes, Floats, Ints


def load_cv(loads: Sequence[float] | Floats) -> float:
    """The load's coefficient of variation over the partitions, ddof 1 (paper A: DS over PS).

    0 for fewer than two partitions, and where there was nothing to do.

    Examples
    --------
    >>> load_cv([100, 100, 100]), round(load_cv([300, 0, 0]), 3), load_cv([0, 0])
    (0.0, 1.732, 0.0)
    """
    load = np.asarray(loads, np.float64)
    if len(load) < 2 or not load.sum():
        return 0.0
    return float(load.std(ddof=1) / load.mean())


@dataclass(frozen=True)
class Sample:
    """A <key, count> table: distinct keys in their order, and how many records each stands for.

    Parameters
    ----------
    keys
        The keys' columns; several are ordered by the first, then the second, and so on.
    count
        For how many records of the stream a key stands.
    cost
        What these cost together, in any unit; by default one a record.
    """

    keys: pa.Table
    count: Floats
    cost: Floats

    @classmethod
    def of(cls, keys: pa.Table, count: Floats, cost: Floats) -> Sample:
        """The sample of keys in any order that may come several times."""
        names = keys.column_names
        both = keys.append_column("", pa.array(count)).append_column(" ", pa.array(cost))
        found = both.group_by(names, use_threads=False).aggregate([("", "sum"), (" ", "sum")])
        found = found.sort_by([(name, "ascending") for name in names])
        sums = (found.column(name).to_numpy() for name in ("_sum", " _sum"))
        return cls(found.select(names), *sums)


def merged(samples: Sequence[Sample]) -> Sample:
    """One sample of all partitions' records, each standing for as many as before."""
    return Sample.of(
        pa.concat_tables([sample.keys for sample in samples]),
        np.concatenate([sample.count for sample in samples]),
        np.concatenate([sample.cost for sample in samples]),
    )


class Reservoir:
    """A uniform sample of a stream of unknown length (algorithm R).

    Parameters
    ----------
    size
        How many records it holds.
    seed
        Of the draws.
    """

    def __init__(self, size: int, seed: int) -> None:
        self.seen = 0
        self._size, self._random = size, np.random.default_rng(seed)
        self._kept: pa.Table | None = None

    def add(self, keys: pa.Table, cost: Floats) -> None:
        """Sample the records of a batch: their keys, and what each costs."""
        rows = len(cost)
        number = self.seen + np.arange(rows)
        slot = np.where(
            number < self._size, number, (self._random.random(rows) * (number + 1)).astype(np.int64)
        )
        taken = np.flatnonzero(slot < self._size)
        batch = keys.append_column("", pa.array(cost))
        kept = batch.slice(0, 0) if self._kept is None else self._kept
        # which record is in which slot: of those that are drawn for one, the last
        source = np.arange(min(self._size, self.seen + rows))
        source[slot[taken]] = len(kept) + np.arange(len(taken))
        joined = pa.concat_tables([kept, batch.take(pa.array(taken))]).combine_chunks()
        self._kept = joined.take(pa.array(source))
        self.seen += rows

    def sample(self) -> Sample | None:
        """The <key, count> table of the sample, scaled to all records seen."""
        if self._kept is None or not self.seen:
            return None
        each = self.seen / len(self._kept)
        cost = self._kept.column("").to_numpy() * each
        return Sample.of(self._kept.drop_columns([""]), np.full(len(cost), each), cost)


@dataclass(frozen=True)
class Rule:
    """Bounds among the ordered keys; partition i lies between bound i - 1 and bound i.

    Parameters
    ----------
    keys
        The key in which each bound lies, in order; a heavy key may have several.
    share
        Which part of the records of that key lies before the bound; 1: all of them.
    """

    keys: pa.Table
    share: Floats

    def partitions(self, keys: pa.Table, draw: Floats) -> Codes:
        """The partition of each record; `draw`, in [0, 1), decides where a key is split."""
        found = np.zeros(len(keys), np.int32)
        for number, share in enumerate(self.share):
            behind, equal = _compared(keys, self.keys.slice(number, 1))
            found += behind | (equal & (draw >= share))
        return found


def partitions_of(keys: Ints, draw: Floats, bounds: Ints, share: Floats) -> Codes:
    """The partition of each key by a rule on integers: `Rule.partitions`, whatever its length.

    Bounds ascend, and so do the shares of those that lie in one key.

    Examples
    --------
    >>> bounds, share = np.array([4, 4, 9]), np.array([0.25, 0.75, 1.0])
    >>> partitions_of(np.array([3, 4, 4, 4, 10]), np.array([0, 0.1, 0.5, 0.9, 0]), bounds, share)
    array([0, 0, 1, 2, 3], dtype=int32)
    """
    found = np.searchsorted(bounds, keys).astype(np.int32)
    for key in np.unique(bounds[share < 1.0]):
        first, last = np.searchsorted(bounds, key), np.searchsorted(bounds, key, "right")
        own = np.flatnonzero(keys == key)
        found[own] += np.searchsorted(share[first:last], draw[own], "right").astype(np.int32)
    return found


def even_bounds(sample: Sample, partitions: int, *, by: str = "count") -> Rule | None:
    """Bounds that give each partition the same count or `by` cost; keys are split where they fall.

    None where the sample is of nothing.
    """
    weight = getattr(sample, by)
    until = np.cumsum(weight)
    if not len(weight) or not until[-1] > 0:
        return None
    target = until[-1] * np.arange(1, partitions) / partitions
    key = np.minimum(np.searchsorted(until, target), len(weight) - 1)
    share = np.clip((target - until[key] + weight[key]) / weight[key], 0.0, 1.0)
    return Rule(sample.keys.take(pa.array(key)), share)


def algorithm2(sample: Sample, partitions: int, *, by: str = "count") -> Rule | None:
    """The paper's quantiles: a bound behind the key whose count reaches total / partitions.

    The count starts at zero behind each bound, so that a heavy key leaves the last partitions
    short, and there may be fewer bounds than partitions need. None for a sample of nothing.
    """
    weight = getattr(sample, by)
    if not len(weight) or not weight.sum() > 0:
        return None
    mean, count = weight.sum() / partitions, 0.0
    bounds: list[int] = []
    for key, own in enumerate(weight):
        count += own
        if count >= mean and len(bounds) < partitions - 1:
            bounds.append(key)
            count = 0.0
    return Rule(sample.keys.take(pa.array(bounds, pa.int64())), np.ones(len(bounds)))


def _compared(keys: pa.Table, one: pa.Table) -> tuple[Bools, Bools]:
    """Which keys lie behind one key, and which are equal to it; null is neither."""
    behind = np.zeros(len(keys), dtype=bool)
    equal = np.ones(len(keys), dtype=bool)
    for name in keys.column_names:
        column, bound = keys.column(name), one.column(name)[0]
        behind |= equal & _true(pc.greater(column, bound))
        equal &= _true(pc.equal(column, bound))
    return behind, equal


def _true(test: pa.ChunkedArray) -> Bools:
    found: Bools = test.fill_null(False).to_numpy()
    return found
