"""Vector files that GDAL reads: GeoPackage, Shapefile and FlatGeobuf, through pyogrio."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
import pyogrio

from rivermouth.errors import TableInvalid, TableMissing, did_you_mean
from rivermouth.spec.filters import Comparison, Filter
from rivermouth.spec.locations import Location
from rivermouth.tables.files import check_exists
from rivermouth.tables.source import T, geometry_field, gone, srid_of
from rivermouth.tables.sources.crs import srid_of_crs
from rivermouth.tables.sources.filtering import expression, kept, values_of, with_tested
from rivermouth.tables.sources.table import FileTable, at_least_one

GEOMETRY = "geometry"

_TIME = pa.timestamp("us", "UTC")
_EXACT = 2**53  # numbers up to here are compared exactly, whatever a driver makes of a literal

# GDAL's own Arrow reader of FlatGeobuf (3.12) gives a null geometry the bytes of another row.
pyogrio.set_gdal_config_options({"OGR_FLATGEOBUF_STREAM_BASE_IMPL": True})


@dataclass(frozen=True, repr=False)
class OGRLayer(FileTable):
    """The rows of one layer, in the order of the file."""

    path: Location
    layer: str | None = None
    where: Filter = ()

    #: GDAL's name of the format, and everybody's
    driver: ClassVar[str]
    format: ClassVar[str]

    @property
    def name(self) -> str:
        """The file's name, and the layer's where one was named."""
        return super().name + (f"/{self.layer}" if self.layer else "")

    @property
    def location(self) -> str:
        """The file's path, and the layer where one was named."""
        return super().location + (f"#{self.layer}" if self.layer else "")

    def schema(self) -> pa.Schema:
        """The layer's columns; its geometry column is called `geometry`."""
        schema = self._describe().schema
        expression(self.where, schema, call=self.call)
        return schema

    def scan(self, columns: Sequence[str], use: Callable[[Iterator[pa.RecordBatch]], T]) -> T:
        """What `use` makes of all rows; only these columns are read from the file."""
        layer = self._describe()
        for name in columns:
            if name not in layer.schema.names:
                raise gone(name, layer.schema.names, where=self.call, table=repr(self.path))
        return use(self._batches(layer, columns))

    def _batches(self, layer: _Layer, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        read = with_tested(columns, self.where)
        tests = [_pushed(test, layer, call=self.call) for test in self.where]
        where = " AND ".join(filter(None, tests)) or None
        found = (
            batch
            for rows in layer.read(read, where)
            for batch in kept(rows, self.where, columns, call=self.call).to_batches()
        )
        schema = pa.schema([layer.schema.field(name) for name in columns])
        with self._as_table_error():
            yield from at_least_one(found, schema)

    def _describe(self) -> _Layer:
        check_exists(self.path, where=self.call)
        with self._as_table_error():
            name = self._choose(dict(pyogrio.list_layers(self.path)))
            layer = _Layer(self.path, name, pyogrio.read_info(self.path, layer=name))
            names = layer.schema.names
        if layer.info["driver"] != self.driver:
            raise TableInvalid(
                self.call,
                f"{self.path!r} is not a {self.format}",
                there=f"GDAL reads it as {layer.info['driver']}",
                todo="Use the function of that format.",
            )
        if names.count(GEOMETRY) > 1:
            raise TableInvalid(
                self.call,
                f"layer {name!r} has a column 'geometry' besides its geometry",
                todo="Rename the column.",
            )
        return layer

    def _choose(self, layers: dict[str, str | None]) -> str:
        """The layer that is named; else the only one with geometries, or the only one."""
        spatial = [name for name, shape in layers.items() if shape is not None]
        if self.layer is None:
            first, *others = spatial or layers
            if not others:
                return first
            has_layers = "Name one with layer=." if self.driver == "GPKG" else "Name one file."
            what, todo = "no layer is named", has_layers
        elif self.layer in layers:
            return self.layer
        else:
            what, todo = f"there is no layer {self.layer!r}", did_you_mean(self.layer, layers)
        there = f"{self.path!r} has {sorted(layers)}"
        raise TableMissing(self.call, what, there=there, todo=todo or "Name one of these.")

    @contextmanager
    def _as_table_error(self) -> Iterator[None]:
        try:
            yield
        except (RuntimeError, OSError, pa.ArrowException) as error:  # pyogrio's are RuntimeErrors
            raise TableInvalid(
                self.call,
                f"{self.path!r} cannot be read as a {self.format}",
                there=str(error).splitlines()[0].split("; It might help")[0].rstrip("."),
                todo=f"Give a {self.format} that GDAL can read.",
            ) from None


class GeoPackage(OGRLayer):
    """A layer of a GeoPackage; its feature id is a column, as it is in the file."""

    function, driver, format = "geopackage", "GPKG", "GeoPackage"


class Shapefile(OGRLayer):
    """A Shapefile."""

    function, driver, format = "shapefile", "ESRI Shapefile", "Shapefile"


class FlatGeobuf(OGRLayer):
    """A FlatGeobuf file."""

    function, driver, format = "flatgeobuf", "FlatGeobuf", "FlatGeobuf file"


@dataclass(frozen=True)
class _Layer:
    """A layer as GDAL describes it."""

    path: str
    name: str
    info: dict[str, Any]

    @property
    def has_geometry(self) -> bool:
        return self.info["geometry_type"] is not None

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns: the feature id where the file names it, the attributes, the geometry."""
        names = [*filter(None, [self.info["fid_column"]]), *self.info["fields"]]
        with self._opened(names + [GEOMETRY] * self.has_geometry, None) as reader:
            fields = [pa.field(f.name, self._type(f)) for f in reader.schema][: len(names)]
        geometry = geometry_field(GEOMETRY, srid_of_crs(self.info["crs"]))
        return pa.schema([*fields, *([geometry] if self.has_geometry else [])])

    def read(self, columns: Sequence[str], where: str | None) -> Iterator[pa.Table]:
        """These columns of the rows that may pass, a batch at a time."""
        ordered = [name for name in self.schema.names if name in columns]
        schema = pa.schema([self.schema.field(name) for name in ordered])
        with self._opened(columns, where) as reader:
            for batch in reader:
                batch.validate(full=True)  # text that is not UTF-8, and what a driver does wrong
                arrays = map(_plain, batch.columns, schema)
                yield pa.Table.from_arrays(list(arrays), schema=schema)

    @contextmanager
    def _opened(self, columns: Sequence[str], where: str | None) -> Iterator[pa.RecordBatchReader]:
        with pyogrio.open_arrow(
            self.path,
            layer=self.name,
            columns=[name for name in self.info["fields"] if name in columns],
            read_geometry=self.has_geometry and GEOMETRY in columns,
            return_fids=bool(self.info["fid_column"]) and self.info["fid_column"] in columns,
            where=where,
            datetime_as_string=True,
            use_pyarrow=True,
        ) as (_, reader):
            yield reader

    def _type(self, field: pa.Field) -> pa.DataType:
        types = dict(zip(self.info["fields"], self.info["ogr_types"], strict=True))
        if types.get(field.name) == "OFTDateTime":
            return _TIME
        return getattr(field.type, "storage_type", field.type)


def _plain(column: pa.Array, field: pa.Field) -> pa.Array:
    """The values as plain Arrow; a time without a zone is UTC, as GeoPackage has it."""
    stored = column.storage if isinstance(column, pa.ExtensionArray) else column
    if field.type != _TIME:
        return stored
    zoned = pc.match_substring_regex(stored, r"(Z|[+-]\d\d:?\d\d)$")
    return pc.if_else(zoned, stored, pc.binary_join_element_wise(stored, "Z", "")).cast(_TIME)


def _pushed(test: Comparison, layer: _Layer, *, call: str) -> str | None:
    """A test in GDAL's SQL that all rows pass which pass `test`, and perhaps others.

    GDAL binds no values. So only numbers are written, and text and names that need no escape:
    all rows that come are tested again. A plus sign keeps SQLite from an index, whose order the
    rows would come in.
    """
    values = values_of(test, layer.schema, call=call).to_pylist()
    field = layer.schema.field(test.column)
    if srid_of(field) is not None or not _is_plain(test.column):
        return None
    column = f'"{test.column}"' if layer.info["driver"] != "GPKG" else f'+"{test.column}"'
    if test.operator in ("is", "is not"):
        return f"{column} {test.operator.upper()} NULL"
    if pa.types.is_string(field.type) and test.operator in ("=", "in"):
        texts = ", ".join(f"'{value}'" for value in values)
        return f"{column} IN ({texts})" if all(map(_is_plain, values)) else None
    if not (pa.types.is_integer(field.type) or pa.types.is_floating(field.type)):
        return None
    low, high = min(values), max(values)
    if pa.types.is_floating(field.type):  # not every driver reads the last digit right
        low, high = low - 1e-9 * abs(low), high + 1e-9 * abs(high)
    tests = []
    if test.operator in ("=", "in", ">", ">=") and abs(low) <= _EXACT:
        tests.append(f"{column} >= {low!r}")
    if test.operator in ("=", "in", "<", "<=") and abs(high) <= _EXACT:
        tests.append(f"{column} <= {high!r}")
    return " AND ".join(tests)


def _is_plain(text: str) -> bool:
    return text.isprintable() and not set(text) & set("'\"\\")
