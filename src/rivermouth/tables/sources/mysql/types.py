"""MySQL's types: which Arrow type each is read as, how it is compared, and how keys are sent.

=====================================  ==========================  ================================
type                                   read as                     compared as a key
=====================================  ==========================  ================================
tinyint, smallint, mediumint, int      int8, int16, int32, int32   the column, so an index serves
the same, unsigned; year               the next wider one; int16   the column
bigint                                 int64                       the column
bigint unsigned                        decimal128(20, 0)           the column
bit(1); bit(n)                         bool; int64                 its number
float; double                          float32; float64            its double; the column
decimal(p, s), p up to 38; above       decimal128(p, s); float64   the column; its double
char, varchar, text, enum, set, json   string                      the column, then its bytes
uuid, inet4, inet6                     string                      its text
binary, varbinary, blob                binary                      the column
date                                   date32                      the column
datetime; timestamp                    timestamp[us]; with UTC     the column
geometry and its kin                   binary (WKB)                not at all
=====================================  ==========================  ================================

BOOL is TINYINT(1) in MySQL, and so a small number. ``time`` has no Spark type: cast it in a view.
Keys are sent as one JSON text, which JSON_TABLE unfolds.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rivermouth.tables.sources.sql.relation import SQLType

_WORD = re.compile(r"[a-z0-9_]+")
_DOUBLE = SQLType(pa.float64(), "DOUBLE", "CAST({} AS DOUBLE)", "CAST({} AS DOUBLE)")
_BYTES = "CAST(CONVERT({} USING utf8mb4) AS BINARY)"
_INTEGERS = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "mediumint": pa.int32(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "year": pa.int16(),
    "tinyint unsigned": pa.int16(),
    "smallint unsigned": pa.int32(),
    "mediumint unsigned": pa.int32(),
    "int unsigned": pa.int64(),
}
_TYPES = {
    **{name: SQLType(arrow, "BIGINT") for name, arrow in _INTEGERS.items()},
    "bigint unsigned": SQLType(pa.decimal128(20, 0), "DECIMAL(65, 30)"),
    # the text of a FLOAT has six digits, that of its DOUBLE has all
    "float": replace(_DOUBLE, arrow=pa.float32()),
    "double": SQLType(pa.float64(), "DOUBLE"),
    "date": SQLType(pa.date32(), "DATE"),
    "datetime": SQLType(pa.timestamp("us"), "DATETIME(6)"),
    "timestamp": SQLType(pa.timestamp("us", "UTC"), "DATETIME(6)"),
    **dict.fromkeys(
        ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"),
        SQLType(pa.binary(), "LONGTEXT", bound="UNHEX({})"),
    ),
}
_TEXTS = {
    *("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set", "json"),
    *("uuid", "inet4", "inet6"),
}
GEOMETRIES = {
    *("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring"),
    *("multipolygon", "geometrycollection", "geomcollection"),
}


def type_of(
    name: str, written: str, precision: int, scale: int, charset: str, collation: str
) -> SQLType | None:
    """How a column of type `name`, in full `written`, is read; None where it is not known.

    Examples
    --------
    >>> type_of("decimal", "decimal(10,2)", 10, 2, "", "").arrow
    Decimal128Type(decimal128(10, 2))
    >>> type_of("int", "int(10) unsigned", 10, 0, "", "").arrow
    DataType(int64)
    >>> type_of("time", "time", 0, 0, "", "")
    """
    if name in _TEXTS:
        return _text(charset, collation)
    if name in GEOMETRIES:
        return SQLType(pa.binary(), "LONGTEXT")
    if name == "decimal":
        exact = SQLType(pa.decimal128(min(precision, 38), min(scale, 38)), "DECIMAL(65, 30)")
        return exact if precision <= 38 else _DOUBLE
    if name == "bit":
        arrow = pa.bool_() if precision == 1 else pa.int64()
        return SQLType(arrow, "BIGINT", "{} + 0", "{} + 0") if precision < 64 else None
    return _TYPES.get(f"{name} unsigned" if "unsigned" in written else name)


def _text(charset: str, collation: str) -> SQLType:
    """Text by its bytes: a collation may find other letters equal, and blanks at the end."""
    near = ""
    if _WORD.fullmatch(charset) and _WORD.fullmatch(collation):
        near = f"{{0}} = CONVERT({{1}} USING {charset}) COLLATE {collation}"
    read, sent = "CONVERT({} USING utf8mb4)", "LONGTEXT CHARACTER SET utf8mb4"
    return SQLType(pa.string(), sent, read, same=_BYTES, bound=_BYTES, near=near)


def typed(arrow: pa.DataType, values: list[Any]) -> pa.Array:
    """Values as the server writes them, as Arrow has them."""
    if pa.types.is_binary(arrow):
        return pa.array(values, arrow)
    texts = pa.array(values, pa.string())
    if pa.types.is_timestamp(arrow):
        return texts.cast(pa.timestamp("us")).cast(arrow)
    if pa.types.is_boolean(arrow):
        return texts.cast(pa.int8()).cast(arrow)
    return texts.cast(pa.float64()).cast(arrow) if pa.types.is_float32(arrow) else texts.cast(arrow)


def bound(values: pa.Array) -> list[Any]:
    """Arrow values as PyMySQL takes them; bytes as the text that UNHEX reads."""
    is_bytes = pa.types.is_binary(values.type)
    return [value.hex() if is_bytes else value for value in values.to_pylist()]


_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_799_999_999  # the years 1 to 9999
_DAY = 86_400_000_000  # microseconds
_LARGEST = 1.7976931348623157e308


def json_values(name: str, values: pa.Array) -> pa.Array:
    """A probe's values as JSON_TABLE reads them; null where no row can match.

    `name` tells the two ends of a range apart: one that is beyond what the server holds is put at
    its edge if all lies on the inner side of it.
    """
    arrow = values.type
    if pa.types.is_boolean(arrow):
        return values.cast(pa.int64())
    if pa.types.is_floating(arrow):
        return _clamped(name, values, -_LARGEST, _LARGEST)
    if pa.types.is_binary(arrow):
        return pa.array([None if v is None else v.hex() for v in values.to_pylist()], pa.string())
    if pa.types.is_timestamp(arrow):
        kept = _clamped(name, values.cast(pa.int64()), _FIRST, _LAST)
        return kept.cast(pa.timestamp("us")).cast(pa.string())
    if pa.types.is_date(arrow):
        kept = _clamped(name, values.cast(pa.int32()), _FIRST // _DAY, _LAST // _DAY)
        return kept.cast(pa.date32()).cast(pa.string())
    return values.cast(pa.string()) if pa.types.is_decimal(arrow) else values


def _clamped(name: str, values: pa.Array, first: Any, last: Any) -> pa.Array:
    low, high = (pa.scalar(end, values.type) for end in (first, last))
    if name in ("high", "until"):
        values = pc.if_else(pc.greater(values, high), high, values)
    if name == "low":
        values = pc.if_else(pc.less(values, low), low, values)
    outside = pc.or_(pc.less(values, low), pc.greater(values, high))
    return pc.if_else(outside, pa.scalar(None, values.type), values)
