"""Two lists of rows, compared as multisets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

from rich.console import Console

_SHOWN = 20
_NAN = object()


def assert_same_rows(left: Iterable[Mapping[str, Any]], right: Iterable[Mapping[str, Any]]) -> None:
    """Fail unless both hold the same rows, each as often; their order means nothing.

    Null, NaN and missing are three things; NaN is the same as NaN, 1 as 1.0. The message shows
    the rows that are `right`'s alone as missing (``-``), and those that are `left`'s alone as
    extra (``+``), in colour where there is a terminal.

    Examples
    --------
    >>> assert_same_rows([{"id": 1}, {"id": 2}], [{"id": 2}, {"id": 1}])
    >>> assert_same_rows([{"id": 1}, {"id": 3}], [{"id": 1}, {"id": 1}])
    Traceback (most recent call last):
    AssertionError: the rows differ: 2 against 2, 1 missing, 1 extra
    - {'id': 1}
    + {'id': 3}
    """
    ours, theirs = list(left), list(right)
    missing, extra = _without(theirs, ours), _without(ours, theirs)
    if not missing and not extra:
        return
    head = (
        f"the rows differ: {len(ours)} against {len(theirs)}, "
        f"{len(missing)} missing, {len(extra)} extra"
    )
    raise AssertionError("\n".join([head, *_lines("-", missing, 31), *_lines("+", extra, 32)]))


def _without(
    rows: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """`rows` less `others`, in the order of `rows`."""
    left_over = Counter(map(_frozen, others))
    rest = []
    for row in rows:
        key = _frozen(row)
        if left_over[key]:
            left_over[key] -= 1
        else:
            rest.append(row)
    return rest


def _frozen(value: Any) -> Hashable:
    """`value` as something that can be counted."""
    if isinstance(value, Mapping):
        return frozenset((key, _frozen(part)) for key, part in value.items())
    if isinstance(value, list | tuple):
        return tuple(_frozen(part) for part in value)
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    return _NAN if value != value else value


def _lines(sign: str, rows: Sequence[Mapping[str, Any]], colour: int) -> list[str]:
    lines = [f"{sign} {dict(row)}" for row in rows[:_SHOWN]]
    if len(rows) > _SHOWN:
        lines.append(f"{sign} and {len(rows) - _SHOWN} more")
    return [f"\x1b[{colour}m{line}\x1b[0m" for line in lines] if _in_colour() else lines


def _in_colour() -> bool:
    # rich knows terminals, notebooks, FORCE_COLOR and NO_COLOR
    console = Console()
    return console.is_terminal and not console.no_color
