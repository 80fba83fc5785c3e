"""Parquet files: their rows, whichever way their geometries are written."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.dataset as ds

from rivermouth.errors import ColumnError, PlanError, TableInvalid, TableMissing, did_you_mean
from rivermouth.kernels.keys import key_index
from rivermouth.spec.conditions import Condition, split
from rivermouth.spec.filters import Comparison, Filter, shown
from rivermouth.tables.cache.probes import probes_of
from rivermouth.tables.files import reading, short_name
from rivermouth.tables.source import T, geometry_field, gone
from rivermouth.tables.sources.filtering import check_filter, values_of
from rivermouth.tables.sources.geoarrow import to_wkb
from rivermouth.tables.sources.geoparquet import WKB, Geometry, described
from rivermouth.tables.sources.notebook import Shown

WHERE = "tables.parquet"


@dataclass(frozen=True)
class ParquetFiles(Shown):
    """The rows of a Parquet file, or of all Parquet files in a folder by the files' paths."""

    path: str
    geometry: tuple[str, ...] = ()
    where: Filter = ()

    def __repr__(self) -> str:
        only = f", where={shown(self.where)!r}" if self.where else ""
        return f"ParquetFiles(path={self.path!r}, geometry={self.geometry!r}{only})"

    @property
    def name(self) -> str:
        """The file's or folder's name."""
        return short_name(self.path)

    @property
    def identity(self) -> str:
        """The path, the columns that were said to be geometries, and which of the rows."""
        only = f" where {shown(self.where)}" if self.where else ""
        return f"parquet:{self.path}" + "".join(f"#{name}" for name in self.geometry) + only

    def schema(self) -> pa.Schema:
        """The columns of the first file, and those that folders named ``column=value`` add."""
        dataset = _opened(self.path)
        geometries = _geometries(dataset, self.geometry)
        schema = pa.schema([_shown(field, geometries) for field in dataset.schema])
        check_filter(self.where, schema, call=WHERE)
        return schema

    def read(self, columns: Sequence[str]) -> pa.Table:
        """All rows; only these columns are read from the files."""
        return self._read(_opened(self.path), columns, None)

    def scan(self, columns: Sequence[str], use: Callable[[Iterator[pa.RecordBatch]], T]) -> T:
        """All rows, these columns only, a piece of a file at a time."""
        return use(self._batches(columns))

    def lookup(
        self, condition: Condition, columns: Sequence[str], left: Mapping[str, pa.Array]
    ) -> tuple[npt.NDArray[np.int64], pa.Table]:
        """The rows that equal each record's keys, by one walk through the files.

        Row groups whose statistics rule out all values of the first key are left out; give it
        a table that is sorted by it. Rows come by record, then in the table's order.
        """
        equal, place, span = split(condition)
        if equal is None or place is not None or span is not None:
            raise PlanError(
                WHERE,
                f"Parquet files answer rm.keys only, not {condition}",
                todo="Use cache=rm.full().",
            )
        dataset = _opened(self.path)
        rights = [right for _, right in equal.pairs]
        lefts = [left[name] for name, _ in equal.pairs]
        probes_of(left, equal, None, self.schema(), where=WHERE)  # checks the types
        near = _among(lefts[0], dataset.schema.field(rights[0]))
        found = self._read(dataset, list(dict.fromkeys([*columns, *rights])), near)
        table = [found.column(name).combine_chunks() for name in rights]
        index = key_index.build(table)
        record, row = index.expand(index.lookup(lefts))
        return record, found.select(list(columns)).take(pa.array(row))

    def _read(
        self, dataset: ds.FileSystemDataset, columns: Sequence[str], near: ds.Expression | None
    ) -> pa.Table:
        kept = self._kept(dataset, columns, near)
        with _as_table_error(self.path):
            table = dataset.to_table(columns=list(columns), filter=kept)
        geometries = _geometries(dataset, self.geometry)
        fields = [_shown(field, geometries) for field in table.schema]
        made = [
            pa.chunked_array(
                [_plain(chunk, geometries.get(field.name)) for chunk in column.chunks], field.type
            )
            for field, column in zip(fields, table.columns, strict=True)
        ]
        return pa.Table.from_arrays(made, schema=pa.schema(fields))

    def _batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        dataset = _opened(self.path)
        geometries = _geometries(dataset, self.geometry)
        kept = self._kept(dataset, columns, None)
        with _as_table_error(self.path):
            for batch in dataset.to_batches(columns=list(columns), filter=kept):
                fields = [_shown(field, geometries) for field in batch.schema]
                made = [
                    _plain(column, geometries.get(field.name))
                    for field, column in zip(fields, batch.columns, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(made, schema=pa.schema(fields))

    def _kept(
        self, dataset: ds.FileSystemDataset, columns: Sequence[str], near: ds.Expression | None
    ) -> ds.Expression | None:
        """Which rows are read; a `TableInvalid` where one of the columns is gone."""
        for name in columns:
            if name not in dataset.schema.names:
                raise gone(name, dataset.schema.names, where=WHERE, table=repr(self.path))
        tests = [_test(test, dataset.schema) for test in self.where]
        tests += [] if near is None else [near]
        return functools.reduce(operator.and_, tests) if tests else None


_OPERATORS = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _test(test: Comparison, schema: pa.Schema) -> ds.Expression:
    """The comparison as Arrow has it; null and NaN satisfy none."""
    column, values = ds.field(test.column), values_of(test, schema, call=WHERE)
    match test.operator:
        case "is":
            return column.is_null()
        case "is not":
            return column.is_valid()
        case "in":
            return column.isin(values)
        case "not in":
            passed = ~column.isin(values)
        case _:
            passed = _OPERATORS[test.operator](column, values[0])
    return passed & ~column.is_null(nan_is_null=True)


def _among(left: pa.Array, field: pa.Field) -> ds.Expression | None:
    """Rows whose key may be among `left`; what it lets through besides is told apart later."""
    values = left.dictionary_decode() if pa.types.is_dictionary(left.type) else left
    try:
        wanted = values.drop_null().unique().cast(field.type, safe=False)
    except pa.ArrowException:
        return None
    if pa.types.is_floating(field.type):  # 0.0 and -0.0 are told apart by isin
        wanted = pa.concat_arrays([wanted, pa.array([0.0, -0.0], pa.float64()).cast(field.type)])
    return ds.field(field.name).isin(wanted)


def _opened(path: str) -> ds.FileSystemDataset:
    with _as_table_error(path):
        dataset = ds.dataset(path, format="parquet", partitioning="hive")
    if not dataset.files:
        raise TableMissing(WHERE, f"{path!r} holds no Parquet file", todo="Check the path.")
    return dataset


@contextmanager
def _as_table_error(path: str) -> Iterator[None]:
    try:
        with reading(path, where=WHERE):
            yield
    except pa.ArrowException as error:
        raise TableInvalid(
            WHERE,
            f"{path!r} cannot be read as Parquet",
            there=str(error).splitlines()[0].rstrip("."),
            todo="Give a Parquet file, or a folder of Parquet files that have the same columns.",
        ) from error


def _geometries(dataset: ds.FileSystemDataset, named: Sequence[str]) -> dict[str, Geometry]:
    """The geometry columns: those that the files describe, then those the user named."""
    found = described(dataset, where=WHERE)
    for name in named:
        if name not in dataset.schema.names:
            raise ColumnError(
                WHERE,
                f"geometry names column {name!r}, which is not there",
                there=f"the columns are {sorted(dataset.schema.names)}",
                todo=did_you_mean(name, dataset.schema.names) or "Name one of these.",
            )
        kind = dataset.schema.field(name).type
        if name not in found and not _is_binary(kind):
            raise TableInvalid(
                WHERE,
                f"geometry names column {name!r}, which is {kind}, not WKB",
                todo="Name a binary column.",
            )
        found.setdefault(name, Geometry())
    return found


def _is_binary(kind: pa.DataType) -> bool:
    checks = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
    return any(check(kind) for check in checks) or kind == pa.binary_view()


def _shown(field: pa.Field, geometries: Mapping[str, Geometry]) -> pa.Field:
    if field.name in geometries:
        return geometry_field(field.name, geometries[field.name].srid)
    return pa.field(field.name, getattr(field.type, "storage_type", field.type))


def _plain(chunk: pa.Array, geometry: Geometry | None) -> pa.Array:
    """The values as plain Arrow: an extension's storage, a geometry's WKB."""
    stored = chunk.storage if isinstance(chunk, pa.ExtensionArray) else chunk
    if geometry is None:
        return stored
    return (
        stored.cast(pa.binary()) if geometry.encoding == WKB else to_wkb(stored, geometry.encoding)
    )
