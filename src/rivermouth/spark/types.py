"""Arrow types and Spark types of the same meaning."""

from __future__ import annotations

from typing import TypeGuard

import pyarrow as pa
from pyspark.sql import types as t

from rivermouth.errors import ColumnError

_PLAIN: tuple[tuple[pa.DataType, t.DataType], ...] = (
    (pa.bool_(), t.BooleanType()),
    (pa.int8(), t.ByteType()),
    (pa.int16(), t.ShortType()),
    (pa.int32(), t.IntegerType()),
    (pa.int64(), t.LongType()),
    (pa.uint8(), t.ShortType()),
    (pa.uint16(), t.IntegerType()),
    (pa.uint32(), t.LongType()),
    (pa.float16(), t.FloatType()),
    (pa.float32(), t.FloatType()),
    (pa.float64(), t.DoubleType()),
    (pa.string(), t.StringType()),
    (pa.large_string(), t.StringType()),
    (pa.string_view(), t.StringType()),
    (pa.binary(), t.BinaryType()),
    (pa.large_binary(), t.BinaryType()),
    (pa.binary_view(), t.BinaryType()),
    (pa.date32(), t.DateType()),
    (pa.date64(), t.DateType()),
    (pa.null(), t.StringType()),
)
_SPARK_OF: dict[pa.DataType, t.DataType] = dict(_PLAIN)
_ARROW_OF: dict[t.DataType, pa.DataType] = {
    t.BooleanType(): pa.bool_(),
    t.ByteType(): pa.int8(),
    t.ShortType(): pa.int16(),
    t.IntegerType(): pa.int32(),
    t.LongType(): pa.int64(),
    t.FloatType(): pa.float32(),
    t.DoubleType(): pa.float64(),
    t.StringType(): pa.string(),
    t.BinaryType(): pa.binary(),
    t.DateType(): pa.date32(),
    t.TimestampType(): pa.timestamp("us", "UTC"),
    t.TimestampNTZType(): pa.timestamp("us"),
}


def to_spark(kind: pa.DataType, *, where: str, column: str) -> t.DataType:
    """The Spark type of an Arrow type; unsigned numbers become the next wider signed ones."""
    if kind in _SPARK_OF:
        return _SPARK_OF[kind]
    if pa.types.is_timestamp(kind):
        return t.TimestampType() if kind.tz else t.TimestampNTZType()
    if pa.types.is_decimal(kind) and kind.precision <= 38:
        return t.DecimalType(kind.precision, kind.scale)
    if pa.types.is_dictionary(kind):
        return to_spark(kind.value_type, where=where, column=column)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return t.ArrayType(to_spark(kind.value_type, where=where, column=column))
    if pa.types.is_struct(kind):
        return t.StructType(
            [
                t.StructField(part.name, to_spark(part.type, where=where, column=column))
                for part in kind.fields
            ]
        )
    raise ColumnError(
        where,
        f"column {column!r} of the table is of type {kind}, which Spark does not have",
        todo="Leave it out with columns=, or cast it in the table.",
    )


def to_arrow(kind: t.DataType, *, where: str, column: str) -> pa.DataType:
    """The Arrow type in which Spark expects a column of `kind` back from Python."""
    if isinstance(kind, t.StringType):
        return pa.string()  # whatever its collation
    if isinstance(kind, t.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, t.ArrayType):
        return pa.list_(to_arrow(kind.elementType, where=where, column=column))
    if isinstance(kind, t.StructType):
        return pa.struct(
            [(part.name, to_arrow(part.dataType, where=where, column=column)) for part in kind]
        )
    if isinstance(kind, t.MapType):
        parts = (
            to_arrow(part, where=where, column=column) for part in (kind.keyType, kind.valueType)
        )
        return pa.map_(*parts)
    if kind in _ARROW_OF:
        return _ARROW_OF[kind]
    raise ColumnError(
        where,
        f"column {column!r} is of type {kind.simpleString()}, which cannot be brought over",
        todo="Leave it out with columns=, or cast it.",
    )


def arrow_schema(schema: t.StructType, *, where: str) -> pa.Schema:
    """The Arrow schema of a frame, in which workers get its rows and give them back."""
    return pa.schema([(field.name, _arrow_field(field, where)) for field in schema])


def _arrow_field(field: t.StructField, where: str) -> pa.DataType:
    if is_geometry(field.dataType):
        # Spark tells a geometry from other structs by the metadata of its second part
        mark = {b"geometry": b"true", b"srid": str(field.dataType.srid).encode()}
        wkb = pa.field("wkb", pa.binary(), nullable=False, metadata=mark)
        return pa.struct([pa.field("srid", pa.int32(), nullable=False), wkb])
    return to_arrow(field.dataType, where=where, column=field.name)


def family(kind: t.DataType) -> str:
    """Types of one family can be compared without loss."""
    match kind:
        case t.ByteType() | t.ShortType() | t.IntegerType() | t.LongType():
            return "integer"
        case t.FloatType() | t.DoubleType():
            return "float"
        case t.DecimalType():
            return "decimal"
        case t.StringType():
            return "string"
    return kind.typeName()


def is_geometry(kind: t.DataType) -> TypeGuard[t.GeometryType]:
    """Whether it is Spark's type GEOMETRY; asked by its name, as Spark 4.0 has no such class."""
    return kind.typeName() == "geometry"


def is_comparable(kind: t.DataType) -> bool:
    """Whether keys can be of it: numbers, strings, bytes, dates and times."""
    nested = (t.ArrayType, t.MapType, t.StructType, t.VariantType)
    return not isinstance(kind, nested) and not is_geometry(kind)


def is_number(kind: t.DataType) -> bool:
    """Whether a coordinate can be read from it."""
    return isinstance(kind, t.NumericType)
