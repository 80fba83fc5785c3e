"""Where the changes of an exact aggregation go besides: a table with upsert, or a function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow.compute as pc
from pyspark.sql import DataFrame

from rivermouth.errors import DefinitionError
from rivermouth.spark.correct import newest_results, window_keys
from rivermouth.spark.exact.results import CHANGE, ORDER
from rivermouth.spark.exact.store import WHERE
from rivermouth.spec.summaries import Summary
from rivermouth.tables.source import Upserting

Sink = Callable[[DataFrame], None]


def sink_of(sink: Any, summary: Summary) -> Sink | None:
    """What takes a frame of changes: nothing, a table, or the user's function."""
    if isinstance(sink, Upserting):

        def upsert(changes: DataFrame) -> None:
            rows = newest_results(changes, summary, order=ORDER).toArrow()
            is_delete, keys = pc.equal(rows.column(CHANGE), "delete"), window_keys(summary)
            results = rows.drop_columns([CHANGE])
            sink.upsert(results.filter(pc.invert(is_delete)), keys=keys, order=ORDER)
            sink.delete(results.filter(is_delete).select(keys))

        return upsert
    if sink is None or callable(sink):
        return sink  # type: ignore[no-any-return]
    raise DefinitionError(
        WHERE,
        f"sink={sink!r} takes no changes",
        todo="Give a table of rm.tables.postgres, or a function of one frame.",
    )
