"""Routing that follows the stream: how uneven its load is, a sample of its keys, cuts through them.

A rule cuts the ordered keys into ranges, one a partition. Paper A's Algorithm 2 puts a cut behind a
whole key; since a lookup join need not be keyed, ours may lie *within* a key, a share of whose
records goes to one side and the rest to the other. A key heavier than a partition then holds
several cuts, and is spread over all partitions between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rivermouth.kernels.spatial.geometry import Bools, Floats

Codes = npt.NDArray[np.int32]
Ints = npt.NDArray[np.int64]


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
    """A <key, count> table: distinct keys in their order, and what stands behind each.

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
    """A sample of a stream that is not known beforehand: each record is as likely in it as another.

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
        self._held: pa.Table | None = None

    def add(self, keys: pa.Table, cost: Floats) -> None:
        """Show it the records of a batch: their keys, and what each costs (algorithm R)."""
        rows = len(cost)
        number = self.seen + np.arange(rows)
        place = np.where(
            number < self._size, number, (self._random.random(rows) * (number + 1)).astype(np.int64)
        )
        taken = np.flatnonzero(place < self._size)
        shown = keys.append_column("", pa.array(cost))
        held = shown.slice(0, 0) if self._held is None else self._held
        # which record is in which place: of those that come to one place, the last
        source = np.arange(min(self._size, self.seen + rows))
        source[place[taken]] = len(held) + np.arange(len(taken))
        joined = pa.concat_tables([held, shown.take(pa.array(taken))]).combine_chunks()
        self._held = joined.take(pa.array(source))
        self.seen += rows

    def sample(self) -> Sample | None:
        """The <key, count> table of what it holds, counts being those of all records seen."""
        if self._held is None or not self.seen:
            return None
        each = self.seen / len(self._held)
        cost = self._held.column("").to_numpy() * each
        return Sample.of(self._held.drop_columns([""]), np.full(len(cost), each), cost)


@dataclass(frozen=True)
class Rule:
    """Cuts through the ordered keys; partition i lies between cut i - 1 and cut i.

    Parameters
    ----------
    keys
        The key in which each cut lies, in order; a heavy key may hold several.
    share
        Which part of the records of that key lies before the cut; 1: all of them.
    """

    keys: pa.Table
    share: Floats

    def partitions(self, keys: pa.Table, draw: Floats) -> Codes:
        """The partition of each record; `draw`, in [0, 1), decides where a key is split."""
        found = np.zeros(len(keys), np.int32)
        for cut, share in enumerate(self.share):
            behind, equal = _compared(keys, self.keys.slice(cut, 1))
            found += behind | (equal & (draw >= share))
        return found


def even_cuts(sample: Sample, partitions: int, *, by: str = "count") -> Rule | None:
    """Cuts that give each partition the same count or `by` cost; keys are split where they fall.

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
    """The paper's quantiles: a cut behind the key with which the count reaches total / partitions.

    The count begins anew behind each cut, so that a heavy key leaves the last partitions short,
    and there may be fewer cuts than partitions need. None where the sample is of nothing.
    """
    weight = getattr(sample, by)
    if not len(weight) or not weight.sum() > 0:
        return None
    mean, count = weight.sum() / partitions, 0.0
    cuts: list[int] = []
    for key, own in enumerate(weight):
        count += own
        if count >= mean and len(cuts) < partitions - 1:
            cuts.append(key)
            count = 0.0
    return Rule(sample.keys.take(pa.array(cuts, pa.int64())), np.ones(len(cuts)))


def _compared(keys: pa.Table, cut: pa.Table) -> tuple[Bools, Bools]:
    """Which keys lie behind a cut's key, and which are it; null is neither."""
    behind = np.zeros(len(keys), dtype=bool)
    equal = np.ones(len(keys), dtype=bool)
    for name in keys.column_names:
        column, bound = keys.column(name), cut.column(name)[0]
        behind |= equal & _true(pc.greater(column, bound))
        equal &= _true(pc.equal(column, bound))
    return behind, equal


def _true(test: pa.ChunkedArray) -> Bools:
    found: Bools = test.fill_null(False).to_numpy()
    return found
