"""A compliance check for tables of one's own."""

from __future__ import annotations

import datetime as dt
import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow.types import (
    is_date,
    is_decimal,
    is_floating,
    is_integer,
    is_nested,
    is_temporal,
    is_timestamp,
)

from rivermouth.errors import ColumnError, PlanError
from rivermouth.spark import types
from rivermouth.spark.runtime.pickling import pickle_roundtrip
from rivermouth.spec.conditions import Condition, asof, between, keys
from rivermouth.tables.source import Queryable, Source, srid_of
from rivermouth.testing import oracle

_ORDERED = (is_integer, is_floating, is_decimal, is_date, is_timestamp)
_TRIED = 200  # values of a column that are probed for


def check_table(
    table: Source,
    *,
    expected: pa.Table | None = None,
    keys: Sequence[str | Sequence[str]] | None = None,
    secrets: Sequence[str] = (),
) -> None:
    """Fail with a list of sentences unless `table` does all that a join needs of it.

    A table's name, identity and schema are checked; it is pickled, read whole and in part, and
    read again. One that is `Queryable` is probed for keys that it has, several times and in another
    order, for keys that it has not, for text in other letters and with a blank behind it, for null
    and NaN, for no record at all, and for ranges; what it finds is compared with what it reads.
    Meant for a table of at most some thousand rows, with nulls in it.

    Parameters
    ----------
    table
        Anything with the members of `rivermouth.tables.Source`.
    expected
        What it holds, in the table's order; None: whatever it gives is taken for that.
    keys
        What to probe a queryable table for: a column, or several together. None: each column whose
        values can be compared, and the first two of them together.
    secrets
        Texts that nobody may read, such as a password.

    Raises
    ------
    AssertionError
        With one sentence for each thing that is wrong.

    Examples
    --------
    >>> import rivermouth as rm, tempfile, pyarrow.parquet
    >>> path = tempfile.mkdtemp() + "/zones.parquet"
    >>> zones = pa.table({"zone": [1, 2, None], "name": ["west", "east", "north"]})
    >>> pyarrow.parquet.write_table(zones, path)
    >>> check_table(rm.tables.parquet(path), expected=zones)
    >>> check_table(rm.tables.parquet(path), expected=zones.slice(1))
    Traceback (most recent call last):
    AssertionError: the table zones.parquet does not keep its promises:
    - read(['zone', 'name']) gives 3 rows, but 2 are expected
    """
    found = _Findings(table)
    found.of(lambda: _about(table, secrets))
    if not found.wrong:
        found.of(lambda: _reads(table, expected))
    if not found.wrong and isinstance(table, Queryable):
        rows = table.read(table.schema().names)
        plain = [f.name for f in rows.schema if srid_of(f) is None and not is_nested(f.type)]
        for one in [*plain, *([plain[:2]] if len(plain) > 1 else [])] if keys is None else keys:
            names = [one] if isinstance(one, str) else list(one)
            found.of(functools.partial(_finds_keys, table, rows, names))
        for field in rows.schema:
            if any(is_one(field.type) for is_one in _ORDERED):
                found.of(functools.partial(_finds_ranges, table, rows, field))
    found.report()


class _Findings:
    """What was found wrong so far; an exception is a finding too."""

    def __init__(self, table: Source) -> None:
        self.wrong: list[str] = []
        self._table = table

    def of(self, check: Callable[[], Iterator[str]]) -> None:
        try:
            for sentence in check():
                self.wrong.append(sentence)
        except Exception as error:
            self.wrong.append(f"it fails with {type(error).__name__}: {error}")

    def report(self) -> None:
        if self.wrong:
            name = getattr(self._table, "name", type(self._table).__name__)
            said = "\n".join(f"- {sentence}" for sentence in dict.fromkeys(self.wrong))
            raise AssertionError(f"the table {name} does not keep its promises:\n{said}")


# -- the value itself


def _about(table: Source, secrets: Sequence[str]) -> Iterator[str]:
    if not isinstance(table, Source):
        lacking = [
            name for name in ("name", "identity", "schema", "read") if not hasattr(table, name)
        ]
        yield f"it has no {', no '.join(lacking)}"
        return
    for what in ("name", "identity"):
        text = getattr(table, what)
        if not isinstance(text, str) or not text:
            yield f"{what} is {text!r}, not a text"
        if getattr(table, what) != text:
            yield f"{what} is another one each time"
    copy = pickle_roundtrip(table)
    if copy.identity != table.identity:
        yield f"pickled, its identity changes from {table.identity!r} to {copy.identity!r}"
    if copy != table or hash(copy) != hash(table):
        yield "pickled, it is not equal to itself; make it a frozen dataclass"
    for secret in secrets:
        for what, text in (("repr", repr(table)), ("str", str(table)), ("name", table.name),
                           ("identity", table.identity)):  # fmt: skip
            if secret in text:
                yield f"its {what} shows a secret"
    yield from _schema(table.schema(), copy.schema())


def _schema(schema: pa.Schema, again: pa.Schema) -> Iterator[str]:
    if not isinstance(schema, pa.Schema):
        yield f"schema() gives {type(schema).__name__}, not a pyarrow.Schema"
        return
    if not schema.equals(again, check_metadata=True):
        yield "pickled, its schema changes"
    for name, count in Counter(schema.names).items():
        if count > 1:
            yield f"schema() has {count} columns {name!r}"
    for field in schema:
        if srid_of(field) is not None and field.type != pa.binary():
            yield f"geometry column {field.name!r} is {field.type}, not binary"
        try:
            types.to_spark(field.type, where="schema()", column=field.name)
        except ColumnError:
            yield f"column {field.name!r} is {field.type}, which Spark does not have"


# -- reading


def _reads(table: Source, expected: pa.Table | None) -> Iterator[str]:
    schema = table.schema()
    names = schema.names
    whole = table.read(names)
    yield from _has_columns(whole, schema, names)
    if expected is not None:
        yield from _as_expected(whole, expected)
    for chosen in [names[::-1], *([name] for name in names)]:
        part = table.read(chosen)
        yield from _has_columns(part, schema, chosen)
        # as text, in which NaN is the same as NaN
        if part.schema.names == chosen and repr(_rows(part)) != repr(_rows(whole.select(chosen))):
            yield f"read({chosen}) gives other rows, or another order, than read({names})"


def _has_columns(rows: Any, schema: pa.Schema, names: Sequence[str]) -> Iterator[str]:
    if not isinstance(rows, pa.Table):
        yield f"read({names}) gives {type(rows).__name__}, not a pyarrow.Table"
    elif rows.schema.names != list(names):
        yield f"read({names}) gives the columns {rows.schema.names}"
    else:
        for field in rows.schema:
            said = schema.field(field.name)
            if not field.equals(said, check_metadata=srid_of(said) is not None):
                yield (
                    f"read({names}) gives column {field.name!r} as {field.type}, schema() says "
                    f"{said.type}" + (" of another SRID" if field.type == said.type else "")
                )


def _as_expected(rows: pa.Table, expected: pa.Table) -> Iterator[str]:
    names = expected.schema.names
    if missing := sorted(set(names) - set(rows.schema.names)):
        yield f"it has no columns {missing}, which are expected"
    elif rows.num_rows != expected.num_rows:
        yield f"read({names}) gives {rows.num_rows} rows, but {expected.num_rows} are expected"
    else:
        ours, theirs = _rows(rows.select(names)), _rows(expected)
        for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            if not all(a == b or (a != a and b != b) for a, b in zip(one, other, strict=True)):
                yield f"row {number} is {one}, but {other} is expected"
                return


# -- lookup


def _finds_keys(table: Queryable, rows: pa.Table, names: Sequence[str]) -> Iterator[str]:
    """The rows of each key, against those that a scan of the whole table finds."""
    columns = rows.schema.names
    probes = {f"left_{name}": _probes(rows.column(name)) for name in names}
    numbered = np.arange(max(map(len, probes.values())))
    left = {name: one.take(pa.array(numbered % len(one))) for name, one in probes.items()}
    condition = keys({f"left_{name}": name for name in names})
    what = f"lookup(keys({list(names)}))"
    yield from _finds(table, rows, condition, left, what)
    nobody = {name: values.slice(0, 0) for name, values in left.items()}
    numbers, found = table.lookup(condition, columns[:1], nobody)
    if len(numbers) or found.num_rows or found.schema.names != columns[:1]:
        yield f"{what} of no records gives {len(numbers)} numbers and columns {found.schema.names}"


def _finds_ranges(table: Queryable, rows: pa.Table, field: pa.Field) -> Iterator[str]:
    """Ranges around the column's values, unless the table says that it cannot evaluate them."""
    left = {"left": _probes(rows.column(field.name))[:_TRIED]}
    lower, upper = ("-2 days", "1 day") if is_temporal(field.type) else (-2, 1)
    near = between("left", field.name, lower=lower, upper=upper)
    for condition, name in ((near, "between"), (asof("left", field.name), "asof")):
        try:
            yield from _finds(table, rows, condition, left, f"lookup({name}({field.name!r}))")
        except PlanError:
            return


def _finds(
    table: Queryable,
    rows: pa.Table,
    condition: Condition,
    left: Mapping[str, pa.Array],
    what: str,
) -> Iterator[str]:
    names = rows.schema.names
    numbers, found = table.lookup(condition, names, left)
    if not isinstance(numbers, np.ndarray) or numbers.dtype != np.int64:
        type_ = getattr(numbers, "dtype", type(numbers).__name__)
        yield f"{what} gives record numbers as {type_}, not as an array of int64"
        return
    if len(numbers) != found.num_rows:
        yield f"{what} gives {len(numbers)} record numbers and {found.num_rows} rows"
        return
    if wrong := list(_has_columns(found, rows.schema, names)):
        yield from (sentence.replace("read(", f"{what} with (", 1) for sentence in wrong)
        return
    records = [dict(zip(left, values, strict=True)) for values in _rows(pa.table(dict(left)))]
    held = [dict(zip(names, values, strict=True)) for values in _rows(rows)]
    theirs = Counter(
        (number, repr(tuple(row.values())))
        for number, record in enumerate(records)
        for row, _ in oracle.matches(record, held, condition)
    )
    ours = Counter(zip(numbers.tolist(), map(repr, _rows(found)), strict=True))
    for more, verb in ((theirs - ours, "leaves out"), (ours - theirs, "gives")):
        if more:
            number, row = next(iter(more))
            reason = "" if verb == "leaves out" else ", which does not match"
            yield f"{what} {verb} row {row} for the record {records[number]}{reason}"


def _probes(column: pa.ChunkedArray) -> pa.Array:
    """Values that the column has, some of them twice, then some that it has not, and null."""
    held = column.drop_null().unique().to_pylist()
    held = held[:: max(1, len(held) // _TRIED)]
    values = [*held, *(other for value in held for other in _others(value)), *held[:2], None]
    return pa.array([value for value in values if _fits(value, column.type)], column.type)


def _others(value: Any) -> list[Any]:
    """Values that are not `value`, but that a careless comparison may take for it."""
    match value:
        case bool():
            return [not value]
        case str():
            return [value.swapcase(), f"{value} ", value[:-1], f"{value}\u0301"]
        case bytes():
            return [value + b"\x00", value + b" ", value[:-1]]
        case float():
            return [float("nan"), -value, float(np.nextafter(value, np.inf)), float("inf")]
        case int():
            return [value + 1, -value]
        case Decimal():
            return [value + Decimal(1).scaleb(value.as_tuple().exponent)]  # type: ignore[arg-type]
        case dt.datetime():
            return [value + dt.timedelta(microseconds=1)]
        case dt.date():
            return [value + dt.timedelta(days=1)]
    return []


def _fits(value: Any, type_: pa.DataType) -> bool:
    try:
        return bool(pa.scalar(value, type_).as_py() == value) or value != value or value is None
    except (pa.ArrowException, OverflowError, ValueError):
        return False


def _rows(rows: pa.Table) -> list[tuple[Any, ...]]:
    columns = [column.to_pylist() for column in rows.columns]
    return list(zip(*columns, strict=True))
