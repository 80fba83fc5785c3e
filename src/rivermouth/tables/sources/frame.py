"""A DataFrame as a table: its columns are known here, its rows stay in Spark."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from rivermouth.errors import ColumnError, PlanError
from rivermouth.tables.source import geometry_field
from rivermouth.tables.sources.crs import srid_of_crs
from rivermouth.tables.sources.table import HTMLRepr

CALL = "tables.frame"

_PLAIN = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
}


@dataclass(frozen=True, eq=False)
class FrameTable(HTMLRepr):
    """The rows of a batch DataFrame, for the native plan."""

    frame: Any

    def __post_init__(self) -> None:
        if getattr(self.frame, "isStreaming", False):
            raise PlanError(
                CALL,
                "a streaming frame is not a table",
                todo="Read it with spark.read, or write it to files and read those.",
            )

    @property
    def name(self) -> str:
        """There is no better one."""
        return "frame"

    @property
    def identity(self) -> str:
        """The frame itself, while this program runs."""
        return f"frame:{id(self.frame)}"

    def schema(self) -> pa.Schema:
        """The frame's columns; GEOMETRY columns in the reference system their type states."""
        fields = self.frame.schema.jsonValue()["fields"]
        return pa.schema([_field(field["name"], field["type"]) for field in fields])

    def read(self, columns: Sequence[str]) -> pa.Table:
        """Refused: the rows are Spark's, and a worker cannot ask Spark for them."""
        raise PlanError(
            CALL,
            f"a DataFrame cannot be read by workers (columns {list(columns)})",
            todo="Use plan='native', or write it once: table = rm.snapshot(df, path).",
        )


def _field(name: str, type_: Any) -> pa.Field:
    if isinstance(type_, str):
        if type_ in _PLAIN or type_.startswith("string"):
            return pa.field(name, _PLAIN.get(type_, pa.string()))
        if decimal := re.fullmatch(r"decimal\((\d+),(-?\d+)\)", type_):
            return pa.field(name, pa.decimal128(int(decimal[1]), int(decimal[2])))
        if geometry := re.fullmatch(r"geometry(?:\((.*)\))?", type_):
            return geometry_field(name, srid_of_crs(geometry[1]))
    raise ColumnError(
        CALL,
        f"column {name!r} is of a type that a table cannot have: {type_}",
        todo="Leave it out with select, or cast it.",
    )
