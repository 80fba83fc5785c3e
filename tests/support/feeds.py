"""A table and the feed of its changes, kept in a folder: processes that are killed leave both."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import shapely

from rivermouth.errors import TableGap, TableUnavailable
from rivermouth.tables.changes.feed import ChangeBatch
from rivermouth.tables.source import geometry_field

SCHEMA = pa.schema(
    [("id", pa.int64()), ("name", pa.string()), ("level", pa.int64()), geometry_field("shape")]
)


def box(x, y, size=1.0):
    return shapely.to_wkb(shapely.box(x, y, x + size, y + size))


@dataclass(frozen=True)
class Journal:
    """A table that is a journal of changes: its rows at any position, and what came after it.

    Changes are lines of JSON: (op, id, name, level, x, y). A row is known by `id`; one that is
    changed goes to the table's end. Files `lost` and `down` say up to where changes are lost,
    and that nobody answers.
    """

    folder: Path

    name = "journal"

    @property
    def identity(self):
        return f"journal:{self.folder}"

    def schema(self):
        return SCHEMA

    def add(self, *changes):
        with open(self.folder / "journal", "a") as file:
            file.writelines(json.dumps(change) + "\n" for change in changes)

    def changes(self):
        path = self.folder / "journal"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def rows_at(self, position):
        """The rows after so many changes, in the order of their last change."""
        rows = {}
        for op, key, *values in self.changes()[:position]:
            if key is None:
                continue
            rows.pop(key, None)
            if op != "delete":
                rows[key] = values
        return rows

    def read(self, columns):
        self._answer()
        with open(self.folder / "reads", "a") as file:
            file.write("read\n")
        return table_of(self.rows_at(None)).select(columns)

    def reads(self):
        path = self.folder / "reads"
        return len(path.read_text().splitlines()) if path.exists() else 0

    # -- the feed

    def start(self):
        self._answer()
        return len(self.changes())

    def read_changes(self, position, columns, limit):
        self._answer()
        lost = self.folder / "lost"
        if lost.exists() and position < int(lost.read_text()):
            raise TableGap("journal", f"changes after {position} are lost")
        every = self.changes()
        some = every[position : position + limit]
        keyed = [(key, *values) for _, key, *values in some]
        rows = table_of_rows(keyed).select(columns)
        end = position + len(some)
        return ChangeBatch(
            pa.array([op for op, *_ in some], pa.string()), rows, end, None, end == len(every)
        )

    def _answer(self):
        if (self.folder / "down").exists():
            raise TableUnavailable("journal", "nobody answers")


@dataclass(frozen=True)
class JournalFeed:
    """The feed of a journal's changes."""

    journal: Journal

    @property
    def identity(self):
        return self.journal.identity

    def start(self):
        return self.journal.start()

    def read(self, position, columns, limit):
        most = os.environ.get("JOURNAL_LIMIT")
        return self.journal.read_changes(position, columns, int(most) if most else limit)


def table_of(rows):
    return table_of_rows([(key, *values) for key, values in rows.items()])


def table_of_rows(rows):
    columns = list(zip(*rows, strict=True)) if rows else [()] * 5
    keys, names, levels, x, y = columns
    shapes = [None if one is None else box(one, other) for one, other in zip(x, y, strict=True)]
    return pa.table([keys, names, levels, shapes], schema=SCHEMA)
