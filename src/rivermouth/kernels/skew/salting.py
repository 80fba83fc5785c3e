"""Crowded spots: cells so full that their rows are dealt over several buckets, from a time on.

A row that is held cannot move, and all tasks must agree where a row goes. So a spot's spread
changes by *steps*: from an event time on that no row had reached when the step was decided. Rows of
the side that stays (`Routing.single`) are dealt by the step in force at their time; the other
side's go to all buckets of any step that is in force at a time which they may meet. Both follows
from the row alone, and so it is the same whenever, wherever and how often it is worked out.

The bucket that is a spot's home counts its rows, decides, and remembers its steps in its state;
tasks learn of them from a folder (`tables.skew.salting_store`) with the next micro-batch.
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
from rivermouth.kernels.stream_join.times import Span

Ints = npt.NDArray[np.int64]

_MOST = 64  # spots that a bucket keeps an eye on
_PAIR = 0.2  # what a pair costs, measured in rows that are sent to one more bucket
_COUNTED = ("rows", "stayed", "others", "pairs", "begun")


class Step(NamedTuple):
    """From a time on, rows of a spot are dealt over so many buckets.

    `since` itself does not belong to it. `batch` is the micro-batch that decided: tasks know of
    the step in later ones.
    """

    spot: int
    since: int
    spread: int
    batch: int


@dataclass(frozen=True)
class Crowds:
    """Steps of any number of spots.

    Parameters
    ----------
    steps
        In any order; those of one spot have different times.

    Examples
    --------
    >>> crowds = Crowds((Step(7, 100, 4, 0), Step(7, 200, 1, 5)))
    >>> crowds.at(np.array([7, 7, 7, 8]), np.array([100, 101, 201, 150])).tolist()
    [1, 4, 1, 1]
    """

    steps: tuple[Step, ...] = ()

    @classmethod
    def known(cls, said: Mapping[int, Iterable[Sequence[int]]], buckets: int, batch: int) -> Crowds:
        """Those that buckets have said of spots whose home they are, before this micro-batch."""
        told = [(bucket, Step(*step)) for bucket, steps in said.items() for step in steps]
        if not told:
            return cls()
        homes = bucket_of(np.array([step.spot for _, step in told]), buckets).tolist()
        return cls(
            tuple(
                step
                for (bucket, step), home in zip(told, homes, strict=True)
                if bucket == home and step.batch < batch
            )
        )

    @cached_property
    def arrays(self) -> tuple[Ints, Ints, Ints]:
        """Spot, time and spread of each step, by spot and time."""
        spot, since, spread, _ = np.array(sorted(self.steps), np.int64).reshape(-1, 4).T
        return tuple(map(np.ascontiguousarray, (spot, since, spread)))  # type: ignore[return-value]

    def at(self, spots: Ints, times: Ints) -> Ints:
        """Over how many buckets rows of these spots and times are dealt."""
        if not self.steps:
            return np.ones(len(spots), np.int64)
        return np.asarray(_at(spots, times, *self.arrays))

    def since(self, floor: int) -> Crowds:
        """Without the steps that matter to no time from `floor` on."""
        kept: list[Step] = []
        for _, own in groupby(sorted(self.steps), key=attrgetter("spot")):
            steps = list(own)
            past = [step for step in steps if step.since < floor]
            kept += [step for step in past[-1:] if step.spread > 1]
            kept += [step for step in steps if step.since >= floor]
        return Crowds(tuple(kept))


@numba.njit(cache=True)
def most_between(spot: int, first: int, last: int, spots: Ints, since: Ints, spread: Ints) -> Any:
    """The widest spread that a spot has at any time in [first, last]."""
    most, k = 1, np.searchsorted(spots, spot)
    while k < len(spots) and spots[k] == spot and since[k] < last:
        over = k + 1 < len(spots) and spots[k + 1] == spot and since[k + 1] < first
        if not over:
            most = max(most, spread[k])
        k += 1
    return most


@numba.njit(cache=True)
def _at(asked: Ints, times: Ints, spots: Ints, since: Ints, spread: Ints) -> Ints:
    found = np.empty(len(asked), np.int64)
    for k in range(len(asked)):
        found[k] = most_between(asked[k], times[k], times[k], spots, since, spread)
    return found


@dataclass(frozen=True)
class Learning:
    """What a bucket needs besides its state to decide on steps.

    Parameters
    ----------
    batch
        The number of the micro-batch.
    publish
        Lets the tasks of later micro-batches know of a bucket's steps.
    where
        The operator, and the folder, in errors.
    enough
        How many rows of the side that stays a bucket must have had, on average, before anything
        is decided.
    """

    batch: int
    publish: Callable[[int, Sequence[Step]], None]
    where: tuple[str, str] = ("join", "")
    enough: int = 128


@dataclass
class Watch:
    """What a bucket has counted since it last decided, and the steps it has decided on.

    Parameters
    ----------
    bucket, buckets
        Which one it is, of how many.
    span
        When, after a row of the other side, rows of the side that stays may meet it.
    steps
        Of the spots whose home it is.
    rows
        Rows of the side that stays, in all buckets.
    stayed, others, pairs
        Rows of either side and pairs, in this one.
    begun
        The oldest time among the first rows that were counted.
    seen
        By spot whose home this is: rows of the side that stays, and how many there are of them
        in all buckets, going by the spread that they were dealt with.
    """

    bucket: int
    buckets: int
    span: Span
    steps: Crowds = field(default_factory=Crowds)
    rows: int = 0
    stayed: int = 0
    others: int = 0
    pairs: int = 0
    begun: int | None = None
    seen: dict[int, list[int]] = field(default_factory=dict)

    def book(self) -> dict[str, Any]:
        """What `restore` needs, in a form that can be written down."""
        return {name: getattr(self, name) for name in _COUNTED} | {
            "steps": self.steps.steps,
            "seen": list(self.seen.items()),
        }

    def restore(self, book: Mapping[str, Any]) -> Watch:
        """The watch as `book` has it."""
        counted = {name: book[name] for name in _COUNTED}
        steps = Crowds(tuple(Step(*step) for step in book["steps"]))
        return replace(self, **counted, steps=steps, seen=dict(book["seen"]))

    def check(self, notes: Iterable[Mapping[str, Any]], learning: Learning, reached: int) -> None:
        """Whether all tasks knew this bucket's steps, those that still matter, and no others."""
        floor = self._floor(reached)
        mine = self.steps.since(floor)
        for told in {tuple(Step(*step) for step in note["steps"]) for note in notes}:
            home = self._is_home(np.array([step.spot for step in told], np.int64))
            own = tuple(step for step, is_home in zip(told, home, strict=True) if is_home)
            if Crowds(own).since(floor) != mine:
                learning.publish(self.bucket, self.steps.steps)
                name, folder = learning.where
                raise StateError(
                    name,
                    "rows were not dealt by the rules that this state was written with",
                    there=f"{folder} held others, or none; it has been put right from the state",
                    todo="Start the query again. If this keeps coming back, give this join and"
                    " checkpoint a folder of their own that all hosts reach: rm.grid(learn=...).",
                )

    def count(
        self, spots: Ints, times: Ints, notes: Iterable[Mapping[str, Any]], others: int, pairs: int
    ) -> None:
        """Take in a step: its rows of the side that stays, and how many others and pairs it had."""
        self.rows += sum(note["rows"] for note in notes)
        self.stayed, self.others = self.stayed + len(spots), self.others + others
        self.pairs += pairs
        home = self._is_home(spots)
        spots, times = spots[home], times[home]
        if len(times) and self.begun is None:
            self.begun = int(times.min())
        names, place, count = np.unique(spots, return_inverse=True, return_counts=True)
        weight = np.bincount(place, self.steps.at(spots, times), len(names)).astype(np.int64)
        largest = np.lexsort((names, -weight))[:_MOST]
        for spot, here, all_ in np.column_stack([names, count, weight])[largest].tolist():
            one = self.seen.setdefault(spot, [0, 0])
            one[0], one[1] = one[0] + here, one[1] + all_
        order = sorted(self.seen, key=lambda spot: (-self.seen[spot][1], spot))
        self.seen = {spot: self.seen[spot] for spot in order[:_MOST]}

    def decide(self, learning: Learning, newest: int, reached: int) -> None:
        """Spread what is crowded, and gather what is no longer, once enough has come.

        `newest` is the newest time of any row so far, `reached` the time before which rows were
        late when this step began.
        """
        if self.rows < learning.enough * self.buckets or self.begun is None:
            return
        if newest - self.begun < self.span.upper - self.span.lower:
            return  # pairs may come only when a window closes
        steps = list(self.steps.since(self._floor(reached)).steps)
        last = {step.spot: step for step in sorted(steps)}
        since = newest + max(self.span.upper, 0)
        share = self.rows / self.buckets
        for spot in sorted(last.keys() | self.seen.keys()):
            spread = last[spot].spread if spot in last else 1
            here, rows = self.seen.get(spot, [0, 0])
            wanted = self._wanted(rows / share, self.pairs * here / max(self.stayed, 1) * spread)
            gone = wanted == 1 < spread and rows < share / 2
            is_new = spot not in last or last[spot].since < since
            if is_new and (wanted >= 2 * spread or 3 * wanted <= spread or gone):
                steps.append(Step(spot, since, wanted, learning.batch))
        self.rows, self.stayed, self.others, self.pairs, self.begun = 0, 0, 0, 0, None
        self.seen = {}
        if tuple(steps) != self.steps.steps:
            self.steps = Crowds(tuple(steps))
            learning.publish(self.bucket, self.steps.steps)

    @property
    def salted_cells(self) -> int:
        """How many spots are dealt over several buckets, or were when rows that are held came."""
        return len({step.spot for step in self.steps.steps if step.spread > 1})

    def _wanted(self, shares: float, pairs: float) -> int:
        """Over how many buckets a spot goes that has so many buckets' shares of rows, and pairs.

        None gets more than its share, and copies of the other side's rows cost less than pairs.
        """
        worth = 1 + int(_PAIR * pairs / max(self.others, 1))
        return max(1, min(math.ceil(shares), worth, self.buckets))

    def _is_home(self, spots: Ints) -> npt.NDArray[np.bool_]:
        return np.asarray(bucket_of(spots, self.buckets) == self.bucket)

    def _floor(self, reached: int) -> int:
        """The oldest time of a row that stays which a row that is not late may ask for."""
        return reached + min(self.span.lower, 0)


def bucket_of(spots: Ints, buckets: int) -> Ints:
    """The home of each spot: by the upper bits, a hash's best."""
    return np.asarray((spots.view(np.uint64) >> np.uint64(33)).astype(np.int64) % buckets)
