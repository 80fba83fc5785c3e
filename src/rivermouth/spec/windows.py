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
    """Windows [k * every, k * every + size) for all whole k, counted from 1970 in UTC.

    A window contains its start and not its end. Times before 1970 have windows with negative k.
    """

    size: dt.timedelta
    every: dt.timedelta

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

    @property
    def size_us(self) -> int:
        """The length of a window in microseconds."""
        return self.size // _MICROSECOND

    @property
    def every_us(self) -> int:
        """The time from one window's start to the next's, in microseconds."""
        return self.every // _MICROSECOND

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
                "session", f"gap is {self.gap}", todo="Make it a microsecond or longer."
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


def tumbling(size: Duration) -> Window:
    """Windows that follow one another: each time belongs to one.

    Examples
    --------
    >>> tumbling("10 minutes")
    Window(size=datetime.timedelta(seconds=600), every=datetime.timedelta(seconds=600))
    """
    length = dt.timedelta(microseconds=microseconds(size, where="tumbling"))
    return Window(length, length)


def sliding(size: Duration, *, every: Duration) -> Window:
    """Windows of `size` of which one starts at each multiple of `every`: they overlap.

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
    )
