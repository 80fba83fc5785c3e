"""What is computed of a window's records: aggregates as values.

Nulls are ignored, as in SQL: of a window in which a column has none but nulls the counts are 0
and all else is null. NaN counts as a value, larger than all others, and makes sums NaN.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args, runtime_checkable

from rivermouth.errors import DefinitionError
from rivermouth.spec.preferences import Preference

if TYPE_CHECKING:
    import numpy as np

Kind = Literal["sum", "count", "mean", "min", "max", "var", "std", "quantile", "count_distinct"]
State = tuple["np.ndarray[Any, Any]", ...]


@dataclass(frozen=True)
class Standard:
    """An aggregate that the library knows; `share` is the p of a quantile."""

    kind: Kind
    column: str | None
    share: float | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.column, str) and not (self.kind == "count" and self.column is None):
            raise DefinitionError(
                self.kind,
                f"{self.column!r} does not name a column",
                todo=f'Write a name, as in rm.{self.kind}("speed").',
            )

    def __str__(self) -> str:
        column = "" if self.column is None else repr(self.column)
        return f"{self.kind}({column}{'' if self.share is None else f', {self.share}'})"


@runtime_checkable
class Aggregator(Protocol):
    """A user's own aggregate: an object with these names, best a frozen dataclass.

    A state is a tuple of numpy arrays of one length: an element of each belongs to one state, so
    that many states are combined at once. `rivermouth.testing.check_aggregator` tells whether an
    object keeps the rules.

    It may also have ``invert(whole, part)``, the state that combined with `part` gives `whole`,
    exactly; sliding windows then take one step for each pane.
    """

    @property
    def column(self) -> str:
        """The column whose values are lifted."""
        ...

    @property
    def result(self) -> str:
        """The Spark type of what `lower` gives, as in ``"double"``."""
        ...

    def lift(self, values: np.ndarray[Any, Any]) -> State:
        """The state of each value by itself; nulls never come here."""
        ...

    def combine(self, one: State, other: State) -> State:
        """The states of both together, element by element; associative and commutative."""
        ...

    def lower(self, state: State) -> np.ndarray[Any, Any]:
        """The result of each state."""
        ...


Aggregate = Standard | Preference | Aggregator


def columns_of(aggregate: Aggregate) -> tuple[str, ...]:
    """The events' columns that an aggregate is of."""
    if isinstance(aggregate, Preference):
        return aggregate.kept
    return () if aggregate.column is None else (aggregate.column,)


def sum(column: str) -> Standard:  # noqa: A001  (what SQL calls it)
    """The sum of a column's numbers, the same whatever order they came in.

    Of integers a bigint, of decimals a decimal ten digits wider, of floats the double
    nearest to the exact sum. A sum that does not fit is an error.
    """
    return Standard("sum", column)


def count(column: str | None = None) -> Standard:
    """How many records there are, or in how many of them `column` is not null."""
    return Standard("count", column)


def mean(column: str) -> Standard:
    """The mean of a column's numbers: the double nearest to their exact sum over their count."""
    return Standard("mean", column)


def min(column: str) -> Standard:  # noqa: A001
    """The smallest value of numbers, dates or times; NaN only where there is nothing else."""
    return Standard("min", column)


def max(column: str) -> Standard:  # noqa: A001
    """The largest value of numbers, dates or times; NaN where there is one."""
    return Standard("max", column)


def var(column: str) -> Standard:
    """The sample variance (divisor n - 1); null for fewer than two numbers."""
    return Standard("var", column)


def std(column: str) -> Standard:
    """The sample standard deviation (divisor n - 1); null for fewer than two numbers."""
    return Standard("std", column)


def quantile(column: str, share: float) -> Standard:
    """The value below which `share` of the numbers lie, interpolated between two neighbours.

    Exact, as Spark's ``percentile``: all values of a window are kept until it has settled.

    Examples
    --------
    >>> print(quantile("delay", 0.95))
    quantile('delay', 0.95)
    """
    is_number = isinstance(share, (int, float)) and not isinstance(share, bool)
    if not is_number or not 0 <= share <= 1:
        raise DefinitionError(
            "quantile", f"the share is {share!r}", todo="Give a number from 0 to 1, as in 0.95."
        )
    return Standard("quantile", column, float(share))


def median(column: str) -> Standard:
    """The value in the middle: ``quantile(column, 0.5)``."""
    return quantile(column, 0.5)


def count_distinct(column: str) -> Standard:
    """How many different values there are, exactly; of any type; null is not counted."""
    return Standard("count_distinct", column)


def check_aggregate(name: str, aggregate: object) -> Aggregate:
    """`aggregate`, if it is one; `name` is its column in the result."""
    if isinstance(aggregate, (Standard, Preference, Aggregator)):
        return aggregate
    lacks = [part for part in _PARTS if not hasattr(aggregate, part)]
    kinds = (*get_args(Kind), "median", "top", "skyline")
    named = [kind for kind in kinds if kind != "quantile"]
    raise DefinitionError(
        "summary",
        f"{name}={aggregate!r} is not an aggregate",
        there=f"it has no {', '.join(lacks)}" if len(lacks) < 4 else "",  # text has lower()
        todo=f"Write one of rm.{', rm.'.join(named)} or rm.quantile, as in {name}=rm.sum('v').",
    )


_PARTS = ("column", "result", "lift", "combine", "lower")
