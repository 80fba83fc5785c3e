"""Whether a cache other than `full` can serve a join."""

from __future__ import annotations

import pyarrow as pa

from rivermouth.errors import PlanError
from rivermouth.spark.validation.join_table import Join
from rivermouth.tables.source import Queryable


def check_incremental(join: Join, *, where: str) -> None:
    """Raise a `PlanError` where rows cannot be kept by key."""
    if join.spatial is not None:
        raise PlanError(
            where,
            "rm.incremental() keeps rows by key, and a place is not one",
            there=f"the condition is {join.on}",
            todo="Use rm.full(), or rm.external() with a table in PostGIS.",
        )
    if join.keys is not None and not isinstance(join.source, Queryable):
        raise PlanError(
            where,
            f"{join.source.name} cannot be asked for single keys",
            todo="Use rm.full(), or a table in a database or in Parquet files.",
        )


def check_external(join: Join, *, where: str) -> None:
    """Raise an error where the table's store cannot answer the condition."""
    if not isinstance(join.source, Queryable):
        raise PlanError(
            where,
            f"{join.source.name} cannot answer conditions itself",
            todo="Use rm.full(), or keep the table in a database (rm.tables.postgres and others).",
        )
    nobody = {field.name: pa.array([], field.type) for field in join.probe_schema}
    join.source.lookup(join.on, [], nobody)  # asks nothing, but says at once what it cannot answer
