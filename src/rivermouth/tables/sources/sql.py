"""Statements for databases without arrays: what SQLite and MySQL have in common.

The records are ``l``, a list of rows that each database is given in its own way: their number ``n``
and what they ask for (see `probes`). The table is ``t``. Values are bound by name, names quoted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from rivermouth.spec.conditions import AsOf, Between, Keys, Range
from rivermouth.spec.filters import Comparison, Filter
from rivermouth.tables.source import gone
from rivermouth.tables.sources.filtering import values_of


@dataclass(frozen=True)
class Column:
    """A column: what it is read as, and how it is read and compared.

    Parameters
    ----------
    field
        Its Arrow field.
    name
        Its name, quoted.
    read
        The expression that reads it; ``{}`` is the column.
    value
        The expression that is compared, exactly.
    sent
        What is put around a value that it is compared with.
    near
        A test that an index on the column can serve, true of all values ``{1}`` that the column
        ``{0}`` is equal to, and perhaps of others; None where the comparison itself is served.
    """

    field: pa.Field
    name: str
    read: str = "{}"
    value: str = "{}"
    sent: str = "{}"
    near: str | None = None

    @property
    def reads(self) -> str:
        """The expression that reads it from ``t``."""
        return self.read.format(f"t.{self.name}")

    def compares(self, operator: str, other: str) -> str:
        """The test of the column of ``t`` against `other`."""
        test = f"{self.value.format(f't.{self.name}')} {operator} {self.sent.format(other)}"
        if operator == "=" and self.near is not None:
            return f"{self.near.format(f't.{self.name}', other)} AND {test}"
        return test


@dataclass(frozen=True)
class Relation:
    """A table: its quoted name, its columns, and the quoted names its rows are ordered by."""

    name: str
    columns: dict[str, Column]
    order: tuple[str, ...]

    @property
    def schema(self) -> pa.Schema:
        """The columns' Arrow fields."""
        return pa.schema([column.field for column in self.columns.values()])

    def chosen(self, columns: Sequence[str], *, where: str, table: str) -> list[Column]:
        """These columns, or a `TableInvalid` where one is no longer there."""
        for name in columns:
            if name not in self.columns:
                raise gone(name, self.columns, where=where, table=table)
        return [self.columns[name] for name in columns]


@dataclass(frozen=True)
class Dialect:
    """How a database wants its values: the mark of a parameter, and values as it takes them."""

    mark: Callable[[str], str]
    bound: Callable[[pa.Array], list[Any]]


Statement = tuple[str, dict[str, Any]]


def tests_of(only: Filter, relation: Relation, dialect: Dialect, *, where: str) -> Statement:
    """The filter as a condition on ``t`` that starts with AND, and its values."""
    text, values = "", {}
    for number, test in enumerate(only):
        compared = values_of(test, relation.schema, where=where)
        named = {f"w{number}_{n}": value for n, value in enumerate(dialect.bound(compared))}
        text += f" AND {_test(test, relation.columns[test.column], dialect, list(named))}"
        values.update(named)
    return text, values


def _test(test: Comparison, column: Column, dialect: Dialect, names: Sequence[str]) -> str:
    marks = [dialect.mark(name) for name in names]
    match test.operator:
        case "is" | "is not":
            return f"{column.reads} {test.operator.upper()} NULL"
        case "in" | "not in":
            sent = ", ".join(column.sent.format(mark) for mark in marks)
            return f"{column.value.format(f't.{column.name}')} {test.operator.upper()} ({sent})"
        case "!=":
            return column.compares("<>", marks[0])
    return column.compares(test.operator, marks[0])


def select(relation: Relation, columns: Sequence[Column], tests: str) -> str:
    """The statement that reads `columns` of all rows that pass, in the table's order."""
    order = ", ".join(f"t.{name}" for name in relation.order)
    return (
        f"SELECT {_listed(column.reads for column in columns)} FROM {relation.name} AS t"
        f" WHERE 1 = 1{tests}" + (f" ORDER BY {order}" if order else "")
    )


def lookup(
    relation: Relation,
    columns: Sequence[Column],
    equal: Keys | None,
    span: Range | None,
    records: str,
    tests: str,
) -> str:
    """The statement that gives ``n``, then `columns`, by record and then in the table's order."""
    on = [
        relation.columns[right].compares("=", f"l.key{number}")
        for number, (_, right) in enumerate(equal.pairs if equal is not None else ())
    ]
    match span:
        case AsOf(right=right):
            return _newest(relation, columns, on, relation.columns[right], records, tests)
        case Between(right=right):
            ranged = relation.columns[right]
            on += [ranged.compares(">=", "l.low"), ranged.compares("<=", "l.high")]
    order = _listed(["l.n", *(f"t.{name}" for name in relation.order)])
    return (
        f"SELECT {_listed(['l.n', *(column.reads for column in columns)])}"
        f" FROM {records} AS l JOIN {relation.name} AS t ON {' AND '.join(on)}"
        f" WHERE 1 = 1{tests} ORDER BY {order}"
    )


def _newest(
    relation: Relation,
    columns: Sequence[Column],
    on: Sequence[str],
    ranged: Column,
    records: str,
    tests: str,
) -> str:
    """For each record the last row of those with the largest value that is not above its own.

    The largest value is found first, by an index on the keys and the value if there is one; only
    the rows that have it are put in order.
    """
    value = ranged.value.format(f"t.{ranged.name}")
    before = " AND ".join([*on, ranged.compares("<=", "l.until")])
    largest = f"(SELECT MAX({value}) FROM {relation.name} AS t WHERE {before}{tests})"
    found = f"(SELECT l.*, {largest} AS newest FROM {records} AS l) AS l"
    names = [f"c{number}" for number in range(len(columns))]
    read = [f"{column.reads} AS {name}" for column, name in zip(columns, names, strict=True)]
    last_first = ", ".join(f"t.{name} DESC" for name in relation.order)
    place = f"ROW_NUMBER() OVER (PARTITION BY l.n{f' ORDER BY {last_first}' if last_first else ''})"
    ties = " AND ".join([*on, f"{value} = l.newest"])
    return (
        f"SELECT {_listed(['n', *names])}"
        f" FROM (SELECT {_listed(['l.n AS n', *read, f'{place} AS place'])}"
        f" FROM {found} JOIN {relation.name} AS t ON {ties} WHERE 1 = 1{tests}) AS r"
        " WHERE place = 1 ORDER BY n"
    )


def _listed(parts: Iterable[str]) -> str:
    return ", ".join(parts)
