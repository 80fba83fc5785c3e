"""Whether a table keeps its promises: a check for tables of one's own."""

from __future__ import annotations

import datetime as dt
import functools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from rivermouth.errors import ColumnError, PlanError
from rivermouth.spark import types
from rivermouth.spark.runtime.pickling import arrived
from rivermouth.spec.conditions import Condition, asof, between, keys
from rivermouth.tables.source import Queryable, Source, srid_of
from rivermouth.testing import oracle

_TRIED = 200  # values of a column that a store is asked for


def check_table(
    table: Source,
    *,
    expected: pa.Table | None = None,
    keys: Sequence[str | Sequence[str]] | None = None,
    secrets: Sequence[str] = (),
) -> None:
    """Fail with a list of sentences unless `table` does all that a join needs of it.

    A table is asked for its name, identity and schema, pickled, read whole and in part, and read
    again. One that can answer is asked for keys that it has, several times and in another order,
    for keys that it has not, for text in other letters and with a blank behind it, for null and
    NaN, for no record at all, and for ranges; its answers are compared with what it is when read.
    Meant for a table of at most some thousand rows, with nulls in it.

    Parameters
    ----------
    table
        Anything with the members of `rivermouth.tables.source.Source`.
    expected
        What it holds, in the table's order; None: whatever it gives is taken for that.
    keys
        What to ask an answering table for: a column, or several together. None: each column whose
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
        found.of(lambda: _reading(table, expected))
    if not found.wrong and isinstance(table, Queryable):
        rows = table.read(table.schema().names)
        for one in _key_choices(rows.schema) if keys is None else keys:
            names = [one] if isinstance(one, str) else list(one)
            found.of(functools.partial(_answering, table, rows, names))
        for field in filter(_is_ordered, rows.schema):
            found.of(functools.partial(_ranging, table, rows, field))
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
            yield f"{what} is another one each time it is asked for"
    copy = arrived(table)
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


def _reading(table: Source, expected: pa.Table | None) -> Iterator[str]:
    schema = table.schema()
    names = schema.names
    whole = table.read(names)
    yield from _as_asked(whole, schema, names)
    if expected is not None:
        yield from _as_expected(whole, expected)
    choices = [names[::-1], *([name] for name in names)]
    for chosen in choices:
        part = table.read(chosen)
        yield from _as_asked(part, schema, chosen)
        if part.schema.names == chosen and not _same(part, whole.select(chosen)):
            yield f"read({chosen}) gives other rows, or another order, than read({names})"


def _as_asked(rows: Any, schema: pa.Schema, names: Sequence[str]) -> Iterator[str]:
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
        ours, theirs = _listed(rows.select(names)), _listed(expected)
        for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            if not all(map(_is_same, one, other)):
                yield f"row {number} is {one}, but {other} is expected"
                return


# -- answering


def _key_choices(schema: pa.Schema) -> list[str | list[str]]:
    names = [field.name for field in schema if _is_comparable(field)]
    return [*names, *([names[:2]] if len(names) > 1 else [])]


def _is_comparable(field: pa.Field) -> bool:
    return srid_of(field) is None and not pa.types.is_nested(field.type)


def _is_ordered(field: pa.Field) -> bool:
    kind = field.type
    number = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return any(is_one(kind) for is_one in (*number, pa.types.is_date, pa.types.is_timestamp))


def _answering(table: Queryable, rows: pa.Table, names: Sequence[str]) -> Iterator[str]:
    """The rows of each key, against those that a walk through the whole table finds."""
    columns = rows.schema.names
    asked = {f"left_{name}": _asked(rows.column(name)) for name in names}
    length = max(map(len, asked.values()))
    left = {name: _repeated(values, length) for name, values in asked.items()}
    condition = keys({f"left_{name}": name for name in names})
    what = f"lookup(keys({list(names)}))"
    yield from _answer(table, rows, condition, columns, left, what)
    nobody = {name: values.slice(0, 0) for name, values in left.items()}
    numbers, found = table.lookup(condition, columns[:1], nobody)
    if len(numbers) or found.num_rows or found.schema.names != columns[:1]:
        yield f"{what} of no records gives {len(numbers)} numbers and columns {found.schema.names}"


def _answer(
    table: Queryable,
    rows: pa.Table,
    condition: Condition,
    columns: Sequence[str],
    left: Mapping[str, pa.Array],
    what: str,
) -> Iterator[str]:
    numbers, found = table.lookup(condition, columns, left)
    if not isinstance(numbers, np.ndarray) or numbers.dtype != np.int64:
        kind = getattr(numbers, "dtype", type(numbers).__name__)
        yield f"{what} gives record numbers as {kind}, not as an array of int64"
        return
    if len(numbers) != found.num_rows:
        yield f"{what} gives {len(numbers)} record numbers and {found.num_rows} rows"
        return
    wrong = list(_as_asked(found, rows.schema, columns))
    yield from (sentence.replace("read(", f"{what} with (", 1) for sentence in wrong)
    if wrong:
        return
    records = [dict(zip(left, values, strict=True)) for values in _listed(pa.table(dict(left)))]
    expected = _expected(records, rows, condition)
    ours = Counter(zip(numbers.tolist(), map(repr, _listed(found)), strict=True))
    theirs = Counter((number, repr(row)) for number, row in expected)
    for more, verb in ((theirs - ours, "leaves out"), (ours - theirs, "gives")):
        if more:
            number, row = next(iter(more))
            reason = "" if verb == "leaves out" else ", which does not match"
            yield f"{what} {verb} row {row} for the record {records[number]}{reason}"


def _expected(
    records: Sequence[Mapping[str, Any]], rows: pa.Table, condition: Condition
) -> list[tuple[int, tuple[Any, ...]]]:
    names = rows.schema.names
    table = [dict(zip(names, values, strict=True)) for values in _listed(rows)]
    return [
        (number, tuple(row.values()))
        for number, record in enumerate(records)
        for row, _ in oracle.matches(dict(record), table, condition)
    ]


def _asked(column: pa.ChunkedArray) -> pa.Array:
    """Values that the column has, some of them twice, then some that it has not, and null."""
    there = column.drop_null().unique().to_pylist()
    step = max(1, len(there) // _TRIED)
    there = there[::step]
    values = [*there, *(other for value in there for other in _others(value)), *there[:2], None]
    return pa.array([value for value in values if _is_held(value, column.type)], column.type)


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


def _is_held(value: Any, kind: pa.DataType) -> bool:
    try:
        return bool(pa.scalar(value, kind).as_py() == value) or value != value or value is None
    except (pa.ArrowException, OverflowError, ValueError):
        return False


def _repeated(values: pa.Array, length: int) -> pa.Array:
    return values.take(pa.array(np.arange(length) % len(values)))


def _ranging(table: Queryable, rows: pa.Table, field: pa.Field) -> Iterator[str]:
    """Ranges around the column's values, unless the table says that it has none."""
    asked = {"left": _asked(rows.column(field.name))[:_TRIED]}
    lower, upper = ("-2 days", "1 day") if pa.types.is_temporal(field.type) else (-2, 1)
    near = between("left", field.name, lower=lower, upper=upper)
    for condition, name in ((near, "between"), (asof("left", field.name), "asof")):
        what = f"lookup({name}({field.name!r}))"
        try:
            yield from _answer(table, rows, condition, rows.schema.names, asked, what)
        except PlanError:
            return


def _is_same(one: Any, other: Any) -> bool:
    """Whether two values are equal, or both NaN."""
    return bool(one == other or (one != one and other != other))


def _same(one: pa.Table, other: pa.Table) -> bool:
    return repr(_listed(one)) == repr(_listed(other))  # NaN is the same as NaN


def _listed(rows: pa.Table) -> list[tuple[Any, ...]]:
    columns = [column.to_pylist() for column in rows.columns]
    return list(zip(*columns, strict=True))
