"""What can be said in a step: pairs that meet, the nearest, and left rows that met nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rivermouth.kernels.spatial.geometry import Bools
from rivermouth.kernels.spatial.strtree import nearest_of
from rivermouth.kernels.stream_join.nearest import nearest
from rivermouth.kernels.stream_join.output_buffer import Output
from rivermouth.kernels.stream_join.pairing import pairs
from rivermouth.kernels.stream_join.query import LEFT, RIGHT, Meeting
from rivermouth.kernels.stream_join.routing import Routing, owners
from rivermouth.kernels.stream_join.row_block import Run
from rivermouth.kernels.stream_join.side_state import Shelf, Store
from rivermouth.kernels.stream_join.times import BEGIN, END, Interval, Span, Windows
from rivermouth.spec.conditions import Nearest

Ints = npt.NDArray[np.int64]

_IN_WINDOWS = 1 << 22  # rows times windows that are looked at together
#: the new rows of either side
Fresh = tuple[Run | None, Run | None]


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

        Those of the fresh rows that may still be asked for are held afterwards.
        """
        meeting = self.meeting
        if meeting.is_nearest:
            self._hold(fresh, BEGIN)  # in bins, for their order decides between equals
            yield from self._closed_nearest((None, None), before, now)
            return
        if not meeting.waits:
            yield from self._meetings(fresh)
        if isinstance(meeting.when, Windows):
            if meeting.waits or meeting.how == "left":
                yield from self._closed_windows(meeting.when, fresh, before, now)
        elif meeting.how == "left":
            yield from self._closed_rows(meeting.when, fresh, before, now)
        self._hold(fresh, now)

    def _hold(self, fresh: Fresh, now: int) -> None:
        for shelf, run, keep in zip(self.shelves, fresh, self.meeting.keeps, strict=True):
            if run is not None:
                shelf.put(run.between(now - keep, END))

    def _runs(self, side: int, fresh: Fresh, first: int, last: int) -> Iterator[Run]:
        """All rows that may have times in [first, last], in runs."""
        yield from self.shelves[side].runs(self.store, first, last)
        new = fresh[side]
        if new is not None:
            yield new

    # -- as soon as both rows are there

    def _meetings(self, fresh: Fresh) -> Iterator[pa.Table]:
        """Pairs of which one row or both are new."""
        left, right = fresh
        span, turned = self.meeting.when.span, self.meeting.when.turned
        if left is not None and len(left):
            first, last = left.first + span.lower, left.last + span.upper
            for other in self._runs(RIGHT, fresh, first, last):
                for li, ri, seen in pairs(left, other, span):
                    yield from self._met(left, li, other, ri, seen)
        if right is not None and len(right):
            first, last = right.first + turned.lower, right.last + turned.upper
            for other in self.shelves[LEFT].runs(self.store, first, last):
                for ri, li, seen in pairs(right, other, turned):
                    yield from self._met(other, li, right, ri, seen)

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

    def _closed_rows(
        self, when: Interval, fresh: Fresh, before: int, now: int
    ) -> Iterator[pa.Table]:
        """Left rows whose interval the clock has passed in this step and that met nothing."""
        first, last = before - when.wait, now - when.wait - 1
        for run in self._runs(LEFT, fresh, first, last):
            closed = (run.times >= first) & (run.times <= last)
            yield from self._left_unmatched(run, np.flatnonzero(closed & ~run.found), None)

    def _closed_windows(
        self, when: Windows, fresh: Fresh, before: int, now: int
    ) -> Iterator[pa.Table]:
        """The pairs of windows that the clock has passed in this step, and rows without one."""
        first, last = when.times(before, now)
        for run in self._runs(LEFT, fresh, first, last):
            inside = run.between(first, last)
            if len(inside) and when.any_closes(inside.first, inside.last, before, now):
                for left in inside.pieces(_IN_WINDOWS // when.most):
                    yield from self._closed_in(when, left, fresh, before, now)

    def _closed_in(
        self, when: Windows, left: Run, fresh: Fresh, before: int, now: int
    ) -> Iterator[pa.Table]:
        first, last = when.times(before, now)
        span = when.span._replace(first=first, last=last)
        alone = Alone(when, left.times) if self.meeting.how == "left" else None
        for right in self._runs(RIGHT, fresh, first, last):
            for li, ri, seen in pairs(left, right, span):
                li, ri = self._owned(left, li, right, ri, seen)
                pair, starts = when.shared(left.times[li], right.times[ri])
                closes = when.closes(starts, before, now)
                pair, starts = pair[closes], starts[closes]
                if alone is not None:
                    alone.met(li[pair], starts)
                if self.meeting.waits:
                    self.counts["pairs"] += len(pair)
                    yield from self.out.pairs(left, li[pair], right, ri[pair], starts=starts)
        if alone is not None:
            yield from self._left_unmatched(left, *alone.rest(before, now))

    def _closed_nearest(self, fresh: Fresh, before: int, now: int) -> Iterator[pa.Table]:
        """The nearest of rows whose interval or window the clock has passed in this step."""
        when = self.meeting.when
        if isinstance(when, Interval):
            spans = [(before - when.wait, now - when.wait - 1, when.span, None)]
        else:
            held = {start for ends in self.shelves[LEFT].spans() for start in when.over(*ends)}
            due = np.array(sorted(held), dtype=np.int64)
            spans = [
                (start, start + when.size - 1,
                 when.span._replace(first=start, last=start + when.size - 1), start)
                for start in due[when.closes(due, before, now)].tolist()
            ]  # fmt: skip
        for first, last, span, start in spans:
            for run in self._runs(LEFT, fresh, first, last):
                left = run.between(first, last)
                if len(left):
                    found = yield from self._nearest(left, span, start)
                    if self.meeting.how == "left":
                        rows = np.flatnonzero(~found)
                        starts = None if start is None else np.full(len(rows), start)
                        yield from self._left_unmatched(left, rows, starts)

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

    def _left_unmatched(self, left: Run, rows: Ints, starts: Ints | None) -> Iterator[pa.Table]:
        self.counts["left_unmatched"] += len(rows)
        yield from self.out.left_unmatched(left, rows, starts=starts)


class Alone:
    """Which rows have met nothing in which of their windows.

    Parameters
    ----------
    when, times
        The windows, and the rows' times.
    """

    def __init__(self, when: Windows, times: Ints) -> None:
        self._when, self._times = when, times
        self._oldest = (times - when.size) // when.every + 1
        self._met = np.zeros((len(times), when.most), dtype=bool)

    def met(self, rows: Ints, starts: Ints) -> None:
        """Note that these rows have met others in these of their windows."""
        self._met[rows, starts // self._when.every - self._oldest[rows]] = True

    def rest(self, before: int, now: int) -> tuple[Ints, Ints]:
        """The rows that are alone in a window which ends after `before`, not after `now`."""
        rows, starts = self._when.shared(self._times, self._times)
        alone = ~self._met[rows, starts // self._when.every - self._oldest[rows]]
        alone &= self._when.closes(starts, before, now)
        return rows[alone], starts[alone]
