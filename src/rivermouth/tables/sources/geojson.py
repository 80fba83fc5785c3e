"""GeoJSON files: features as rows, properties as columns."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any

import pyarrow as pa
import shapely

from rivermouth.errors import TableInvalid
from rivermouth.spec.filters import Filter
from rivermouth.spec.locations import Location
from rivermouth.tables.files import read_bytes
from rivermouth.tables.source import T, geometry_field
from rivermouth.tables.sources.crs import UNKNOWN, WGS84, srid_of_crs
from rivermouth.tables.sources.filtering import expression, kept, with_tested
from rivermouth.tables.sources.geojson_shapes import TYPES, shapes
from rivermouth.tables.sources.table import FileTable, at_least_one

CALL = "tables.geojson"
GEOMETRY = "geometry"
_ID = "id"

Feature = dict[str, Any]


@dataclass(frozen=True, repr=False)
class GeoJSONFile(FileTable):
    """The features of a GeoJSON file, in the file's order."""

    path: Location
    where: Filter = ()

    function = "geojson"

    def schema(self) -> pa.Schema:
        """The properties' types, inferred from all features, and `geometry`; reads the file."""
        features, srid = _load(self.path)
        columns = [pa.field(name, _column(name, features).type) for name in _names(features)]
        schema = pa.schema([*columns, geometry_field(GEOMETRY, srid)])
        expression(self.where, schema, call=CALL)
        return schema

    def scan(self, columns: Sequence[str], use: Callable[[Iterator[pa.RecordBatch]], T]) -> T:
        """What `use` makes of all features, these columns only, in one batch."""
        features, srid = _load(self.path)
        arrays, fields = [], []
        for name in with_tested(columns, self.where):
            is_geometry = name == GEOMETRY
            arrays.append(_geometry(features) if is_geometry else _column(name, features))
            field = pa.field(name, arrays[-1].type)
            fields.append(geometry_field(name, srid) if is_geometry else field)
        rows = pa.Table.from_arrays(arrays, schema=pa.schema(fields))
        found = kept(rows, self.where, columns, call=CALL)
        return use(at_least_one(found.to_batches(), found.schema))


def _load(path: str) -> tuple[list[Feature], int]:
    with _collector_off():
        documents = _documents(read_bytes(path, where=CALL))
        features = list(chain.from_iterable(map(_features, documents)))
    return features, _srid(documents)


@contextmanager
def _collector_off() -> Iterator[None]:
    """Millions of small lists make the collector run for nothing: parsing took 1.5 x as long."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _documents(raw: bytes) -> list[Any]:
    """The file's JSON values: one, or one a line (newline-delimited, RFC 8142 marks allowed)."""
    try:
        return [json.loads(raw)]
    except UnicodeDecodeError as error:
        raise TableInvalid(
            CALL,
            "the file is not UTF-8",
            there=str(error),
            todo="Save it as UTF-8; other formats have functions of their own in rm.tables.",
        ) from None
    except json.JSONDecodeError as error:
        what, said = "the file", error
    documents: list[Any] = []
    for number, line in enumerate(raw.replace(b"\x1e", b"").splitlines(), 1):
        try:
            documents += [json.loads(line)] if line.strip() else []
        except json.JSONDecodeError as error:
            if documents:
                what, said = f"line {number}", error
            break
    else:
        if documents:
            return documents
    raise TableInvalid(
        CALL,
        f"{what} is not JSON",
        there=str(said),
        todo="Give a FeatureCollection, or one feature a line.",
    )


def _features(document: Any) -> Iterable[Feature]:
    """The features of one JSON value; a bare geometry is a feature without properties."""
    kind = document.get("type") if isinstance(document, dict) else None
    if kind == "FeatureCollection" and isinstance(document.get("features"), list):
        return [_checked(feature) for feature in document["features"]]
    if kind == "Feature":
        return [_checked(document)]
    if kind in TYPES:
        return [{"properties": None, "geometry": document}]
    raise TableInvalid(
        CALL,
        "the file is JSON, but not GeoJSON",
        there=f"it holds a {type(document).__name__}"
        + (f" of type {kind!r}" if isinstance(document, dict) else ""),
        todo="Give a FeatureCollection, a Feature or a geometry.",
    )


def _checked(feature: Any) -> Feature:
    properties = feature.get("properties") if isinstance(feature, dict) else feature
    if properties is None or isinstance(properties, dict):
        return feature  # type: ignore[no-any-return]
    raise TableInvalid(
        CALL,
        "a feature is not an object with properties",
        there=f"it is {json.dumps(feature)[:80]}",
        todo="Write it as RFC 7946 says.",
    )


def _srid(documents: list[Any]) -> int:
    """4326 (RFC 7946), or what a ``crs`` member of the older GeoJSON names."""
    crs = documents[0].get("crs") if len(documents) == 1 else None
    if crs is None:
        return WGS84
    named = (crs.get("properties") or {}).get("name") if isinstance(crs, dict) else crs
    srid = srid_of_crs(named)
    if srid == UNKNOWN:
        raise TableInvalid(
            CALL,
            f"the file's crs is {named!r}, which names no EPSG code",
            todo="Write the file in longitude and latitude, without a crs, as RFC 7946 says.",
        )
    return srid


def _names(features: list[Feature]) -> list[str]:
    """The properties in the order in which they first appear, then `id` where features have one."""
    names = dict.fromkeys(chain.from_iterable(f.get("properties") or () for f in features))
    if GEOMETRY in names:
        raise TableInvalid(
            CALL,
            "a property is called 'geometry', as the column of geometries is",
            todo="Rename the property.",
        )
    if _ID not in names and any(_ID in feature for feature in features):
        names[_ID] = None
    return list(names)


def _column(name: str, features: list[Feature]) -> pa.Array:
    values = [(feature.get("properties") or {}).get(name) for feature in features]
    if name == _ID and not any(name in (feature.get("properties") or ()) for feature in features):
        values = [feature.get(_ID) for feature in features]
    try:
        column = pa.array(values)
    except (pa.ArrowInvalid, OverflowError, UnicodeEncodeError) as error:
        raise TableInvalid(
            CALL,
            f"the values of property {name!r} have no common type",
            there=str(error).rstrip("."),
            todo="Give it one type in all features.",
        ) from None
    # null in every feature: text is what a reader of such a file expects, and Spark can carry it
    return column.cast(pa.string()) if pa.types.is_null(column.type) else column


def _geometry(features: list[Feature]) -> pa.Array:
    with _collector_off():
        made = shapes([feature.get("geometry") for feature in features], call=CALL)
        return pa.array(shapely.to_wkb(made, flavor="iso", byte_order=1), pa.binary())
