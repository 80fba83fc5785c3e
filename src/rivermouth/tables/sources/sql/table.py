"""A table in an SQL database, as a source of rows and as a store that evaluates conditions."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rivermouth.errors import DefinitionError, TableInvalid
from rivermouth.spec.conditions import Condition, right_columns
from rivermouth.spec.filters import Filter
from rivermouth.tables.source import T
from rivermouth.tables.sources.sql import statements
from rivermouth.tables.sources.sql.driver import Driver
from rivermouth.tables.sources.sql.relation import Columns, Dialect, Relation, filtered
from rivermouth.tables.sources.table import Table
from rivermouth.tables.worker_cache import WorkerCache

Batches = Generator[pa.RecordBatch, None, None]
Left = Mapping[str, pa.Array]  # the records' columns that a condition names

_ROWS = 65_536  # converted to Arrow at a time


class Statement(NamedTuple):
    """A statement: its text, its parameters, the columns it reads, and the records it probes for.

    `records` has the numbers of the records that are sent as `rows`; it is None for a statement
    that reads the whole table.
    """

    text: str
    parameters: dict[str, Any]
    columns: Columns
    records: Any = None

    @property
    def schema(self) -> pa.Schema:
        """The Arrow fields that it reads."""
        return pa.schema([column.field for column in self.columns])


@dataclass(frozen=True, repr=False)
class SQLTable(Table):
    """The rows of a table or view; each database adds its driver, catalog and statements."""

    address: Any
    table: str
    where: Filter = ()

    driver: ClassVar[Driver[Any, Any]]
    dialect: ClassVar[Dialect]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.table!r} of {self.address.shown}{self._filter})"

    @property
    def name(self) -> str:
        """The table's name, as it was given."""
        return self.table

    @property
    def location(self) -> str:
        """Server, database, user (whose search path may decide) and table; no password."""
        return f"{self.address.shown}/{self.table}"

    def schema(self) -> pa.Schema:
        """The columns as the database describes them now."""
        return self._describe().schema

    def scan(self, columns: Sequence[str], use: Callable[[Iterator[pa.RecordBatch]], T]) -> T:
        """What `use` makes of all rows, these columns only, as they arrive."""
        relation = self._describe()
        chosen = relation.chosen(columns, call=self.call, table=self._shown)
        text = statements.select(relation, chosen)
        statement = Statement(text, relation.parameters, chosen)

        def work(connection: Any) -> T:
            with contextlib.closing(self._execute(connection, statement)) as rows:
                return use(rows)

        return self._run(work)

    def lookup(
        self, condition: Condition, columns: Sequence[str], left: Left
    ) -> tuple[npt.NDArray[np.int64], pa.Table]:
        """The rows that match each record, by one statement.

        Rows come by record, then in the table's order; a table without one has no order for ties
        of `asof` either.
        """
        if (known := _described.find(self)) is not None:
            # the table may have changed since it was described
            with contextlib.suppress(TableInvalid, DefinitionError):
                return self._lookup(known, condition, columns, left)
        return self._lookup(self._describe(), condition, columns, left)

    def _lookup(
        self, relation: Relation, condition: Condition, columns: Sequence[str], left: Left
    ) -> tuple[npt.NDArray[np.int64], pa.Table]:
        relation.chosen(right_columns(condition), call=self.call, table=self._shown)
        chosen = relation.chosen(columns, call=self.call, table=self._shown)
        statement = self._statement(relation, condition, chosen, left)
        numbers, found = statement.records.rows, statement.schema.empty_table()
        if len(numbers):
            found = self._run(lambda to: pa.Table.from_batches(self._execute(to, statement)))
            numbers = numbers[found.column(0).to_numpy()]
        rows = found.select(list(range(1, found.num_columns)))
        if (numbers[1:] >= numbers[:-1]).all():
            return numbers, rows
        order = np.argsort(numbers, kind="stable")
        return numbers[order], rows.take(pa.array(order))

    @property
    def _shown(self) -> str:
        return f"table {self.table!r}"

    def _run(self, work: Callable[[Any], T]) -> T:
        return self.driver.run(self.address, self._shown, work)

    def _describe(self) -> Relation:
        catalog = self._run(self._catalog)
        relation = filtered(catalog, self.where, self.dialect, call=self.call)
        _described.put(self, relation)
        return relation

    @abstractmethod
    def _catalog(self, connection: Any) -> Relation:
        """What the database says of the table."""

    @abstractmethod
    def _statement(
        self, relation: Relation, condition: Condition, columns: Columns, left: Left
    ) -> Statement:
        """The statement that reads the record's number among those sent, then `columns`."""

    @abstractmethod
    def _execute(self, connection: Any, statement: Statement) -> Batches:
        """The rows of a statement in at least one batch."""


#: tables as they were last described in this process, so that a lookup takes one statement
_described: WorkerCache[SQLTable, Relation] = WorkerCache(size=256)


def batches(
    cursor: Any, schema: pa.Schema, convert: Callable[[pa.Field, list[Any], int], pa.Array]
) -> Batches:
    """All rows of a cursor; of none, one batch that has the columns.

    `convert` is given a field, its values, and how many rows came before.
    """
    before = 0
    while (rows := cursor.fetchmany(_ROWS)) or not before:
        columns = zip(*rows, strict=True) if rows else ([] for _ in schema)
        arrays = [convert(f, list(v), before) for f, v in zip(schema, columns, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
        if not rows:
            return
        before += len(rows)
