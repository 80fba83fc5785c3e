"""Where a pipeline's rows go: each function says how a frame is written, as a stream or once."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from rivermouth.errors import DefinitionError
from rivermouth.tables.source import Upserting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NAMES = ("files", "kafka", "console", "memory", "upsert")

FileFormat = Literal["parquet", "orc", "json", "csv", "text"]
Mode = Literal["append", "overwrite", "error"]
Options = Mapping[str, str | int | float | bool]

_NUMBER = "_number"  # a column of row numbers, while duplicates are found


@dataclass(frozen=True)
class Sink:
    """A frame, and how it is written.

    Parameters
    ----------
    frame
        A batch or streaming frame.
    format, options
        As Spark has them; "foreachBatch": `write` is called with each micro-batch, or with all.
    has_checkpoint
        Whether a stream into it goes on where it was, by a checkpoint.
    mode
        What a batch does where there are files already.
    """

    frame: DataFrame
    format: str
    options: Mapping[str, Any]
    has_checkpoint: bool = True
    partition_by: Sequence[str] = ()
    write: Callable[[Any], None] | None = None
    mode: Mode = "append"

    def start(self, name: str, checkpoint: str, trigger: Mapping[str, Any]) -> Any:
        """Start the query of a streaming frame."""
        writer = self.frame.writeStream.queryName(name)
        if self.has_checkpoint:
            writer = writer.option("checkpointLocation", checkpoint)
        if trigger:
            writer = writer.trigger(**trigger)
        write = self.write
        if write is not None:
            return writer.foreachBatch(lambda batch, _: write(batch)).start()
        return self._described(writer).start()

    def run(self) -> None:
        """Write a batch frame."""
        if self.write is not None:
            self.write(self.frame)
        elif self.format == "console":
            self.frame.show(int(self.options["numRows"]), truncate=False)
        elif self.format == "memory":
            raise DefinitionError(
                "memory", "the frame is a batch", todo="Use it directly, or another sink."
            )
        else:
            self._save()

    def _save(self) -> None:
        try:
            self._described(self.frame.write).mode(self.mode).save()
        except Exception as error:
            if getattr(error, "getCondition", str)() != "PATH_ALREADY_EXISTS":
                raise
            raise DefinitionError(
                "files",
                f"{self.options['path']!r} is there already",
                todo="Delete it, or give mode: overwrite or mode: append.",
            ) from None

    def _described(self, writer: Any) -> Any:
        described = writer.format(self.format).options(**self.options)
        return described.partitionBy(*self.partition_by) if self.partition_by else described


def files(
    frame: DataFrame,
    path: str | os.PathLike[str],
    *,
    format: FileFormat = "parquet",  # noqa: A002  (Spark's word)
    partition_by: Sequence[str] = (),
    mode: Mode | None = None,
    options: Options | None = None,
) -> Sink:
    """Write rows to files of a folder; as a stream each row once, whatever happens.

    Parameters
    ----------
    frame
        What is written.
    path
        A folder. Beside the pipeline's file where it is relative.
    format
        Of the files. CSV files begin with the columns' names.
    partition_by
        Columns by whose values folders are made.
    mode
        What happens to files that are there already. None: a stream appends to them, a batch,
        which would write its rows a second time, ends with an error.
    options
        Further options of Spark's writer.
    """
    if frame.isStreaming and mode not in (None, "append"):
        raise DefinitionError(
            "files", f"mode is {mode!r}, but a stream only appends", todo="Leave mode out."
        )
    given = {"header": True, **(options or {})} if format == "csv" else dict(options or {})
    where = {"path": os.fspath(path), **given}
    default: Mode = "append" if frame.isStreaming else "error"
    return Sink(frame, format, where, partition_by=tuple(partition_by), mode=mode or default)


def kafka(
    frame: DataFrame,
    topic: str,
    *,
    servers: str,
    key: str | None = None,
    options: Options | None = None,
) -> Sink:
    """Send each row to a Kafka topic as JSON; after a crash some may be sent again.

    Parameters
    ----------
    frame
        What is sent.
    topic
        The topic.
    servers
        ``host:port``, several with commas.
    key
        The column whose value is the record's key. None: it has none.
    options
        Further options, such as ``kafka.security.protocol``.
    """
    value = "to_json(struct(*)) AS value"
    keyed = [] if key is None else [f"CAST(`{key}` AS STRING) AS key"]
    where = {"kafka.bootstrap.servers": servers, "topic": topic, **(options or {})}
    return Sink(frame.selectExpr(*keyed, value), "kafka", where)


def console(frame: DataFrame, *, rows: int = 20) -> Sink:
    """Print rows of each micro-batch.

    Parameters
    ----------
    frame
        What is shown.
    rows
        How many of each micro-batch.
    """
    return Sink(frame, "console", {"numRows": rows, "truncate": False}, has_checkpoint=False)


def memory(frame: DataFrame) -> Sink:
    """Keep all rows in the session's memory, as a table with the sink's name: for tests.

    Parameters
    ----------
    frame
        What is kept.
    """
    return Sink(frame, "memory", {}, has_checkpoint=False)


def upsert(
    frame: DataFrame, table: Upserting, *, keys: Sequence[str], order: Sequence[str]
) -> Sink:
    """Write rows over those with the same keys, in a table of `tables.postgres`.

    Each micro-batch is one transaction, which the driver writes; one that runs again after a
    crash changes nothing.

    Parameters
    ----------
    frame
        What is written.
    table
        Where; it is created if it does not exist.
    keys
        The columns that tell rows apart.
    order
        The columns by which the later of two rows with the same keys is known.
    """
    if not isinstance(table, Upserting):
        raise DefinitionError(
            "upsert",
            f"{getattr(table, 'name', table)} takes no rows",
            todo="Give a table of tables.postgres.",
        )
    if not keys or not order:
        raise DefinitionError("upsert", "keys or order names no column", todo="Name one of each.")

    def write(batch: Any) -> None:
        table.upsert(newest(batch.toArrow(), keys, order), keys=keys, order=order)

    return Sink(frame, "foreachBatch", {}, write=write)


def newest(rows: pa.Table, keys: Sequence[str], order: Sequence[str]) -> pa.Table:
    """Of rows with the same keys the last by `order`, null being before everything else."""
    sorting = pa.table(
        [part for name in order for part in (pc.is_valid(rows.column(name)), rows.column(name))],
        [str(number) for number in range(2 * len(order))],
    )
    by = [(name, "ascending") for name in sorting.column_names]
    rows = rows.take(pc.sort_indices(sorting, sort_keys=by))
    numbered = rows.append_column(_NUMBER, pa.array(range(rows.num_rows), pa.int64()))
    last = numbered.group_by(list(keys), use_threads=False).aggregate([(_NUMBER, "max")])
    return rows.take(last.column(f"{_NUMBER}_max"))
