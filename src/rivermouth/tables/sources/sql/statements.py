"""Statements that every database understands.

The records are ``l``: their number ``n`` and their probes (see `probes`). The table is ``t``.
Values are bound by name, names are quoted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rivermouth.spec.conditions import AsOf, Between, Keys, Range
from rivermouth.tables.sources.sql.relation import Column, Columns, Relation


def select(relation: Relation, columns: Columns) -> str:
    """Read `columns` of all rows that pass, in the table's order."""
    return (
        f"SELECT {', '.join(column.reads for column in columns)} FROM {relation.name} AS t"
        + (f" WHERE {' AND '.join(relation.tests)}" if relation.tests else "")
        + (f" ORDER BY {', '.join(relation.ordered)}" if relation.order else "")
    )


def key_tests(relation: Relation, keys: Keys | None) -> list[str]:
    """That each record's keys equal the row's."""
    pairs = keys.pairs if keys is not None else ()
    return [relation.columns[right].matches(f"l.key{n}") for n, (_, right) in enumerate(pairs)]


def join(relation: Relation, columns: Columns, on: Sequence[str], records: str) -> str:
    """Read ``n``, then `columns`, of the pairs that pass, by record, then in the table's order."""
    return (
        f"SELECT {', '.join(['l.n', *(column.reads for column in columns)])}"
        f" FROM {records} AS l JOIN {relation.name} AS t"
        f" ON {' AND '.join([*on, *relation.tests])}"
        f" ORDER BY {', '.join(['l.n', *relation.ordered])}"
    )


def newest(
    relation: Relation, columns: Columns, on: Sequence[str], value: Column, records: str
) -> str:
    """Read for each record the last row of those with the largest value not above its own.

    The largest value is found first, by an index on the keys and the value if there is one; only
    the rows that have it are put in order.
    """
    ordered = value.ordered
    before = " AND ".join([*on, value.compares("<=", "l.until"), *relation.tests])
    largest = f"(SELECT MAX({ordered}) FROM {relation.name} AS t WHERE {before})"
    names = [f"c{number}" for number in range(len(columns))]
    read = [f"{column.reads} AS {name}" for column, name in zip(columns, names, strict=True)]
    last_first = ", ".join(f"{name} DESC" for name in relation.ordered)
    over = f"PARTITION BY l.n{f' ORDER BY {last_first}' if last_first else ''}"
    ties = " AND ".join([*on, f"{ordered} = l.newest", *relation.tests])
    return (
        f"SELECT {', '.join(['n', *names])} FROM ("
        f"SELECT {', '.join(['l.n AS n', *read, f'ROW_NUMBER() OVER ({over}) AS row_rank'])}"
        f" FROM (SELECT l.*, {largest} AS newest FROM {records} AS l) AS l"
        f" JOIN {relation.name} AS t ON {ties}) AS r WHERE row_rank = 1 ORDER BY n"
    )


def lookup(
    relation: Relation,
    columns: Columns,
    keys: Keys | None,
    span: Range | None,
    records: str,
    newest: Callable[..., str] = newest,
) -> str:
    """Read ``n``, then `columns`, of the rows that match by keys, a range, or both."""
    on = key_tests(relation, keys)
    match span:
        case AsOf(right=right):
            return newest(relation, columns, on, relation.columns[right], records)
        case Between(right=right):
            value = relation.columns[right]
            on += [value.compares(">=", "l.low"), value.compares("<=", "l.high")]
    return join(relation, columns, on, records)
