"""How event time is cut into windows."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass

from rivermouth.errors import DefinitionError
from rivermouth.spec.durations import Duration, microseconds

_MICROSECOND = dt.timedelta(microseconds=1)


@dataclass(frozen=True)
class Window:
    """Windows of which one starts at each `start` + k * `every` for whole k, from 1970 in UTC.

    A window contains its start and not its end. Times before 1970 have windows with negative k.
    `start` is the first of these times that is not before 1970.
    """

    size: dt.timedelta
    every: dt.timedelta
    start: dt.timedelta = dt.timedelta(0)

    def __post_init__(self) -> None:
        for name, length in (("size", self.size), ("every", self.every)):
            if length < _MICROSECOND:
                raise DefinitionError(
                    "window", f"{name} is {length}", todo="Make it a microsecond or longer."
                )
        if self.every > self.size:
            raise DefinitionError(
                "window",
                f"a window of {self.size} starts every {self.every}",
                there="times between two windows would belong to none",
                todo="Make every= at most as long as the window, or filter those times out.",
            )
        object.__setattr__(self, "start", self.start % self.every)

    @property
    def size_us(self) -> int:
        """The length of a window in microseconds."""
        return self.size // _MICROSECOND

    @property
    def every_us(self) -> int:
        """The time from one window's start to the next's, in microseconds."""
        return self.every // _MICROSECOND

    @property
    def start_us(self) -> int:
        """Where windows start, in microseconds since 1970: here, and at multiples of `every`."""
        return self.start // _MICROSECOND

    @property
    def pane_us(self) -> int:
        """The longest piece of time that no window's start or end cuts, in microseconds."""
        return math.gcd(self.size_us, self.every_us)


@dataclass(frozen=True)
class Session:
    """Windows that the records make: runs of a group's records with pauses shorter than `gap`.

    A session goes from its first record, included, to `gap` after its last one, not included.
    """

    gap: dt.timedelta

    def __post_init__(self) -> None:
        if self.gap < _MICROSECOND:
            raise DefinitionError(
                "session",
                f"gap is {self.gap.total_seconds():g} seconds",
                todo="Make it a microsecond or longer.",
            )

    @property
    def gap_us(self) -> int:
        """The shortest pause between two sessions, in microseconds."""
        return self.gap // _MICROSECOND


def session(gap: Duration) -> Session:
    """Windows that the records of each group make: a pause of `gap` or more ends a session.

    A record less than `gap` after the one before belongs to the same session, one that is exactly
    `gap` after it begins the next. ``window_start`` is the first record's time, ``window_end`` the
    last one's plus `gap`.

    Examples
    --------
    >>> session("30 minutes")
    Session(gap=datetime.timedelta(seconds=1800))
    """
    return Session(dt.timedelta(microseconds=microseconds(gap, where="session")))


def tumbling(size: Duration, *, start: Duration = "0 seconds") -> Window:
    """Windows that follow one another: each time belongs to one.

    They are counted from 1970 in UTC: windows of an hour start at the full hour, those of a day at
    midnight in UTC. `start` moves them: ``tumbling("1 day", start="16 hours")`` are the days of
    Beijing, ``tumbling("1 hour", start="-15 minutes")`` begin at a quarter to.

    Examples
    --------
    >>> tumbling("1 hour", start="-15 minutes")
    Window(size=datetime.timedelta(seconds=3600), every=datetime.timedelta(seconds=3600),
           start=datetime.timedelta(seconds=2700))
    """
    length = dt.timedelta(microseconds=microseconds(size, where="tumbling"))
    return Window(length, length, _start(start, "tumbling(start=)"))


def _start(start: Duration, where: str) -> dt.timedelta:
    return dt.timedelta(microseconds=microseconds(start, where=where))


def sliding(size: Duration, *, every: Duration, start: Duration = "0 seconds") -> Window:
    """Windows of `size` of which one starts at each multiple of `every`: they overlap.

    `start` moves them, as in `tumbling`.

    Examples
    --------
    >>> sliding("10 minutes", every="1 minute").every
    datetime.timedelta(seconds=60)
    >>> sliding("1 minute", every="10 minutes")
    Traceback (most recent call last):
    rivermouth.errors.DefinitionError: window: a window of 0:01:00 starts every 0:10:00; ...
    """
    return Window(
        dt.timedelta(microseconds=microseconds(size, where="sliding")),
        dt.timedelta(microseconds=microseconds(every, where="sliding(every=)")),
        _start(start, "sliding(start=)"),
    )
