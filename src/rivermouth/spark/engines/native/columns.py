"""Names and keys of the native plan's columns, shared by its parts."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  (as everybody writes it)
from pyspark.sql import types as t

from rivermouth.spark.engines.native.expressions import Sql
from rivermouth.spark.validation.join_table import Join

#: `how` in Spark's words
HOWS = {"inner": "inner", "left": "left", "semi": "left_semi", "anti": "left_anti"}


def quoted(name: str) -> Sql:
    """A column by its name, whatever is in it."""
    return "`" + name.replace("`", "``") + "`"


def hidden(name: str) -> Sql:
    """A column of the plan's own, under a name that no event has."""
    return f"_rivermouth_{name}"


def event_columns(join: Join) -> list[Sql]:
    """The events' own columns."""
    return [quoted(name) for name in join.events.names]


def projected(join: Join, prefix: Sql) -> list[Sql]:
    """The table's columns, under their names in the result."""
    return [f"{prefix}{i} AS {quoted(new)}" for i, (new, _) in enumerate(join.columns)]


def with_index(events: DataFrame, join: Join, index: DataFrame, *, present: Sql) -> DataFrame:
    """The events with the index of their key; without one only in left and anti joins.

    Without keys all events that are `present` get the whole index.
    """
    how = "left" if join.how in ("left", "anti") else "inner"
    return events.join(index, same_key(join, present=present), how)


def same_key(join: Join, *, present: Sql = "true") -> Column:
    """The event's keys equal the index's; without keys, the event is `present`."""
    if join.keys is None:
        # of the event: Spark would make a literal a filter, and a join without an equality
        return F.expr(f"({present}) = {hidden('key0')}")
    ours = (_comparable(left, join.events[left].dataType) for left, _ in join.keys.pairs)
    return F.expr(" AND ".join(f"{key} = {hidden(f'key{i}')}" for i, key in enumerate(ours)))


def _comparable(name: str, dtype: t.DataType) -> Sql:
    """A key that equals nothing where it is NaN, and compares by bytes where it is a string."""
    column = quoted(name)
    if isinstance(dtype, (t.FloatType, t.DoubleType)):
        return f"CASE WHEN NOT isnan({column}) THEN {column} END"
    return f"collate({column}, 'UTF8_BINARY')" if isinstance(dtype, t.StringType) else column


def codegen_barrier(frame: DataFrame, generated: Sql, name: str) -> DataFrame:
    """`frame` with a generated column, after which Spark's code generation begins a new method.

    So neither the test of a polygon nor a wide row makes the other's method too long for the JIT
    compiler, which would cost tenfold.
    """
    return frame.selectExpr("*", f"{generated} AS {name}")
