"""What a bucket emits in a micro-batch: pairs, nearest rows, and rows with or without a partner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from rivermouth.kernels.arrays import Bools, Ints
from rivermouth.kernels.spatial.strtree import nearest_of
from rivermouth.kernels.stream_join.nearest import nearest
from rivermouth.kernels.stream_join.output_buffer import SIDES, OutputBuffer
from rivermouth.kernels.stream_join.pairing import pairs
from rivermouth.kernels.stream_join.query import LEFT, RIGHT, StreamJoin
from rivermouth.kernels.stream_join.routing import CellRouting, owners
from rivermouth.kernels.stream_join.row_block import RowBlock
from rivermouth.kernels.stream_join.side_state import SideState, Store
from rivermouth.kernels.stream_join.times import BEGIN, END, Interval, TimeBounds, Windows
from rivermouth.spec.conditions import Nearest

_IN_WINDOWS = 1 << 22  # rows times windows that are processed together
#: rows, and for each the start of one of its windows
RowWindows = tuple[Ints, Ints]
#: the new rows of either side
NewRows = tuple[RowBlock | None, RowBlock | None]


@dataclass
class PairEmitter:
    """Emits the results of one micro-batch in one bucket.

    Parameters
    ----------
    join, routing, bucket
        The join, how rows were assigned to buckets, and the number of this one.
    store, sides
        The bucket's state, and the rows of either side in it.
    out
        Gathers the result.
    counts
        The metrics to add to.
    """

    join: StreamJoin
    routing: CellRouting
    bucket: int
    store: Store
    sides: tuple[SideState, SideState]
    out: OutputBuffer
    counts: Counter[str]

    def emit(self, new: NewRows, previous: int, watermark: int) -> Iterator[pa.Table]:
        """All results of `new`, while the watermark advances from `previous` to `watermark`.

        The new rows that may still be joined are in the state afterwards.
        """
        join = self.join
        if join.is_nearest:
            self._keep(new, BEGIN)  # before they are probed: in a bin they are in order
            yield from self._closed_nearest(previous, watermark)
            return
        if not join.waits:
            yield from self._new_pairs(new)
        if isinstance(join.when, Windows):
            for side in join.decided_sides or ((LEFT,) if join.waits else ()):
                yield from self._closed_windows(join.when, side, new, previous, watermark)
        else:
            for side in join.unmatched_sides:
                wait = join.when.waits[side]
                yield from self._closed_rows(side, new, previous - wait, watermark - wait - 1)
        self._keep(new, watermark)

    def _keep(self, new: NewRows, watermark: int) -> None:
        for side, block, retention in zip(self.sides, new, self.join.retention, strict=True):
            if block is not None:
                side.add(block.between(watermark - retention, END))

    def _blocks(self, side: int, new: NewRows, first: int, last: int) -> Iterator[RowBlock]:
        """All blocks of a side that may contain times in [first, last]."""
        yield from self.sides[side].blocks(self.store, first, last)
        block = new[side]
        if block is not None:
            yield block

    def _unmatched(self, block: RowBlock, rows: Ints, starts: Ints | None) -> Iterator[pa.Table]:
        self.counts[f"{SIDES[block.side]}_unmatched"] += len(rows)
        yield from self.out.alone(block, rows, starts=starts)

    def _left_matched(self, left: RowBlock, rows: Ints, starts: Ints | None) -> Iterator[pa.Table]:
        self.counts["left_matched"] += len(rows)
        yield from self.out.alone(left, rows, starts=starts)

    def _is_home(self, block: RowBlock) -> Bools:
        """Which rows this bucket decides about: all, or those that are at home in it."""
        return block.is_home if self.routing.both_home else np.ones(len(block), dtype=bool)

    # -- as soon as both rows are there

    def _new_pairs(self, new: NewRows) -> Iterator[pa.Table]:
        """Pairs of which one row or both are new."""
        left, right = new
        if left is not None and len(left):
            bounds = self.join.bounds(LEFT)
            for other in self._blocks(RIGHT, new, *bounds.around(left.first, left.last)):
                for li, ri, tested in pairs(left, other, bounds):
                    yield from self._pairs(left, li, other, ri, tested)
        if right is not None and len(right):
            bounds = self.join.bounds(RIGHT)
            first, last = bounds.around(right.first, right.last)
            for other in self.sides[LEFT].blocks(self.store, first, last):
                for ri, li, tested in pairs(right, other, bounds):
                    yield from self._pairs(other, li, right, ri, tested)

    def _pairs(
        self, left: RowBlock, li: Ints, right: RowBlock, ri: Ints, tested: int
    ) -> Iterator[pa.Table]:
        if self.join.how == "semi":
            yield from self._left_matched(left, np.unique(li[~left.matched[li]]), None)
        for side, block, rows in ((LEFT, left, li), (RIGHT, right, ri)):
            if side in self.join.tracked_sides:
                block.mark_matched(rows)
        self.counts["candidates"] += tested
        own = self._owns(left, li, right, ri)
        li, ri = li[own], ri[own]
        if not self.join.emits_pairs:
            return
        starts = None
        if isinstance(self.join.when, Windows):
            pair, starts = self.join.when.shared(left.times[li], right.times[ri])
            li, ri = li[pair], ri[pair]
        self.counts["pairs"] += len(li)
        yield from self.out.pairs(left, li, right, ri, starts=starts)

    def _owns(self, left: RowBlock, li: Ints, right: RowBlock, ri: Ints) -> Bools:
        """Which pairs this bucket emits: all, or those of its left rows or reference points."""
        routing = self.routing
        if routing.both_home:
            return self._is_home(left)[li]
        if routing.home_side is not None or routing.lattice is not None or not len(li):
            return np.ones(len(li), dtype=bool)
        return np.asarray(owners(routing, left, li, right, ri) == self.bucket)

    # -- when the watermark has passed the interval or window

    def _closed_rows(self, side: int, new: NewRows, first: int, last: int) -> Iterator[pa.Table]:
        """Rows without a partner whose intervals have closed: those with times in [first, last]."""
        for block in self._blocks(side, new, first, last):
            closed = (block.times >= first) & (block.times <= last) & self._is_home(block)
            yield from self._unmatched(block, np.flatnonzero(closed & ~block.matched), None)

    def _closed_windows(
        self, when: Windows, side: int, new: NewRows, previous: int, watermark: int
    ) -> Iterator[pa.Table]:
        """The rows of a side in windows that have closed: pairs, and those without a partner."""
        first, last = when.closing_times(previous, watermark)
        for block in self._blocks(side, new, first, last):
            inside = block.between(first, last)
            if len(inside) and when.any_closes(inside.first, inside.last, previous, watermark):
                if self.routing.both_home:
                    inside = inside.take(np.flatnonzero(self._is_home(inside)))
                for part in inside.split(_IN_WINDOWS // when.overlap):
                    yield from self._closed_in(when, part, new, previous, watermark)

    def _closed_in(
        self, when: Windows, block: RowBlock, new: NewRows, previous: int, watermark: int
    ) -> Iterator[pa.Table]:
        first, last = when.closing_times(previous, watermark)
        bounds = when.left_bounds._replace(first=first, last=last)
        decided = self.join.decided_sides
        partners = Partners(when, block.times) if decided else None
        # in a full join, which looks at the rows of either side, the left ones have the pairs
        emits = self.join.waits and self.join.emits_pairs and block.side == (decided or (LEFT,))[0]
        for other in self._blocks(1 - block.side, new, first, last):
            for rows, others, tested in pairs(block, other, bounds):
                pair, starts = when.shared(block.times[rows], other.times[others])
                closes = when.closes(starts, previous, watermark)
                pair, starts = pair[closes], starts[closes]
                if partners is not None:
                    partners.add(rows[pair], starts)
                self.counts["candidates"] += tested
                if emits:
                    yield from self._in_windows(block, rows[pair], other, others[pair], starts)
        if partners is not None:
            matched, unmatched = partners.closing(previous, watermark)
            if self.join.how == "semi":
                yield from self._left_matched(block, *matched)
            else:
                yield from self._unmatched(block, *unmatched)

    def _in_windows(
        self, block: RowBlock, rows: Ints, other: RowBlock, others: Ints, starts: Ints
    ) -> Iterator[pa.Table]:
        """The pairs of windows, with the left row first."""
        if block.side == RIGHT:
            block, rows, other, others = other, others, block, rows
        own = self._owns(block, rows, other, others)
        rows, others, starts = rows[own], others[own], starts[own]
        self.counts["pairs"] += len(rows)
        yield from self.out.pairs(block, rows, other, others, starts=starts)

    def _closed_nearest(self, previous: int, watermark: int) -> Iterator[pa.Table]:
        """The nearest rows of left rows whose interval or window has closed."""
        when = self.join.when
        closed: list[tuple[int, int, TimeBounds, int | None]]
        if isinstance(when, Interval):
            wait = when.waits[LEFT]
            closed = [(previous - wait, watermark - wait - 1, when.left_bounds, None)]
        else:
            ranges = self.sides[LEFT].time_ranges()
            starts = np.array(sorted({start for ends in ranges for start in when.starts(*ends)}))
            starts = starts.astype(np.int64)
            closed = [
                (start, start + when.size - 1,
                 when.left_bounds._replace(first=start, last=start + when.size - 1), start)
                for start in starts[when.closes(starts, previous, watermark)].tolist()
            ]  # fmt: skip
        for first, last, bounds, start in closed:
            for block in self.sides[LEFT].blocks(self.store, first, last):
                left = block.between(first, last)
                if len(left):
                    found = yield from self._nearest(left, bounds, start)
                    if self.join.how == "semi":
                        rows = np.flatnonzero(found)
                        yield from self._left_matched(left, rows, _repeated(start, len(rows)))
                    elif self.join.unmatched_sides:
                        rows = np.flatnonzero(~found)
                        yield from self._unmatched(left, rows, _repeated(start, len(rows)))

    def _nearest(
        self, left: RowBlock, bounds: TimeBounds, start: int | None
    ) -> Generator[pa.Table, None, Bools]:
        """The nearest rows of each left row, per bin, then of all bins; which rows have one."""
        spatial = self.join.spatial
        assert isinstance(spatial, Nearest)
        first, last = bounds.around(left.first, left.last)
        rights = list(self.sides[RIGHT].sorted_blocks(self.store, first, last))
        parts = [nearest(left, right, bounds) for right in rights]
        found = np.zeros(len(left), dtype=bool)
        if not parts:
            return found
        li = np.concatenate([part.probe for part in parts])
        distance = np.concatenate([part.distance for part in parts])
        offset = np.cumsum([0, *(len(right) for right in rights)])
        order = np.concatenate([p.build + o for p, o in zip(parts, offset, strict=False)])
        keep, _ = nearest_of(li, order, distance, spatial.k, spatial.limit)
        found[li[keep]] = True
        self.counts["candidates"] += len(li)
        if not self.join.emits_pairs:
            return found
        self.counts["pairs"] += len(keep)
        block = np.searchsorted(offset, order[keep], side="right") - 1
        for number, right in enumerate(rights):
            own = keep[block == number]
            yield from self.out.pairs(
                left, li[own], right, order[own] - offset[number],
                distance=distance[own], starts=_repeated(start, len(own)),
            )  # fmt: skip
        return found


class Partners:
    """Which rows have a partner in which of their windows.

    Parameters
    ----------
    when, times
        The windows, and the rows' times.
    """

    def __init__(self, when: Windows, times: Ints) -> None:
        self._when, self._times = when, times
        self._oldest = when.oldest(times)
        self._matched = np.zeros((len(times), when.overlap), dtype=bool)

    def add(self, rows: Ints, starts: Ints) -> None:
        """Note that these rows have a partner in these of their windows."""
        self._matched[rows, self._when.number(starts) - self._oldest[rows]] = True

    def closing(self, previous: int, watermark: int) -> tuple[RowWindows, RowWindows]:
        """The windows that end in (previous, watermark]: with a partner, and without one."""
        rows, starts = self._when.shared(self._times, self._times)
        closes = self._when.closes(starts, previous, watermark)
        rows, starts = rows[closes], starts[closes]
        matched = self._matched[rows, self._when.number(starts) - self._oldest[rows]]
        return (rows[matched], starts[matched]), (rows[~matched], starts[~matched])


def _repeated(start: int | None, count: int) -> Ints | None:
    return None if start is None else np.full(count, start)
