"""Folders that all workers reach."""

from __future__ import annotations

import atexit
import shutil
import socket
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from rivermouth.errors import DefinitionError
from rivermouth.spec.locations import Location
from rivermouth.tables.files import filesystem, is_hadoop
from rivermouth.tables.shared_folder import SharedFolder, not_shared

#: how a user names a folder for snapshots
SNAPSHOTS = "cache=rm.full(path='/shared/snapshots')"
_HELD = 0.5  # seconds for which a task keeps its slot, so that the others go elsewhere


def shared_folder(
    frame: DataFrame | SparkSession, path: Location | None, *, where: str, example: str
) -> SharedFolder:
    """Where files go: the user's folder, or a temporary one where all workers are on this host.

    On a cluster the driver marks a folder that a path names, and workers look for the mark. A
    client of Spark Connect does not: it need not see the folder.
    """
    spark = frame.sparkSession if isinstance(frame, DataFrame) else frame
    if path is not None:
        location = Location.of(path)
        if _may_differ(spark, location) and not _is_connect(spark):
            return SharedFolder.marked(location, where=where)
        if is_hadoop(location) and not _is_connect(spark):
            filesystem(location)  # says here what is missing, not in a task
        return SharedFolder(location)
    if not (master := _master(spark)).startswith("local"):
        raise DefinitionError(
            where,
            f"no folder is given, and the workers of {master!r} may be on several hosts",
            todo=f"Give one that all of them reach, as in {example}.",
        )
    folder = Path(tempfile.gettempdir()) / f"rivermouth-{uuid.uuid4().hex}"
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return SharedFolder(Location(folder))


def check_hosts(spark: SparkSession, location: Location, *, where: str) -> None:
    """See that the folder is the same on this host and on every executor; runs a Spark job.

    Raises
    ------
    FolderError
        With the hosts that do not see it.
    """
    if not _may_differ(spark, location):
        return
    folder = SharedFolder.marked(location, where=where)

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:  # a worker that leaves its input unread is not used again
            pass
        found = [{"host": socket.gethostname(), "what": folder.difference()}]
        time.sleep(_HELD)
        yield pa.RecordBatch.from_pylist(found, pa.schema([("host", "string"), ("what", "string")]))

    # as many tasks as Spark has slots, which is its default
    told = spark.range(1 << 16).mapInArrow(look, "host string, what string").collect()
    missed = {row["host"]: row["what"] for row in told if row["what"] is not None}
    if missed:
        raise not_shared(folder, missed, where=where)


def _may_differ(spark: SparkSession, location: Location) -> bool:
    """Whether the same path may be another folder on another host."""
    return not location.is_uri and not _master(spark).startswith("local")


def _master(spark: SparkSession) -> str:
    return str(spark.conf.get("spark.master", ""))


def _is_connect(spark: SparkSession) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")
