"""Which times may meet: intervals and windows, in whole microseconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

#: before and after every time that a row can have; their difference is still a number
BEGIN, END = -(1 << 61), 1 << 61
_BINS = 4  # pieces into which the time that rows are held for is cut
_SHORTEST = 1_000_000  # of a bin that is not asked for


class Span(NamedTuple):
    """The times that the rows held may have, for rows that ask; all ends are included.

    The held row's time lies in [first, last], and less the asking row's in [lower, upper].
    """

    lower: int
    upper: int
    first: int = BEGIN
    last: int = END

    def allows(self, asking: Ints, held: Ints) -> npt.NDArray[np.bool_]:
        """Whether such times may meet, pair by pair."""
        later = held - asking
        inside = (held >= self.first) & (held <= self.last)
        return np.asarray(inside & (later >= self.lower) & (later <= self.upper))


@dataclass(frozen=True)
class Interval:
    """The right row's time less the left's lies in [lower, upper], both included."""

    lower: int
    upper: int

    @property
    def span(self) -> Span:
        """What a left row allows the right rows."""
        return Span(self.lower, self.upper)

    @property
    def turned(self) -> Span:
        """What a right row allows the left rows."""
        return Span(-self.upper, -self.lower)

    @property
    def wait(self) -> int:
        """How long after its own time everything is known that a left row may meet."""
        return max(self.upper, 0)

    def keeps(self, waits: bool) -> tuple[int, int]:
        """For how long after its own time a row of either side may still be asked for.

        Where left rows wait for their answer, the right rows stay until it is given.
        """
        return self.wait, self.wait - self.lower if waits else -self.lower

    @property
    def bin(self) -> int:
        """A good length of bins: a quarter of the interval."""
        return max((self.upper - self.lower) // _BINS, _SHORTEST)

    @property
    def slot(self) -> int:
        """A good length of slots: a row's partners lie in two of them."""
        return max(self.upper - self.lower, _SHORTEST)


@dataclass(frozen=True)
class Windows:
    """Both times lie in one window [k * every, k * every + size), k whole.

    Parameters
    ----------
    size, every
        The windows' length, and the time from one's start to the next's.
    early
        Whether pairs are told when both rows are there, not when their window closes.
    """

    size: int
    every: int
    early: bool = False

    @property
    def span(self) -> Span:
        """What either row allows the other: those that share a window, and a few more."""
        return Span(1 - self.size, self.size - 1)

    turned = span

    def keeps(self, waits: bool) -> tuple[int, int]:
        """For how long after its own time a row of either side may still be asked for."""
        return self.size - 1, self.size - 1

    @property
    def bin(self) -> int:
        """A good length of bins: that of the step from window to window, or a few of them."""
        return self.every * max(1, self.size // self.every // (2 * _BINS))

    @property
    def slot(self) -> int:
        """A good length of slots: that of the windows."""
        return self.size

    def shared(self, one: Ints, other: Ints) -> tuple[Ints, Ints]:
        """For pairs of times: which of them share a window, repeated, and each window's start.

        Examples
        --------
        >>> Windows(10, 5).shared(np.array([7, 7, 4]), np.array([8, 12, 11]))
        (array([0, 0, 1]), array([0, 5, 5]))
        """
        first = (np.maximum(one, other) - self.size) // self.every + 1
        count = np.maximum(np.minimum(one, other) // self.every - first + 1, 0)
        pair = np.repeat(np.arange(len(one)), count)
        begun = np.cumsum(count) - count
        return pair, (first[pair] + np.arange(len(pair)) - begun[pair]) * self.every

    def over(self, first: int, last: int) -> range:
        """The starts of the windows that hold a time in [first, last].

        Examples
        --------
        >>> list(Windows(10, 5).over(4, 5))
        [-5, 0, 5]
        """
        oldest, newest = (first - self.size) // self.every + 1, last // self.every
        return range(oldest * self.every, newest * self.every + 1, self.every)

    def times(self, before: int, now: int) -> tuple[int, int]:
        """The times that windows may hold which end after `before` and not after `now`."""
        return before - self.size + 1, now - 1

    @property
    def most(self) -> int:
        """How many windows hold one time, at most."""
        return -(-self.size // self.every)

    def any_closes(self, first: int, last: int, before: int, now: int) -> bool:
        """Whether a window that holds a time in [first, last] ends after `before`, by `now`."""
        oldest = max(first - self.size, before - self.size) // self.every + 1
        return oldest <= min(last, now - self.size) // self.every

    def closes(self, starts: Ints, before: int, now: int) -> npt.NDArray[np.bool_]:
        """Which windows end after `before`, and not after `now`."""
        ends = starts + self.size
        return np.asarray((ends > before) & (ends <= now))
