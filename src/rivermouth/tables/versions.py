"""Folders of immutable versions, and a pointer file to the newest that is replaced in one step.

A folder is a path or a URI that pyarrow.fs knows. Versions are named by the time they were made.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection

import pyarrow.fs

from rivermouth.spec.locations import Location
from rivermouth.tables import files

#: names the newest version of a folder
POINTER = "CURRENT"


def version_name(made: float) -> str:
    """The name of a version made at `made`, in seconds since 1970.

    Examples
    --------
    >>> version_name(1793830112.0)
    'v1793830112000000'
    """
    return f"v{int(made * 1e6):016d}"


def base_of(version: str) -> str:
    """The folder of a version; a version that follows changes is one step above its snapshot.

    Examples
    --------
    >>> base_of("v1793830112000000_00000007_3f2a"), base_of("v1793830112000000")
    ('v1793830112000000', 'v1793830112000000')
    """
    return version.partition("_")[0]


def read_pointer(folder: str, name: str = POINTER) -> str | None:
    """What the pointer file says, None where there is no version yet."""
    text = files.read_replaced(Location(folder) / name)
    return None if text is None else text.decode()


def write_pointer(folder: str, text: str, name: str = POINTER) -> None:
    """Point to another version: a reader sees the old one or the new one."""
    files.write_bytes(Location(folder) / name, text.encode())


def prune(folder: str, keep: int, needed: Collection[str] = ()) -> None:
    """Remove all but the `keep` newest versions and those `needed`; open ones stay mapped."""
    system, root = files.filesystem(folder)
    there = system.get_file_info(pyarrow.fs.FileSelector(root))
    versions = sorted(info.base_name for info in there if info.base_name.startswith("v"))
    for old in set(versions[:-keep]).difference(needed):
        with contextlib.suppress(OSError):  # another process removes it, too
            system.delete_dir(f"{root}/{old}")
