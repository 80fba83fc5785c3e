"""Files by path or URI: reading, atomic writing, and clear errors where they are missing."""

from __future__ import annotations

import json
import os
import socket
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs

from rivermouth.errors import (
    DefinitionError,
    TableError,
    TableMissing,
    TableUnavailable,
    did_you_mean,
)
from rivermouth.spec.locations import Location
from rivermouth.tables import hdfs

#: where a file appears whole, when its writer closes it, and needs no folder
_OBJECT_STORES = {"s3", "gcs", "abfs"}
#: what pyarrow opens by libhdfs
_HADOOP = {"hdfs", "viewfs"}
_S3 = {"s3", "s3a"}
_S3_TODO = (
    "Check the bucket's name. Region, keys and endpoint are pyarrow's, also of s3a://: set "
    "AWS_DEFAULT_REGION, AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and, if it is not Amazon's, "
    "AWS_ENDPOINT_URL on the driver and, as spark.executorEnv.*, on the executors."
)


def filesystem(path: str) -> tuple[Any, str]:
    """The file system of an absolute path or a URI, and the path within it.

    Raises
    ------
    DefinitionError
        If pyarrow.fs does not know such a URI.
    TableUnavailable
        If the store does not answer; S3 is asked for a bucket's region where nothing names it.
    """
    location = Location(path)
    try:
        system, inner = pyarrow.fs.FileSystem.from_uri(location.for_arrow)
    except pa.ArrowInvalid as error:
        raise DefinitionError(
            "path",
            f"{location!r} is not a URI that pyarrow.fs knows",
            there=location.redacted(str(error)).rstrip("."),
            todo="Write one such as s3://bucket/folder?region=..., with special characters of "
            "keys escaped (%2F for /).",
        ) from None  # pyarrow's words show the URI with its keys
    except OSError as error:
        if is_hadoop(location):
            raise hdfs.explained(location, error) from None
        raise TableUnavailable(
            "path",
            f"{location!r} cannot be opened on host {socket.gethostname()!r}",
            there=location.redacted(str(error)).rstrip("."),
            todo=_S3_TODO if location.scheme in _S3 else "Check that this host reaches it.",
        ) from None
    return system, inner


def is_hadoop(location: Location) -> bool:
    """Whether pyarrow opens it by libhdfs, which is found in the environment."""
    return location.scheme in _HADOOP


def read_bytes(path: str, *, where: str) -> bytes:
    """All bytes of the file at `path`, local or on any file system that pyarrow.fs knows."""
    with reading(path, where=where):
        system, inner = filesystem(path)
        with system.open_input_stream(inner) as stream:
            return bytes(stream.read())


def read_json(path: str) -> dict[str, Any] | None:
    """What `write_json` left at `path`, None where there is nothing."""
    data = read_replaced(path)
    return None if data is None else json.loads(data)


def read_replaced(path: str) -> bytes | None:
    """What `write_bytes` left at `path`, None where there is nothing."""
    system, inner = filesystem(path)
    if system.type_name == "hdfs":
        return hdfs.read(system, inner)
    try:
        with system.open_input_stream(inner) as stream:
            return bytes(stream.read())
    except FileNotFoundError:
        return None


def write_json(path: str, value: Mapping[str, Any]) -> None:
    """Write a small file, and its folder, so that a reader sees all of it or nothing."""
    write_bytes(path, json.dumps(value).encode())


def write_bytes(path: str, data: bytes) -> None:
    """Write a small file, and its folder, so that a reader sees all of it or nothing."""
    system, inner = filesystem(path)
    folder, _, name = inner.rpartition("/")
    if system.type_name in _OBJECT_STORES:
        with system.open_output_stream(inner) as stream:
            stream.write(data)
        return
    if system.type_name == "hdfs":
        hdfs.write(system, inner, data)
        return
    system.create_dir(folder)
    staged = f"{folder}/.{name}.{uuid.uuid4().hex}"
    with system.open_output_stream(staged) as stream:
        stream.write(data)
    system.move(staged, inner)


def listed(system: Any, folder: str, *, recursive: bool = False) -> list[Any]:
    """What is in a folder of a file system, nothing where there is no folder.

    pyarrow's ``allow_not_found`` also finds nothing in an HDFS that does not answer.
    """
    try:
        found: list[Any] = system.get_file_info(
            pyarrow.fs.FileSelector(folder, recursive=recursive)
        )
    except FileNotFoundError:
        return []
    return found


def delete(system: Any, path: str) -> None:
    """Delete a file of a file system, if it is there; several may do so at once."""
    try:
        system.delete_file(path)
    except OSError:  # HDFS does not say that it is not there
        if system.get_file_info(path).type != pyarrow.fs.FileType.NotFound:
            raise


def output_stream(path: str) -> Any:
    """A new file to be written, in a folder that is made for it if need be."""
    system, inner = filesystem(path)
    if system.type_name not in _OBJECT_STORES:
        system.create_dir(inner.rpartition("/")[0])
    return system.open_output_stream(inner)


def write_once(path: Path, data: bytes) -> bytes:
    """Write a file of this host or of a shared file system unless it is there; gives what is there.

    Of several who write at once one succeeds, and all are given its bytes.
    """
    with suppress(FileNotFoundError):
        return path.read_bytes()
    staged = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        staged.write_bytes(data)
        with suppress(FileExistsError):
            os.link(staged, path)  # in one step with all its bytes, over NFS, too
    finally:
        staged.unlink(missing_ok=True)
    return path.read_bytes()


@contextmanager
def reading(path: str, *, where: str) -> Iterator[None]:
    """Turn the errors of a file system while `path` is read into ours."""
    try:
        yield
    except FileNotFoundError:
        raise missing(path, where=where) from None
    except OSError as error:
        raise TableUnavailable(
            where,
            f"{Location(path)!r} cannot be read",
            there=Location(path).redacted(str(error)).rstrip("."),
            todo="Check that this host and user may read it.",
        ) from error


def check_exists(path: str, *, where: str) -> None:
    """Raise a `TableMissing` unless the file exists; one that a URI names is not looked for."""
    if not Location(path).is_uri and not os.path.exists(path):
        raise missing(path, where=where)


def missing(path: str, *, where: str) -> TableError:
    """The error for a file that is not there, with the nearest name that is."""
    location, folder = Location(path), os.path.dirname(path)
    if location.is_uri or not os.path.isdir(folder):
        return TableMissing(where, f"there is no {location!r}", todo="Check the path.")
    names = sorted(os.listdir(folder))
    return TableMissing(
        where,
        f"there is no {path!r}",
        there=f"its folder holds {names[:8]}" + (" and more" if len(names) > 8 else ""),
        todo=did_you_mean(location.name, names) or "Check the path.",
    )
