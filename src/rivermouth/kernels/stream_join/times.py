"""Which times may be joined: intervals and windows, in whole microseconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rivermouth.kernels.arrays import Ints

#: before and after every time that a row can have; their difference is still a number
BEGIN, END = -(1 << 61), 1 << 61
_BINS = 4  # bins that a row's time in state is divided into
_SHORTEST = 1_000_000  # the least default length of a bin


class TimeBounds(NamedTuple):
    """The times of the build rows that a probe row may be joined with; all ends are included.

    The build row's time lies in [first, last], and its difference to the probe row's (build less
    probe) in [lower, upper].
    """

    lower: int
    upper: int
    first: int = BEGIN
    last: int = END

    def allows(self, probe: Ints, build: Ints) -> npt.NDArray[np.bool_]:
        """Whether such times may be joined, pair by pair."""
        later = build - probe
        inside = (build >= self.first) & (build <= self.last)
        return np.asarray(inside & (later >= self.lower) & (later <= self.upper))

    def around(self, first: int, last: int) -> tuple[int, int]:
        """The first and last time of build rows for probe rows of times in [first, last]."""
        return max(first + self.lower, self.first), min(last + self.upper, self.last)


@dataclass(frozen=True)
class Interval:
    """The right row's time less the left's lies in [lower, upper], both included."""

    lower: int
    upper: int

    @property
    def left_bounds(self) -> TimeBounds:
        """The right rows that a left row may be joined with."""
        return TimeBounds(self.lower, self.upper)

    @property
    def right_bounds(self) -> TimeBounds:
        """The left rows that a right row may be joined with."""
        return TimeBounds(-self.upper, -self.lower)

    @property
    def waits(self) -> tuple[int, int]:
        """How long after its own time a left and a right row may still get a partner."""
        return max(self.upper, 0), max(-self.lower, 0)

    def retention(self, waits: bool) -> tuple[int, int]:
        """For how long after its own time a left and a right row may still be joined.

        Where left rows wait for their interval to close, right rows stay until then.
        """
        wait, _ = self.waits
        return wait, wait - self.lower if waits else -self.lower

    @property
    def bin(self) -> int:
        """The default length of a bin: a quarter of the interval."""
        return max((self.upper - self.lower) // _BINS, _SHORTEST)

    @property
    def slot(self) -> int:
        """The length of a slot of the band join: a row's partners lie in two of them."""
        return max(self.upper - self.lower, _SHORTEST)


@dataclass(frozen=True)
class Windows:
    """Both times lie in one window [start + k * every, start + k * every + size), k whole.

    Parameters
    ----------
    size, every
        The windows' length, and the time from one's start to the next's.
    early
        Whether pairs are emitted when both rows are there, not when their window closes.
    start
        When one of them starts.
    """

    size: int
    every: int
    early: bool = False
    start: int = 0

    @property
    def left_bounds(self) -> TimeBounds:
        """The rows of the other side that may share a window with a row, and a few more."""
        return TimeBounds(1 - self.size, self.size - 1)

    right_bounds = left_bounds

    def retention(self, waits: bool) -> tuple[int, int]:
        """For how long after its own time a left and a right row may still be joined."""
        return self.size - 1, self.size - 1

    @property
    def bin(self) -> int:
        """The default length of a bin: from one window's start to the next's, or a few of them."""
        return self.every * max(1, self.size // self.every // (2 * _BINS))

    @property
    def slot(self) -> int:
        """The length of a slot of the band join: a window's."""
        return self.size

    def shared(self, one: Ints, other: Ints) -> tuple[Ints, Ints]:
        """For pairs of times: which of them share a window, repeated, and each window's start.

        Examples
        --------
        >>> Windows(10, 5).shared(np.array([7, 7, 4]), np.array([8, 12, 11]))
        (array([0, 0, 1]), array([0, 5, 5]))
        """
        first = self.oldest(np.maximum(one, other))
        count = np.maximum(self.number(np.minimum(one, other)) - first + 1, 0)
        pair = np.repeat(np.arange(len(one)), count)
        begin = np.cumsum(count) - count
        window = first[pair] + np.arange(len(pair)) - begin[pair]
        return pair, window * self.every + self.start

    def number(self, times: Any) -> Any:
        """The number of the newest window that contains each time."""
        return (times - self.start) // self.every

    def oldest(self, times: Any) -> Any:
        """The number of the oldest window that contains each time."""
        return self.number(times - self.size) + 1

    def starts(self, first: int, last: int) -> range:
        """The starts of the windows that contain a time in [first, last].

        Examples
        --------
        >>> list(Windows(10, 5).starts(4, 5))
        [-5, 0, 5]
        """
        begin = self.oldest(first) * self.every + self.start
        return range(begin, last + 1, self.every)

    def closing_times(self, previous: int, watermark: int) -> tuple[int, int]:
        """The first and last time in windows that end in (previous, watermark]."""
        return previous - self.size + 1, watermark - 1

    @property
    def overlap(self) -> int:
        """How many windows contain one time, at most."""
        return -(-self.size // self.every)

    def any_closes(self, first: int, last: int, previous: int, watermark: int) -> bool:
        """Whether a window with a time in [first, last] closes at this watermark."""
        oldest = self.oldest(max(first, previous))
        return bool(oldest <= self.number(min(last, watermark - self.size)))

    def closes(self, starts: Ints, previous: int, watermark: int) -> npt.NDArray[np.bool_]:
        """Which windows end in (previous, watermark]."""
        ends = starts + self.size
        return np.asarray((ends > previous) & (ends <= watermark))
