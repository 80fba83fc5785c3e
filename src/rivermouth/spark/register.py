"""rm.register: a table as a function that SQL can call."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql import types as t

from rivermouth.errors import ColumnError, DefinitionError, PlanError
from rivermouth.spark import types
from rivermouth.spark.engines.functions import Arguments, arrow_function, batches, listed, row_type
from rivermouth.spark.engines.table_steps import (
    MakeStep,
    external_step,
    full_step,
    incremental_step,
)
from rivermouth.spark.runtime import versions
from rivermouth.spark.runtime.folders import SNAPSHOTS, shared_folder
from rivermouth.spark.runtime.freeze_gc import freeze_gc
from rivermouth.spark.validation.caches import check_external, check_incremental
from rivermouth.spark.validation.join_table import Join, check
from rivermouth.spark.validation.relation import Columns, Relation
from rivermouth.spark.validation.services import check_service
from rivermouth.spec.caches import Cache, External, Full, Incremental
from rivermouth.spec.conditions import Condition, key_pairs, named, split
from rivermouth.tables.source import Source
from rivermouth.tables.sources.frame import FrameTable
from rivermouth.tables.sources.service.table import ServiceTable

WHERE = "register"


def register(
    spark: SparkSession,
    name: str,
    table: Source,
    *,
    on: Condition,
    columns: Columns = None,
    cache: Cache | None = None,
) -> Any:
    """Give SQL a function that finds a table's rows: ``inline_outer(district_of(lon, lat))``.

    The function's arguments are the columns that `on` names on the events' side, in their order;
    its value is an array of structs, a struct for each row that satisfies the condition, empty
    where none does. ``inline`` unfolds it as an inner join does, ``inline_outer`` as a left join;
    ``size(...) > 0`` is a semi join. Views, streams and Spark Connect can call it. It is the
    function behind ``join_table(..., plan="udf")``, without the metrics. Only the table's schema
    is read now.

    Parameters
    ----------
    spark
        The session that gets the function. A function of that name is replaced.
    name
        What SQL calls it: letters, digits and ``_``, and no name of Spark's own functions.
    table
        Where the rows are: ``rm.tables.geojson(...)`` and the like, but no frame.
    on
        What a pair must satisfy, as in `join_table`. The names on the events' side only name the
        arguments. Numbers are taken for coordinates; keys and values are of the table's types,
        and geometries WKB or GEOMETRY.
    columns
        The fields of a struct: names, or {new name: name in the table}. None: all columns but the
        geometry and the equality columns that `on` names.
    cache
        As in `join_table`; ``rm.full()`` by default.

    Returns
    -------
    UserDefinedFunction
        The same function for columns: ``frame.select("*", F.inline_outer(found("lon", "lat")))``.

    Examples
    --------
    >>> rm.register(spark, "district_of", rm.tables.geojson("districts.geojson"),
    ...             on=rm.within(rm.point("lon", "lat"), "geometry"))  # doctest: +SKIP
    """
    _check_call(spark, name, table)
    _check_free(spark, name)
    versions.require(spark, versions.ARROW_FUNCTIONS, where=WHERE)
    join = check(
        _parameters(on, table), table, on=on, how="inner", columns=columns,
        suffixes=("_argument", ""), where=WHERE,
    )  # fmt: skip
    make = _step(spark, join, Full() if cache is None else cache)
    row = row_type(join)
    if join.added:  # by the names that were asked for, whatever the arguments are called
        fields = zip(join.names[len(join.events) :], row, strict=True)
        row = t.StructType([t.StructField(new, field.dataType) for new, field in fields])
    expected = tuple(field.type for field in join.probe_schema)
    keys = frozenset(left for left, _ in key_pairs(join.keys))
    finding = _Finding(name, join, make, keys, expected, tuple(row.names))
    find = arrow_function(finding, t.ArrayType(row))
    return spark.udf.register(name, find)


def _check_call(spark: object, name: object, table: object) -> None:
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII):
        raise DefinitionError(
            WHERE,
            f"the function's name is {name!r}",
            todo="Use letters, digits and _, as in 'district_of'.",
        )
    if not hasattr(spark, "udf"):
        raise DefinitionError(
            WHERE,
            f"a function is registered in a session, not in {type(spark).__name__}",
            todo=f"Write rm.register(spark, {name!r}, table, on=...).",
        )
    if not isinstance(table, Source) or isinstance(table, FrameTable):
        raise DefinitionError(
            WHERE,
            "the table must be one of rm.tables, and no frame: Python workers cannot read it",
            there=f"it is of type {type(table).__name__}",
            todo="Write a frame once: table = rm.snapshot(df, path).",
        )


def _check_free(spark: SparkSession, name: str) -> None:
    """SQL calls a function of Spark's own before one that is registered under its name."""
    found = spark.sql(f"SHOW SYSTEM FUNCTIONS LIKE '{name}'").collect()
    if found:
        raise DefinitionError(
            WHERE,
            f"the function's name is {name!r}",
            there=f"SQL calls Spark's own {found[0][0]} by it",
            todo="Take another name.",
        )


def _parameters(on: Condition, table: Source) -> t.StructType:
    """The function's arguments, of the types that the table's columns ask for."""
    keys, spatial, span = split(on)
    right = Relation(WHERE, table.name, table.schema())
    kinds = {one: right.dtype(other) for one, other in key_pairs(keys)}
    if span is not None:
        kinds[span.left] = right.dtype(span.right)
    if spatial is not None:
        places = named(spatial.left)
        place = t.DoubleType() if len(places) > 1 else t.BinaryType()
        kinds.update(dict.fromkeys(places, place))
    return t.StructType([t.StructField(name, kind) for name, kind in kinds.items()])


def _step(spark: SparkSession, join: Join, cache: Cache) -> MakeStep:
    if isinstance(join.source, ServiceTable):
        check_service(join.source, join.on, cache, where=WHERE)
    match cache:
        case External():
            check_external(join, where=WHERE)
            return external_step(join)
        case Incremental():
            check_incremental(join, where=WHERE)
            return incremental_step(join, cache)
        case Full(buckets=None):
            folder = shared_folder(spark, cache.path, where=WHERE, example=SNAPSHOTS)
            return full_step(join, cache, folder)
    raise PlanError(
        WHERE,
        f"cache is {cache!r}",
        todo="Use rm.full(...) without buckets, rm.incremental(...) or rm.external().",
    )


@dataclass(frozen=True)
class _Finding:
    """A task of the function."""

    name: str
    join: Join
    make: MakeStep
    keys: frozenset[str]
    expected: tuple[pa.DataType, ...]
    fields: tuple[str, ...]

    def __call__(self, arguments: Arguments) -> Iterator[pa.Array]:
        """The lists of what is found for each batch of arguments."""
        step = self.make(listed)
        for batch in step.batches(batches(self.join, map(self._arguments, arguments))):
            found = batch.column(0)
            values = pa.StructArray.from_arrays(found.values.flatten(), list(self.fields))
            yield pa.ListArray.from_arrays(found.offsets, values)
        freeze_gc()

    def _arguments(self, given: Any) -> tuple[pa.Array, ...]:
        arrays = given if isinstance(given, tuple) else (given,)
        if len(arrays) != len(self.expected):
            names = ", ".join(self.join.left_columns)
            raise DefinitionError(
                self.name,
                f"called with {len(arrays)} arguments",
                there=f"it has {len(self.expected)}",
                todo=f"Write {self.name}({names}).",
            )
        named_arrays = zip(self.join.left_columns, arrays, self.expected, strict=True)
        return tuple(self._argument(*each) for each in named_arrays)

    def _argument(self, parameter: str, array: pa.Array, expected: pa.DataType) -> pa.Array:
        """The argument in the type that it is compared in, where nothing is lost by that."""
        kind = array.type
        if kind == expected or pa.types.is_null(kind):
            return array.cast(expected)
        if _fits(kind, expected):
            return self._cast(parameter, array, expected)
        if expected == pa.binary() and pa.types.is_struct(kind):
            return array  # Spark's GEOMETRY
        shown, compared = _shown(kind), _shown(expected)
        is_shape = expected == pa.binary() and parameter not in self.keys
        cast = f"Cast it, as in {self.name}(..., cast({parameter} AS {compared}), ...)."
        raise ColumnError(
            self.name,
            f"argument {parameter!r} is {shown}, and {compared} is compared",
            todo="Pass WKB or Spark's GEOMETRY." if is_shape else cast,
        )

    def _cast(self, parameter: str, array: pa.Array, expected: pa.DataType) -> pa.Array:
        # of decimals, which are SQL's literals, the nearest; of other numbers the very same
        is_exact = not (pa.types.is_floating(expected) and pa.types.is_decimal(array.type))
        if parameter in self.keys and pa.types.is_integer(array.type):
            array = _castable(array, expected)
        try:
            return array.cast(expected, safe=is_exact)
        except pa.ArrowInvalid as error:
            shown, is_whole = _shown(expected), pa.types.is_integer(expected)
            raise ColumnError(
                self.name,
                f"argument {parameter!r} has a value beyond {shown} ({error})",
                there=f"try_cast({parameter} AS {shown}) {'is NULL' if is_whole else 'rounds it'}",
                todo="Pass the value that is meant, or NULL, which finds nothing.",
            ) from None


def _castable(array: pa.Array, expected: pa.DataType) -> pa.Array:
    """Whole numbers, null where the type has no such number: it equals none of that type."""
    cast = array.cast(expected, safe=False)
    same = pc.equal(cast.cast(array.type, safe=False), array)
    return pc.if_else(same, array, None)


def _fits(kind: pa.DataType, expected: pa.DataType) -> bool:
    """Whether values of a type can be compared as those of another."""
    if pa.types.is_floating(expected):
        is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
        narrowed = is_number and kind.bit_width > expected.bit_width
        return (is_number and not narrowed) or pa.types.is_decimal(kind)
    same = (
        pa.types.is_integer, pa.types.is_string, pa.types.is_binary, pa.types.is_date,
        pa.types.is_decimal,
    )  # fmt: skip
    both_times = pa.types.is_timestamp(kind) and pa.types.is_timestamp(expected)
    if both_times:
        return (kind.tz is None) == (expected.tz is None)
    return any(test(kind) and test(expected) for test in same)


def _shown(kind: pa.DataType) -> str:
    """An Arrow type by Spark's name, where it has one."""
    return types.to_spark(kind, where=WHERE, column="").simpleString()
