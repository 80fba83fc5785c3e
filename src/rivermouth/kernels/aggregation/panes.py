"""Which windows there are, and which panes each of them spans.

Time is cut into panes that no window's edge cuts; partial aggregates are kept once per group and
pane, and a window is a range of panes. Partials are sorted by group and pane, so that every window
of every group is a range of partials.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rivermouth.kernels.arrays import Ints
from rivermouth.kernels.state.groups import dense

_MOST = 1 << 62


@dataclass(frozen=True)
class WindowLayout:
    """Lengths in microseconds. Window k is [start + k * every, start + k * every + size)."""

    size: int
    every: int
    pane: int
    start: int = 0

    def panes(self, times: Any) -> Any:
        """The pane of each time."""
        return (times - self.start) // self.pane

    def starts(self, windows: Any) -> Any:
        """When each window starts."""
        return windows * self.every + self.start

    def ends(self, windows: Any) -> Any:
        """When each window ends."""
        return self.starts(windows) + self.size

    def starting(self, times: Any) -> Any:
        """The window that starts at each time."""
        return (times - self.start) // self.every

    def first_window(self, pane: Any) -> Any:
        """The first window that holds each pane."""
        return (pane * self.pane - self.size) // self.every + 1

    def last_window(self, pane: Any) -> Any:
        """The last window that holds each pane."""
        return pane * self.pane // self.every

    def last_ended(self, time: int) -> int:
        """The last window that ends at or before `time`."""
        return (time - self.start - self.size) // self.every

    def pane_range(self, first: Any, last: Any) -> tuple[Any, Any]:
        """The first pane of the windows from `first` to `last`, and the first pane behind them."""
        return first * self.every // self.pane, (last * self.every + self.size) // self.pane


def partial_index(code: Ints, groups: int, pane: Ints) -> tuple[Ints, Ints]:
    """The partial of each row, numbered by group, then pane; and the first row of each partial."""
    if not len(code):
        return code, code
    rank, panes = pane - pane.min(), int(pane.max()) - int(pane.min()) + 1
    if groups * panes >= _MOST:
        values, rank = np.unique(pane, return_inverse=True)
        panes = len(values)
    return dense(code * panes + rank, groups * panes)


class WindowRanges(NamedTuple):
    """Windows with at least one partial: group, window, and their range [low, high) of partials."""

    group: Ints
    window: Ints
    low: Ints
    high: Ints


def window_ranges(
    grid: WindowLayout, group: Ints, pane: Ints, first: int, last: int
) -> WindowRanges:
    """All windows from `first` to `last` that hold one of the partials, by group, then by window.

    `group` and `pane` are the partials', sorted by both; a pair may be there more than once.
    """
    begin = np.maximum(grid.first_window(pane), first)
    end = np.minimum(grid.last_window(pane), last)
    begin[1:] = np.where(group[1:] == group[:-1], np.maximum(begin[1:], end[:-1] + 1), begin[1:])
    count = np.maximum(end - begin + 1, 0)
    partial = np.repeat(np.arange(len(group)), count)
    offset = np.arange(len(partial)) - np.repeat(np.cumsum(count) - count, count)
    window, of = begin[partial] + offset, group[partial]
    start, stop = grid.pane_range(window, window)
    if not len(window):
        return WindowRanges(of, window, start, stop)
    lowest = min(int(pane.min()), int(start.min()))
    width = max(int(pane.max()), int(stop.max())) - lowest + 1
    ranks = [pane - lowest, start - lowest, stop - lowest]
    if (int(group[-1]) + 1) * width >= _MOST:
        values = np.unique(pane)
        ranks, width = (
            [np.searchsorted(values, each) for each in (pane, start, stop)],
            len(values) + 1,
        )
    keys = group * width + ranks[0]
    low, high = (np.searchsorted(keys, of * width + rank) for rank in ranks[1:])
    return WindowRanges(of, window, low, high)
