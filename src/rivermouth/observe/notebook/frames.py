"""A frame in a notebook: its first rows as a table and, where there are places, on a map."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from rivermouth.errors import missing_column
from rivermouth.kernels.spatial.geometry import geometries_of
from rivermouth.observe.notebook import markup
from rivermouth.spec.conditions import Geometry, named, point

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_TABLE_ROWS = 20
_SHAPES = ("geometry", "geom", "shape", "wkb")
_POINTS = (("lon", "lat"), ("lng", "lat"), ("longitude", "latitude"), ("x", "y"))
_GEOMETRY = ("geometry", "geography")  # how the names of Spark's own types begin


@dataclass(frozen=True)
class FrameView:
    """What `show` returns for a frame; its rows are fetched when it is displayed."""

    frame: DataFrame
    rows: int
    geometry: Geometry | None
    colour: str | None

    def __post_init__(self) -> None:
        named_here = () if self.geometry is None else named(self.geometry)
        for name in (*named_here, *filter(None, [self.colour])):
            if name not in self.frame.columns:
                raise missing_column("show", name, self.frame.columns, side="the frame", by="show")

    def __repr__(self) -> str:
        return f"FrameView of {', '.join(self.frame.columns)}"

    def _repr_html_(self) -> str:
        if self.frame.isStreaming:
            return markup.block(
                markup.text("A stream. Its rows come once it is started:", bold=True),
                markup.text(
                    "query = frame.writeStream...start(), then rm.show(query).", muted=True
                ),
                markup.table(("column", "type"), self._types()),
            )
        found = self.frame.limit(self.rows).toArrow()
        first = found.slice(0, _TABLE_ROWS)
        cells = zip(*(column.to_pylist() for column in first.columns), strict=True)
        many = "all" if found.num_rows < self.rows else "the first"
        rows = f"{many} {found.num_rows:,} rows; columns: {found.num_columns}"
        more = f"; {first.num_rows} are listed" if first.num_rows < found.num_rows else ""
        return markup.block(
            self._map(found), markup.text(rows + more, muted=True),
            markup.table(found.column_names, cells),
        )  # fmt: skip

    def _types(self) -> list[tuple[str, str]]:
        return [(field.name, field.dataType.simpleString()) for field in self.frame.schema]

    def _map(self, found: pa.Table) -> str:
        geometry = self.geometry or guessed(self._types())
        if geometry is None or not found.num_rows:
            return ""
        places = geometries_of(
            {name: found.column(name).combine_chunks() for name in named(geometry)}, geometry
        )
        drawn = int(places.valid.sum())
        if not drawn:
            return markup.text("No row has a place that can be drawn.", muted=True)
        fills, explained = self._fills(found)
        caption = f"{drawn:,} of {len(places):,} rows have a place"
        hidden = set(named(geometry)) if isinstance(geometry, str) else set()
        chart = markup.chart_map(places.shapes, fills, _titles(found, hidden), caption=caption)
        return markup.text(caption, muted=True) + explained + chart

    def _fills(self, found: pa.Table) -> tuple[list[str], str]:
        """The colour of each row, and what explains them."""
        if self.colour is None:
            return [markup.POINT] * found.num_rows, ""
        values = found.column(self.colour).to_pylist()
        frequent = Counter(value for value in map(markup.shown, values) if value != "null")
        names = [name for name, _ in frequent.most_common(len(markup.COLOURS))]
        colours = dict(zip(names, markup.COLOURS, strict=False))
        fills = [colours.get(markup.shown(value), markup.OTHER) for value in values]
        return fills, markup.legend(names, others=markup.OTHER in fills)


def guessed(types: list[tuple[str, str]]) -> Geometry | None:
    """The places of a frame by the names and types of its columns; None where there are none.

    Examples
    --------
    >>> guessed([("id", "int"), ("Lon", "double"), ("lat", "double")])
    Point(x='Lon', y='lat')
    >>> guessed([("shape", "binary"), ("x", "int"), ("y", "int")]), guessed([("shape", "string")])
    ('shape', None)
    """
    for name, kind in types:
        if kind.startswith(_GEOMETRY) or (kind == "binary" and name.casefold() in _SHAPES):
            return name
    spelled = {name.casefold(): name for name, kind in types if kind not in ("string", "binary")}
    for x, y in _POINTS:
        if x in spelled and y in spelled:
            return point(spelled[x], spelled[y])
    return None


def _titles(found: pa.Table, hidden: set[str]) -> list[str]:
    """What a pointer on a row's place shows: its first values."""
    names = [name for name in found.column_names if name not in hidden][:6]
    columns = [found.column(name).to_pylist() for name in names]
    return [
        "\n".join(f"{name}: {markup.shown(value)}" for name, value in zip(names, row, strict=True))
        for row in zip(*columns, strict=True)
    ]
