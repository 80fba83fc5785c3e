"""Iceberg tables, read by pyiceberg: without Spark, on whichever host a worker runs."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pyarrow as pa
from pyiceberg import expressions as iceberg
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

from rivermouth.errors import TableError, TableInvalid, TableMissing, TableUnavailable
from rivermouth.spec.filters import Comparison, Filter
from rivermouth.spec.locations import Location
from rivermouth.tables.source import T, geometry_field, gone
from rivermouth.tables.sources.dataset import check_named
from rivermouth.tables.sources.filtering import expression, kept, with_tested
from rivermouth.tables.sources.table import Table, at_least_one

_COMPARED = {
    "=": iceberg.EqualTo,
    "<": iceberg.LessThan,
    "<=": iceberg.LessThanOrEqual,
    ">": iceberg.GreaterThan,
    ">=": iceberg.GreaterThanOrEqual,
    "in": iceberg.In,
}
#: what Iceberg and Arrow compare alike: not floats (NaN, -0.0), nor decimals of other scales
_ALIKE = (bool, int, str, dt.date)
_PUBLIC = ("type", "uri", "warehouse")


@dataclass(frozen=True, repr=False)
class IcebergTable(Table):
    """The rows of an Iceberg table, of one snapshot or of the newest.

    Parameters
    ----------
    catalog
        Its name in pyiceberg's configuration.
    properties
        What is given besides or instead of the configuration; some may be secret.
    table
        The table's name with its namespace.
    snapshot
        The snapshot's number, None for the newest.
    geometry
        Columns of WKB.
    where
        Which rows count.
    """

    catalog: str
    properties: tuple[tuple[str, str], ...]
    table: str
    snapshot: int | None = None
    geometry: tuple[str, ...] = ()
    where: Filter = ()

    function = "iceberg"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.location!r}{self._filter})"

    @property
    def name(self) -> str:
        """The table's name with its namespace."""
        return self.table

    @property
    def location(self) -> str:
        """Catalog, table, snapshot and geometry columns."""
        given = dict(self.properties)
        where = [Location(given[name]).shown for name in _PUBLIC if name in given]
        catalog = f"{self.catalog}({', '.join(where)})" if where else self.catalog
        snapshot = "" if self.snapshot is None else f"@{self.snapshot}"
        return f"{catalog}/{self.table}{snapshot}" + "".join(f"#{name}" for name in self.geometry)

    def revision(self) -> str:
        """The numbers of snapshot and schema."""
        if self.snapshot is not None:
            return str(self.snapshot)
        with self._reading():
            about = self._opened().metadata
            return f"{about.current_snapshot_id} {about.current_schema_id}"

    def schema(self) -> pa.Schema:
        """The columns of the snapshot."""
        with self._reading():
            schema = self._scan(self._opened(), ("*",)).projection().as_arrow()
        for name in self.geometry:
            check_named(name, schema, call=self.call)
        fields = pa.schema([self._field(field) for field in schema])
        expression(self.where, fields, call=self.call)
        return fields

    def scan(self, columns: Sequence[str], use: Callable[[Iterator[pa.RecordBatch]], T]) -> T:
        """What `use` makes of all rows; only these columns are read from the files."""
        with self._reading():
            table = self._opened()
        names = [field.name for field in table.schema().fields]
        for name in columns:
            if name not in names:
                raise gone(name, names, where=self.call, table=self.table)
        return use(self._batches(table, columns))

    def _batches(self, table: Any, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        read = with_tested(columns, self.where)
        with self._reading():
            reader = self._scan(table, tuple(read)).to_arrow_batch_reader()
            schema = pa.schema([self._field(reader.schema.field(name)) for name in read])
            wanted = pa.schema([schema.field(name) for name in columns])
            made = (
                batch
                for part in reader
                for batch in kept(
                    pa.Table.from_batches([part]).select(read).cast(schema),
                    self.where,
                    columns,
                    call=self.call,
                ).to_batches()
            )
            yield from at_least_one(made, wanted)

    def _opened(self) -> Any:
        with load_catalog(self.catalog, **dict(self.properties)) as catalog:  # its connection
            return catalog.load_table(self.table)

    def _scan(self, table: Any, columns: tuple[str, ...]) -> Any:
        """A scan that skips files and row groups without a row that counts."""
        tests = [test for test in map(_pushed, self.where) if test is not None]
        return table.scan(
            row_filter=reduce(iceberg.And, tests) if tests else iceberg.AlwaysTrue(),
            selected_fields=columns,
            snapshot_id=self.snapshot,
        )

    def _field(self, field: pa.Field) -> pa.Field:
        """A column without Iceberg's metadata, in the types of other tables."""
        if field.name in self.geometry:
            return geometry_field(field.name)
        plain = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
        return pa.field(field.name, plain.get(field.type, field.type))

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Turn pyiceberg's errors into ours, without secrets."""
        try:
            yield
        except (TableError, GeneratorExit):
            raise
        except Exception as error:
            raise self._as_ours(error) from None  # its words may show keys

    def _as_ours(self, error: Exception) -> TableError:
        said = str(error).rstrip(".")
        for name, value in self.properties:
            if name in _PUBLIC:
                said = Location(value).redacted(said)
            elif len(value) > 3:
                said = said.replace(value, "***")
        if isinstance(error, (NoSuchTableError, NoSuchNamespaceError)):
            todo = "Check the catalog, the namespace and the name."
            return TableMissing(
                self.call, f"there is no {self.table!r} in {self.catalog!r}", todo=todo
            )
        if isinstance(error, ValueError) and "napshot" in said:
            return TableInvalid(
                self.call,
                f"{self.table!r} has no snapshot {self.snapshot}",
                todo="Name one that has not expired.",
            )
        return TableUnavailable(
            self.call,
            f"{self.table!r} cannot be read",
            there=f"{type(error).__name__}: {said}",
            todo="Check the catalog's properties, and that this host reaches it and its files.",
        )


def _pushed(test: Comparison) -> Any:
    """The comparison as Iceberg evaluates it; None where it might do so in another way."""
    values = test.value if isinstance(test.value, tuple) else (test.value,)
    if test.operator not in _COMPARED or not all(type(value) in _ALIKE for value in values):
        return None
    return _COMPARED[test.operator](test.column, test.value)
