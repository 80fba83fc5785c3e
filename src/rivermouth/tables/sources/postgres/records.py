"""What is sent of a batch of records: those that can match, as arrays for one ``unnest``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import shapely

from rivermouth.kernels.keys import key_index
from rivermouth.kernels.spatial.geometry import Geometries
from rivermouth.kernels.table_join.by_geometry import geometries_for
from rivermouth.spec.conditions import Parts
from rivermouth.tables.sources.postgres.address import CALL
from rivermouth.tables.sources.postgres.arrays import NUMBERS, parameter
from rivermouth.tables.sources.probes import columns_of
from rivermouth.tables.sources.sql.relation import Relation, probe_types

_UUID = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"  # as PostgreSQL writes it


@dataclass
class Records:
    """The records that can match: their numbers, and arrays by name with the type they are sent as.

    They may be sent in another order than they came in.

    Points are sent as ``x`` and ``y``, other shapes as ``wkb``, keys and ranges by the names that
    `probes` gives them. Records without a place, or with a key that is null or NaN, are left out
    here: they match nothing.
    """

    rows: npt.NDArray[np.int64]
    arrays: dict[str, tuple[Any, str]] = field(default_factory=dict)


def records_of(
    left: Mapping[str, pa.Array], parts: Parts, relation: Relation, *, srid: int
) -> Records:
    """The records of `left` that can match; a place in another system than `srid` cannot."""
    keys, spatial, span = parts
    types = probe_types(relation, keys, span)
    usable = np.ones(len(next(iter(left.values()))), dtype=bool)
    probes: dict[str, pa.Array] = {}
    if types:
        probes = columns_of(left, keys, span, relation.schema, where=CALL)
        probes = {name: _valid(column, types[name].sent) for name, column in probes.items()}
        usable &= ~key_index.missing(list(probes.values()))
    geometries = None
    if spatial is not None:
        geometries = geometries_for(spatial, left, spatial.left, srid)
        usable &= geometries.valid
    records = Records(np.flatnonzero(usable))
    if geometries is not None:
        _add_geometries(records, geometries)
    else:
        records.rows = _by_key(records.rows, probes)
    kept = pa.array(records.rows)
    for name, column in probes.items():
        sent = types[name].sent
        records.arrays[name] = (parameter(column.take(kept), sent), sent)
    return records


def _by_key(rows: npt.NDArray[np.int64], probes: Mapping[str, pa.Array]) -> npt.NDArray[np.int64]:
    """The records by a key of whole numbers: neighbours in the index cost the server less."""
    first = next(iter(probes.values()))
    if not pa.types.is_integer(first.type):
        return rows
    values = first.take(pa.array(rows)).to_numpy()
    ordered: npt.NDArray[np.int64] = rows[np.argsort(values, kind="stable")]
    return ordered


def _valid(column: pa.Array, sent: str) -> pa.Array:
    """The keys, null where one cannot be sent as what its column holds, and so equals nothing."""
    if sent != "uuid":
        return column
    return pc.if_else(pc.match_substring_regex(column, _UUID), column, pa.scalar(None, column.type))


def _add_geometries(records: Records, geometries: Geometries) -> None:
    if geometries.is_points:
        for name, axis in zip("xy", geometries.xy, strict=True):
            records.arrays[name] = (NUMBERS["float8"](axis[records.rows]), "float8")
        return
    shapes = geometries.shapes[records.rows]
    # GEOS before 3.13 fails on collections whose parts overlap, and the statement with it
    collections = shapely.get_type_id(shapes) == shapely.GeometryType.GEOMETRYCOLLECTION
    shapes[collections] = shapely.union_all(shapes[collections][:, None], axis=1)
    records.arrays["wkb"] = (shapely.to_wkb(shapes, output_dimension=2).tolist(), "bytea")
