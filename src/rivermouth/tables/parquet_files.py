"""Parquet files: their rows, whichever way their geometries are written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.dataset as ds

from rivermouth.errors import ColumnError, TableInvalid, TableMissing, did_you_mean
from rivermouth.tables.files import reading, short_name
from rivermouth.tables.geoarrow import to_wkb
from rivermouth.tables.geoparquet import WKB, Geometry, described
from rivermouth.tables.source import geometry_field

WHERE = "tables.parquet"


@dataclass(frozen=True)
class ParquetFiles:
    """The rows of a Parquet file, or of all Parquet files in a folder by the files' paths."""

    path: str
    geometry: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The file's or folder's name."""
        return short_name(self.path)

    @property
    def identity(self) -> str:
        """The path, and the columns that were said to be geometries."""
        return f"parquet:{self.path}" + "".join(f"#{name}" for name in self.geometry)

    def schema(self) -> pa.Schema:
        """The columns of the first file, and those that folders named ``column=value`` add."""
        dataset = _opened(self.path)
        geometries = _geometries(dataset, self.geometry)
        return pa.schema([_shown(field, geometries) for field in dataset.schema])

    def read(self, columns: Sequence[str]) -> pa.Table:
        """All rows; only these columns are read from the files."""
        dataset = _opened(self.path)
        geometries = _geometries(dataset, self.geometry)
        with _as_table_error(self.path):
            table = dataset.to_table(columns=list(columns))
        fields = [_shown(field, geometries) for field in table.schema]
        made = [
            pa.chunked_array(
                [_plain(chunk, geometries.get(field.name)) for chunk in column.chunks], field.type
            )
            for field, column in zip(fields, table.columns, strict=True)
        ]
        return pa.Table.from_arrays(made, schema=pa.schema(fields))


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
