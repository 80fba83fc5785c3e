"""Where a pipeline's records come from."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

from rivermouth.errors import DefinitionError
from rivermouth.tables.files import missing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAMES = ("files", "kafka", "rate")

FileFormat = Literal["parquet", "orc", "json", "csv", "text"]
Offsets = Literal["earliest", "latest"]
Options = Mapping[str, str | int | float | bool]

_DESCRIBED = ("parquet", "orc", "text")  # formats whose files say what their columns are


def files(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    format: FileFormat = "parquet",  # noqa: A002  (Spark's word)
    schema: str | None = None,
    files_per_batch: int | None = None,
    stream: bool = True,
    options: Options | None = None,
) -> DataFrame:
    """Files of a folder: those that are there, and as a stream those that arrive.

    Parameters
    ----------
    spark
        The session.
    path
        A folder; in a batch also a file. Beside the pipeline's file where it is relative.
    format
        What the files are. CSV files are taken to begin with the columns' names.
    schema
        The columns, as in ``"taxi int, at timestamp, lon double"``. Parquet and ORC files tell
        them, if there is one already.
    files_per_batch
        The most files of a micro-batch. None: all that are there.
    stream
        Whether to read it as a stream; if not, it is read once, as it is.
    options
        Further options of Spark's reader.
    """
    if schema is None and format not in _DESCRIBED:
        raise DefinitionError(
            "files", f"{format} files do not say what their columns are", todo="Give schema=."
        )
    if stream and os.path.isfile(path):
        raise DefinitionError(
            "files",
            "a stream reads a folder",
            there=f"{os.fspath(path)!r} is a file",
            todo="Name its folder, or read it once: stream=False.",
        )
    given = {"header": True, **(options or {})} if format == "csv" else dict(options or {})
    batch = spark.read.format(format).options(**given)
    with _found(os.fspath(path)):
        if not stream:
            return (batch if schema is None else batch.schema(schema)).load(os.fspath(path))
        reader = spark.readStream.format(format).options(**given)
        if files_per_batch is not None:
            reader = reader.option("maxFilesPerTrigger", files_per_batch)
        known: Any = batch.load(os.fspath(path)).schema if schema is None else schema
        return reader.schema(known).load(os.fspath(path))


@contextmanager
def _found(path: str) -> Iterator[None]:
    """Say of a folder that Spark does not find what there is instead."""
    try:
        yield
    except Exception as error:
        if getattr(error, "getCondition", str)() != "PATH_NOT_FOUND":
            raise
        raise missing(path, where="files") from None


def kafka(
    spark: SparkSession,
    topic: str,
    *,
    servers: str,
    schema: str | None = None,
    starting: Offsets = "latest",
    records_per_batch: int | None = None,
    stream: bool = True,
    options: Options | None = None,
) -> DataFrame:
    """The records of a Kafka topic; Spark needs its Kafka package for it.

    Parameters
    ----------
    spark
        The session.
    topic
        One topic, or several with commas.
    servers
        ``host:port``, several with commas.
    schema
        The columns of values that are JSON; a value that is none gives a row of nulls. None: the
        columns are ``key`` and ``value`` as text, ``topic``, ``partition``, ``offset`` and
        ``timestamp``.
    starting
        Where a stream begins that has no checkpoint yet. A batch reads all.
    records_per_batch
        The most records of a micro-batch. None: all that are there.
    stream
        Whether to read it as a stream; if not, it is read once, as it is.
    options
        Further options, such as ``kafka.security.protocol``.
    """
    reader: Any = spark.readStream if stream else spark.read
    reader = reader.format("kafka").option("kafka.bootstrap.servers", servers)
    reader = reader.option("subscribe", topic).options(**dict(options or {}))
    if stream:
        reader = reader.option("startingOffsets", starting)
    if records_per_batch is not None:
        reader = reader.option("maxOffsetsPerTrigger", records_per_batch)
    records: DataFrame = reader.load()
    if schema is None:
        texts = ("CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value")
        return records.selectExpr(*texts, "topic", "partition", "offset", "timestamp")
    quoted = schema.replace("\\", "\\\\").replace("'", "\\'")
    parsed = records.selectExpr(f"from_json(CAST(value AS STRING), '{quoted}') AS record")
    return parsed.selectExpr("record.*")


def rate(spark: SparkSession, *, rows_per_second: int = 10) -> DataFrame:
    """Rows that Spark makes up, with columns ``timestamp`` and ``value``: for trials.

    Parameters
    ----------
    spark
        The session.
    rows_per_second
        How many.
    """
    return spark.readStream.format("rate").option("rowsPerSecond", rows_per_second).load()
