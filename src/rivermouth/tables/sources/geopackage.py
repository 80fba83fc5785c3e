"""GeoPackage layers through SQLite alone: no GDAL is needed to read one."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc

from rivermouth.errors import TableInvalid, TableMissing, did_you_mean
from rivermouth.tables.files import missing, short_name
from rivermouth.tables.source import geometry_field, srid_of
from rivermouth.tables.sources.crs import UNKNOWN, srid_of_crs
from rivermouth.tables.sources.notebook import Shown

WHERE = "tables.geopackage"
GEOMETRY = "geometry"

_ROWS = 65_536  # turned into Arrow at a time
_TYPES = {
    "BOOLEAN": pa.bool_(),
    "TINYINT": pa.int8(),
    "SMALLINT": pa.int16(),
    "MEDIUMINT": pa.int32(),
    "INT": pa.int64(),
    "INTEGER": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "REAL": pa.float64(),
    "TEXT": pa.string(),
    "VARCHAR": pa.string(),
    "BLOB": pa.binary(),
    "DATE": pa.date32(),
    "DATETIME": pa.timestamp("us", "UTC"),
}
_ENVELOPE_SIZES = (0, 32, 48, 48, 64)  # bytes, by the flags' envelope code
_EXTENDED = 0b0010_0000  # the flag of a geometry that is not WKB


@dataclass(frozen=True)
class GeoPackageLayer(Shown):
    """The rows of one layer, by primary key."""

    path: str
    layer: str | None = None

    @property
    def name(self) -> str:
        """The file's name, and the layer's where one was named."""
        return short_name(self.path) + (f"/{self.layer}" if self.layer else "")

    @property
    def identity(self) -> str:
        """The file's path and the layer."""
        return f"geopackage:{self.path}" + (f"#{self.layer}" if self.layer else "")

    def schema(self) -> pa.Schema:
        """The layer's columns as they are declared, its geometry column called `geometry`."""
        with _opened(self.path) as file:
            return _describe(file, self.layer).schema

    def read(self, columns: Sequence[str]) -> pa.Table:
        """All rows, these columns only."""
        with _opened(self.path) as file:
            layer = _describe(file, self.layer)
            schema = pa.schema([layer.schema.field(name) for name in columns])
            batches = [
                pa.record_batch(list(map(_column, schema, zip(*rows, strict=True))), schema=schema)
                for rows in _rows(file, layer, columns)
            ]
            return pa.Table.from_batches(batches, schema=schema)


@dataclass(frozen=True)
class _Layer:
    """A layer as the file describes it: its columns, and what they are called in the file."""

    name: str
    schema: pa.Schema
    stored: dict[str, str]
    key: str | None


@contextmanager
def _opened(path: str) -> Iterator[sqlite3.Connection]:
    if not os.path.exists(path):
        raise missing(path, where=WHERE)
    try:
        with closing(sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True)) as file:
            yield file
    except sqlite3.Error as error:
        raise TableInvalid(
            WHERE,
            f"{path!r} cannot be read as a GeoPackage",
            there=str(error),
            todo="Give a file whose tables are listed in gpkg_contents.",
        ) from None


def _describe(file: sqlite3.Connection, wanted: str | None) -> _Layer:
    name = _choose(file, wanted)
    geometry, srid = _geometry_column(file, name)
    fields, stored, key = [], {}, None
    for _, column, declared, _, _, in_key in file.execute(f"PRAGMA table_info({_quoted(name)})"):
        shown = GEOMETRY if column == geometry else column
        if shown in stored:
            raise TableInvalid(
                WHERE,
                f"layer {name!r} has a column {shown!r} besides its geometry {geometry!r}",
                todo="Rename the column, or leave it out with a view.",
            )
        stored[shown] = column
        key = column if in_key and key is None else key
        is_geometry = column == geometry
        fields.append(
            geometry_field(shown, srid)
            if is_geometry
            else pa.field(shown, _type(name, column, declared))
        )
    return _Layer(name, pa.schema(fields), stored, key)


def _choose(file: sqlite3.Connection, wanted: str | None) -> str:
    """The layer that is wanted, or the only one with geometries."""
    contents = dict(file.execute("SELECT table_name, data_type FROM gpkg_contents"))
    layers = [name for name, kind in contents.items() if kind == "features"]
    if wanted in contents:
        return str(wanted)
    if wanted is not None:
        raise TableMissing(
            WHERE,
            f"there is no layer {wanted!r}",
            there=f"the file has {sorted(contents)}",
            todo=did_you_mean(wanted, contents) or "Name one of these.",
        )
    if len(layers) != 1:
        raise TableMissing(
            WHERE,
            "no layer is named" if layers else "the file has no layer with geometries",
            there=f"it has {sorted(layers or contents)}",
            todo="Name one with layer=.",
        )
    return str(layers[0])


def _geometry_column(file: sqlite3.Connection, layer: str) -> tuple[str | None, int]:
    """The layer's geometry column, None for a table without one, and its reference system."""
    found = file.execute(
        "SELECT g.column_name, s.organization || ':' || s.organization_coordsys_id"
        " FROM gpkg_geometry_columns g LEFT JOIN gpkg_spatial_ref_sys s ON s.srs_id = g.srs_id"
        " WHERE g.table_name = ?",
        (layer,),
    ).fetchone()
    return (found[0], srid_of_crs(found[1])) if found else (None, UNKNOWN)


def _type(layer: str, column: str, declared: str) -> pa.DataType:
    known = _TYPES.get(re.sub(r"\s*\(.*", "", declared).strip().upper())
    if known is None:
        raise TableInvalid(
            WHERE,
            f"column {column!r} of layer {layer!r} is declared as {declared!r}",
            there=f"known are {list(_TYPES)}",
            todo="Cast it in a view, and list the view in gpkg_contents.",
        )
    return known


def _rows(
    file: sqlite3.Connection, layer: _Layer, columns: Sequence[str]
) -> Iterator[list[tuple[Any, ...]]]:
    named = ", ".join(_quoted(layer.stored[name]) for name in columns)
    order = f" ORDER BY {_quoted(layer.key)}" if layer.key else ""
    cursor = file.execute(f"SELECT {named} FROM {_quoted(layer.name)}{order}")  # noqa: S608 - quoted
    while rows := cursor.fetchmany(_ROWS):
        yield rows


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _column(field: pa.Field, values: tuple[Any, ...]) -> pa.Array:
    try:
        return _typed(field, values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise TableInvalid(
            WHERE,
            f"column {field.name!r} is declared as {field.type}, but not all its values are",
            there=str(error).splitlines()[0],
            todo="SQLite lets any value into any column: correct these.",
        ) from None


def _typed(field: pa.Field, values: tuple[Any, ...]) -> pa.Array:
    if srid_of(field) is not None:
        return pa.array([blob if blob is None else _wkb(blob) for blob in values], pa.binary())
    if pa.types.is_boolean(field.type):
        return pa.array(values, pa.int8()).cast(field.type)
    if pa.types.is_date(field.type):
        return pa.array(values, pa.string()).cast(field.type)
    if pa.types.is_timestamp(field.type):  # always UTC; some writers leave out the Z
        plain = pc.utf8_rtrim(pa.array(values, pa.string()), characters="Z")
        return plain.cast(pa.timestamp("us")).cast(field.type)
    return pa.array(values, field.type)


def _wkb(blob: Any) -> bytes:
    """The WKB behind a GeoPackage geometry's header (magic, version, flags, SRID, envelope)."""
    code = (blob[3] >> 1) & 0b111 if isinstance(blob, bytes) and blob[:2] == b"GP" else None
    if code is None or code >= len(_ENVELOPE_SIZES) or blob[3] & _EXTENDED:
        raise TableInvalid(
            WHERE,
            "a geometry is not in GeoPackage's binary form",
            there=f"it starts with {blob[:8]!r}",
            todo="Write the layer anew, with geometries of the standard types.",
        )
    return bytes(blob[8 + _ENVELOPE_SIZES[code] :])
