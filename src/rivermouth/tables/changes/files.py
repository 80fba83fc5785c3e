"""A feed of Parquet files: a folder to which files of changes are added, read by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq

from rivermouth.errors import TableGap, TableInvalid, TableMissing
from rivermouth.spec.changes import Files
from rivermouth.spec.identity import identity
from rivermouth.tables.changes.feed import ChangeBatch
from rivermouth.tables.files import filesystem, listed, reading

_WHERE = "changes.files"


@dataclass(frozen=True)
class FileFeed:
    """The changes in a folder's files; a position is the last file and its last number."""

    about: Files
    key: tuple[str, ...]

    @property
    def identity(self) -> str:
        """The folder and the columns' names."""
        about = self.about
        return identity(feed="files", path=about.path.shown, op=about.op, sequence=about.sequence)

    def start(self) -> dict[str, Any]:
        """The last file that is there by now, and its last number."""
        names = self._names()
        if not names:
            return {"file": "", "sequence": None}
        numbers = self._read(names[-1], [self.about.sequence])[self.about.sequence]
        last = max(numbers.to_pylist(), default=None)
        return {"file": names[-1], "sequence": last}

    def read(self, position: Any, columns: Sequence[str], limit: int) -> ChangeBatch:
        """The changes of the files after a position, whole files."""
        names, about = self._names(), self.about
        last, number = position["file"], position["sequence"]
        wanted = [about.op, about.sequence, *([] if about.made is None else [about.made])]
        parts: list[pa.Table] = []
        after = [name for name in names if name > last]
        for name in after:
            part = self._read(name, [*wanted, *columns])
            number = self._checked(name, part[about.sequence], number)
            parts.append(part)
            last = name
            if sum(one.num_rows for one in parts) >= limit:
                break
        if not parts:
            return ChangeBatch(pa.array([], pa.string()), pa.table({}), position)
        rows = pa.concat_tables(parts, promote_options="permissive").combine_chunks()
        made = None if about.made is None else rows[about.made].combine_chunks()
        return ChangeBatch(
            rows[about.op].combine_chunks().cast(pa.string()), rows,
            {"file": last, "sequence": number}, made, is_last=last == after[-1],
        )  # fmt: skip

    def _checked(self, name: str, column: pa.ChunkedArray, before: int | None) -> int | None:
        """The last number of a file, whose numbers follow the one before."""
        if column.null_count or not pa.types.is_integer(column.type):
            raise TableInvalid(
                _WHERE,
                f"column {self.about.sequence!r} of {name} has nulls or is not of whole numbers",
                there=f"it is {column.type} with {column.null_count} nulls",
                todo="Number changes in the order in which they were made.",
            )
        numbers = column.to_numpy()
        if not len(numbers):
            return before
        steps = np.diff(numbers, prepend=numbers[0] - 1 if before is None else before)
        if (steps <= 0).any() or (self.about.contiguous and (steps != 1).any()):
            at = int(np.flatnonzero((steps <= 0) | (steps != 1))[0])
            expected = numbers[at] - steps[at] + 1
            raise TableGap(
                _WHERE,
                f"change {expected} is missing in {self.about.path!r}",
                there=f"in {name} change {numbers[at]} comes instead",
                todo="The table is loaded anew.",
            )
        return int(numbers[-1])

    def _names(self) -> list[str]:
        """The files' names, in order."""
        system, root = filesystem(self.about.path)
        found = listed(system, root)
        names = [info.base_name for info in found if info.type == pyarrow.fs.FileType.File]
        return sorted(name for name in names if name[0] not in "._")

    def _read(self, name: str, columns: Sequence[str]) -> pa.Table:
        """These columns of a file, as far as it has them."""
        system, root = filesystem(self.about.path)
        with reading(f"{self.about.path}/{name}", where=_WHERE):
            file = pq.ParquetFile(f"{root}/{name}", filesystem=system)
            with file:
                there = set(file.schema_arrow.names)
                for needed in (self.about.op, self.about.sequence):
                    if needed in columns and needed not in there:
                        raise TableMissing(
                            _WHERE,
                            f"{name} has no column {needed!r}",
                            there=f"its columns are {sorted(there)}",
                            todo="Name it with op= or sequence=.",
                        )
                return file.read([one for one in dict.fromkeys(columns) if one in there])
