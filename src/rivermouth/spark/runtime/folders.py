"""Folders that all workers reach."""

from __future__ import annotations

import atexit
import shutil
import tempfile
import uuid
from pathlib import Path

from pyspark.sql import DataFrame

from rivermouth.errors import DefinitionError
from rivermouth.spec.locations import Location

#: how a user names a folder for snapshots
SNAPSHOTS = "cache=rm.full(path='/shared/snapshots')"


def shared_folder(frame: DataFrame, path: str | None, *, where: str, example: str) -> Location:
    """Where files go: the user's folder, or a temporary one where all workers are on this host."""
    if path is not None:
        return Location.of(path)
    master = frame.sparkSession.conf.get("spark.master", "")
    if not str(master).startswith("local"):
        raise DefinitionError(
            where,
            f"no folder is given, and the workers of {master!r} may be on several hosts",
            todo=f"Give one that all of them reach, as in {example}.",
        )
    folder = Path(tempfile.gettempdir()) / f"rivermouth-{uuid.uuid4().hex}"
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Location(folder)
