"""Which Python plan a join takes where the user names none: by what need not go to Python.

"workers" sends whole events to Python and back. "udf" sends the condition's columns, and the JVM
unfolds what comes back: that costs more than joined rows do, and saves the way of all other
columns. Both are paid per event, so that neither the size of micro-batches nor that of the table
decides. The constants are CPU microseconds of an event, from ``python -m benchmarks plans``.
"""

from __future__ import annotations

from typing import Literal

from pyspark.sql import DataFrame
from pyspark.sql import types as t

from rivermouth.spark.engines.functions import is_single
from rivermouth.spark.runtime import versions
from rivermouth.spark.validation.join_table import Join

PythonPlan = Literal["workers", "udf"]

#: what a column costs on its way to Python and back: one of a fixed width, and any other
FIXED_US, OTHER_US = 0.05, 0.09
#: what a function's answer costs more than a joined row: a list to unfold, and a single value
LIST_US, SINGLE_US = 0.5, 0.4

_FIXED = (t.NumericType, t.DatetimeType, t.BooleanType)


def chosen(events: DataFrame, join: Join) -> PythonPlan:
    """The cheaper plan for these events; "workers" where Spark has no functions over Arrow."""
    if versions.common(events.sparkSession) < versions.ARROW_FUNCTIONS.since:
        return "workers"
    staying = [field.dataType for field in join.events if field.name not in join.left_columns]
    fixed = sum(isinstance(dtype, _FIXED) for dtype in staying)
    is_value = join.how in ("semi", "anti") or is_single(join)
    return cheaper(fixed, len(staying) - fixed, single=is_value)


def cheaper(fixed: int, other: int, *, single: bool) -> PythonPlan:
    """The cheaper plan where so many columns, by their kind, are not the condition's.

    `single` is a condition by which an event finds one row at most, or is kept or not.

    Examples
    --------
    >>> cheaper(3, 0, single=False), cheaper(18, 5, single=False)
    ('workers', 'udf')
    """
    saved = fixed * FIXED_US + other * OTHER_US
    return "udf" if saved > (SINGLE_US if single else LIST_US) else "workers"
