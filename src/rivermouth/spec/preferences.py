"""Preference queries as aggregates: the best records of a window instead of a number.

A record with a null in a compared column is ignored. NaN counts as a value, larger than all
others. Equal records are distinct records: each has a place of its own in a result. Of a window
without a record that can be compared the result is null.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from rivermouth.errors import DefinitionError

Goal = Literal["min", "max"]


@dataclass(frozen=True)
class Preference:
    """Records of a window that are preferred to others: the `k` first, or all on the skyline.

    Parameters
    ----------
    by
        The compared columns, and whether their smallest or their largest values are preferred.
    columns
        What is shown of each record.
    k
        How many records there are at most; None: all that no other dominates.
    """

    by: tuple[tuple[str, Goal], ...]
    columns: tuple[str, ...]
    k: int | None = None

    @property
    def column(self) -> None:
        """It is of records, not of one column."""
        return

    @property
    def kind(self) -> str:
        """What it is called."""
        return "skyline" if self.k is None else "top"

    @property
    def kept(self) -> tuple[str, ...]:
        """The columns that are needed, in the order by which records are: `by`, then others."""
        return tuple(dict.fromkeys([*(name for name, _ in self.by), *self.columns]))

    def __str__(self) -> str:
        goals = f"by={dict(self.by)}" if self.k is not None else f"{dict(self.by)}"
        first = "" if self.k is None else f"{self.k}, "
        return f"{self.kind}({first}{goals}, columns={list(self.columns)})"


def top(
    k: int, *, by: str | Mapping[str, Goal], columns: str | Sequence[str] | None = None
) -> Preference:
    """The `k` records with the largest values, or with the smallest: a list of structs, best first.

    Of records with equal values those come first whose `columns` are smaller, compared one after
    the other (null last, texts by their bytes), so that the result does not depend on the order of
    arrival. Fewer than `k` where there are fewer.

    Parameters
    ----------
    k
        How many records.
    by
        A column of numbers, dates or times, whose largest values are wanted; or columns with
        "max" or "min" each, of which the second decides where the first are equal.
    columns
        What each struct holds; the columns of `by` if it is not given. Any type but nested ones.

    Examples
    --------
    >>> print(top(3, by="fare", columns=["taxi", "fare"]))
    top(3, by={'fare': 'max'}, columns=['taxi', 'fare'])
    >>> print(top(1, by={"price": "min"}))
    top(1, by={'price': 'min'}, columns=['price'])
    """
    if not isinstance(k, int) or isinstance(k, bool) or k < 1:
        raise DefinitionError(
            "top", f"k is {k!r}", todo="Give a whole number of records, 1 or more."
        )
    goals: Mapping[str, Goal] = {by: "max"} if isinstance(by, str) else by
    return Preference(_goals("top", goals), _columns("top", columns, goals), k)


def skyline(by: Mapping[str, Goal], *, columns: str | Sequence[str] | None = None) -> Preference:
    """The records that no other dominates: a list of structs.

    A record dominates another if it is at least as good in all columns of `by` and better in one;
    equal records do not dominate each other, and all of them are in the result. The list is in the
    order of `by`, best first, then in that of `columns`, as in `top`.

    Parameters
    ----------
    by
        Columns of numbers, dates or times, with "min" or "max" each: what is better.
    columns
        What each struct holds; the columns of `by` if it is not given. Any type but nested ones.

    Examples
    --------
    >>> print(skyline({"price": "min", "rating": "max"}, columns=["hotel"]))
    skyline({'price': 'min', 'rating': 'max'}, columns=['hotel'])
    """
    return Preference(_goals("skyline", by), _columns("skyline", columns, by))


def _goals(where: str, by: object) -> tuple[tuple[str, Goal], ...]:
    if not isinstance(by, Mapping) or not by or not all(isinstance(name, str) for name in by):
        raise DefinitionError(
            where,
            f"by is {by!r}",
            todo='Name columns and what is better of each, as in {"price": "min"}.',
        )
    for name, goal in by.items():
        if goal not in get_args(Goal):
            raise DefinitionError(
                where,
                f"of column {name!r} the {goal!r} is wanted",
                todo='Write "min" or "max".',
            )
    return tuple(by.items())


def _columns(
    where: str, columns: str | Sequence[str] | None, by: Mapping[str, Goal]
) -> tuple[str, ...]:
    chosen = tuple(by) if columns is None else columns
    names = (chosen,) if isinstance(chosen, str) else tuple(chosen)
    if not names or not all(isinstance(name, str) for name in names):
        raise DefinitionError(
            where, f"columns is {columns!r}", todo="Name the columns that a record shows."
        )
    seen: dict[str, str] = {}
    for name in names:
        if name.casefold() in seen:
            raise DefinitionError(
                where,
                f"a record would have two columns called {name!r}",
                there=f"columns names {seen[name.casefold()]!r}, too",
                todo="Name each column once.",
            )
        seen[name.casefold()] = name
    return names
