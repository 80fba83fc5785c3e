"""Which rows of a table count at all: comparisons as values, left to the table's store."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, get_args

from rivermouth.errors import DefinitionError

Operator = Literal["=", "!=", "<", "<=", ">", ">=", "in", "not in", "is", "is not"]
Scalar = bool | int | float | Decimal | str | bytes | dt.date | dt.datetime

#: as a user writes it: one comparison, or several that must all hold
Where = tuple[str, str, Any] | Sequence[tuple[str, str, Any]]


@dataclass(frozen=True)
class Comparison:
    """A column against a value; for "in" and "not in" against several, for "is" against None.

    A null or NaN in the column satisfies no comparison, "is" and "is not" apart.
    """

    column: str
    operator: Operator
    value: Scalar | tuple[Scalar, ...] | None

    def __str__(self) -> str:
        value = list(self.value) if isinstance(self.value, tuple) else self.value
        return f"{self.column} {self.operator} {value!r}"


Filter = tuple[Comparison, ...]


def filter_of(where: Where | None, *, at: str) -> Filter:
    """The comparisons that `where` asks for; `at` names the call in errors.

    Examples
    --------
    >>> filter_of(("level", "in", [1, 2]), at="tables.sqlite")
    (Comparison(column='level', operator='in', value=(1, 2)),)
    >>> filter_of([("city", "=", "Bern"), ("closed", "is", None)], at="tables.sqlite")[1].operator
    'is'
    >>> filter_of(("city", "like", "B%"), at="tables.sqlite")
    Traceback (most recent call last):
    rivermouth.errors.DefinitionError: tables.sqlite: where compares 'city' by 'like', ...
    """
    if where is None:
        return ()
    several = [where] if isinstance(where, str) or _is_one(where) else list(where)
    return tuple(_comparison(one, at) for one in several)


def shown(only: Filter) -> str:
    """The filter as text, as in ``city = 'Bern' and level in [1, 2]``; nothing for none."""
    return " and ".join(map(str, only))


def _is_one(where: Where) -> bool:
    return len(where) == 3 and isinstance(where[0], str)


def _comparison(one: Any, at: str) -> Comparison:
    if not isinstance(one, Sequence) or isinstance(one, str) or len(one) != 3:
        raise DefinitionError(
            at,
            f"where holds {one!r}, which is not a comparison",
            todo="Write (column, operator, value), as in ('city', '=', 'Bern'), or a list of them.",
        )
    column, operator, value = one
    if operator not in get_args(Operator):
        raise DefinitionError(
            at,
            f"where compares {column!r} by {operator!r}",
            there=f"known are {list(get_args(Operator))}",
            todo="Use one of these; for all else make a view.",
        )
    if operator in ("is", "is not"):
        _need(value is None, at, one, f"Only None can follow {operator!r}.")
    elif operator in ("in", "not in"):
        is_list = isinstance(value, Sequence | set | frozenset) and not isinstance(value, str)
        _need(is_list and len(value) > 0, at, one, "Give a list of at least one value.")
        value = tuple(value)
        _need(all(map(_is_value, value)), at, one, "Null and NaN are equal to nothing.")
    else:
        hint = f"Write ({column!r}, '{'is not' if operator == '!=' else 'is'}', None)."
        _need(_is_value(value), at, one, hint)
    return Comparison(column, operator, value)


def _is_value(value: Any) -> bool:
    """Whether anything can be equal to it: None and NaN are not, nor is a list."""
    return isinstance(value, Scalar) and value == value


def _need(holds: bool, at: str, one: Any, todo: str) -> None:
    if not holds:
        raise DefinitionError(at, f"where holds {tuple(one)!r}, which compares nothing", todo=todo)
