"""Lengths of time as a user writes them."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal

from rivermouth.errors import DefinitionError

Duration = str | dt.timedelta

_UNITS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_PART = re.compile(r"([+-]?\d+(?:\.\d+)?)\s*([a-z]+?)s?(?=[\s\d+-]|$)", re.IGNORECASE)


def microseconds(value: Duration, *, where: str) -> int:
    """The length of `value` in whole microseconds; may be negative.

    Examples
    --------
    >>> microseconds("1 hour 30 minutes", where="full")
    5400000000
    >>> microseconds("-0.5 seconds", where="full")
    -500000
    >>> microseconds("5 parsecs", where="full")
    Traceback (most recent call last):
    rivermouth.errors.DefinitionError: full: '5 parsecs' is not a length of time. ...
    """
    if isinstance(value, dt.timedelta):
        return round(value / dt.timedelta(microseconds=1))
    if isinstance(value, str):
        parts = _PART.findall(value)
        rest = _PART.sub("", value).strip()
        if parts and not rest and all(unit.lower() in _UNITS for _, unit in parts):
            return int(sum(Decimal(number) * _UNITS[unit.lower()] for number, unit in parts))
    raise DefinitionError(
        where,
        f"{value!r} is not a length of time",
        todo="Write a number and one of "
        + ", ".join(f"{unit}s" for unit in _UNITS)
        + ", as in '5 minutes'.",
    )


def positive_seconds(value: Duration | None, *, where: str) -> float | None:
    """`value` in seconds, checked to be longer than nothing; None stays None."""
    if value is None:
        return None
    length = microseconds(value, where=where)
    if length <= 0:
        raise DefinitionError(
            where, f"{value!r} is not longer than nothing", todo="Make it positive."
        )
    return length / 1e6
