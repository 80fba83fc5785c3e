"""Which windows there are, and which panes each of them spans.

Time is cut into panes that no window's edge cuts; what is kept of the records is kept once per
group and pane, and a window is a run of panes. Entries are what is kept, sorted by group and
pane, so that every window of every group is a run of entries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rivermouth.kernels.aggregation.groups import dense
from rivermouth.spec.windows import Window

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Grid:
    """A window's lengths in microseconds. Window k is [k * every, k * every + size)."""

    size: int
    every: int
    pane: int

    @classmethod
    def of(cls, window: Window) -> Grid:
        """The grid of the windows that a user asks for."""
        return cls(window.size_us, window.every_us, window.pane_us)

    def panes(self, times: Ints) -> Ints:
        """The pane of each time."""
        return times // self.pane

    def first_window(self, pane: Ints) -> Ints:
        """The first window that holds each pane."""
        return (pane * self.pane - self.size) // self.every + 1

    def last_window(self, pane: Ints) -> Ints:
        """The last window that holds each pane."""
        return pane * self.pane // self.every

    def start(self, windows: Ints) -> Ints:
        """Where each window starts, in microseconds."""
        return windows * self.every

    def ended(self, time: int) -> int:
        """The last window that ends at or before `time`."""
        return (time - self.size) // self.every

    def first_pane(self, window: int) -> int:
        """The first pane of a window."""
        return window * self.every // self.pane


class Cells(NamedTuple):
    """Which (group, pane) each row belongs to, and the first row of each, sorted by both."""

    place: Ints
    first: Ints


def cells(code: Ints, groups: int, pane: Ints) -> Cells:
    """The distinct pairs of group and pane, in order."""
    if not len(code):
        return Cells(code, code)
    low, span = int(pane.min()), int(pane.max()) - int(pane.min()) + 1
    if groups * span < 1 << 62:
        return Cells(*dense(code * span + (pane - low), groups * span))
    values, rank = np.unique(pane, return_inverse=True)
    return Cells(*dense(code * len(values) + rank, groups * len(values)))


class Spans(NamedTuple):
    """Windows with at least one entry: group, window, and their run of entries [low, high)."""

    group: Ints
    window: Ints
    low: Ints
    high: Ints


def spans(grid: Grid, group: Ints, pane: Ints, first: int, last: int) -> Spans:
    """All windows from `first` to `last` that hold one of the entries, by group, then by window.

    `group` and `pane` are sorted by both; a pair may stand there more than once.
    """
    begin = np.maximum(grid.first_window(pane), first)
    end = np.minimum(grid.last_window(pane), last)
    same = np.zeros(len(group), bool)
    same[1:] = group[1:] == group[:-1]
    begin[1:] = np.where(same[1:], np.maximum(begin[1:], end[:-1] + 1), begin[1:])
    count = np.maximum(end - begin + 1, 0)
    entry = np.repeat(np.arange(len(group)), count)
    ahead = np.arange(len(entry)) - np.repeat(np.cumsum(count) - count, count)
    window = begin[entry] + ahead
    return Spans(group[entry], window, *_runs(grid, group, pane, group[entry], window))


def _runs(grid: Grid, group: Ints, pane: Ints, of: Ints, window: Ints) -> tuple[Ints, Ints]:
    """The first entry of each group's window, and the first behind it."""
    start = window * grid.every // grid.pane
    stop = start + grid.size // grid.pane
    if not len(of):
        return start, stop
    low = min(int(pane.min()), int(start.min()))
    width = max(int(pane.max()), int(stop.max())) - low + 1
    ranks = [pane - low, start - low, stop - low]
    if (int(group[-1]) + 1) * width >= 1 << 62:
        values = np.unique(pane)
        ranks, width = [np.searchsorted(values, each) for each in (pane, start, stop)], len(values)
        width += 1
    keys = group * width + ranks[0]
    return tuple(np.searchsorted(keys, of * width + rank) for rank in ranks[1:])  # type: ignore[return-value]
