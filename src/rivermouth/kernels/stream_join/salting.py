"""Salting of skewed cells: cells with so many rows that they are spread over several buckets.

A row in state cannot move, and all tasks must agree where a row goes. So the number of a cell's
salts changes from an event time on that no row had reached when the change was decided. Rows of the
home side (`CellRouting.home_side`, whose rows live in one bucket each) are assigned by the number
in force at their time; the other side's rows are replicated to the buckets of every number in force
at a time that they may be joined with. Both follow from the row alone, so it is the same whenever,
wherever and how often it is computed.

The home bucket of a cell counts its rows, decides, and keeps the changes in its state; tasks read
them from a folder (`tables.skew.salting_store`) in the next micro-batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

import numba
import numpy as np
import numpy.typing as npt

from rivermouth.errors import StateError
from rivermouth.kernels.arrays import Ints
from rivermouth.kernels.stream_join.times import TimeBounds

_MOST = 64  # cells that a bucket tracks
_PAIR = 0.2  # the cost of a pair, in units of the cost of replicating a row to one more bucket
#: the counters, by their names in the state
_COUNTERS = {
    "rows": "rows",
    "stayed": "home_rows",
    "others": "other_rows",
    "pairs": "pairs",
    "begun": "oldest",
}


class SaltChange(NamedTuple):
    """After an event time, rows of a cell are spread over so many buckets.

    `since` itself is excluded. `batch` is the micro-batch that decided: tasks apply the change in
    later ones.
    """

    cell_key: int
    since: int
    salts: int
    batch: int


@dataclass(frozen=True)
class SaltSchedule:
    """Changes of the number of salts of any number of cells.

    Parameters
    ----------
    changes
        In any order; those of one cell have different times.

    Examples
    --------
    >>> schedule = SaltSchedule((SaltChange(7, 100, 4, 0), SaltChange(7, 200, 1, 5)))
    >>> schedule.salts(np.array([7, 7, 7, 8]), np.array([100, 101, 201, 150])).tolist()
    [1, 4, 1, 1]
    """

    changes: tuple[SaltChange, ...] = ()

    @classmethod
    def merged(
        cls, published: Mapping[int, Iterable[Sequence[int]]], buckets: int, batch: int
    ) -> SaltSchedule:
        """What buckets published of cells whose home they are, before this micro-batch."""
        found = [(bucket, SaltChange(*one)) for bucket, many in published.items() for one in many]
        homes = home_buckets(np.array([one.cell_key for _, one in found], np.int64), buckets)
        return cls(
            tuple(
                change
                for (bucket, change), home in zip(found, homes.tolist(), strict=True)
                if bucket == home and change.batch < batch
            )
        )

    @cached_property
    def arrays(self) -> tuple[Ints, Ints, Ints]:
        """Cell key, time and number of salts of each change, by cell and time."""
        cell_key, since, salts, _ = np.array(sorted(self.changes), np.int64).reshape(-1, 4).T
        return tuple(map(np.ascontiguousarray, (cell_key, since, salts)))  # type: ignore[return-value]

    def salts(self, cell_keys: Ints, times: Ints) -> Ints:
        """Over how many buckets rows of these cells and times are spread."""
        if not self.changes:
            return np.ones(len(cell_keys), np.int64)
        return np.asarray(_salts(cell_keys, times, *self.arrays))

    def since(self, time: int) -> SaltSchedule:
        """Without the changes that make no difference from this time on."""
        kept: list[SaltChange] = []
        for _, own in groupby(sorted(self.changes), key=attrgetter("cell_key")):
            changes = list(own)
            past = [change for change in changes if change.since < time]
            kept += [change for change in past[-1:] if change.salts > 1]
            kept += changes[len(past) :]
        return SaltSchedule(tuple(kept))


@numba.njit(cache=True)
def most_salts(
    cell_key: int, first: int, last: int, cell_keys: Ints, since: Ints, salts: Ints
) -> Any:
    """The largest number of salts that a cell has at any time in [first, last]."""
    most, k = 1, np.searchsorted(cell_keys, cell_key)
    while k < len(cell_keys) and cell_keys[k] == cell_key and since[k] < last:
        over = k + 1 < len(cell_keys) and cell_keys[k + 1] == cell_key and since[k + 1] < first
        if not over:
            most = max(most, salts[k])
        k += 1
    return most


@numba.njit(cache=True)
def _salts(wanted: Ints, times: Ints, cell_keys: Ints, since: Ints, salts: Ints) -> Ints:
    found = np.empty(len(wanted), np.int64)
    for k in range(len(wanted)):
        found[k] = most_salts(wanted[k], times[k], times[k], cell_keys, since, salts)
    return found


@dataclass(frozen=True)
class SaltingContext:
    """What a bucket needs besides its state to change the number of salts.

    Parameters
    ----------
    batch
        The number of the micro-batch.
    publish
        Tells the tasks of later micro-batches a bucket's changes.
    where, folder
        The operator, and the folder of published changes, for errors.
    enough
        How many rows of the home side a bucket must have had, on average, before it decides.
    """

    batch: int
    publish: Callable[[int, Sequence[SaltChange]], None]
    where: str = "join"
    folder: str = ""
    enough: int = 128


@dataclass
class SkewTracker:
    """What a bucket has counted since it last decided, and the changes that it decided.

    Parameters
    ----------
    bucket, buckets
        The bucket's number, and how many there are.
    bounds
        The times of home rows that a row of the other side may be joined with.
    schedule
        The changes of the cells whose home this bucket is.
    rows
        Rows of the home side, in all buckets.
    home_rows, other_rows, pairs
        Rows of either side and pairs, in this bucket.
    oldest
        The oldest time among the first rows that were counted.
    cells
        By cell whose home this bucket is: its home rows here, and about how many there are in all
        buckets, given the number of salts that they were assigned with.
    """

    bucket: int
    buckets: int
    bounds: TimeBounds
    schedule: SaltSchedule = field(default_factory=SaltSchedule)
    rows: int = 0
    home_rows: int = 0
    other_rows: int = 0
    pairs: int = 0
    oldest: int | None = None
    cells: dict[int, list[int]] = field(default_factory=dict)

    def manifest(self) -> dict[str, Any]:
        """What `restored` needs, as JSON for the state."""
        return {key: getattr(self, name) for key, name in _COUNTERS.items()} | {
            "steps": self.schedule.changes,
            "seen": list(self.cells.items()),
        }

    def restored(self, manifest: Mapping[str, Any]) -> SkewTracker:
        """The tracker that wrote `manifest`."""
        counters = {name: manifest[key] for key, name in _COUNTERS.items()}
        schedule = SaltSchedule(tuple(SaltChange(*change) for change in manifest["steps"]))
        return replace(self, **counters, schedule=schedule, cells=dict(manifest["seen"]))

    def check(
        self, notes: Iterable[Mapping[str, Any]], context: SaltingContext, watermark: int
    ) -> None:
        """Whether all tasks used this bucket's changes, as far as they still matter."""
        start = self._oldest_probed(watermark)
        mine = self.schedule.since(start)
        for used in {tuple(SaltChange(*change) for change in note["changes"]) for note in notes}:
            is_home = self._is_home(np.array([change.cell_key for change in used], np.int64))
            own = tuple(change for change, home in zip(used, is_home, strict=True) if home)
            if SaltSchedule(own).since(start) != mine:
                context.publish(self.bucket, self.schedule.changes)
                raise StateError(
                    context.where,
                    "rows were not salted by the changes that this state was written with",
                    there=f"{context.folder} held others, or none; it was restored from the state",
                    todo="Restart the query. If the error comes back, give this join and"
                    " checkpoint a folder of their own that all hosts reach:"
                    " rm.grid(skew_path=...).",
                )

    def count(
        self,
        cell_keys: Ints,
        times: Ints,
        notes: Iterable[Mapping[str, Any]],
        other_rows: int,
        pairs: int,
    ) -> None:
        """Add a micro-batch: its home rows, and how many other rows and pairs it had."""
        self.rows += sum(note["rows"] for note in notes)
        self.home_rows, self.other_rows = self.home_rows + len(times), self.other_rows + other_rows
        self.pairs += pairs
        is_home = self._is_home(cell_keys)
        cell_keys, times = cell_keys[is_home], times[is_home]
        if len(times) and self.oldest is None:
            self.oldest = int(times.min())
        names, at, count = np.unique(cell_keys, return_inverse=True, return_counts=True)
        weight = np.bincount(at, self.schedule.salts(cell_keys, times), len(names)).astype(np.int64)
        largest = np.lexsort((names, -weight))[:_MOST]
        for cell, here, everywhere in np.column_stack([names, count, weight])[largest].tolist():
            counts = self.cells.setdefault(cell, [0, 0])
            counts[0], counts[1] = counts[0] + here, counts[1] + everywhere
        order = sorted(self.cells, key=lambda cell: (-self.cells[cell][1], cell))
        self.cells = {cell: self.cells[cell] for cell in order[:_MOST]}

    def decide(self, context: SaltingContext, newest: int, watermark: int) -> None:
        """Salt cells that are skewed, and stop salting others, once enough rows have come.

        `newest` is the newest time of any row so far, `watermark` that before this micro-batch.
        """
        if self.rows < context.enough * self.buckets or self.oldest is None:
            return
        if newest - self.oldest < self.bounds.upper - self.bounds.lower:
            return  # pairs may come only when a window closes
        changes = list(self.schedule.since(self._oldest_probed(watermark)).changes)
        last = {change.cell_key: change for change in sorted(changes)}
        since = newest + max(self.bounds.upper, 0)
        share = self.rows / self.buckets
        for cell in sorted(last.keys() | self.cells.keys()):
            salts = last[cell].salts if cell in last else 1
            here, rows = self.cells.get(cell, [0, 0])
            pairs = self.pairs * here / max(self.home_rows, 1) * salts
            wanted = self._wanted(rows / share, pairs)
            is_small = wanted == 1 < salts and rows < share / 2
            is_new = cell not in last or last[cell].since < since
            if is_new and (wanted >= 2 * salts or 3 * wanted <= salts or is_small):
                changes.append(SaltChange(cell, since, wanted, context.batch))
        self.rows, self.home_rows, self.other_rows, self.pairs, self.oldest = 0, 0, 0, 0, None
        self.cells = {}
        if tuple(changes) != self.schedule.changes:
            self.schedule = SaltSchedule(tuple(changes))
            context.publish(self.bucket, self.schedule.changes)

    @property
    def salted_cells(self) -> int:
        """How many cells are spread over several buckets, or were when rows in state came."""
        return len({change.cell_key for change in self.schedule.changes if change.salts > 1})

    def _wanted(self, shares: float, pairs: float) -> int:
        """The number of salts of a cell with so many buckets' shares of rows, and pairs.

        No bucket gets more than its share, and replicas of the other side's rows must cost less
        than the pairs.
        """
        worth = 1 + int(_PAIR * pairs / max(self.other_rows, 1))
        return max(1, min(math.ceil(shares), worth, self.buckets))

    def _is_home(self, cell_keys: Ints) -> npt.NDArray[np.bool_]:
        return np.asarray(home_buckets(cell_keys, self.buckets) == self.bucket)

    def _oldest_probed(self, watermark: int) -> int:
        """The oldest time of a home row that a row which is not late may be joined with."""
        return watermark + min(self.bounds.lower, 0)


def home_buckets(cell_keys: Ints, buckets: int) -> Ints:
    """The home of each cell: by the upper bits of its key, a hash's best."""
    return np.asarray((cell_keys.view(np.uint64) >> np.uint64(33)).astype(np.int64) % buckets)
