"""Tables of Parquet files: their rows, whichever way their geometries are written."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.dataset as ds

from rivermouth.errors import PlanError, TableInvalid, missing_column
from rivermouth.kernels.keys import key_index
from rivermouth.spec.conditions import Condition, split
from rivermouth.spec.locations import Location
from rivermouth.tables.files import reading
from rivermouth.tables.source import T, geometry_field, gone
from rivermouth.tables.sources.filtering import expression, is_in
from rivermouth.tables.sources.geoarrow import to_wkb
from rivermouth.tables.sources.geoparquet import WKB, Geometry, described
from rivermouth.tables.sources.probes import probes_of
from rivermouth.tables.sources.table import FileTable, at_least_one

_PIECE = 16 << 20  # bytes of a batch, about
_FEWEST_ROWS, _MOST_ROWS = 64, 131_072  # of a batch, however wide or narrow
_BUFFER = 1 << 20  # bytes of a column that are read at a time


class DatasetTable(FileTable):
    """A table whose rows are in Parquet files, which a subclass finds."""

    geometry: tuple[str, ...]

    @abstractmethod
    def dataset(self) -> ds.FileSystemDataset:
        """The files as they are now, at least one."""

    @property
    def location(self) -> str:
        """The path, and the columns that were said to be geometries."""
        return super().location + "".join(f"#{name}" for name in self.geometry)

    def schema(self) -> pa.Schema:
        """The columns of the first file, and those that folders named ``column=value`` add."""
        dataset = self.dataset()
        geometries = self._geometries(dataset)
        schema = pa.schema([_field(field, geometries) for field in dataset.schema])
        expression(self.where, schema, call=self.call)
        return schema

    def file_bytes(self) -> int:
        """What all files take, whatever `where` leaves of their rows."""
        dataset = self.dataset()
        with as_table_error(self.path, where=self.call):
            return sum(file.size or 0 for file in dataset.filesystem.get_file_info(dataset.files))

    def file_rows(self) -> int:
        """How many rows all files say that they hold, whatever `where` leaves of them."""
        dataset = self.dataset()
        with as_table_error(self.path, where=self.call):
            return int(dataset.count_rows())

    def scan(self, columns: Sequence[str], use: Callable[[Iterator[pa.RecordBatch]], T]) -> T:
        """What `use` makes of all rows; only these columns are read from the files.

        As fast as `use` takes them: whatever pyarrow reads ahead, it holds. Of a file of 1.4 GB
        that were 2.4 GB while rows were taken slowly, with as much CPU time or more.
        """
        dataset = self.dataset()
        with as_table_error(self.path, where=self.call):
            options = _sparingly(dataset, columns)
        return use(self._batches(dataset, columns, **options))

    def lookup(
        self, condition: Condition, columns: Sequence[str], left: Mapping[str, pa.Array]
    ) -> tuple[npt.NDArray[np.int64], pa.Table]:
        """The rows that equal each record's keys, by one scan of the files.

        Row groups whose statistics rule out all values of the first key are skipped; give it
        a table that is sorted by it. Rows come by record, then in the table's order.
        """
        keys, spatial, span = split(condition)
        if keys is None or spatial is not None or span is not None:
            raise PlanError(
                self.call,
                f"Parquet files evaluate rm.keys only, not {condition}",
                todo="Use cache=rm.full().",
            )
        dataset = self.dataset()
        rights = self._present([right for _, right in keys.pairs], dataset)
        lefts = [left[name] for name, _ in keys.pairs]
        probes_of(left, keys, None, self.schema(), where=self.call)  # checks the types
        near = _among(lefts[0], dataset.schema.field(rights[0]))
        read = list(dict.fromkeys([*columns, *rights]))
        found = pa.Table.from_batches(self._batches(dataset, read, near))
        index = key_index.build([found.column(name).combine_chunks() for name in rights])
        record, row = index.expand(index.lookup(lefts))
        return record, found.select(list(columns)).take(pa.array(row))

    def _batches(
        self,
        dataset: ds.FileSystemDataset,
        columns: Sequence[str],
        near: ds.Expression | None = None,
        **options: Any,
    ) -> Iterator[pa.RecordBatch]:
        columns = self._present(columns, dataset)
        geometries = self._geometries(dataset)
        schema = pa.schema([_field(dataset.schema.field(name), geometries) for name in columns])
        passed = expression(self.where, dataset.schema, call=self.call)
        passed = near if passed is None else passed if near is None else passed & near
        made = (
            pa.RecordBatch.from_arrays(
                [_plain(batch.column(name), geometries.get(name)) for name in columns],
                schema=schema,
            )
            for batch in dataset.to_batches(columns=list(columns), filter=passed, **options)
        )
        with as_table_error(self.path, where=self.call):
            yield from at_least_one(made, schema)

    def _present(self, columns: Sequence[str], dataset: ds.FileSystemDataset) -> Sequence[str]:
        """These columns, or a `TableInvalid` where one no longer exists."""
        for name in columns:
            if name not in dataset.schema.names:
                raise gone(name, dataset.schema.names, where=self.call, table=repr(self.path))
        return columns

    def _geometries(self, dataset: ds.FileSystemDataset) -> dict[str, Geometry]:
        """The geometry columns: those that the files describe, then those the user named."""
        with as_table_error(self.path, where=self.call):
            found = described(dataset, where=self.call)
        for name in self.geometry:
            if name not in found:
                check_named(name, dataset.schema, call=self.call)
                found[name] = Geometry()
        return found


def _sparingly(dataset: ds.FileSystemDataset, columns: Sequence[str]) -> dict[str, Any]:
    """How to scan files one batch at a time, of rows that are as wide as the first file's."""
    width = 1.0
    for fragment in islice(dataset.get_fragments(), 1):
        groups = (fragment.metadata.row_group(n) for n in range(fragment.metadata.num_row_groups))
        widths = (_bytes(group, columns) / group.num_rows for group in groups if group.num_rows)
        width = max([width, *widths])
    rows = min(max(int(_PIECE / width), _FEWEST_ROWS), _MOST_ROWS)
    return {
        "batch_size": rows,
        "batch_readahead": 0,
        "fragment_readahead": 0,
        "use_threads": False,
        "fragment_scan_options": ds.ParquetFragmentScanOptions(
            use_buffered_stream=True, buffer_size=_BUFFER, pre_buffer=False
        ),
    }


def _bytes(group: Any, columns: Sequence[str]) -> int:
    """What these columns take in a row group, before they are compressed."""
    wanted = tuple(f"{name}." for name in columns)  # and what is in them
    chunks = map(group.column, range(group.num_columns))
    return sum(
        chunk.total_uncompressed_size
        for chunk in chunks
        if f"{chunk.path_in_schema}.".startswith(wanted)
    )


def _among(left: pa.Array, field: pa.Field) -> ds.Expression | None:
    """A test that all rows pass whose key is among `left`, and perhaps others."""
    values = left.dictionary_decode() if pa.types.is_dictionary(left.type) else left
    try:
        wanted = values.drop_null().unique().cast(field.type, safe=False)
    except pa.ArrowException:
        return None
    return is_in(ds.field(field.name), wanted)


@contextmanager
def as_table_error(path: Location, *, where: str) -> Iterator[None]:
    """Turn what is raised while Parquet files are read into errors of ours."""
    try:
        with reading(path, where=where):
            yield
    except pa.ArrowException as error:
        raise TableInvalid(
            where,
            f"{path!r} cannot be read as Parquet",
            there=path.redacted(str(error)).splitlines()[0].rstrip("."),
            todo="Give a Parquet file, or a folder of Parquet files that have the same columns.",
        ) from error


def check_named(name: str, schema: pa.Schema, *, call: str) -> None:
    """Raise an error unless the column that a user calls a geometry can be WKB."""
    if name not in schema.names:
        raise missing_column(call, name, schema.names, side="the table", by="geometry")
    kind = schema.field(name).type
    if not _is_binary(kind):
        raise TableInvalid(
            call,
            f"geometry names column {name!r}, which is {kind}, not WKB",
            todo="Name a binary column.",
        )


def _is_binary(kind: pa.DataType) -> bool:
    checks = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary)
    return any(check(kind) for check in checks) or kind == pa.binary_view()


def _field(field: pa.Field, geometries: Mapping[str, Geometry]) -> pa.Field:
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
