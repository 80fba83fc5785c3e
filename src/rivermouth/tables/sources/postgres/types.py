"""PostgreSQL's types: which Arrow type each is read as, and how it is compared.

=====================================  =========================  ================================
type                                   read as                    compared as a key
=====================================  =========================  ================================
bool, int2, int4, int8                 bool, int16, int32, int64  the column, so an index serves
float4, float8                         float32, float64           the column
numeric(p, s), p up to 38              decimal128(p, s)           the column; NaN is read as null
numeric                                float64                    its double
text, varchar                          string                     the column, by bytes
char(n)                                string, unpadded           its text
uuid                                   string                     the column
json, jsonb, enumerations              string                     its text
date, timestamp                        date32, timestamp[us]      the column
timestamptz                            timestamp[us, UTC]         the column
bytea                                  binary                     the column
geometry, geography                    binary (WKB)               its WKB
=====================================  =========================  ================================

An infinite date or timestamp has no Arrow value and is an error when it is read.
"""

from __future__ import annotations

import pyarrow as pa

from rivermouth.tables.sources.sql.relation import SQLType

_VARHDRSZ = 4  # what a type modifier of numeric is shifted by
_AS_TEXT = SQLType(pa.string(), "text", "{}::text", "{}::text", '{}::text COLLATE "C"')
_TEXT = SQLType(pa.string(), "text", order='{} COLLATE "C"')
_GEOMETRY = SQLType(pa.binary(), "bytea", "ST_AsBinary({})", "ST_AsBinary({})")


def _number(arrow: pa.DataType, sent: str, read: str = "{}", same: str = "{}") -> SQLType:
    """A type with NaN, which PostgreSQL takes for the largest number."""
    return SQLType(arrow, sent, read, same, not_nan=f"{same} <> 'NaN'")


_TYPES = {
    "bool": SQLType(pa.bool_(), "bool"),
    "int2": SQLType(pa.int16(), "int8"),
    "int4": SQLType(pa.int32(), "int8"),
    "int8": SQLType(pa.int64(), "int8"),
    "float4": _number(pa.float32(), "float8"),
    "float8": _number(pa.float64(), "float8"),
    "text": _TEXT,
    "varchar": _TEXT,
    "bpchar": _AS_TEXT,
    "uuid": SQLType(pa.string(), "uuid", "{}::text", '{}::text COLLATE "C"', key="{}"),
    "json": _AS_TEXT,
    "jsonb": _AS_TEXT,
    "date": SQLType(pa.date32(), "date"),
    "timestamp": SQLType(pa.timestamp("us"), "timestamp"),
    "timestamptz": SQLType(pa.timestamp("us", "UTC"), "timestamptz"),
    "bytea": SQLType(pa.binary(), "bytea"),
    "geometry": _GEOMETRY,
    "geography": _GEOMETRY,
}


def type_of(name: str, modifier: int, *, is_enum: bool) -> SQLType | None:
    """How type `name` with its `modifier` is read, None where it is not known.

    Examples
    --------
    >>> type_of("numeric", ((10 << 16) | 2) + 4, is_enum=False).arrow
    Decimal128Type(decimal128(10, 2))
    >>> type_of("numeric", -1, is_enum=False).arrow
    DataType(double)
    """
    if is_enum:
        return _AS_TEXT
    return _numeric(modifier) if name == "numeric" else _TYPES.get(name)


def _numeric(modifier: int) -> SQLType:
    """A decimal, which comes as text, with NaN as null; a double where it has no such bounds."""
    precision, scale = (modifier - _VARHDRSZ) >> 16, (modifier - _VARHDRSZ) & 0x7FF
    # a negative scale looks like a large one
    if modifier < 0 or precision > 38 or scale > precision:
        return _number(pa.float64(), "float8", "{}::float8", "{}::float8")
    return _number(pa.decimal128(precision, scale), "numeric", "nullif({}, 'NaN')::text")
