"""Frames written down as text, so that a test shows its data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import shapely

from rivermouth.errors import ColumnError, DefinitionError
from rivermouth.spark.runtime.versions import GEOMETRY, require

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ARRIVAL = "arrival"


def frame(spark: SparkSession, text: str) -> DataFrame:
    """The frame that a small text table describes, its rows in the order of arrival.

    Parameters
    ----------
    spark
        The session the frame is to belong to.
    text
        A line of column heads, then a line per row; cells are divided by ``|``, blank lines and
        the space around a cell mean nothing. A head is a name and a type as Spark writes it,
        ``string`` where there is none. A cell is what Spark casts to that type (a timestamp is
        written as in ISO 8601, without a zone in the session's), ``null`` is null.

        Three types are written in a way of their own: ``geometry`` as WKT, which becomes a
        binary column of WKB; ``geometry(4326)`` as WKT, which becomes Spark's GEOMETRY of that
        SRID, where Spark has it; ``binary`` as hexadecimal digits.

        Where the first column is ``arrival``, rows are sorted by it, equal ones as written, and
        it is left out of the frame.

    Examples
    --------
    A table of three rows, of which the last was the first to arrive:

    >>> from rivermouth import testing
    >>> taxis = '''
    ...     arrival | taxi | at timestamp         | seen geometry
    ...     2       | a    | 2008-02-02T15:36:08Z | POINT (116.51 39.92)
    ...     3       | b    | 2008-02-02T15:36:10Z | null
    ...     1       | c    | 2008-02-02T15:36:09Z | POINT (116.47 39.9)
    ... '''
    >>> testing.frame(spark, taxis).drop("seen").show()
    +----+-------------------+
    |taxi|                 at|
    +----+-------------------+
    |   c|2008-02-02 15:36:09|
    |   a|2008-02-02 15:36:08|
    |   b|2008-02-02 15:36:10|
    +----+-------------------+
    """
    heads, lines = parse(text)
    values = [
        tuple(head.value(cell) for head, cell in zip(heads, line, strict=True)) for line in lines
    ]
    if any(head.is_spatial_type for head in heads):
        require(spark, GEOMETRY, where="testing.frame")
    raw = ", ".join(f"`{head.name}` {head.raw_type}" for head in heads)
    return spark.createDataFrame(values, raw).selectExpr(*(head.cast for head in heads))


@dataclass(frozen=True)
class Head:
    """The head of a column: its name, and its type in lower case."""

    name: str
    type: str

    @property
    def is_place(self) -> bool:
        """Whether the cells are WKT."""
        return self.type.split("(")[0] == "geometry"

    @property
    def is_spatial_type(self) -> bool:
        """Whether it becomes Spark's GEOMETRY."""
        return self.is_place and self.type != "geometry"

    @property
    def raw_type(self) -> str:
        """The type in which the cells are handed to Spark."""
        return "binary" if self.is_place or self.type == "binary" else "string"

    @property
    def cast(self) -> str:
        """The SQL that makes a column of this type of the raw one."""
        if self.type in ("geometry", "binary"):
            return f"`{self.name}`"
        if self.is_spatial_type:
            srid = self.type.removeprefix("geometry").strip("() ")
            return f"st_geomfromwkb(`{self.name}`, {srid}) as `{self.name}`"
        return f"cast(`{self.name}` as {self.type}) as `{self.name}`"

    def value(self, cell: str) -> str | bytes | None:
        """`cell` as it is handed to Spark."""
        if cell == "null":
            return None
        if self.is_place:
            wkb: bytes = shapely.to_wkb(shapely.from_wkt(cell))
            return wkb
        return bytes.fromhex(cell) if self.type == "binary" else cell


def parse(text: str) -> tuple[list[Head], list[list[str]]]:
    """The heads and the cells of `text`, rows in the order of arrival.

    Examples
    --------
    >>> parse('''
    ...     arrival | id int | name
    ...     2       | 7      | x
    ...     1       | 8      | null
    ... ''')
    ([Head(name='id', type='int'), Head(name='name', type='string')], [['8', 'null'], ['7', 'x']])
    """
    first, *lines = [_cells(line) for line in text.splitlines() if line.strip()] or [[]]
    heads = [_head(cell) for cell in first]
    if not heads:
        raise DefinitionError("testing.frame", "the text is empty", todo="Write a line of heads.")
    for line in lines:
        if len(line) != len(heads):
            raise ColumnError(
                "testing.frame",
                f"a row of {len(line)} cells under {len(heads)} heads",
                there=f"the row is {' | '.join(line)!r}",
                todo="Give each column a cell; write null for null.",
            )
    if heads[0].name != ARRIVAL:
        return heads, lines
    return heads[1:], [line[1:] for line in _sorted_by_arrival(lines)]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.split("|")]


def _head(cell: str) -> Head:
    name, _, kind = cell.partition(" ")
    return Head(name, kind.strip().lower() or "string")


def _sorted_by_arrival(lines: Sequence[list[str]]) -> list[list[str]]:
    try:
        return sorted(lines, key=lambda line: float(line[0]))
    except ValueError:  # times of day and timestamps, which sort as they are written
        return sorted(lines, key=lambda line: line[0])
