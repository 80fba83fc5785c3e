"""What can be said in a step: pairs that meet, the nearest, and left rows that met nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rivermouth.kernels.geometry import Bools
from rivermouth.kernels.meeting.asked import LEFT, RIGHT, Meeting
from rivermouth.kernels.meeting.nearest import nearest
from rivermouth.kernels.meeting.output import Output
from rivermouth.kernels.meeting.pairing import pairs
from rivermouth.kernels.meeting.routing import Routing, owners
from rivermouth.kernels.meeting.runs import Run
from rivermouth.kernels.meeting.shelf import Shelf, Store
from rivermouth.kernels.meeting.times import Interval, Span, Windows
from rivermouth.kernels.tree import nearest_of
from rivermouth.spec.conditions import Nearest

Ints = npt.NDArray[np.int64]
#: the new rows of either side, by the bin that they belong to
Fresh = list[list[tuple[int, Run]]]


@dataclass
class Answers:
    """The answers of one step.

    Parameters
    ----------
    meeting, routing, bucket
        What is asked, how rows came here, and where this is.
    store, shelves
        The rows that are held.
    out
        Where the result is gathered.
    counts
        What was done, by name.
    """

    meeting: Meeting
    routing: Routing
    bucket: int
    store: Store
    shelves: tuple[Shelf, Shelf]
    out: Output
    counts: Counter[str] = field(default_factory=Counter)

    def given(self, fresh: Fresh, before: int, now: int) -> Iterator[pa.Table]:
        """All that can be said when `fresh` has come and the clock goes from `before` to `now`.

        The fresh rows are held afterwards.
        """
        when, waits = self.meeting.when, self.meeting.waits
        if not waits:
            yield from self._meetings(fresh)
        for side in (LEFT, RIGHT):
            for number, run in fresh[side]:
                self.shelves[side].add(number, run)
        if not waits and self.meeting.how == "inner":
            return
        if isinstance(when, Windows):
            yield from self._closed_windows(when, before, now)
        else:
            yield from self._closed_rows(when, before, now)

    # -- as soon as both rows are there

    def _meetings(self, fresh: Fresh) -> Iterator[pa.Table]:
        """Pairs of which one row or both are new."""
        left, right = self.shelves
        span, turned = self.meeting.when.span, self.meeting.when.turned
        new = [run for _, run in fresh[RIGHT]]
        for _, run in fresh[LEFT]:
            old = right.runs(self.store, run.first + span.lower, run.last + span.upper)
            for other in (*old, *new):
                for li, ri, seen in pairs(run, other, span):
                    yield from self._met(run, li, other, ri, seen)
        for run in new:
            old = left.runs(self.store, run.first + turned.lower, run.last + turned.upper)
            for other in old:
                for ri, li, seen in pairs(run, other, turned):
                    yield from self._met(other, li, run, ri, seen)

    def _met(self, left: Run, li: Ints, right: Run, ri: Ints, seen: int) -> Iterator[pa.Table]:
        li, ri = self._owned(left, li, right, ri, seen)
        left.met(li)
        starts = None
        if isinstance(self.meeting.when, Windows):
            pair, starts = self.meeting.when.shared(left.times[li], right.times[ri])
            li, ri = li[pair], ri[pair]
        self.counts["pairs"] += len(li)
        yield from self.out.pairs(left, li, right, ri, starts=starts)

    def _owned(self, left: Run, li: Ints, right: Run, ri: Ints, seen: int) -> tuple[Ints, Ints]:
        """Those of the pairs that belong to this bucket."""
        self.counts["candidates"] += seen
        if self.routing.single is not None or not len(li):
            return li, ri
        own = owners(self.routing, left, li, right, ri) == self.bucket
        return li[own], ri[own]

    # -- when the clock has passed all that a row may meet

    def _closed_rows(self, when: Interval, before: int, now: int) -> Iterator[pa.Table]:
        """Left rows whose interval the clock has passed in this step."""
        first, last = before - when.wait, now - when.wait - 1
        for run in self.shelves[LEFT].runs(self.store, first, last):
            closed = run.between(first, last)
            if not len(closed):
                continue
            found = closed.found
            if self.meeting.is_nearest:
                found = yield from self._nearest(closed, when.span, None)
            if self.meeting.how == "left":
                yield from self._lonely(closed, ~found, None)

    def _closed_windows(self, when: Windows, before: int, now: int) -> Iterator[pa.Table]:
        """The windows that the clock has passed in this step, one after the other."""
        for start in self.shelves[LEFT].windows(when, before, now):
            last = start + when.size - 1
            span = when.span._replace(first=start, last=last)
            for run in self.shelves[LEFT].runs(self.store, start, last):
                left = run.between(start, last)
                if not len(left):
                    continue
                answer = self._nearest if self.meeting.is_nearest else self._window
                found = yield from answer(left, span, start)
                if self.meeting.how == "left":
                    yield from self._lonely(left, ~found, start)

    def _window(self, left: Run, span: Span, start: int) -> Generator[pa.Table, None, Bools]:
        """The pairs of one window, unless they were told already; which left rows have one."""
        found = np.zeros(len(left), dtype=bool)
        for right in self.shelves[RIGHT].runs(self.store, span.first, span.last):
            for li, ri, seen in pairs(left, right, span):
                li, ri = self._owned(left, li, right, ri, seen)
                found[li] = True
                if self.meeting.waits:
                    self.counts["pairs"] += len(li)
                    yield from self.out.pairs(left, li, right, ri, starts=np.full(len(li), start))
        return found

    def _nearest(
        self, left: Run, span: Span, start: int | None
    ) -> Generator[pa.Table, None, Bools]:
        """The nearest of each row, bin by bin, then of all bins; which rows have one."""
        place = self.meeting.place
        assert isinstance(place, Nearest)
        first = max(left.first + span.lower, span.first)
        last = min(left.last + span.upper, span.last)
        rights = list(self.shelves[RIGHT].in_order(self.store, first, last))
        parts = [nearest(left, right, span) for right in rights]
        found = np.zeros(len(left), dtype=bool)
        if not parts:
            return found
        li = np.concatenate([part.asking for part in parts])
        distance = np.concatenate([part.distance for part in parts])
        offset = np.cumsum([0, *(len(right) for right in rights)])
        order = np.concatenate([p.held + o for p, o in zip(parts, offset, strict=False)])
        keep, _ = nearest_of(li, order, distance, place.k, place.limit)
        found[li[keep]] = True
        self.counts["candidates"] += len(li)
        self.counts["pairs"] += len(keep)
        owner = np.searchsorted(offset, order[keep], side="right") - 1
        for number, right in enumerate(rights):
            own = keep[owner == number]
            yield from self.out.pairs(
                left, li[own], right, order[own] - offset[number], distance=distance[own],
                starts=None if start is None else np.full(len(own), start),
            )  # fmt: skip
        return found

    def _lonely(self, left: Run, alone: Bools, start: int | None) -> Iterator[pa.Table]:
        rows = np.flatnonzero(alone)
        self.counts["lonely"] += len(rows)
        starts = None if start is None else np.full(len(rows), start)
        yield from self.out.lonely(left, rows, starts=starts)
