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
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rivermouth.tables.sources.sql.relation import SQLType

# The first 19 characters are read by SQLite, whose own fractions are thousandths; a blank or a T
# may stand between date and time, a Z at the end.
_MICROSECONDS = (
    "(CAST(strftime('%s', substr({0}, 1, 19)) AS INTEGER) * 1000000"
    " + CAST(substr(rtrim(substr({0}, 21), 'Z') || '000000', 1, 6) AS INTEGER))"
)
_INTEGER, _NUMBER, _BLOB = SQLType(pa.int64()), SQLType(pa.float64()), SQLType(pa.binary())
_TEXT = SQLType(pa.string(), same="{} COLLATE BINARY", near="{0} = {1}")
_BOOL, _DATE = SQLType(pa.bool_()), SQLType(pa.date32())
_TIME = SQLType(pa.timestamp("us"), same=_MICROSECONDS)

_NAMED = {
    **dict.fromkeys(("BOOL", "BOOLEAN"), _BOOL),
    "DATE": _DATE,
    **dict.fromkeys(("DATETIME", "TIMESTAMP"), _TIME),
    **dict.fromkeys(("JSON", "UUID"), _TEXT),
    **dict.fromkeys(("NUMERIC", "DECIMAL", "NUM"), _NUMBER),
}
_AFFINITIES = {  # in SQLite's order: the first that is found counts
    "INT": _INTEGER,
    **dict.fromkeys(("CHAR", "CLOB", "TEXT"), _TEXT),
    "BLOB": _BLOB,
    **dict.fromkeys(("REAL", "FLOA", "DOUB"), _NUMBER),
}
_STORED: dict[pa.DataType, set[type]] = {  # the Python types of values that fit
    pa.int64(): {int},
    pa.float64(): {float, int},
    pa.string(): {str},
    pa.binary(): {bytes},
    pa.bool_(): {int},
    pa.date32(): {str},
    pa.timestamp("us"): {str},
}


def type_of(declared: str) -> SQLType | None:
    """How a column that is declared so is read, None where that is not known.

    Examples
    --------
    >>> type_of("VARCHAR(20)").arrow, type_of("decimal(10, 2)").arrow, type_of("POINT")
    (DataType(string), DataType(double), None)
    """
    word = re.sub(r"\s*\(.*", "", declared).strip().upper()
    if word in _NAMED:
        return _NAMED[word]
    if word == "POINT":  # which SQLite takes for an integer
        return None
    return next((type_ for part, type_ in _AFFINITIES.items() if part in word), None)


def typed(arrow: pa.DataType, values: Sequence[Any]) -> pa.Array:
    """The values as Arrow has them; raises where one does not fit, be it by its type alone."""
    if not {type(value) for value in values} <= {*_STORED[arrow], type(None)}:
        raise TypeError("of another type")
    if pa.types.is_boolean(arrow):
        if not set(values) <= {0, 1, None}:
            raise ValueError("neither 0 nor 1")
        return pa.array(values, pa.int8()).cast(arrow)
    if pa.types.is_date(arrow):
        return pa.array(values, pa.string()).cast(arrow)
    if pa.types.is_timestamp(arrow):
        return pc.utf8_rtrim(pa.array(values, pa.string()), characters="Z").cast(arrow)
    return pa.array(values, arrow)


def fits(arrow: pa.DataType, value: Any) -> bool:
    """Whether a value can be read as this type."""
    try:
        typed(arrow, [value])
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return False
    return True


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
