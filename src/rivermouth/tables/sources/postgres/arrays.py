"""Arrays of numbers and times as PostgreSQL's binary format has them, written by numpy in one go.

The driver's own way walks a Python list: 10,000 numbers took it 3 ms, against 0.02 ms.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import numpy.typing as npt
import psycopg
import pyarrow as pa
from psycopg.adapt import Dumper
from psycopg.pq import Format


class Numbers:
    """A parameter that is an array: the types of its elements and of itself, and their form."""

    element: int
    array: int
    form: str

    def __init__(self, values: npt.NDArray[Any]) -> None:
        self.values = values


def _numbers(element: int, array: int, form: str) -> type[Numbers]:
    return type("Numbers", (Numbers,), {"element": element, "array": array, "form": form})


#: by the type of their elements; dates and times are days and microseconds since 2000
NUMBERS = {
    "float8": _numbers(701, 1022, ">f8"),
    "int8": _numbers(20, 1016, ">i8"),
    "bool": _numbers(16, 1000, ">u1"),
    "date": _numbers(1082, 1182, ">i4"),
    "timestamp": _numbers(1114, 1115, ">i8"),
    "timestamptz": _numbers(1184, 1185, ">i8"),
}

# What PostgreSQL can tell apart; all that is earlier or later is its -infinity or infinity.
_DAYS = (10_957, -2_451_545, 2_145_031_948)
_MICROSECONDS = (946_684_800_000_000, -211_813_488_000_000_000, 9_223_371_331_199_999_999)


def parameter(values: pa.Array, sent: str) -> Any:
    """Arrow values without nulls as a parameter that is an array of type `sent`."""
    if sent not in NUMBERS:
        return values.to_pylist()
    if sent == "date":
        days = values.cast(pa.int32()).to_numpy().astype(np.int64)
        return NUMBERS[sent](_since_2000(days, np.iinfo(np.int32), *_DAYS))
    if sent in ("timestamp", "timestamptz"):
        times = values.cast(pa.int64()).to_numpy()
        return NUMBERS[sent](_since_2000(times, np.iinfo(np.int64), *_MICROSECONDS))
    return NUMBERS[sent](values.to_numpy(zero_copy_only=False))


def _since_2000(
    values: npt.NDArray[np.int64], ends: Any, between: int, first: int, last: int
) -> npt.NDArray[np.int64]:
    early, late = values < first + between, values > min(last, 2**63 - 1 - between) + between
    return np.where(early, ends.min, np.where(late, ends.max, values - between * ~early))


class _ArrayDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: Numbers) -> bytes:
        """The array: dimensions, no nulls, element type, length, first index; then the elements."""
        if not len(obj.values):
            return struct.pack(">iii", 0, 0, obj.element)
        elements = np.empty(len(obj.values), dtype=[("size", ">i4"), ("value", obj.form)])
        elements["size"] = np.dtype(obj.form).itemsize
        elements["value"] = obj.values
        return struct.pack(">iiiii", 1, 0, obj.element, len(elements), 1) + elements.tobytes()


def register(connection: psycopg.Connection[Any]) -> None:
    """Let `connection` take `Numbers` of all types as parameters."""
    for kind in NUMBERS.values():
        dumper = type("_Dumper", (_ArrayDumper,), {"oid": kind.array})
        connection.adapters.register_dumper(kind, dumper)
