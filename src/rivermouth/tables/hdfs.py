"""HDFS as pyarrow.fs has it: what it needs, and files that are replaced.

HDFS renames onto no file that is there. pyarrow then deletes that file first, so that for a moment,
or for good where its process ends just then, there is none. What replaces a file therefore has a
name by which a reader finds it meanwhile.
"""

from __future__ import annotations

import os
import time
import uuid
from typing import Any

import pyarrow.fs

from rivermouth.errors import SessionError
from rivermouth.spec.locations import Location

_TRIES = 5
_FORGOTTEN = 60 * 10**9  # nanoseconds after which a writer that has not ended is not waited for


def explained(location: Location, error: OSError) -> OSError | SessionError:
    """What is missing where pyarrow cannot open an HDFS; the error itself if nothing is."""
    first = str(error).partition("\n")[0]  # of a hundred, one for each folder it looked at
    if "to load lib" in first:  # "Unable to load libjvm"; again: "Prior attempt to load ..."
        missing = first
    elif not os.environ.get("CLASSPATH"):
        missing = "CLASSPATH is not set"
    else:
        return error
    return SessionError(
        "path",
        f"{location!r} cannot be opened: pyarrow needs Java, Hadoop's libhdfs.so and its jars",
        there=missing,
        todo="On the driver and, as spark.executorEnv.*, on the executors set JAVA_HOME, "
        "ARROW_LIBHDFS_DIR to the folder of libhdfs.so (lib/native of a Hadoop), and CLASSPATH "
        'to "$SPARK_HOME/jars/*".',
    )


def read(system: Any, path: str) -> bytes | None:
    """What `write` has left at `path`, also in the moment that it is replaced; None: nothing."""
    for _ in range(_TRIES):
        staged = None
        if (data := _read(system, path)) is None and (staged := _newest_staged(system, path)):
            # not where it has got its name meanwhile: an older one may have been left behind
            data = _read(system, path)
            data = _read(system, staged) if data is None else data
        if data is not None or staged is None:
            return data
    return None


def write(system: Any, path: str, data: bytes) -> None:
    """Write a small file, and its folder; `read` gives all of it or what was there before."""
    if _read(system, path) == data:
        return  # other tasks may write the same at this moment
    folder, _, name = path.rpartition("/")
    system.create_dir(folder)
    own = uuid.uuid4().hex
    begun = f"{folder}/.{name}.{own}"
    staged = f"{folder}/{_prefix(name)}{time.time_ns():020d}-{own}"
    with system.open_output_stream(begun) as stream:
        stream.write(data)
    system.move(begun, staged)
    for left in reversed(range(_TRIES)):
        try:
            system.move(staged, path)
            break
        except OSError:  # another writer has replaced the file at the same moment
            if not left:
                raise
    _forget_staged(system, path)


def _read(system: Any, path: str) -> bytes | None:
    # not looked for first: pyarrow says of an HDFS that does not answer that the file is not there
    try:
        with system.open_input_stream(path) as stream:
            return bytes(stream.read())
    except FileNotFoundError:
        return None


def _prefix(name: str) -> str:
    return f".{name}.staged-"


def _staged(system: Any, path: str) -> list[Any]:
    """The complete files that are to replace one, the oldest first."""
    folder, _, name = path.rpartition("/")
    try:
        found = system.get_file_info(pyarrow.fs.FileSelector(folder))
    except FileNotFoundError:
        return []
    named = (info for info in found if info.base_name.startswith(_prefix(name)))
    return sorted(named, key=lambda info: info.base_name)


def _newest_staged(system: Any, path: str) -> str | None:
    found = _staged(system, path)
    return found[-1].path if found else None


def _forget_staged(system: Any, path: str) -> None:
    """Delete what writers that ended too early have left."""
    name = path.rpartition("/")[2]
    for info in _staged(system, path):
        since = int(info.base_name.removeprefix(_prefix(name)).partition("-")[0])
        if since < time.time_ns() - _FORGOTTEN:
            system.delete_file(info.path)
