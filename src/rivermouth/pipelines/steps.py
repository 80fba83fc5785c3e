"""Steps and conditions that a file needs and Python has of itself: expressions, and ``&``."""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rivermouth.spec.conditions import Condition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NAMES = ("select",)


def select(
    frame: DataFrame, *, columns: Sequence[str] = ("*",), where: str | None = None
) -> DataFrame:
    """Some rows of a frame, and columns computed of them by Spark SQL.

    Parameters
    ----------
    frame
        A source or a step.
    columns
        Expressions of Spark SQL, as in ``fare * 1.2 AS gross``.
    where
        A condition of Spark SQL that rows must satisfy, on the frame's own columns.
    """
    rows = frame if where is None else frame.where(where)
    return rows.selectExpr(*columns)


def both(conditions: Sequence[Condition]) -> Condition:
    """All of several conditions: equal keys, and one other."""
    return functools.reduce(operator.and_, conditions)
