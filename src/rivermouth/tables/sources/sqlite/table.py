"""A table in an SQLite file."""

from __future__ import annotations

import sqlite3
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from rivermouth.errors import TableInvalid, TableUnavailable
from rivermouth.spec.conditions import Condition
from rivermouth.spec.locations import Location
from rivermouth.tables.files import check_exists
from rivermouth.tables.sources.probes import Probes, answerable, probes_of
from rivermouth.tables.sources.sql import relation as sql
from rivermouth.tables.sources.sql import statements
from rivermouth.tables.sources.sql.driver import FAULTS, Driver
from rivermouth.tables.sources.sql.relation import (
    NUMBER,
    Column,
    Columns,
    Dialect,
    Relation,
    quoted,
)
from rivermouth.tables.sources.sql.table import Batches, Left, SQLTable, Statement, batches
from rivermouth.tables.sources.sqlite.types import bound, fits, type_of, typed

_STEPS = 10_000  # of SQLite's virtual machine between two looks at the clock
_ROW_NAMES = ("rowid", "_rowid_", "oid")  # a column may have taken one
_TABLES = (
    "SELECT type, name FROM sqlite_schema WHERE type IN ('table', 'view')"
    " AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name"
)
# A table without rowids has a primary key, so that one without a key has rowids.
_COLUMNS = "SELECT name, type, pk FROM pragma_table_xinfo(?) WHERE hidden <> 1"


@dataclass(frozen=True)
class SQLiteFile:
    """Where the file is, and how many seconds a statement may take; None: no limit."""

    path: Location
    statement_timeout: float | None

    @property
    def shown(self) -> str:
        """The path."""
        return repr(self.path)

    def redacted(self, text: str) -> str:
        """The text itself: a path is no secret."""
        return text


class SQLiteDriver(Driver[SQLiteFile, sqlite3.Connection]):
    """Opens the file for each statement.

    That takes SQLite a tenth of a millisecond, and a file that replaced another is seen.
    """

    call = "tables.sqlite"
    errors = sqlite3.Error
    faults = FAULTS | {
        "unreachable": (
            TableUnavailable,
            "{address} cannot be read now",
            "Check that no program keeps it locked, and that this user may read it.",
        ),
        "invalid": (
            TableInvalid,
            "{table} of {address} cannot be read",
            "Give an SQLite file; if the table has changed, define the join again.",
        ),
    }

    def open(self, address: SQLiteFile) -> sqlite3.Connection:
        """The file, read-only."""
        check_exists(address.path, where=self.call)
        # quoted, so that a # or ? in the path is not taken for the end of it
        file = sqlite3.connect(f"file:{quote(address.path)}?mode=ro", uri=True)
        file.execute("PRAGMA temp_store = MEMORY")
        if address.statement_timeout is not None:
            end = time.monotonic() + address.statement_timeout
            file.set_progress_handler(lambda: time.monotonic() > end, _STEPS)
        return file

    def fault(self, error: sqlite3.Error) -> str:
        """By the error's text."""
        said = str(error)
        if said == "interrupted":
            return "timeout"
        return "unreachable" if "locked" in said or "unable to open" in said else "invalid"


@dataclass(frozen=True, repr=False)
class SQLiteTable(SQLTable):
    """The rows of a table or view, by primary key, or else by rowid."""

    address: SQLiteFile

    function = "sqlite"
    driver = SQLiteDriver()
    dialect = Dialect(lambda name, _: f":{name}", bound)

    @property
    def name(self) -> str:
        """The file's name and the table's."""
        return f"{self.address.path.name}/{self.table}"

    @property
    def location(self) -> str:
        """The file's path and the table."""
        return f"{self.address.path}#{self.table}"

    def _catalog(self, file: sqlite3.Connection) -> Relation:
        tables = file.execute(_TABLES).fetchall()
        found = file.execute(_COLUMNS, [self.table]).fetchall()
        if not found:
            names = [name for _, name in tables]
            raise sql.missing_table(self.call, self.table, names, place=self.address.shown)
        columns = {
            name: self._column(name, declared or self._observed(file, name))
            for name, declared, _ in found
        }
        key = [name for name, _, rank in sorted(found, key=lambda one: one[2]) if rank]
        is_table = ("table", self.table) in tables
        free = [name for name in _ROW_NAMES if is_table and name not in columns]
        return Relation(quoted(self.table), columns, tuple(map(quoted, key or free[:1])))

    def _observed(self, file: sqlite3.Connection, name: str) -> str:
        """What a column without a declaration, as views compute them, could be declared as."""
        types = f"SELECT DISTINCT typeof({quoted(name)}) FROM {quoted(self.table)}"  # noqa: S608
        found = {type_ for (type_,) in file.execute(types)} - {"null"}
        if found == {"integer", "real"}:
            return "REAL"
        return max(found, default="text") if len(found) < 2 else ""

    def _column(self, name: str, declared: str) -> Column:
        type_ = type_of(declared)
        if type_ is None:
            cast = f"CAST({name} AS TEXT)"
            raise sql.unknown_type(self.call, self.table, name, repr(declared), cast=cast)
        return Column(pa.field(name, type_.arrow), quoted(name), type_)

    def _statement(
        self, relation: Relation, condition: Condition, columns: Columns, left: Left
    ) -> Statement:
        keys, span = answerable(condition, where=self.call)
        probes = probes_of(left, keys, span, relation.schema, where=self.call)
        text = statements.lookup(relation, columns, keys, span, "temp.records")
        return Statement(text, relation.parameters, [NUMBER, *columns], probes)

    def _execute(self, file: sqlite3.Connection, statement: Statement) -> Batches:
        if statement.records is not None:
            _hand_over(file, statement.records)
        cursor = file.execute(statement.text, statement.parameters)
        yield from batches(cursor, statement.schema, self._array)

    def _array(self, field: pa.Field, values: list[Any], before: int) -> pa.Array:
        try:
            return typed(field.type, values)
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            row, value = next((n, v) for n, v in enumerate(values) if not fits(field.type, v))
            raise TableInvalid(
                self.call,
                f"column {field.name!r} of {self.table} is read as {field.type}, but row "
                f"{before + row + 1} holds {value!r}",
                todo="SQLite lets any value into any column: correct it, or cast the column in a "
                "view.",
            ) from None


def _hand_over(file: sqlite3.Connection, probes: Probes) -> None:
    """Put the records into ``temp.records``: values are bound as they are, in any number."""
    names = ", ".join(["n INTEGER PRIMARY KEY", *probes.columns])
    file.execute(f"CREATE TEMP TABLE records ({names})")
    columns = [bound(column) for column in probes.columns.values()]
    marks = ", ".join("?" * (len(columns) + 1))
    rows = zip(range(len(probes.rows)), *columns, strict=True)
    file.executemany(f"INSERT INTO temp.records VALUES ({marks})", rows)  # noqa: S608 - marks only
