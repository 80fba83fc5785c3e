"""The watermark of stateful operators: the event time that every side of a bucket has reached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rivermouth.kernels.state.bucketing import latest

#: later than every admissible event time: the watermark when no more input is expected
NO_MORE_INPUT = (1 << 63) - 1


@dataclass(frozen=True)
class Watermarks:
    """The watermark of each side, and when the side last had input.

    Parameters
    ----------
    times
        The watermark of each side, in microseconds since 1970; None before its first row.
    active
        The wall clock at which each side last had input.

    Examples
    --------
    >>> marks = Watermarks.of(2).advance([None, 7], now=1).advance([10, None], now=2)
    >>> marks.lowest(), marks.lowest(idle_timeout=5, now=6), marks.lowest(idle_timeout=5, now=7)
    (7, 10, 9223372036854775807)
    """

    times: tuple[int | None, ...]
    active: tuple[int, ...]

    @classmethod
    def of(cls, sides: int) -> Watermarks:
        """The watermarks of so many sides, before any input."""
        return cls((None,) * sides, (0,) * sides)

    def advance(self, times: Sequence[int | None], *, now: int) -> Watermarks:
        """The watermarks after a micro-batch that brings the sides to these times."""
        active = tuple(
            now if new is not None or not before else before
            for new, before in zip(times, self.active, strict=True)
        )
        return Watermarks(tuple(map(latest, self.times, times)), active)

    def lowest(self, *, idle_timeout: int | None = None, now: int = 0) -> int | None:
        """The event time that every side has reached, None while one has had no input.

        A side that has had no input for `idle_timeout` microseconds does not count; when that
        holds for all of them, no more input is expected and the watermark is `NO_MORE_INPUT`.
        """
        waiting = [
            time
            for time, active in zip(self.times, self.active, strict=True)
            if idle_timeout is None or now - active < idle_timeout
        ]
        if not waiting:
            return NO_MORE_INPUT
        return None if None in waiting else min(time for time in waiting if time is not None)
