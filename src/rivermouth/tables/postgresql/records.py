"""What is sent of a batch of records: those that can match, as arrays for one ``unnest``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import shapely

from rivermouth.errors import ConditionError
from rivermouth.kernels import keys
from rivermouth.kernels.geometry import Places
from rivermouth.kernels.matching import places_of
from rivermouth.kernels.sphere import is_on_sphere
from rivermouth.spec.conditions import Equal, Place
from rivermouth.tables.postgresql.access import WHERE
from rivermouth.tables.postgresql.arrays import Floats, Ints
from rivermouth.tables.postgresql.catalog import Description
from rivermouth.tables.postgresql.kinds import Kind

_UUID = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"  # as PostgreSQL writes it


@dataclass
class Records:
    """The records that can match: their numbers, and arrays by name with the type they are sent as.

    Points are sent as ``x`` and ``y``, other shapes as ``wkb``, keys as ``key0``, ``key1`` and so
    on. Records without a place, or with a key that is null or NaN, are left out here: they match
    nothing.
    """

    rows: npt.NDArray[np.int64]
    arrays: dict[str, tuple[Any, str]] = field(default_factory=dict)

    @property
    def have_places(self) -> bool:
        """Whether places are sent."""
        return self.are_points or "wkb" in self.arrays

    @property
    def are_points(self) -> bool:
        """Whether places are sent as two numbers."""
        return "x" in self.arrays


def records_of(
    left: Mapping[str, pa.Array],
    equal: Equal | None,
    place: Place | None,
    table: Description,
    *,
    srid: int,
    on_sphere: bool,
) -> Records:
    """The records of `left` that can match; a place in another system than `srid` cannot."""
    pairs = equal.pairs if equal else ()
    kinds = [table.columns[name].kind for _, name in pairs]
    columns = [_sendable(left[name], kind) for (name, _), kind in zip(pairs, kinds, strict=True)]
    usable = np.ones(len(next(iter(left.values()))), dtype=bool)
    if columns:
        usable &= ~keys.missing(columns)
    places = None
    if place is not None:
        places = places_of(left, place.left, srid=srid)
        places = _on_sphere(places) if on_sphere else places
        usable &= places.ok
    records = Records(np.flatnonzero(usable))
    if places is not None:
        _add_places(records, places)
    _add_keys(records, columns, kinds)
    return records


def _on_sphere(places: Places) -> Places:
    """The same places as points, those that are no points of the sphere no longer usable."""
    x, y = (
        places.xy
        if places.are_points
        # shapely gives NaN, which is no latitude, for shapes that are not points
        else (shapely.get_x(places.as_shapes), shapely.get_y(places.as_shapes))
    )
    return Places(places.ok & is_on_sphere(y), x, y)


def _add_places(records: Records, places: Places) -> None:
    if places.are_points:
        for name, axis in zip("xy", places.xy, strict=True):
            records.arrays[name] = (Floats(axis[records.rows]), "float8")
        return
    shapes = places.as_shapes[records.rows]
    # GEOS before 3.13 fails on collections whose parts overlap, and the statement with it
    collections = shapely.get_type_id(shapes) == shapely.GeometryType.GEOMETRYCOLLECTION
    shapes[collections] = shapely.union_all(shapes[collections][:, None], axis=1)
    records.arrays["wkb"] = (shapely.to_wkb(shapes, output_dimension=2).tolist(), "bytea")


def _add_keys(records: Records, columns: Sequence[pa.Array], kinds: Sequence[Kind]) -> None:
    for number, (column, kind) in enumerate(zip(columns, kinds, strict=True)):
        kept = column.take(pa.array(records.rows))
        values: Any = kept.to_pylist()
        if kind.sent == "int8":
            values = Ints(kept.to_numpy(zero_copy_only=False))
        elif kind.sent == "float8":
            values = Floats(kept.to_numpy(zero_copy_only=False))
        records.arrays[f"key{number}"] = (values, kind.sent)


def _sendable(column: pa.Array, kind: Kind) -> pa.Array:
    """The keys in the type they are sent as; null where a key equals nothing of that type."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if not _comparable(column.type, kind.arrow):
        raise ConditionError(
            WHERE,
            f"equal compares keys of type {column.type} with a column read as {kind.arrow}",
            todo="Cast one of them.",
        )
    if kind.sent == "int8":
        return column.cast(pa.int64())
    if kind.sent == "float8":
        return column.cast(pa.float64())
    if kind.sent == "uuid":
        spelt = pc.match_substring_regex(column, _UUID)
        return pc.if_else(spelt, column, pa.scalar(None, column.type))
    return column


_FAMILIES = (
    pa.types.is_integer,
    pa.types.is_floating,
    pa.types.is_decimal,
    pa.types.is_boolean,
    pa.types.is_date,
    lambda kind: kind in (pa.string(), pa.large_string(), pa.string_view()),
    lambda kind: kind in (pa.binary(), pa.large_binary(), pa.binary_view()),
    lambda kind: pa.types.is_timestamp(kind) and kind.tz is None,
    lambda kind: pa.types.is_timestamp(kind) and kind.tz is not None,
)


def _comparable(ours: pa.DataType, theirs: pa.DataType) -> bool:
    """Whether values of both types can be equal without loss: they are of one family."""
    return any(is_one(ours) and is_one(theirs) for is_one in _FAMILIES)
