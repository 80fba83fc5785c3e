"""A table in an SQLite file, as a source of rows and as a store that answers conditions."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rivermouth.errors import TableInvalid, TableMissing, TableUnavailable, did_you_mean
from rivermouth.spec.conditions import Condition
from rivermouth.spec.filters import Filter, shown
from rivermouth.tables.cache.probes import Probes, answerable, probes_of
from rivermouth.tables.files import missing, short_name
from rivermouth.tables.source import T
from rivermouth.tables.sources import sql
from rivermouth.tables.sources.filtering import check_filter
from rivermouth.tables.sources.notebook import Shown
from rivermouth.tables.sources.sql import Column, Dialect, Relation
from rivermouth.tables.sources.sqlite.kinds import Kind, bound, kind_of, typed

WHERE = "tables.sqlite"

_ROWS = 65_536  # turned into Arrow at a time
_STEPS = 10_000  # of SQLite's machine between two looks at the clock
_ROW_NAMES = ("rowid", "_rowid_", "oid")  # a column may have taken one

_DIALECT = Dialect(mark=lambda name: f":{name}", bound=bound)


@dataclass(frozen=True)
class SQLiteTable(Shown):
    """The rows of a table or view, by primary key, or else by rowid.

    A file is opened anew for each call: that takes SQLite a tenth of a millisecond, and a file
    that was put in the place of another is seen.
    """

    path: str
    table: str
    where: Filter = ()
    statement_timeout: float | None = None

    def __repr__(self) -> str:
        return f"SQLiteTable({self.table!r} of {self.path!r}{_only(self.where)})"

    @property
    def name(self) -> str:
        """The file's name and the table's."""
        return f"{short_name(self.path)}/{self.table}"

    @property
    def identity(self) -> str:
        """The file's path, the table, and which of its rows."""
        return f"sqlite:{self.path}#{self.table}{_only(self.where)}"

    def schema(self) -> pa.Schema:
        """The columns as they are declared."""
        with self._opened() as file:
            return self._describe(file).schema

    def read(self, columns: Sequence[str]) -> pa.Table:
        """All rows, these columns only."""
        return self.scan(columns, pa.Table.from_batches)

    def scan(self, columns: Sequence[str], use: Callable[[Iterator[pa.RecordBatch]], T]) -> T:
        """All rows, these columns only, as they are read from the file."""
        with self._opened() as file:
            relation = self._describe(file)
            chosen = relation.chosen(columns, where=WHERE, table=self._shown)
            tests, values = sql.tests_of(self.where, relation, _DIALECT, where=WHERE)
            cursor = file.execute(sql.select(relation, chosen, tests), values)
            return use(self._fetched(cursor, chosen))

    def lookup(
        self, condition: Condition, columns: Sequence[str], left: Mapping[str, pa.Array]
    ) -> tuple[npt.NDArray[np.int64], pa.Table]:
        """The rows that match each record, by equality, a range, or both.

        The records are put into a table of this connection's own, in memory, so that their values
        are bound as they are and their number has no limit; one statement joins it. Rows come by
        record, then in the table's order.
        """
        equal, span = answerable(condition, where=WHERE)
        with self._opened() as file:
            relation = self._describe(file)
            chosen = relation.chosen(columns, where=WHERE, table=self._shown)
            probes = probes_of(left, equal, span, relation.schema, where=WHERE)
            _hand_over(file, probes)
            tests, values = sql.tests_of(self.where, relation, _DIALECT, where=WHERE)
            text = sql.lookup(relation, chosen, equal, span, "temp.records", tests)
            number = Column(pa.field("", pa.int64()), "n")
            found = pa.Table.from_batches(
                self._fetched(file.execute(text, values), [number, *chosen])
            )
        rows = found.column(0).to_numpy()
        return probes.rows[rows], found.select(list(range(1, found.num_columns)))

    @property
    def _shown(self) -> str:
        return f"table {self.table!r}"

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        if not os.path.exists(self.path):
            raise missing(self.path, where=WHERE)
        try:
            # quoted, so that a # or ? in the path is not taken for the end of it
            with closing(sqlite3.connect(f"file:{quote(self.path)}?mode=ro", uri=True)) as file:
                file.execute("PRAGMA temp_store = MEMORY")
                if self.statement_timeout is not None:
                    end = time.monotonic() + self.statement_timeout
                    file.set_progress_handler(lambda: time.monotonic() > end, _STEPS)
                yield file
        except sqlite3.Error as error:
            raise self._table_error(error) from None

    def _table_error(self, error: sqlite3.Error) -> Exception:
        said = str(error).rstrip(".")
        if said == "interrupted":
            return TableUnavailable(
                WHERE,
                f"{self._shown} did not answer within {self.statement_timeout:g} s",
                todo="Give its columns an index, or raise statement_timeout=.",
            )
        if "locked" in said or "unable to open" in said:
            return TableUnavailable(
                WHERE,
                f"{self.path!r} cannot be read now",
                there=said,
                todo="Check that no program keeps it locked, and that this user may read it.",
            )
        return TableInvalid(
            WHERE,
            f"{self._shown} of {self.path!r} cannot be read",
            there=said,
            todo="Give an SQLite file; if the table has changed, define the join anew.",
        )

    def _describe(self, file: sqlite3.Connection) -> Relation:
        is_table = ("table", self.table) in file.execute(_TABLES).fetchall()
        found = file.execute(_COLUMNS, [self.table]).fetchall()
        if not found:
            raise self._missing(file)
        columns = {
            name: self._column(name, declared or self._observed(file, name))
            for name, declared, _ in found
        }
        key = [name for name, _, place in sorted(found, key=lambda one: one[2]) if place]
        free = [name for name in _ROW_NAMES if is_table and name not in columns]
        order = key or free[:1]
        relation = Relation(_quoted(self.table), columns, tuple(map(_quoted, order)))
        check_filter(self.where, relation.schema, where=WHERE)
        return relation

    def _observed(self, file: sqlite3.Connection, name: str) -> str:
        """What a column without a declaration, as views compute them, could be declared as."""
        types = f"SELECT DISTINCT typeof({_quoted(name)}) FROM {_quoted(self.table)}"  # noqa: S608
        found = {kind for (kind,) in file.execute(types)} - {"null"}
        if found == {"integer", "real"}:
            return "REAL"
        return max(found, default="text") if len(found) < 2 else ""

    def _column(self, name: str, declared: str) -> Column:
        kind = kind_of(declared)
        if kind is None:
            raise TableInvalid(
                WHERE,
                f"column {name!r} of {self.table} is declared as {declared!r}, which is not known "
                "here",
                todo=f"Make a view that leaves it out or casts it, as in CAST({name} AS TEXT).",
            )
        return Column(pa.field(name, kind.arrow), _quoted(name), value=kind.value, near=kind.near)

    def _missing(self, file: sqlite3.Connection) -> TableMissing:
        names = [name for _, name in file.execute(_TABLES)]
        return TableMissing(
            WHERE,
            f"there is no table {self.table!r} in {self.path!r}",
            there=f"it has {names[:8]}" + (" and more" if len(names) > 8 else ""),
            todo=did_you_mean(self.table, names) or "Check the name.",
        )

    def _fetched(
        self, cursor: sqlite3.Cursor, columns: Sequence[Column]
    ) -> Iterator[pa.RecordBatch]:
        """All rows of a statement; of none, one batch that has the columns."""
        schema = pa.schema([column.field for column in columns])
        before = 0
        while rows := cursor.fetchmany(_ROWS):
            parts = zip(schema, zip(*rows, strict=True), strict=True)
            arrays = [self._array(field, values, before) for field, values in parts]
            yield pa.record_batch(arrays, schema=schema)
            before += len(rows)
        if not before:
            yield pa.RecordBatch.from_pylist([], schema)

    def _array(self, field: pa.Field, values: Sequence[Any], before: int) -> pa.Array:
        kind = _KINDS[field.type]
        try:
            return typed(kind, values)
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            row, value = next((n, v) for n, v in enumerate(values) if not _fits(kind, v))
            raise TableInvalid(
                WHERE,
                f"column {field.name!r} of {self.table} is read as {field.type}, but row "
                f"{before + row + 1} holds {value!r}",
                todo="SQLite lets any value into any column: correct it, or cast the column in a "
                "view.",
            ) from None


_TABLES = (
    "SELECT type, name FROM sqlite_schema WHERE type IN ('table', 'view')"
    " AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
)

# A table without rowids has a primary key, so that one without a key has rowids.
_COLUMNS = "SELECT name, type, pk FROM pragma_table_xinfo(?) WHERE hidden <> 1"


def _hand_over(file: sqlite3.Connection, probes: Probes) -> None:
    """The records as table ``temp.records``: their place among those sent, and their values."""
    names = ", ".join(["n INTEGER PRIMARY KEY", *probes.columns])
    file.execute(f"CREATE TEMP TABLE records ({names})")
    columns = [bound(column) for column in probes.columns.values()]
    marks = ", ".join("?" * (len(columns) + 1))
    rows = zip(range(len(probes.rows)), *columns, strict=True)
    file.executemany(f"INSERT INTO temp.records VALUES ({marks})", rows)  # noqa: S608 - marks only


def _fits(kind: Kind, value: Any) -> bool:
    try:
        typed(kind, [value])
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return False
    return True


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _only(where: Filter) -> str:
    return f" where {shown(where)}" if where else ""


_KINDS = {
    kind.arrow: kind
    for kind in map(kind_of, ("INT", "TEXT", "BLOB", "REAL", "BOOL", "DATE", "DATETIME"))
    if kind is not None
}
