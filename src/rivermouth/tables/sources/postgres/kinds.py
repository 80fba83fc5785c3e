"""PostgreSQL's types: as which Arrow type each is read, by which expression, and compared by which.

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

from dataclasses import dataclass

import pyarrow as pa

_VARHDRSZ = 4  # what a type modifier of numeric is shifted by


@dataclass(frozen=True)
class Kind:
    """How a type is read and compared.

    Parameters
    ----------
    arrow
        What it is read as.
    read
        The expression that reads it; ``{}`` is the column. Decimals come as text.
    key
        The expression that is compared with an event's key.
    sent
        The type as which event's keys are sent.
    """

    arrow: pa.DataType
    sent: str
    read: str = "{}"
    key: str = "{}"


_AS_TEXT = Kind(pa.string(), "text", "{}::text", "{}::text")
_UNBOUNDED = Kind(pa.float64(), "float8", "{}::float8", "{}::float8")
GEOMETRY = Kind(pa.binary(), "bytea", "ST_AsBinary({})", "ST_AsBinary({})")

_KINDS = {
    "bool": Kind(pa.bool_(), "bool"),
    "int2": Kind(pa.int16(), "int8"),
    "int4": Kind(pa.int32(), "int8"),
    "int8": Kind(pa.int64(), "int8"),
    "float4": Kind(pa.float32(), "float8"),
    "float8": Kind(pa.float64(), "float8"),
    "text": Kind(pa.string(), "text"),
    "varchar": Kind(pa.string(), "text"),
    "bpchar": _AS_TEXT,
    "uuid": Kind(pa.string(), "uuid", "{}::text"),
    "json": _AS_TEXT,
    "jsonb": _AS_TEXT,
    "date": Kind(pa.date32(), "date"),
    "timestamp": Kind(pa.timestamp("us"), "timestamp"),
    "timestamptz": Kind(pa.timestamp("us", "UTC"), "timestamptz"),
    "bytea": Kind(pa.binary(), "bytea"),
    "geometry": GEOMETRY,
    "geography": GEOMETRY,
}


def kind_of(name: str, modifier: int, *, is_enum: bool) -> Kind | None:
    """How type `name` with its `modifier` is read, None where it is not known.

    Examples
    --------
    >>> kind_of("numeric", ((10 << 16) | 2) + 4, is_enum=False).arrow
    Decimal128Type(decimal128(10, 2))
    >>> kind_of("numeric", -1, is_enum=False).arrow
    DataType(double)
    """
    if is_enum:
        return _AS_TEXT
    return _numeric(modifier) if name == "numeric" else _KINDS.get(name)


def _numeric(modifier: int) -> Kind:
    packed = modifier - _VARHDRSZ
    precision, scale = packed >> 16, packed & 0x7FF
    if (
        modifier < 0 or precision > 38 or scale > precision
    ):  # a negative scale looks like a large one
        return _UNBOUNDED
    return Kind(pa.decimal128(precision, scale), "numeric", "nullif({}, 'NaN')::text")
