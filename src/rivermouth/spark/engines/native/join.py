"""The native join: the table broadcast as few rows that hold its index in arrays.

The rows are made anew for each batch of events by one Python worker and broadcast. The join is on
equal keys, or on a constant where there are none, since real-time mode takes no other. Nothing
here shuffles, and every operator is on that mode's list. All of it is compiled into one stage, in
which the arrays of the index are looked into and never copied; that ends where the events have
more than some 80 columns (``spark.sql.codegen.maxFields``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812  (as everybody writes it)
from pyspark.sql import types as t

from rivermouth.errors import PlanError
from rivermouth.kernels.spatial.cells import PREDICATES
from rivermouth.spark import types
from rivermouth.spark.engines.micro_batch import micro_batch
from rivermouth.spark.engines.native import index_rows
from rivermouth.spark.engines.native.columns import (
    HOWS,
    event_columns,
    hidden,
    projected,
    quoted,
    same_key,
)
from rivermouth.spark.engines.native.counting import counted
from rivermouth.spark.engines.native.index_rows import SpatialRows
from rivermouth.spark.engines.native.ranges import RangeRows, join_ranges
from rivermouth.spark.engines.native.rows import KeyedRows, broadcast_limit
from rivermouth.spark.engines.native.spatial import join_spatial
from rivermouth.spark.validation.join_table import WHERE, Join
from rivermouth.spec.caches import Full
from rivermouth.spec.conditions import DWithin, Nearest, Point, Topology
from rivermouth.tables.cache.snapshot import SnapshotSpec
from rivermouth.tables.changes.following import open_version
from rivermouth.tables.shared_folder import SharedFolder
from rivermouth.tables.worker_cache import WorkerCache


def native_join(
    events: DataFrame, join: Join, cache: Full, folder: SharedFolder | None
) -> DataFrame:
    """The join against a snapshot under `folder`, or against the frame that the table is.

    A batch of events sees one version of the table; a new one is seen by the next batch.

    Raises
    ------
    PlanError
        Where the condition has no form in Spark SQL.
    """
    refuse(join)
    events = counted(events, join)
    index = F.broadcast(index_frame(events.sparkSession, join, cache, folder))
    if join.spatial is not None:
        return join_spatial(events, join, index)
    if join.range is not None:
        return join_ranges(events, join, index)
    joined = events.join(index, same_key(join), HOWS[join.how])
    return joined.selectExpr(*event_columns(join), *projected(join, hidden("c")))


def refuse(join: Join) -> None:
    """Raise a `PlanError` for a join that this plan cannot do, as far as the schemas show."""
    if what := _trouble(join):
        raise PlanError(
            WHERE,
            f"plan='native' cannot do this join: {what}",
            there="it finds points in polygons, points near points (dwithin), ranges, equal keys",
            todo="Use plan='workers', which knows every condition."
            if getattr(join.source, "frame", None) is None
            else "Write the frame once, table = rm.snapshot(df, path), and use plan='workers'.",
        )


def _trouble(join: Join) -> str:
    match join.spatial:
        case None:
            return ""
        case Nearest():
            return "nearest has no form in Spark SQL"
        case Topology(predicate) if predicate not in PREDICATES:
            return f"{predicate} has no form in Spark SQL"
        case Topology() | DWithin() as place if not isinstance(place.left, Point):
            return f"the events' place is the column {place.left!r}, not rm.point"
        case Topology() as place if isinstance(place.right, Point):
            return "the table's places are points, not polygons"
    return ""


# -- the table's side


def index_frame(
    spark: SparkSession, join: Join, cache: Full, folder: SharedFolder | None
) -> DataFrame:
    """The rows of `native_rows`, made by one worker, under names that no event has."""
    splits = join.spatial is not None and join.keys is None
    rows = _rows_for(join, broadcast_limit(spark, doubling=not splits))
    schema = t.StructType(
        [
            t.StructField(hidden(field.name), _spark_type(field.type), field.nullable)
            for field in rows.schema
        ]
    )
    frame: DataFrame | None = getattr(join.source, "frame", None)
    if frame is not None:
        table = frame.select(*(_as_wkb(frame, name) for name in join.table_columns))
        return table.coalesce(1).mapInArrow(_FromFrame(rows).make, schema)
    assert folder is not None
    spec = join.snapshot_spec(cache)
    # one partition: each would make the rows once more
    one = spark.range(0, 1, 1, 1)
    return one.mapInArrow(_FromSnapshot(rows, spec, cache, folder).make, schema)


def _rows_for(join: Join, most_bytes: int) -> KeyedRows:
    if join.range is not None:
        return RangeRows.for_range(join, most_bytes)
    if join.spatial is None:
        return KeyedRows.of(join, most_bytes)
    assert not isinstance(join.spatial, Nearest)
    return SpatialRows.of(
        join, most_bytes, spatial=join.spatial, none=join.how == "left",
        part_bytes=index_rows.PART_BYTES,
    )  # fmt: skip


@dataclass(frozen=True)
class _FromSnapshot:
    """Makes the rows of a snapshot's newest version.

    A class, since a nested function would travel with a copy of `_made` of its own.
    """

    rows: KeyedRows
    spec: SnapshotSpec
    cache: Full
    folder: SharedFolder

    def make(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows; the input says nothing."""
        for _ in batches:  # a worker that leaves its input unread is not used again
            pass
        folder = self.folder.seen(where=WHERE)
        version = open_version(self.spec, self.cache, folder, micro_batch())
        yield _made.get(
            (self.rows, self.spec.digest),
            lambda: self.rows.make(version.flat.columns, version.flat.index),
            version=version.name,
        )


#: what this worker has made of the newest version of its last tables
_made: WorkerCache[tuple[KeyedRows, str], pa.RecordBatch] = WorkerCache(size=4)


@dataclass(frozen=True)
class _FromFrame:
    """Makes the rows of those of a frame."""

    rows: KeyedRows

    def make(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows, none of none."""
        parts = list(batches)
        if parts:
            whole = pa.Table.from_batches(parts).combine_chunks()
            yield self.rows.make({name: whole[name].chunk(0) for name in whole.column_names})


def _as_wkb(frame: DataFrame, name: str) -> Column:
    """A column of the frame, WKB where it is a GEOMETRY, as the table's schema says."""
    column = F.col(quoted(name))
    is_geometry = types.is_geometry(frame.schema[name].dataType)
    return F.st_asbinary(column).alias(name) if is_geometry else column


def _spark_type(kind: pa.DataType) -> t.DataType:
    """As `types.to_spark`, and it says what is never null: Spark's code is half as long for it."""
    if pa.types.is_list(kind):
        return t.ArrayType(_spark_type(kind.value_type), kind.value_field.nullable)
    if pa.types.is_struct(kind):
        return t.StructType(
            [
                t.StructField(part.name, _spark_type(part.type), part.nullable)
                for part in kind.fields
            ]
        )
    return types.to_spark(kind, where=WHERE, column="")
