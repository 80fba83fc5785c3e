"""What a frame gives, as plain Python values."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from rivermouth.testing.arrow import plain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Row = dict[str, Any]
_FAILURE = "failure.txt"


class StreamFailed(RuntimeError):
    """A stream's batch failed; the message is the one that a batch frame would have failed with."""


def rows(frame: DataFrame, **options: str) -> list[Row]:
    """All rows of a frame; a stream is run to its end.

    Parameters
    ----------
    options
        Of the stream's writer. ``checkpointLocation`` makes a second call go on where the first
        ended.

    Returns
    -------
    list[dict]
        Values that compare: a TIMESTAMP is a datetime in UTC, a TIMESTAMP_NTZ one without a
        zone, BINARY is bytes, a GEOMETRY is a dict of srid and wkb, and all NaN are the same
        object, so that rows which hold one are equal.

    Raises
    ------
    StreamFailed
        When a micro-batch fails. A batch frame raises Spark's own exception.

    Examples
    --------
    >>> from rivermouth import testing
    >>> testing.rows(spark.range(2))
    [{'id': 0}, {'id': 1}]
    """
    return [row for batch in batches(frame, **options) for row in batch]


def batches(frame: DataFrame, **options: str) -> list[list[Row]]:
    """The rows of a frame, micro-batch by micro-batch; a batch frame is one.

    Takes, gives and raises what `rows` does.
    """
    flat = plain(frame)
    if not frame.isStreaming:
        return [_values(flat.toArrow())]
    with tempfile.TemporaryDirectory(prefix="rivermouth-rows-") as folder:
        _run(flat, Path(folder), options)
        return [_values(_read(file)) for file in sorted(Path(folder).glob("*.arrow"))]


def _run(frame: DataFrame, folder: Path, options: dict[str, str]) -> None:
    query = (
        frame.writeStream.foreachBatch(_keeper(str(folder)))
        .options(**{"checkpointLocation": str(folder / "checkpoint")} | options)
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    except Exception:
        failure = folder / _FAILURE
        if not failure.exists():
            raise
        raise StreamFailed(failure.read_text()) from None
    finally:
        query.stop()


def _keeper(folder: str) -> Callable[[DataFrame, int], None]:
    """The sink: a file per batch, as under Spark Connect it runs in a process of its own.

    What a batch fails with is left in a file, too: Spark would wrap it in two tracebacks of its
    own and a plan.
    """

    def keep(batch: DataFrame, number: int) -> None:
        try:
            table = batch.toArrow()
        except Exception as failure:
            Path(folder, _FAILURE).write_text(str(failure))
            raise
        with pa.ipc.new_file(f"{folder}/{number:09d}.arrow", table.schema) as writer:
            writer.write_table(table)

    return keep


def _read(file: Path) -> pa.Table:
    with pa.OSFile(str(file)) as source, pa.ipc.open_file(source) as reader:
        return reader.read_all()


def _values(table: pa.Table) -> list[Row]:
    return [_same_nan(row) for row in table.to_pylist()]


def _same_nan(value: Any) -> Any:
    match value:
        case float():
            return math.nan if math.isnan(value) else value
        case dict():
            return {key: _same_nan(part) for key, part in value.items()}
        case list():
            return [_same_nan(part) for part in value]
        case tuple():
            return tuple(_same_nan(part) for part in value)
    return value
