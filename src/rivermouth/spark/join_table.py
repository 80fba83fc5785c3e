"""join_table: enriches a stream or a batch from a table."""

from __future__ import annotations

from typing import get_args

from pyspark.sql import DataFrame

from rivermouth.errors import DefinitionError, PlanError
from rivermouth.spark.engines.bucket_steps import buckets_step, in_buckets
from rivermouth.spark.engines.functions import join_by_function
from rivermouth.spark.engines.hotspots import Hotspots
from rivermouth.spark.engines.native.join import native_join
from rivermouth.spark.engines.table_steps import (
    MakeStep,
    external_step,
    full_step,
    incremental_step,
)
from rivermouth.spark.engines.workers import Partitioner, join_in_workers
from rivermouth.spark.plan_choice import chosen
from rivermouth.spark.runtime import versions
from rivermouth.spark.runtime.folders import SNAPSHOTS, shared_folder
from rivermouth.spark.validation.caches import check_buckets, check_external, check_incremental
from rivermouth.spark.validation.join_table import WHERE, How, Join, check
from rivermouth.spark.validation.names import Suffixes
from rivermouth.spark.validation.relation import Columns
from rivermouth.spark.validation.services import check_service
from rivermouth.spec.caches import Cache, External, Full, Incremental
from rivermouth.spec.conditions import Condition
from rivermouth.spec.identity import digest, identity
from rivermouth.spec.plans import Cheapest, Plan
from rivermouth.spec.routing import ByHash, ByHotspot, Routing
from rivermouth.tables.shared_folder import SharedFolder
from rivermouth.tables.source import Source
from rivermouth.tables.sources.frame import FrameTable
from rivermouth.tables.sources.service.table import ServiceTable

_OTHER_PLANS = "Use plan='workers' or plan='udf'."


def join_table(
    events: DataFrame,
    table: Source,
    *,
    on: Condition,
    how: How = "inner",
    columns: Columns = None,
    suffixes: Suffixes = None,
    cache: Cache | None = None,
    routing: Routing | None = None,
    plan: Plan | Cheapest | None = None,
) -> DataFrame:
    """Enrich each event with the rows of a table that satisfy a condition.

    The same call takes a batch or a streaming frame and gives the same rows. Nothing runs
    until Spark is asked to; only the table's schema is read.

    Parameters
    ----------
    events
        A batch or streaming frame.
    table
        Where the dimension rows are: ``rm.tables.geojson(...)`` and the like.
    on
        What a pair must satisfy: ``rm.keys("user_id")``, ``rm.between(...)``, ``rm.asof(...)``,
        ``rm.within(rm.point("lon", "lat"), "geometry")`` and the like; ``& rm.keys(...)``.
    how
        "inner": matching pairs. "left": also events that match nothing, with nulls. "semi":
        events that match, once each. "anti": events that match nothing.
    columns
        What to bring from the table: names, or {new name: name in the table}. None: all columns
        but the geometry and the equality columns that `on` names.
    suffixes
        What is appended to the names that both sides have, the events' and the table's, as in
        ``("", "_zone")``. None: such a name is an error.
    cache
        ``rm.full(...)`` (the default): the whole table in a snapshot. ``rm.incremental(...)``:
        the rows of recently used keys. ``rm.external()``: the table's store is queried.
    routing
        Where an event is joined. None: where it is, without a shuffle. ``rm.by_hash()``: equal keys
        in one partition. ``rm.by_hotspot()``: ranges of keys, repartitioned when the load is
        uneven. The rows do not depend on it.
    plan
        "workers": whole events go to Python workers, every condition. "udf": only the columns of
        the condition do (Spark 4.1 or newer), and the JVM unfolds what comes back. "native":
        compiled to Spark SQL, for points in polygons, `dwithin` between points, `keys`, `between`
        and `asof`; runs in real-time mode. ``rm.cheapest(rows)``: the one that takes the least CPU
        time for batches of so many rows, as measured. None: native for ``rm.tables.frame``, workers
        for other streams, and for a batch frame the cheapest for a million rows.

    Returns
    -------
    DataFrame
        The events' columns, those brought from the table, and for `nearest` the distances
        (``distance``, or its `name`). An event that matches several rows comes out several times.

    Notes
    -----
    Events without a place (null, NaN or infinite coordinates, unreadable, empty or invalid
    geometry, another SRID than the table's), without a value to compare (null, NaN) and with null
    or NaN keys match nothing: left and anti joins keep them, and the query's metrics count them.
    """
    _check_sides(events, table)
    join = check(events.schema, table, on=on, how=how, columns=columns, suffixes=suffixes)
    if not (isinstance(plan, Cheapest) or plan in (None, *get_args(Plan))):
        todo = "Use 'workers', 'udf', 'native', rm.cheapest(rows) or None."
        raise PlanError(WHERE, f"plan is {plan!r}", todo=todo)
    cache = Full() if cache is None else cache
    if plan is None or isinstance(plan, Cheapest):
        plan = chosen(events, join, cache, routing, plan)
    joined = _joined(events, join, cache, routing, plan)
    return joined if list(join.names) == join.output.names else joined.toDF(*join.names)


def _joined(
    events: DataFrame, join: Join, cache: Cache, routing: Routing | None, plan: Plan
) -> DataFrame:
    """The join by its cache and plan."""
    routed = None if routing is None else _routed(events, join, cache, routing, plan)
    if isinstance(join.source, ServiceTable):
        check_service(join.source, join.on, cache, where=WHERE)
    if isinstance(cache, External):
        check_external(join, where=WHERE)
        if plan == "native":
            raise PlanError(
                WHERE, "rm.external() asks the store from Python workers", todo=_OTHER_PLANS
            )
        return _in_python(events, join, external_step(join), routed, plan)
    if isinstance(cache, Incremental):
        check_incremental(join, where=WHERE)
        if plan == "native":
            raise PlanError(WHERE, "rm.incremental() lives in Python workers", todo=_OTHER_PLANS)
        return _in_python(events, join, incremental_step(join, cache), routed, plan)
    if not isinstance(cache, Full):
        raise PlanError(
            WHERE,
            f"cache is {cache!r}",
            todo="Use rm.full(...), rm.incremental(...) or rm.external().",
        )
    is_frame = isinstance(join.source, FrameTable)
    if cache.buckets is not None:
        check_buckets(join, cache, plan, where=WHERE)
        folder = _folder(events, cache)
        sent = in_buckets(events, join, cache, folder)
        return join_in_workers(sent, join, buckets_step(join, cache, folder))
    if plan == "native":
        return native_join(events, join, cache, None if is_frame else _folder(events, cache))
    if is_frame:
        raise PlanError(
            WHERE,
            f"plan={plan!r} cannot read a DataFrame",
            todo="Use plan='native', or write it once: table = rm.snapshot(df, path).",
        )
    return _in_python(events, join, full_step(join, cache, _folder(events, cache)), routed, plan)


def _in_python(
    events: DataFrame, join: Join, make: MakeStep, routed: Partitioner, plan: Plan
) -> DataFrame:
    """The join by Python workers, which get whole events or the condition's columns."""
    if plan == "udf":
        versions.require(events.sparkSession, versions.ARROW_FUNCTIONS, where=WHERE)
        return join_by_function(events, join, make)
    return join_in_workers(events, join, make, routed)


def _routed(
    events: DataFrame, join: Join, cache: Cache, routing: Routing, plan: Plan
) -> Hotspots | int:
    """The routing with all that it leaves open."""
    if not isinstance(routing, (ByHash, ByHotspot)):
        raise DefinitionError(
            WHERE, f"routing is {routing!r}", todo="Use rm.by_hash(), rm.by_hotspot() or None."
        )
    in_buckets = isinstance(cache, Full) and cache.buckets is not None
    if join.keys is None or in_buckets or plan in ("native", "udf"):
        raise PlanError(
            WHERE,
            "rm.full(buckets=) routes the events itself"
            if in_buckets
            else "routing needs equality fields and plan='workers'",
            there=f"the condition is {join.on}, the plan {plan!r}",
            todo="Leave routing out.",
        )
    partitions = routing.partitions or int(
        events.sparkSession.conf.get("spark.sql.shuffle.partitions") or 200
    )
    if isinstance(routing, ByHash):
        return partitions
    path = routing.path or (cache.path if isinstance(cache, Full) else None)
    name = digest(identity(table=join.source.identity, on=join.on, partitions=partitions))
    folder = shared_folder(
        events, path, where=WHERE, example="routing=rm.by_hotspot(path='/shared/routing')"
    )
    return Hotspots(routing, partitions, folder, f"routing-{name}")


def _check_sides(events: object, table: object) -> None:
    # asked first: a frame of Spark Connect seems to have every attribute, so those of a Source, too
    is_frame = isinstance(table, DataFrame)
    if isinstance(events, DataFrame) and isinstance(table, Source) and not is_frame:
        return
    raise DefinitionError(
        WHERE,
        "the events must be a DataFrame and the table one of rm.tables",
        there=f"they are of types {type(events).__name__} and {type(table).__name__}",
        todo="Write join_table(events, rm.tables.frame(df), ...)."
        if is_frame
        else 'Write join_table(events, rm.tables.geojson("shapes.geojson"), ...) or the like.',
    )


def _folder(events: DataFrame, cache: Full) -> SharedFolder:
    return shared_folder(events, cache.path, where=WHERE, example=SNAPSHOTS)
