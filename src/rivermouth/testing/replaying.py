"""Batch frames as streams: the same rows in the same order, cut into micro-batches at will."""

from __future__ import annotations

import atexit
import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from rivermouth.errors import DefinitionError
from rivermouth.testing.arrow import places, plain, spatial
from rivermouth.testing.text import frame as frame_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Cuts = int | Sequence[int] | None


def stream(spark: SparkSession, text: str, *, cuts: Cuts = None) -> DataFrame:
    """The stream that a small text table describes, its rows in the order of arrival.

    Parameters
    ----------
    text
        As in `frame`.
    cuts
        As in `replay`.
    """
    return replay(frame_of(spark, text), cuts=cuts)


def replay(
    frame: DataFrame, *, cuts: Cuts = None, path: str | os.PathLike[str] | None = None
) -> DataFrame:
    """The rows of a batch frame as a stream, in the frame's order.

    The frame is run and collected here and now, so it should fit in memory.

    Parameters
    ----------
    cuts
        Where the stream is cut into micro-batches: so many rows each; a list of the batches'
        sizes, which may hold 0; or None, one batch of all. They are kept by a query that has
        ``availableNow=True`` or a processing time as its trigger.
    path
        An empty or missing folder for the stream's files, one per batch, which stays. None: a
        temporary one, which lasts as long as this process.

    Returns
    -------
    DataFrame
        A streaming frame with the columns and types of `frame`, all of them nullable.

    Examples
    --------
    >>> from rivermouth import testing
    >>> testing.batches(testing.replay(spark.range(5), cuts=[2, 0, 3]))
    [[{'id': 0}, {'id': 1}], [], [{'id': 2}, {'id': 3}, {'id': 4}]]
    """
    flat = plain(frame)
    table = flat.toArrow()
    pieces = list(_pieces(table, cuts))
    folder = Path(path) if path is not None else _passing_folder()
    write_batches(pieces, folder)
    source = frame.sparkSession.readStream.schema(flat.schema).option("maxFilesPerTrigger", 1)
    return spatial(source.parquet(str(folder)), places(frame))


def _pieces(table: pa.Table, cuts: Cuts) -> Iterator[pa.Table]:
    sizes = _sizes(table.num_rows, cuts)
    for end, size in zip(itertools.accumulate(sizes), sizes, strict=True):
        yield table.slice(end - size, size)


def _sizes(count: int, cuts: Cuts) -> list[int]:
    """The batches' sizes.

    Examples
    --------
    >>> _sizes(5, 2), _sizes(5, None), _sizes(5, [0, 5]), _sizes(0, 3)
    ([2, 2, 1], [5], [0, 5], [0])
    """
    if cuts is None:
        return [count]
    if isinstance(cuts, int):
        if cuts < 1:
            raise DefinitionError(
                "testing.replay", f"cuts is {cuts}", todo="Give each batch at least one row."
            )
        return [min(cuts, count - start) for start in range(0, count, cuts)] or [0]
    sizes = list(cuts)
    if sum(sizes) != count or min(sizes, default=0) < 0:
        raise DefinitionError(
            "testing.replay",
            f"cuts {sizes} do not add up to the frame's rows",
            there=f"it has {count}",
            todo="Give sizes whose sum that is.",
        )
    return sizes


def write_batches(batches: Sequence[pa.Table], folder: Path) -> None:
    """Write a file per batch. Spark reads files in the order of their times, in milliseconds."""
    folder.mkdir(parents=True, exist_ok=True)
    first = time.time() - len(batches)
    for number, batch in enumerate(batches):
        file = folder / f"batch-{number:06d}.parquet"
        pq.write_table(batch, file)
        os.utime(file, (first + number, first + number))


def _passing_folder() -> Path:
    folder = tempfile.mkdtemp(prefix="rivermouth-replay-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)
