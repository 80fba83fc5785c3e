"""A service as a table: the keys of a batch, answered by calls of the user's function."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rivermouth.errors import DefinitionError, PlanError, missing_column
from rivermouth.kernels.keys import key_index
from rivermouth.spec.conditions import Condition, split
from rivermouth.tables.source import geometry_field
from rivermouth.tables.sources.probes import probes_of
from rivermouth.tables.sources.service.answers import Promise
from rivermouth.tables.sources.service.calls import call
from rivermouth.tables.sources.table import HTMLRepr

CALL = "tables.service"

#: Spark's names of types, besides Arrow's
_SPARK = {
    "boolean": pa.bool_(), "byte": pa.int8(), "short": pa.int16(), "int": pa.int32(),
    "integer": pa.int32(), "long": pa.int64(), "bigint": pa.int64(), "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us"),
}  # fmt: skip

Schema: TypeAlias = pa.Schema | Mapping[str, pa.DataType | str]


@dataclass(frozen=True, repr=False)
class ServiceTable(HTMLRepr):
    """The rows that a function of the user's gives for keys; nobody can read them all.

    Parameters
    ----------
    function
        What is called with a table of distinct keys.
    promise
        What its answers look like.
    batch, concurrency, timeout
        How many keys a call has, how many calls are under way, how long one may take (seconds).
    code
        What tells this function from another of the same name.
    """

    function: Callable[[Any], Any]
    promise: Promise
    batch: int
    concurrency: int
    timeout: float | None
    code: str

    def __repr__(self) -> str:
        return f"ServiceTable({self.name!r} by {list(self.promise.keys)})"

    @property
    def name(self) -> str:
        """The function's, or what the user calls it."""
        return self.promise.name

    @property
    def identity(self) -> str:
        """The function, the keys, and the columns of its answers."""
        columns = ", ".join(f"{field.name} {field.type}" for field in self.promise.schema)
        return f"service:{self.name}#{self.code} by {list(self.promise.keys)}: {columns}"

    def schema(self) -> pa.Schema:
        """The columns that were promised, the keys among them."""
        return self.promise.schema

    def read(self, columns: Sequence[str]) -> pa.Table:
        """Nothing: it is an error."""
        raise PlanError(
            CALL,
            f"{self.name} answers keys and cannot be read whole",
            todo="Use cache=rm.incremental(), or rm.external().",
        )

    def check_condition(self, condition: Condition) -> None:
        """Raise a `PlanError` unless the condition names the keys, and no other, by equality."""
        keys, spatial, _ = split(condition)
        named = set() if keys is None else {right for _, right in keys.pairs}
        if spatial is not None or named != set(self.promise.keys):
            raise PlanError(
                CALL,
                f"{self.name} is asked by {list(self.promise.keys)}, all of them and by equality",
                there=f"the condition is {condition}",
                todo=f"Join on rm.keys(...) of {list(self.promise.keys)}; give a range by=.",
            )

    def lookup(
        self, condition: Condition, columns: Sequence[str], left: Mapping[str, pa.Array]
    ) -> tuple[npt.NDArray[np.int64], pa.Table]:
        """The rows of each record's key; each distinct key is asked for once."""
        self.check_condition(condition)
        keys, _, span = split(condition)
        if span is not None:
            raise PlanError(
                CALL,
                f"{self.name} answers keys, not ranges",
                there=f"the condition is {condition}",
                todo="Use cache=rm.incremental(), which finds the range among the key's rows.",
            )
        assert keys is not None
        schema, names = self.promise.schema, [right for _, right in keys.pairs]
        probes = probes_of(left, keys, None, schema, where=CALL)
        sent = [probes.columns[f"key{number}"] for number in range(len(names))]
        rows = self._answers(pa.table(sent, names).select(list(self.promise.keys)))
        index = key_index.build([rows.column(name).combine_chunks() for name in names])
        record, row = index.expand(index.lookup(sent))
        return probes.rows[record], rows.select(list(columns)).take(pa.array(row))

    def _answers(self, keys: pa.Table) -> pa.Table:
        """The rows of all distinct keys, by calls of `batch` keys each."""
        distinct = keys.group_by(list(self.promise.keys), use_threads=False).aggregate([])
        parts = [distinct.slice(at, self.batch) for at in range(0, distinct.num_rows, self.batch)]
        if len(parts) <= 1 or self.concurrency == 1:
            answers = [self._answer(part) for part in parts]
        else:
            with ThreadPoolExecutor(self.concurrency, "rivermouth-service") as pool:
                answers = list(pool.map(self._answer, parts))
        return pa.concat_tables([self.promise.schema.empty_table(), *answers])

    def _answer(self, keys: pa.Table) -> pa.Table:
        return self.promise.rows(call(self.function, keys, self.timeout, name=self.name), keys)


def service_table(
    function: Callable[[Any], Any],
    keys: str | Sequence[str],
    schema: Schema,
    *,
    name: str | None,
    unique: bool,
    batch: int,
    concurrency: int,
    timeout: float | None,
) -> ServiceTable:
    """The table that `rivermouth.tables.service` gives, its arguments checked."""
    if not callable(function):
        raise DefinitionError(
            CALL,
            "the first argument is not a function",
            there=f"it is of type {type(function).__name__}",
            todo="Give a function, plain or async, that takes a pyarrow.Table of keys.",
        )
    for what, number in (("batch", batch), ("concurrency", concurrency)):
        if number < 1:
            raise DefinitionError(CALL, f"{what} is {number}", todo="Give at least one.")
    columns, named = _schema(schema), (keys,) if isinstance(keys, str) else tuple(keys)
    if not named:
        raise DefinitionError(CALL, "keys names no column", todo="Name what it is asked by.")
    for key in named:
        if key not in columns.names:
            raise missing_column(CALL, key, columns.names, side="schema", by="keys")
    found: str = getattr(_unwrapped(function), "__name__", type(function).__name__)
    promise = Promise(name or found, named, columns, unique)
    return ServiceTable(function, promise, batch, concurrency, timeout, _code(function))


def _schema(schema: Schema) -> pa.Schema:
    if isinstance(schema, pa.Schema):
        return schema
    return pa.schema([_field(name, kind) for name, kind in schema.items()])


def _field(name: str, kind: pa.DataType | str) -> pa.Field:
    if isinstance(kind, pa.DataType):
        return pa.field(name, kind)
    if kind == "geometry":
        return geometry_field(name)
    try:
        return pa.field(name, _SPARK.get(kind) or pa.type_for_alias(kind))
    except ValueError:
        raise DefinitionError(
            CALL,
            f"{kind!r}, the type of column {name!r}, is not known",
            todo="Use a pyarrow type or its name, as in 'int64', 'string', 'double', 'date', "
            "'timestamp' or 'geometry' (WKB).",
        ) from None


def _unwrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    return function.func if isinstance(function, functools.partial) else function


def _code(function: Callable[..., Any]) -> str:
    """What tells a function from another of the same name: where it is, what it does and holds."""
    inner = _unwrapped(function)
    parts: list[Any] = [getattr(inner, "__module__", ""), getattr(inner, "__qualname__", "")]
    if inner is not function:
        parts += [function.args, function.keywords]  # type: ignore[attr-defined]
    code = getattr(inner, "__code__", None)
    if code is None:
        parts.append(inner)
    else:
        held: Iterable[Any] = getattr(inner, "__closure__", None) or ()
        cells = [cell.cell_contents for cell in held]
        consts = [c for c in code.co_consts if not hasattr(c, "co_code")]
        parts += [code.co_code, consts, code.co_names, getattr(inner, "__defaults__", None), cells]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
