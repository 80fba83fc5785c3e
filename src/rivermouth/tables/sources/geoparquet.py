"""What Parquet files say of their geometries: where they are, how written, in which system.

There are three ways to say it, in use side by side: GeoParquet's ``geo`` metadata, Parquet's own
types GEOMETRY and GEOGRAPHY, and the Arrow extension ``geoarrow.wkb``. Edges are straight lines in
the plane here, also where a file calls them spherical.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds

from rivermouth.errors import TableInvalid
from rivermouth.tables.sources.crs import UNKNOWN, WGS84, srid_of_crs
from rivermouth.tables.sources.geoarrow import ENCODINGS

WKB = "WKB"

_NATIVE = {"GEOMETRY", "GEOGRAPHY"}
_EXTENSION, _EXTENSION_METADATA = b"ARROW:extension:name", b"ARROW:extension:metadata"


@dataclass(frozen=True)
class Geometry:
    """A geometry column: how its values are written, and in which reference system."""

    encoding: str = WKB
    srid: int = UNKNOWN


def described(dataset: ds.FileSystemDataset, *, where: str) -> dict[str, Geometry]:
    """The geometry columns that the first file describes."""
    fields = {field.name: field for field in dataset.schema}
    found = {
        **_by_extension(fields),
        **_by_type(dataset),
        **_by_metadata((dataset.schema.metadata or {}).get(b"geo"), where),
    }
    return {name: geometry for name, geometry in found.items() if name in fields}


def _by_metadata(geo: bytes | None, where: str) -> dict[str, Geometry]:
    """GeoParquet: without a ``crs`` it is OGC:CRS84, with a null one it is not known."""
    columns: dict[str, Any] = json.loads(geo)["columns"] if geo else {}
    for name, said in columns.items():
        if said["encoding"] not in (WKB, *ENCODINGS):
            raise TableInvalid(
                where,
                f"geometry column {name!r} is encoded as {said['encoding']!r}",
                there=f"known are {[WKB, *ENCODINGS]}",
                todo="Write the file with WKB.",
            )
    return {
        name: Geometry(said["encoding"], srid_of_crs(said["crs"]) if "crs" in said else WGS84)
        for name, said in columns.items()
    }


def _by_type(dataset: ds.FileSystemDataset) -> dict[str, Geometry]:
    """Parquet's own geometry types; without a ``crs`` they are OGC:CRS84."""
    first = next(iter(dataset.get_fragments()), None)
    if first is None:  # a table without rows
        return {}
    footer = first.metadata
    leaves = [footer.schema.column(number) for number in range(footer.num_columns)]
    found = {}
    for leaf in leaves:
        if leaf.logical_type.type in _NATIVE:
            crs = json.loads(leaf.logical_type.to_json()).get("crs")
            found[leaf.path] = Geometry(srid=_native_srid(crs, footer.metadata or {}))
    return found


def _native_srid(crs: str | None, metadata: dict[bytes, bytes]) -> int:
    if not crs:
        return WGS84
    kind, _, key = crs.partition(":")
    if kind == "projjson":  # the definition is another entry of the file's metadata
        return srid_of_crs(json.loads(metadata.get(key.encode(), b"{}")))
    return srid_of_crs(crs)


def _by_extension(fields: dict[str, pa.Field]) -> dict[str, Geometry]:
    found = {}
    for name, field in fields.items():
        said = field.metadata or {}
        if said.get(_EXTENSION) == b"geoarrow.wkb":
            crs = json.loads(said.get(_EXTENSION_METADATA) or b"{}").get("crs")
            found[name] = Geometry(srid=srid_of_crs(crs))
    return found
