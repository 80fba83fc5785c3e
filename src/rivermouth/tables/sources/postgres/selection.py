"""A filter as part of a statement: the table's rows that pass, in the place of the table."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from psycopg import sql

from rivermouth.spec.filters import Comparison, Filter
from rivermouth.tables.sources.filtering import values_of
from rivermouth.tables.sources.postgres.access import WHERE
from rivermouth.tables.sources.postgres.catalog import Column, Description

_ABOVE_ALL = ("!=", ">", ">=", "not in")  # of what NaN is in PostgreSQL, for which it is largest


def filtered(table: Description, only: Filter) -> Description:
    """The table with only those rows that pass; PostgreSQL sees through the selection."""
    if not only:
        return table
    tests, parameters = [], {}
    for number, test in enumerate(only):
        values = values_of(test, table.schema, where=WHERE).to_pylist()
        several = test.operator in ("in", "not in")
        tests.append(_test(test, table.columns[test.column], f"w{number}"))
        if values:
            parameters[f"w{number}"] = values if several else values[0]
    places = [] if set(table.order) <= set(table.columns) else table.ordered("t")
    relation = sql.SQL("(SELECT {} FROM {} AS t WHERE {})").format(
        sql.SQL(", ").join([*places, sql.SQL("t.*")]), table.relation, sql.SQL(" AND ").join(tests)
    )
    return replace(table, relation=relation, parameters=parameters)


def _test(test: Comparison, column: Column, name: str) -> sql.Composable:
    if test.operator in ("is", "is not"):
        return sql.SQL("{} {} NULL").format(column.read("t"), sql.SQL(test.operator.upper()))
    compared, sent = _compared(column, test.operator)
    value = sql.SQL("{}::{}").format(sql.Placeholder(name), sql.SQL(sent))
    match test.operator:
        case "in":
            made = sql.SQL("{} = ANY({}[])").format(compared, value)
        case "not in":
            made = sql.SQL("{} <> ALL({}[])").format(compared, value)
        case operator:
            told = sql.SQL("<>" if operator == "!=" else operator)
            made = sql.SQL("{} {} {}").format(compared, told, value)
    kind = column.kind.arrow
    may_be_nan = pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    if may_be_nan and test.operator in _ABOVE_ALL:
        return sql.SQL("{} AND {} <> 'NaN'").format(made, compared)
    return made


def _compared(column: Column, operator: str) -> tuple[sql.Composable, str]:
    """What is compared, and in which type: text by its bytes, all else as keys are."""
    if column.kind.arrow != pa.string():
        return column.key("t"), column.kind.sent
    if column.kind.sent == "text" and operator in ("=", "in"):
        return column.key("t"), "text"
    return sql.SQL('{} COLLATE "C"').format(column.read("t")), "text"
