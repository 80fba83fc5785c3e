"""Whether a cache, other than the whole table, can serve a join."""

from __future__ import annotations

import pyarrow as pa

from rivermouth.errors import PlanError
from rivermouth.kernels.table_join.place_buckets import is_local
from rivermouth.spark.validation.join_table import Join
from rivermouth.spec.caches import Full
from rivermouth.tables.source import Queryable
from rivermouth.tables.sources.frame import FrameTable


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


def check_buckets(join: Join, cache: Full, plan: str | None, *, where: str) -> None:
    """Raise a `PlanError` where a table cannot be cut into buckets, or events not be sent there."""
    if plan in ("native", "udf") or isinstance(join.source, FrameTable):
        raise PlanError(
            where,
            "rm.full(buckets=) needs plan='workers' and a table that Python workers can read",
            there=f"the plan is {plan!r}, the table {join.source.name}",
            todo="Use plan='workers', and rm.snapshot(df, path) where the table is a frame.",
        )
    if join.keys is not None:
        return
    there = f"the condition is {join.on}"
    if join.spatial is None:
        raise PlanError(
            where,
            "rm.full(buckets=) cuts a table by its equality fields or its places, and the "
            "condition has neither",
            there=there,
            todo="Add equality fields, as in by='city', or leave buckets out.",
        )
    if not is_local(join.spatial):
        raise PlanError(
            where,
            "rm.full(buckets=) cuts space, and what this condition looks for may be in any part "
            "of it",
            there=there,
            todo="Add equality fields, as in rm.keys('city') & ..., use rm.dwithin or a predicate "
            "of shapes that meet, or leave buckets out.",
        )
    if cache.index is not None:
        raise PlanError(
            where,
            "rm.full(buckets=) by place chooses an index for each bucket by what is in it",
            there=f"index is {cache.index!r}",
            todo="Leave index out.",
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
