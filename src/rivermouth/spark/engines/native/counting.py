"""What the native plan tells of itself: how many events came in, how many cannot match, and why.

Real-time mode allows an observed aggregate in the events' path and nothing else of the kind; its
values arrive at the end of a batch. They are written as one report, in the form in which the tasks
of the workers' plan report.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (as everybody writes it)
from pyspark.sql import types as t

from rivermouth.spark.engines.native.columns import quoted
from rivermouth.spark.engines.native.expressions import Sql
from rivermouth.spark.engines.stateless import REPORTS, report_name
from rivermouth.spark.validation.join_table import WHERE, Join
from rivermouth.spec.conditions import DWithin, Point, named


def counted(events: DataFrame, join: Join) -> DataFrame:
    """The events as they are, observed: how many there are and how many match nothing, and why."""
    # a count of none is left out of the text, as null is
    reasons = (f"nullif(count_if({test}), 0) AS {reason}" for reason, test in _reasons(join))
    report = f"struct(count(1) AS rows_in, struct({', '.join(reasons)}) AS rejected)"
    return events.observe(
        report_name(f"{WHERE}.{join.source.name}"),
        F.expr(f"array(to_json({report}))").alias(REPORTS),
    )


def _reasons(join: Join) -> list[tuple[str, Sql]]:
    """Why an event may match nothing, and the test, as `kernels.table_join.matching` counts."""
    found = []
    if join.keys is not None:
        missing = (_is_missing(left, join.events[left].dataType) for left, _ in join.keys.pairs)
        found.append(("null_key", " OR ".join(missing)))
    if join.range is not None:
        left = join.range.left
        found.append(("null_value", _is_missing(left, join.events[left].dataType)))
    if join.spatial is not None:
        assert isinstance(join.spatial.left, Point)
        x, y = (f"double({quoted(name)})" for name in named(join.spatial.left))
        is_null = f"{x} IS NULL OR {y} IS NULL"
        # infinite less infinite is NaN, and so is NaN less NaN
        is_finite = f"NOT isnan({x} - {x}) AND NOT isnan({y} - {y})"
        found += [("null", is_null), ("not_finite", f"NOT ({is_null} OR {is_finite})")]
        if isinstance(join.spatial, DWithin) and join.spatial.metric == "sphere":
            found.append(("out_of_range", f"{is_finite} AND abs({y}) > 90"))
    return found


def _is_missing(name: str, kind: t.DataType) -> Sql:
    column = quoted(name)
    is_float = isinstance(kind, (t.FloatType, t.DoubleType))
    return f"({column} IS NULL OR isnan({column}))" if is_float else f"{column} IS NULL"
