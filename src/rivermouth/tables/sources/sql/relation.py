"""A table as a database describes it: its columns, the order of its rows, which of them count."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from rivermouth.errors import DefinitionError, TableInvalid, TableMissing, did_you_mean
from rivermouth.spec.conditions import Keys, Range
from rivermouth.spec.filters import Filter
from rivermouth.tables.source import gone
from rivermouth.tables.sources.filtering import values_of

_NAME = re.compile(r'(?:"((?:[^"]|"")+)"|([^".]+))(?:\.|$)')
_TRUE_OF_NAN = ("!=", ">", ">=", "not in")  # where NaN counts as the largest number


@dataclass(frozen=True)
class SQLType:
    """How a database's type is read, compared and bound.

    In expressions ``{}`` is the column.

    Parameters
    ----------
    arrow
        The Arrow type it is read as.
    sent
        The database's type in which the values of a probe are sent.
    read
        The expression that reads it.
    same
        The expression that is compared for equality, exactly; text by its bytes.
    order
        The one that is compared by ``<`` and the like, where it differs from `same`.
    key
        The one that is compared with a probe's key, where it differs from `same`.
    bound
        What is put around a value that it is compared with.
    near
        A test that an index on the column can serve, true of all values ``{1}`` that the column
        ``{0}`` is equal to, and perhaps of others; empty where `same` itself is served.
    not_nan
        A test that NaN does not pass, empty where the type has none.
    """

    arrow: pa.DataType
    sent: str = ""
    read: str = "{}"
    same: str = "{}"
    order: str = ""
    key: str = ""
    bound: str = "{}"
    near: str = ""
    not_nan: str = ""


@dataclass(frozen=True)
class Column:
    """A column of ``t``: its Arrow field, its quoted name, its type."""

    field: pa.Field
    name: str
    type: SQLType

    @property
    def at(self) -> str:
        """The column itself."""
        return f"t.{self.name}"

    @property
    def reads(self) -> str:
        """The expression that reads it."""
        return self.type.read.format(self.at)

    @property
    def ordered(self) -> str:
        """The expression that is compared by ``<`` and the like."""
        return (self.type.order or self.type.same).format(self.at)

    def matches(self, key: str) -> str:
        """The test for equality with a probe's `key`."""
        return self._equals(self.type.key or self.type.same, key)

    def compares(self, operator: str, value: str) -> str:
        """The test against `value`."""
        if operator == "=":
            return self._equals(self.type.same, value)
        compared = self.type.same.format(self.at) if operator == "<>" else self.ordered
        return f"{compared} {operator} {self.type.bound.format(value)}"

    def _equals(self, expression: str, value: str) -> str:
        test = f"{expression.format(self.at)} = {self.type.bound.format(value)}"
        near = self.type.near.format(self.at, value)
        return f"{near} AND {test}" if near else test


Columns = Sequence[Column]

#: the number of the record that a row belongs to, which comes before the row's columns
NUMBER = Column(pa.field("n", pa.int64()), "n", SQLType(pa.int64()))


@dataclass(frozen=True)
class Relation:
    """A table.

    Parameters
    ----------
    name
        Its quoted name.
    columns
        By name, in the table's order.
    order
        The quoted names that its rows are ordered by; empty where it has no order.
    tests, parameters
        What must hold of its rows, and the values that are bound there.
    few
        Whether it is known to have few rows, so that each of them may be compared with all records.
    """

    name: str
    columns: dict[str, Column]
    order: tuple[str, ...]
    tests: tuple[str, ...] = ()
    parameters: dict[str, Any] = field(default_factory=dict)
    few: bool = False

    @property
    def schema(self) -> pa.Schema:
        """The columns' Arrow fields."""
        return pa.schema([column.field for column in self.columns.values()])

    @property
    def ordered(self) -> list[str]:
        """What rows are sorted by."""
        return [f"t.{name}" for name in self.order]

    def chosen(self, columns: Sequence[str], *, call: str, table: str) -> list[Column]:
        """These columns, or a `TableInvalid` where one no longer exists."""
        for name in columns:
            if name not in self.columns:
                raise gone(name, self.columns, where=call, table=table)
        return [self.columns[name] for name in columns]


def probe_types(relation: Relation, keys: Keys | None, span: Range | None) -> dict[str, SQLType]:
    """The types of the columns that probes are compared with, by the names that `Probes` has."""
    pairs = keys.pairs if keys is not None else ()
    types = {f"key{n}": relation.columns[right].type for n, (_, right) in enumerate(pairs)}
    if span is not None:
        types |= dict.fromkeys(("low", "high", "until"), relation.columns[span.right].type)
    return types


@dataclass(frozen=True)
class Dialect:
    """How a database takes parameters: their marks, given a name and a type, and their values."""

    mark: Callable[[str, SQLType], str]
    bound: Callable[[pa.Array], list[Any]] = pa.Array.to_pylist

    def among(
        self, column: Column, operator: str, name: str, values: Sequence[Any]
    ) -> tuple[str, dict[str, Any]]:
        """The test of a column by "IN" or "NOT IN", and what is bound."""
        named = {f"{name}_{number}": value for number, value in enumerate(values)}
        marks = [column.type.bound.format(self.mark(one, column.type)) for one in named]
        return f"{column.type.same.format(column.at)} {operator} ({', '.join(marks)})", named


def filtered(relation: Relation, where: Filter, dialect: Dialect, *, call: str) -> Relation:
    """The relation with only those rows that pass."""
    tests: list[str] = []
    parameters: dict[str, Any] = {}
    for number, test in enumerate(where):
        values = dialect.bound(values_of(test, relation.schema, call=call))
        column, name = relation.columns[test.column], f"w{number}"
        bound = dict(zip([name], values, strict=False))
        match test.operator:
            case "is" | "is not":
                text = f"{column.reads} {test.operator.upper()} NULL"
            case "in" | "not in":
                text, bound = dialect.among(column, test.operator.upper(), name, values)
            case operator:
                sign = "<>" if operator == "!=" else operator
                text = column.compares(sign, dialect.mark(name, column.type))
        tests.append(text)
        if column.type.not_nan and test.operator in _TRUE_OF_NAN:
            tests.append(column.type.not_nan.format(column.at))
        parameters |= bound
    return replace(relation, tests=tuple(tests), parameters=parameters)


def parts_of(table: str, *, call: str, outer: str = "schema") -> tuple[str, ...]:
    """The names in ``table``, ``schema.table``, or either in double quotes, as they are written.

    Examples
    --------
    >>> parts_of("public.zones", call="tables.postgres"), parts_of('"two.dots"', call="")
    (('public', 'zones'), ('two.dots',))
    """
    found = _NAME.findall(table)
    whole = "".join(match[0] for match in _NAME.finditer(table)) == table
    if not 1 <= len(found) <= 2 or not whole or table.endswith("."):
        raise DefinitionError(
            call,
            f"{table!r} does not name a table",
            todo=f"Write 'table' or '{outer}.table', in double quotes a name that holds a dot.",
        )
    return tuple(quoted.replace('""', '"') or plain for quoted, plain in found)


def quoted(name: str, mark: str = '"') -> str:
    """A name between quotation marks, those in it doubled."""
    return mark + name.replace(mark, 2 * mark) + mark


def unknown_type(call: str, table: str, column: str, type_: str, *, cast: str) -> TableInvalid:
    """The error for a column whose type cannot be read."""
    return TableInvalid(
        call,
        f"column {column!r} of {table} is of type {type_}, which is not supported",
        todo=f"Make a view that leaves it out or casts it, as in {cast}.",
    )


def several_srids(call: str, table: str, column: str, lowest: Any, highest: Any) -> TableInvalid:
    """The error for a geometry column whose rows state more than one SRID."""
    return TableInvalid(
        call,
        f"column {column!r} of {table} holds several SRIDs, from {lowest} to {highest}",
        todo="Transform them into one.",
    )


def missing_table(call: str, table: str, names: Sequence[str], *, place: str) -> TableMissing:
    """The error for a table that does not exist, with the nearest name that does."""
    return TableMissing(
        call,
        f"there is no table {table!r}",
        there=f"{place} has {list(names[:8])}" + (" and more" if len(names) > 8 else ""),
        todo=did_you_mean(table, names) or "Check the name.",
    )
