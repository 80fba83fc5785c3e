"""join_table's plan "workers": whole events go to Python workers, which give joined rows back."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame

from rivermouth.kernels.table_join.assemble import assemble
from rivermouth.kernels.table_join.pairs import Pairs
from rivermouth.spark.engines import partitioning
from rivermouth.spark.engines.hotspots import Hotspots, SampledStep
from rivermouth.spark.engines.stateless import run
from rivermouth.spark.engines.table_steps import MakeStep, cast
from rivermouth.spark.validation.join_table import WHERE, Join

Partitioner = (
    Hotspots | int | None
)  #: where events go: by a rule, by hash to so many, where they are


def join_in_workers(
    events: DataFrame, join: Join, make: MakeStep, routed: Partitioner = None
) -> DataFrame:
    """The events through a step, in the partitions they are routed to."""
    made = lambda: make(_joined)  # noqa: E731
    if isinstance(routed, Hotspots):
        events = routed.routed(events, join)
        made = lambda: SampledStep(make(_joined), routed)  # noqa: E731
    elif routed is not None:
        route = partitioning.by_hash(join, routed)
        events = partitioning.to_partitions(events, route, routed).drop(partitioning.ROUTE)
    return run(events, made, join.output, name=f"{WHERE}.{join.source.name}", about=join)


def _joined(
    join: Join, batch: pa.RecordBatch, pairs: Pairs, table: dict[str, pa.Array]
) -> tuple[pa.RecordBatch, int]:
    """The joined rows of a batch."""
    result = assemble(batch, pairs, join.how, table, join.columns, distance=join.distance)
    columns = cast(join, result)
    rows = pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
    return rows, rows.num_rows
