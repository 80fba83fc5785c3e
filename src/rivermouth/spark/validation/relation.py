"""What all joins check: the columns that a condition names, their types, and what is brought."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import types as t

from rivermouth.errors import ColumnError, ConditionError, DefinitionError, missing_column
from rivermouth.spark import types
from rivermouth.spec.conditions import Geometry, Keys, Point, Spatial, key_pairs, named
from rivermouth.tables.source import srid_of

#: what to bring: names, or {name in the result: name there}; None: all but the condition's
Columns = Sequence[str] | Mapping[str, str] | None
#: (name in the result, name there)
Brought = tuple[tuple[str, str], ...]

_DELAY = "spark.watermarkDelayMs"


@dataclass(frozen=True)
class Relation:
    """One input of a join.

    Parameters
    ----------
    where, name
        The operator, and what its errors call this input.
    schema
        A frame's schema, or a table's.
    """

    where: str
    name: str
    schema: t.StructType | pa.Schema

    def dtype(self, column: str, by: str = "on") -> t.DataType:
        """The Spark type of a column that the argument `by` names."""
        self._check_present(column, by)
        if isinstance(self.schema, t.StructType):
            return self.schema[column].dataType
        return types.to_spark(self.schema.field(column).type, where=self.where, column=column)

    def srid(self, geometry: Geometry) -> int:
        """The SRID that a geometry's column states, 0 where it states none."""
        if isinstance(geometry, Point):
            for column in named(geometry):
                if not types.is_number(dtype := self.dtype(column)):
                    raise ColumnError(
                        self.where,
                        f"rm.point needs numbers, but column {column!r} of {self.name} is "
                        f"{dtype.simpleString()}",
                        todo="Cast it to double.",
                    )
            return 0
        self._check_present(geometry, "on")
        srid = self._stated_srid(geometry)
        if srid is None:
            known = [name for name in self.schema.names if self._stated_srid(name) is not None]
            raise ColumnError(
                self.where,
                f"column {geometry!r} of {self.name} is {self.dtype(geometry).simpleString()}, "
                "not a geometry",
                there=f"the geometry columns there are {known}",
                todo="Name a column of WKB (binary) or GEOMETRY, or two numbers with rm.point.",
            )
        return srid

    def brought(self, columns: Columns, keys: Keys | None, spatial: Spatial | None) -> Brought:
        """The columns that the result gets from this input, the condition's right side."""
        if columns is None:
            omitted = {right for _, right in key_pairs(keys)}
            if spatial is not None and isinstance(spatial.right, str):
                omitted.add(spatial.right)
            return tuple((name, name) for name in self.schema.names if name not in omitted)
        if isinstance(columns, str):
            raise ColumnError(
                self.where,
                f"columns is the text {columns!r}",
                todo=f"Write a list: columns=[{columns!r}].",
            )
        pairs = columns.items() if isinstance(columns, Mapping) else [(old, old) for old in columns]
        if not all(isinstance(name, str) for pair in pairs for name in pair):
            raise ColumnError(
                self.where,
                f"columns is {columns!r}",
                todo="Give names, or {name in the result: name there}.",
            )
        for _, old in pairs:
            self._check_present(old, "columns")
        return tuple(pairs)

    def _check_present(self, column: str, by: str) -> None:
        if column not in self.schema.names:
            raise missing_column(self.where, column, self.schema.names, side=self.name, by=by)

    def _stated_srid(self, column: str) -> int | None:
        """As `srid`; None where the column is no geometry."""
        if isinstance(self.schema, t.StructType):
            dtype = self.schema[column].dataType
            if types.is_geometry(dtype):
                return dtype.srid if isinstance(dtype.srid, int) and dtype.srid > 0 else 0
            return 0 if isinstance(dtype, t.BinaryType) else None
        field = self.schema.field(column)
        is_binary = field.type in (pa.binary(), pa.large_binary(), pa.binary_view())
        stated = srid_of(field)
        return 0 if stated is None and is_binary else stated


def check_comparable(
    what: str, left: Relation, column: str, right: Relation, other: str
) -> t.DataType:
    """The type of the right column, if it can be compared with the left one without loss."""
    ours, theirs = left.dtype(column), right.dtype(other)
    if types.family(ours) != types.family(theirs):
        raise ConditionError(
            left.where,
            f"{what} compares {column!r} ({ours.simpleString()}) with {other!r} of {right.name} "
            f"({theirs.simpleString()})",
            todo=f"Cast one of them, as in F.col({column!r}).cast({theirs.simpleString()!r}).",
        )
    return theirs


def check_spatial(left: Relation, right: Relation, spatial: Spatial) -> int:
    """The SRID of both sides, 0 where neither states one."""
    ours, theirs = left.srid(spatial.left), right.srid(spatial.right)
    if ours and theirs and ours != theirs:
        raise ConditionError(
            left.where,
            f"{spatial.left!r} is in SRID {ours} and {spatial.right!r} of {right.name} in SRID "
            f"{theirs}",
            todo="Bring both into one reference system first; rivermouth does not project.",
        )
    return ours or theirs


def check_option(where: str, name: str, value: object, options: Sequence[str]) -> None:
    """An argument that takes one of a few texts."""
    if value not in options:
        raise DefinitionError(where, f"{name} is {value!r}", todo=f"Use one of {list(options)}.")


def watermark_delay(side: Relation, time: str) -> int:
    """The delay of a frame's own watermark, in microseconds."""
    delay = side.schema[time].metadata.get(_DELAY)
    if delay is None:
        raise DefinitionError(
            side.where,
            "how late rows may be is not defined",
            there=f"{side.name}'s {time!r} has no watermark to take it from",
            todo='Give lateness="1 minute" or the like; 0 seconds where rows come in order.',
        )
    return int(delay) * 1000
