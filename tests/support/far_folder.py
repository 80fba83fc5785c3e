"""A folder that is reached by a URI, as an object store is: what hosts share, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.fs
import pytest

from rivermouth.tables import files

URI = "far://bucket"


def share(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Have `URI`, which is returned, lead to `folder`, which is made."""
    folder.mkdir()
    tree = pyarrow.fs.SubTreeFileSystem(str(folder), pyarrow.fs.LocalFileSystem())
    real = files.filesystem

    def filesystem(path: str) -> tuple[Any, str]:
        return (tree, path.split("://")[1]) if "://" in path else real(path)

    monkeypatch.setattr(files, "filesystem", filesystem)
    return URI
