"""SQLite's types: what a declared type makes of a column, and which values fit it.

SQLite lets any value into any column and keeps the declaration as a word. Here the word decides,
by SQLite's own rules of affinity and a few names that programs give a meaning to:

=================================  ======================  =======================================
declared                           read as                 values that fit
=================================  ======================  =======================================
... INT ...                        int64                   integers
... CHAR, CLOB, TEXT ...           string                  text, compared by bytes
BLOB                               binary                  blobs
... REAL, FLOA, DOUB ...           float64                 numbers
NUMERIC, DECIMAL(p, s), NUM        float64                 numbers: SQLite has no decimals
BOOL, BOOLEAN                      bool                    0 and 1
DATE                               date32                  text such as 2024-02-29
DATETIME, TIMESTAMP                timestamp[us]           text, as in 2024-02-29 12:30:00.5
JSON, UUID                         string                  text
=================================  ======================  =======================================

A column without a declaration, as a view computes them, is what its values are, if all are of one
type. Everything else is an error that names the column.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

# The first 19 characters are read by SQLite, whose own fractions are thousandths; a blank or a T
# may stand between date and time, a Z at the end.
_MICROSECONDS = (
    "(CAST(strftime('%s', substr({0}, 1, 19)) AS INTEGER) * 1000000"
    " + CAST(substr(rtrim(substr({0}, 21), 'Z') || '000000', 1, 6) AS INTEGER))"
)


@dataclass(frozen=True)
class Kind:
    """A kind of column: its Arrow type, the Python types of values that fit, how it is compared."""

    arrow: pa.DataType
    fits: frozenset[type]
    value: str = "{}"
    near: str | None = None


_NONE = type(None)
_INTEGER = Kind(pa.int64(), frozenset({int, _NONE}))
_NUMBER = Kind(pa.float64(), frozenset({float, int, _NONE}))
_TEXT = Kind(pa.string(), frozenset({str, _NONE}), "{} COLLATE BINARY", "{0} = {1}")
_BLOB = Kind(pa.binary(), frozenset({bytes, _NONE}))
_BOOL = Kind(pa.bool_(), frozenset({int, _NONE}))
_DATE = Kind(pa.date32(), frozenset({str, _NONE}))
_TIME = Kind(pa.timestamp("us"), frozenset({str, _NONE}), _MICROSECONDS)

_NAMED = {
    "BOOL": _BOOL,
    "BOOLEAN": _BOOL,
    "DATE": _DATE,
    "DATETIME": _TIME,
    "TIMESTAMP": _TIME,
    "JSON": _TEXT,
    "UUID": _TEXT,
    "NUMERIC": _NUMBER,
    "DECIMAL": _NUMBER,
    "NUM": _NUMBER,
}
_AFFINITIES = (  # in SQLite's order: the first that is found counts
    ("INT", _INTEGER),
    ("CHAR", _TEXT),
    ("CLOB", _TEXT),
    ("TEXT", _TEXT),
    ("BLOB", _BLOB),
    ("REAL", _NUMBER),
    ("FLOA", _NUMBER),
    ("DOUB", _NUMBER),
)


def kind_of(declared: str) -> Kind | None:
    """The kind of a column that is declared so, None where that is not known.

    Examples
    --------
    >>> kind_of("VARCHAR(20)").arrow, kind_of("decimal(10, 2)").arrow, kind_of("POINT")
    (DataType(string), DataType(double), None)
    """
    word = re.sub(r"\s*\(.*", "", declared).strip().upper()
    if word in _NAMED:
        return _NAMED[word]
    if word == "POINT":  # which SQLite takes for an integer
        return None
    return next((kind for part, kind in _AFFINITIES if part in word), None)


def typed(kind: Kind, values: Sequence[Any]) -> pa.Array:
    """The values as Arrow has them; raises where one does not fit, be it by its type alone."""
    if not {type(value) for value in values} <= kind.fits:
        raise TypeError("of another type")
    if kind is _BOOL:
        if not set(values) <= {0, 1, None}:
            raise ValueError("neither 0 nor 1")
        return pa.array(values, pa.int8()).cast(kind.arrow)
    if kind is _DATE:
        return pa.array(values, pa.string()).cast(kind.arrow)
    if kind is _TIME:
        return pc.utf8_rtrim(pa.array(values, pa.string()), characters="Z").cast(kind.arrow)
    return pa.array(values, kind.arrow)


def bound(values: pa.Array) -> list[Any]:
    """Arrow values as SQLite compares them: dates as text, times as microseconds since 1970."""
    if pa.types.is_timestamp(values.type):
        return list(values.cast(pa.int64()).to_pylist())
    if pa.types.is_date(values.type):
        return [_day(days) for days in values.cast(pa.int32()).to_pylist()]
    return list(values.to_pylist())


_FIRST_DAY, _LAST_DAY = -719_162, 2_932_896  # of the years 1 and 9999


def _day(days: int) -> str:
    day = min(max(days, _FIRST_DAY), _LAST_DAY)
    return str(pa.scalar(day, pa.int32()).cast(pa.date32()).as_py())
