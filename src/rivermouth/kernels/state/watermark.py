"""The clock of stateful operators: how far every side of a bucket has come in event time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rivermouth.kernels.state.bucketing import latest

#: later than every event time that is let in: what a clock shows when nothing more can come
END = (1 << 63) - 1


@dataclass(frozen=True)
class Clock:
    """How far each side has come, and when that was heard.

    Parameters
    ----------
    newest
        The newest event time of each side, in microseconds since 1970; None before its first.
    heard
        The wall clock at which each side was last heard of.

    Examples
    --------
    >>> clock = Clock.of(2).hear([None, 7], now=1).hear([10, None], now=2)
    >>> clock.time(), clock.time(idle=5, now=6), clock.time(idle=5, now=7)
    (7, 10, 9223372036854775807)
    """

    newest: tuple[int | None, ...]
    heard: tuple[int, ...]

    @classmethod
    def of(cls, sides: int) -> Clock:
        """The clock of so many sides, before anything has come."""
        return cls((None,) * sides, (0,) * sides)

    def hear(self, newest: Sequence[int | None], *, now: int) -> Clock:
        """The clock after a micro-batch whose newest event times are these."""
        heard = tuple(
            now if new is not None or not before else before
            for new, before in zip(newest, self.heard, strict=True)
        )
        return replace(self, newest=tuple(map(latest, self.newest, newest)), heard=heard)

    def time(self, *, idle: int | None = None, now: int = 0) -> int | None:
        """The event time that every side has reached, None while one has not begun.

        A side that has not been heard of for `idle` microseconds holds nobody up; when that is
        so of all of them, nothing more is waited for and the clock shows `END`.
        """
        waiting = [
            newest
            for newest, heard in zip(self.newest, self.heard, strict=True)
            if idle is None or now - heard < idle
        ]
        if not waiting:
            return END
        return None if None in waiting else min(time for time in waiting if time is not None)
