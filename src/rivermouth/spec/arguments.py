"""Checks of arguments whose types Python does not check."""

from __future__ import annotations

from numbers import Integral

from rivermouth.errors import DefinitionError


def whole(value: object, *, where: str, name: str, most: int | None = None) -> int:
    """`value`, if it is a whole number from 1, to `most` where that is given.

    Examples
    --------
    >>> whole(3, where="full", name="buckets", most=512)
    3
    """
    if isinstance(value, Integral) and not isinstance(value, bool):
        number = int(value)
        if 1 <= number <= (most or number):
            return number
    bounds = "above 0" if most is None else f"from 1 to {most}"
    raise DefinitionError(where, f"{name} is {value!r}", todo=f"Give a whole number {bounds}.")


def whole_or_none(value: object, *, where: str, name: str, most: int | None = None) -> int | None:
    """As `whole`; None stays None."""
    return None if value is None else whole(value, where=where, name=name, most=most)
