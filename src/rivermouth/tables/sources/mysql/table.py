"""A table in MySQL or MariaDB, as a source of rows and as a store that answers conditions."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pymysql.cursors import SSCursor

from rivermouth.errors import DefinitionError, TableInvalid
from rivermouth.kernels.keys import key_index
from rivermouth.spec.conditions import Condition, Keys, Range
from rivermouth.spec.filters import Filter, shown
from rivermouth.tables.cache.probes import Probes, answerable, probes_of
from rivermouth.tables.source import T, srid_of
from rivermouth.tables.sources import sql
from rivermouth.tables.sources.filtering import check_filter
from rivermouth.tables.sources.mysql.access import WHERE, Access
from rivermouth.tables.sources.mysql.catalog import describe
from rivermouth.tables.sources.mysql.connections import Connection, run
from rivermouth.tables.sources.mysql.kinds import Kind, bound, typed, written
from rivermouth.tables.sources.naming import parts_of
from rivermouth.tables.sources.notebook import Shown
from rivermouth.tables.sources.sql import Column, Dialect, Relation

_ROWS = 50_000  # turned into Arrow at a time

_DIALECT = Dialect(mark=lambda name: f"%({name})s", bound=bound)
_SRID_SIZE = 4  # bytes before the WKB of a geometry


@dataclass(frozen=True, repr=False)
class MySQLTable(Shown):
    """The rows of a table or view, by primary key, or else as the server gives them."""

    access: Access
    table: str
    where: Filter = ()

    def __post_init__(self) -> None:
        parts_of(self.table, where=WHERE, outer="database")

    def __repr__(self) -> str:
        return f"MySQLTable({self.table!r} of {self.access.shown}{self._only})"

    @property
    def name(self) -> str:
        """The table's name, as it was given."""
        return self.table

    @property
    def identity(self) -> str:
        """Server, database, user, table, and which of its rows; no password."""
        return f"mysql:{self.access.shown}/{self.table}{self._only}"

    def schema(self) -> pa.Schema:
        """The columns as the server describes them now."""
        return self._describe()[0].schema

    def read(self, columns: Sequence[str]) -> pa.Table:
        """All rows, these columns only."""
        return self.scan(columns, pa.Table.from_batches)

    def scan(self, columns: Sequence[str], use: Callable[[Iterator[pa.RecordBatch]], T]) -> T:
        """All rows, these columns only, as they come over the wire."""
        relation, _ = self._describe()
        chosen = relation.chosen(columns, where=WHERE, table=self._shown)
        tests, values = sql.tests_of(self.where, relation, _DIALECT, where=WHERE)
        text = sql.select(relation, chosen, tests)

        def fetch(connection: Connection) -> T:
            try:
                cursor = connection.cursor(SSCursor)
                cursor.execute(text, values)
                made = use(self._batches(cursor, chosen))
                cursor.close()
            except BaseException:
                connection.close()  # rows are still under way on it
                raise
            return made

        return run(self.access, self._shown, fetch)

    def lookup(
        self, condition: Condition, columns: Sequence[str], left: Mapping[str, pa.Array]
    ) -> tuple[npt.NDArray[np.int64], pa.Table]:
        """The rows that match each record, by equality, a range, or both, by one statement.

        The records are sent as one JSON text. Rows come by record, then in the table's order;
        a table without a primary key has none, so that ties of `asof` have none either.
        """
        if (known := _known.get(self)) is not None:
            # the table may have changed since it was described
            with contextlib.suppress(TableInvalid, DefinitionError):
                return self._answer(*known, condition, columns, left)
        return self._answer(*self._describe(), condition, columns, left)

    def _answer(
        self,
        relation: Relation,
        kinds: Mapping[str, Kind],
        condition: Condition,
        columns: Sequence[str],
        left: Mapping[str, pa.Array],
    ) -> tuple[npt.NDArray[np.int64], pa.Table]:
        equal, span = answerable(condition, where=WHERE)
        chosen = relation.chosen(columns, where=WHERE, table=self._shown)
        sent = _sendable(probes_of(left, equal, span, relation.schema, where=WHERE))
        number = Column(pa.field("", pa.int64()), "n")
        if not len(sent.rows):
            return sent.rows, pa.schema([column.field for column in chosen]).empty_table()
        tests, values = sql.tests_of(self.where, relation, _DIALECT, where=WHERE)
        records = _records(_types(equal, span, kinds, sent))
        text = sql.lookup(relation, chosen, equal, span, records, tests)
        values["records"] = _as_json(sent)

        def ask(connection: Connection) -> Sequence[Sequence[Any]]:
            with connection.cursor() as cursor:
                cursor.execute(text, values)
                rows: Sequence[Sequence[Any]] = cursor.fetchall()
                return rows

        found = self._batch([number, *chosen], run(self.access, self._shown, ask))
        rows = sent.rows[found.column(0).to_numpy()]
        return rows, pa.Table.from_batches([found.select(list(range(1, found.num_columns)))])

    @property
    def _only(self) -> str:
        return f" where {shown(self.where)}" if self.where else ""

    @property
    def _shown(self) -> str:
        return f"table {self.table!r}"

    def _describe(self) -> tuple[Relation, dict[str, Kind]]:
        described = run(
            self.access, self._shown, lambda one: describe(one, self.table, self.access.database)
        )
        check_filter(self.where, described[0].schema, where=WHERE)
        _known[self] = described
        return described

    def _batches(self, cursor: SSCursor, columns: Sequence[Column]) -> Iterator[pa.RecordBatch]:
        """All rows of a statement; of none, one batch that has the columns."""
        rows = cursor.fetchmany(_ROWS)
        yield self._batch(columns, rows)
        while rows := cursor.fetchmany(_ROWS):
            yield self._batch(columns, rows)

    def _batch(self, columns: Sequence[Column], rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
        values = zip(*rows, strict=True) if rows else ([] for _ in columns)
        arrays = [self._array(c.field, list(v)) for c, v in zip(columns, values, strict=True)]
        schema = pa.schema([column.field for column in columns])
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _array(self, field: pa.Field, values: list[Any]) -> pa.Array:
        if srid_of(field) is not None:
            values = [None if value is None else value[_SRID_SIZE:] for value in values]
        try:
            return typed(field, values)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise TableInvalid(
                WHERE,
                f"column {field.name!r} of {self.table} holds a value that cannot be read as "
                f"{field.type}",
                there=str(error).splitlines()[0].rstrip("."),
                todo="If its type has changed, define the join anew; else make a view without such "
                "values, as in NULLIF(day, '0000-00-00').",
            ) from None


#: tables as they were last described in this process, so that an answer takes one statement
_known: dict[MySQLTable, tuple[Relation, dict[str, Kind]]] = {}


def _sendable(probes: Probes) -> Probes:
    """The probes as JSON has them, without those that nothing on the server can match."""
    columns = {name: written(name, column) for name, column in probes.columns.items()}
    kept = np.flatnonzero(~key_index.missing(list(columns.values())))
    taken = pa.array(kept)
    return Probes(probes.rows[kept], {name: one.take(taken) for name, one in columns.items()})


def _types(
    equal: Keys | None, span: Range | None, kinds: Mapping[str, Kind], probes: Probes
) -> dict[str, str]:
    """The type in which each of the probes' columns is given to the statement."""
    rights = {
        f"key{n}": right for n, (_, right) in enumerate(equal.pairs if equal is not None else ())
    }
    return {
        name: kinds[rights.get(name) or span.right].sent  # type: ignore[union-attr]
        for name in probes.columns
    }


def _records(types: Mapping[str, str]) -> str:
    """The records as a table: their place among those sent, and their values."""
    columns = ["n BIGINT PATH '$[0]'"]
    columns += [f"{name} {kind} PATH '$[{n}]'" for n, (name, kind) in enumerate(types.items(), 1)]
    return f"JSON_TABLE(%(records)s, '$[*]' COLUMNS ({', '.join(columns)}))"


def _as_json(probes: Probes) -> str:
    columns = [column.to_pylist() for column in probes.columns.values()]
    rows = list(zip(range(len(probes.rows)), *columns, strict=True))
    return json.dumps(rows, ensure_ascii=False, allow_nan=False)
