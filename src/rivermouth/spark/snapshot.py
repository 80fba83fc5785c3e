"""rm.snapshot: a DataFrame written as files, so that workers can use it as a table."""

from __future__ import annotations

import os
import time

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812  (as everybody writes it)

from rivermouth.errors import DefinitionError
from rivermouth.spark import types
from rivermouth.spark.runtime.folders import check_hosts
from rivermouth.spec.locations import Location
from rivermouth.tables.sources.snapshot import SnapshotTable, publish
from rivermouth.tables.versions import version_name


def snapshot(df: DataFrame, path: str | os.PathLike[str]) -> SnapshotTable:
    """Write a batch frame under `path` and give it back as a table for `join_table`.

    This runs a Spark job; on a cluster another one first looks whether all executors see the
    folder. Written again under the same path, it is a new version: joins with
    ``rm.full(refresh=...)`` take it up, running tasks keep the one they have. Older versions
    are left where they are.

    Parameters
    ----------
    df
        A batch frame; its GEOMETRY columns are written as WKB, with their SRID.
    path
        A folder, or a URI that both Spark and pyarrow.fs know; of ``s3a://bucket/a?region=...``
        Spark gets ``s3a://bucket/a`` and pyarrow ``s3://bucket/a?region=...``.
    """
    if df.isStreaming:
        raise DefinitionError(
            "snapshot", "a stream has no end to write down", todo="Give a batch frame."
        )
    folder, version = Location.of(path), version_name(time.time())
    check_hosts(df.sparkSession, folder, where="snapshot")
    srids = {
        field.name: field.dataType.srid if field.dataType.srid > 0 else 0
        for field in df.schema
        if types.is_geometry(field.dataType) and isinstance(field.dataType.srid, int)
    }
    plain = df.select(
        *(
            F.st_asbinary(F.col(f"`{name}`")).alias(name) if name in srids else F.col(f"`{name}`")
            for name in df.columns
        )
    )
    plain.write.parquet((folder / version).for_spark)
    publish(folder, version, srids)
    return SnapshotTable(folder)
