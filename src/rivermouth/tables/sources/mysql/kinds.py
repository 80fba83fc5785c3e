"""MySQL's types: as which Arrow type each is read, how it is compared, and how keys are sent.

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
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_WORD = re.compile(r"[a-z0-9_]+")


@dataclass(frozen=True)
class Kind:
    """How a type is read, compared and sent.

    Parameters
    ----------
    arrow
        What it is read as.
    sent
        The type in which JSON_TABLE gives an event's key.
    read, value, around, near
        As `relational.Column` has them; `around` is what it calls `sent`.
    """

    arrow: pa.DataType
    sent: str
    read: str = "{}"
    value: str = "{}"
    around: str = "{}"
    near: str | None = None


_BYTES = Kind(pa.binary(), "LONGTEXT", around="UNHEX({})")
_DOUBLE = Kind(pa.float64(), "DOUBLE", "CAST({} AS DOUBLE)", "CAST({} AS DOUBLE)")
GEOMETRY = Kind(pa.binary(), "LONGTEXT")

_KINDS = {
    "tinyint": Kind(pa.int8(), "BIGINT"),
    "smallint": Kind(pa.int16(), "BIGINT"),
    "mediumint": Kind(pa.int32(), "BIGINT"),
    "int": Kind(pa.int32(), "BIGINT"),
    "bigint": Kind(pa.int64(), "BIGINT"),
    "tinyint unsigned": Kind(pa.int16(), "BIGINT"),
    "smallint unsigned": Kind(pa.int32(), "BIGINT"),
    "mediumint unsigned": Kind(pa.int32(), "BIGINT"),
    "int unsigned": Kind(pa.int64(), "BIGINT"),
    "bigint unsigned": Kind(pa.decimal128(20, 0), "DECIMAL(65, 30)"),
    "year": Kind(pa.int16(), "BIGINT"),
    # the text of a FLOAT has six digits, that of its DOUBLE has all
    "float": Kind(pa.float32(), "DOUBLE", "CAST({} AS DOUBLE)", "CAST({} AS DOUBLE)"),
    "double": Kind(pa.float64(), "DOUBLE"),
    "date": Kind(pa.date32(), "DATE"),
    "datetime": Kind(pa.timestamp("us"), "DATETIME(6)"),
    "timestamp": Kind(pa.timestamp("us", "UTC"), "DATETIME(6)"),
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), _BYTES),
}
_TEXTS = {
    *("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "enum", "set", "json"),
    *("uuid", "inet4", "inet6"),
}
GEOMETRIES = {
    *("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring"),
    *("multipolygon", "geometrycollection", "geomcollection"),
}


def kind_of(
    name: str, written: str, precision: int, scale: int, charset: str, collation: str
) -> Kind | None:
    """How a column of type `name`, in full `written`, is read; None where it is not known.

    Examples
    --------
    >>> kind_of("decimal", "decimal(10,2)", 10, 2, "", "").arrow
    Decimal128Type(decimal128(10, 2))
    >>> kind_of("int", "int(10) unsigned", 10, 0, "", "").arrow
    DataType(int64)
    >>> kind_of("time", "time", 0, 0, "", "")
    """
    if name in _TEXTS:
        return _text(charset, collation)
    if name in GEOMETRIES:
        return GEOMETRY
    if name == "decimal":
        return _decimal(precision, scale)
    if name == "bit":
        kind = pa.bool_() if precision == 1 else pa.int64()
        return Kind(kind, "BIGINT", "{} + 0", "{} + 0") if precision < 64 else None
    return _KINDS.get(f"{name} unsigned" if "unsigned" in written else name)


def _text(charset: str, collation: str) -> Kind:
    """Text by its bytes: a collation may find other letters equal, and blanks at the end."""
    near = None
    if _WORD.fullmatch(charset) and _WORD.fullmatch(collation):
        near = f"{{0}} = CONVERT({{1}} USING {charset}) COLLATE {collation}"
    return Kind(
        pa.string(),
        "LONGTEXT CHARACTER SET utf8mb4",
        "CONVERT({} USING utf8mb4)",
        "CAST(CONVERT({} USING utf8mb4) AS BINARY)",
        "CAST(CONVERT({} USING utf8mb4) AS BINARY)",
        near,
    )


def _decimal(precision: int, scale: int) -> Kind:
    if precision > 38:
        return _DOUBLE
    return Kind(pa.decimal128(precision, scale), "DECIMAL(65, 30)")


def typed(field: pa.Field, values: list[Any]) -> pa.Array:
    """Values as the server writes them, as Arrow has them."""
    kind = field.type
    if pa.types.is_binary(kind):
        return pa.array(values, kind)
    texts = pa.array(values, pa.string())
    if pa.types.is_timestamp(kind):
        return texts.cast(pa.timestamp("us")).cast(kind)
    if pa.types.is_boolean(kind):
        return texts.cast(pa.int8()).cast(kind)
    if pa.types.is_float32(kind):
        return texts.cast(pa.float64()).cast(kind)
    return texts if kind == texts.type else texts.cast(kind)


def bound(values: pa.Array) -> list[Any]:
    """Arrow values as PyMySQL takes them; bytes as the text that UNHEX reads."""
    is_bytes = pa.types.is_binary(values.type)
    return [value.hex() if is_bytes else value for value in values.to_pylist()]


_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_799_999_999  # the years 1 to 9999
_LARGEST = 1.7976931348623157e308


def written(name: str, values: pa.Array) -> pa.Array:
    """Keys as JSON_TABLE reads them; null where the server can hold nothing equal or beyond.

    `name` tells the two ends of a range apart: one that is beyond what the server holds is put at
    its edge if all lies on the inner side of it.
    """
    kind = values.type
    if pa.types.is_boolean(kind):
        return values.cast(pa.int64())
    if pa.types.is_floating(kind):
        return _kept_within(name, values, -_LARGEST, _LARGEST)
    if pa.types.is_binary(kind):
        return pa.array([None if v is None else v.hex() for v in values.to_pylist()], pa.string())
    if pa.types.is_timestamp(kind):
        kept = _kept_within(name, values.cast(pa.int64()), _FIRST, _LAST)
        return kept.cast(pa.timestamp("us")).cast(pa.string())
    if pa.types.is_date(kind):
        days = 86_400_000_000
        kept = _kept_within(name, values.cast(pa.int32()), _FIRST // days, _LAST // days)
        return kept.cast(pa.date32()).cast(pa.string())
    return values.cast(pa.string()) if pa.types.is_decimal(kind) else values


def _kept_within(name: str, values: pa.Array, first: Any, last: Any) -> pa.Array:
    low, high = (pa.scalar(end, values.type) for end in (first, last))
    if name in ("high", "until"):
        values = pc.if_else(pc.greater(values, high), high, values)
    if name == "low":
        values = pc.if_else(pc.less(values, low), low, values)
    outside = pc.or_(pc.less(values, low), pc.greater(values, high))
    return pc.if_else(outside, pa.scalar(None, values.type), values)
