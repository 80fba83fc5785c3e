"""How a join with a table runs in Spark, and what decides it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rivermouth.spec.arguments import whole

Plan = Literal["workers", "udf", "native"]


@dataclass(frozen=True)
class Cheapest:
    """The plan with the least CPU time for batches of so many rows."""

    rows: int


def cheapest(rows: int) -> Cheapest:
    """Take the plan that is expected to use the least CPU time, by costs that were measured.

    Parameters
    ----------
    rows
        How many events there are at once, about: in a micro-batch, or in a batch frame.

    Examples
    --------
    >>> cheapest(500_000)
    Cheapest(rows=500000)
    """
    return Cheapest(whole(rows, where="cheapest", name="rows"))
